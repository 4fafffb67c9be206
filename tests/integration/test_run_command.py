"""The command as other interfaces run it."""

from pathlib import Path

import pytest

from runplan import __version__
from runplan.app.views.commands import run_command
from runplan.domain.errors import Exit, Unreachable, UsageError


def test_a_command_imports_nothing_from_the_repository(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the repository')\n")
    (tmp_path / "runplan").mkdir()
    (tmp_path / "runplan/__init__.py").write_text("raise SystemExit('imported from the repository')\n")
    result = run_command(["--version"], cwd=tmp_path)
    assert (result.code, result.output, result.line) == (0, f"runplan {__version__}\n", "runplan --version")


def test_the_last_message_of_a_failed_command_is_its_reason(tmp_path: Path) -> None:
    result = run_command(["diff", "plans/x.md"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    assert result.code == Exit.USAGE
    assert "is not in a git repository" in result.last_line


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="took longer than 0 s"):
        run_command(["--version"], cwd=tmp_path, timeout_s=0.001)


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="gone cannot be used"):
        run_command(["status"], cwd=tmp_path / "gone")


def test_a_word_that_no_command_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="null character"):
        run_command(["report", "--since=\0"], cwd=tmp_path)
