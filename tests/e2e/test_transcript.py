"""`logs --agent` shows what an agent says and does, whichever CLI it is."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from runplan.cli.show.logs import _print_log
from runplan.supervise.files import DispatchFiles, ShimRecord
from tests.support.cli import RUNPLAN, until
from tests.support.daemons import shell_agent, waits
from tests.support.samples import SAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile


def test_the_last_agent_is_shown_with_its_messages(project: Project, tmp_path: Path) -> None:
    shell_agent(project, tmp_path, "echo I write a file", "echo I have looked at it")
    assert project.start("auto").code == 0
    ran = project.runplan("logs", "X", "--agent")
    assert (ran.code, ran.out.splitlines()) == (0, ["== verify by robot, phase 1", "I have looked at it"])


def test_an_agent_at_work_is_followed_and_so_are_those_after_it(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    shell_agent(project, tmp_path, f"echo begun; {waits(tmp_path, 'agent')}; echo written", "echo seen")
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")
    words = [str(RUNPLAN), "logs", "X", "--agent", "-f"]
    with subprocess.Popen(words, cwd=project.path, env=project.env, stdout=subprocess.PIPE) as follows:
        assert follows.stdout is not None
        assert [follows.stdout.readline() for _ in range(2)] == [b"== implement by robot, phase 1\n", b"begun\n"]
        meanwhile.let_on("agent")
        rest = follows.stdout.read().decode().splitlines()
    assert rest == ["written", "== verify by robot, phase 1", "seen"]
    until(lambda: project.landed() == ["1"])


def test_before_any_agent_has_worked_that_is_said(project: Project) -> None:
    project.agent("")
    project.commit_file("runplan.toml", (project.path / "runplan.toml").read_text() + '[run]\nsetup = "false"\n')
    assert project.start("auto").code == 1
    ran = project.runplan("logs", "X", "--agent")
    assert (ran.code, "no agent has worked on plans/X.md" in ran.last) == (3, True)


@pytest.mark.parametrize("kind", ["claude", "codex", "gemini", "opencode", "qwen", "mini", "aider"])
def test_the_stream_of_a_real_agent_becomes_readable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    sample = next(path for path in sorted((SAMPLES / kind).glob("success*")) if path.suffix in (".jsonl", ".txt"))
    files = DispatchFiles(tmp_path)
    shutil.copy(sample, files.out)
    files.write_shim(ShimRecord(identity="1:1:x", reader=kind))
    _print_log(files, follow=False)
    shown = capsys.readouterr().out
    assert shown.strip()
    assert kind == "mini" or '{"' not in shown
    assert kind in ("mini", "aider") or any(line.startswith(">") for line in shown.splitlines()), shown
