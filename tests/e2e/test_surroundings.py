"""The test suite on an ordinary login: it passes, and it leaves the files and the daemon of the user alone."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.cli import a_project, until
from tests.support.daemons import answering, none_left, run_of, shell_agent, waits

if TYPE_CHECKING:
    from tests.support.cli import Project

ROOT = Path(__file__).parents[2]

#: One of each kind: a daemon that works a plan, a daemon that a library call starts, and plain git.
TESTS = (
    "tests/e2e/test_daemon.py::test_a_start_that_waits_ends_as_the_run_does",
    "tests/e2e/test_outcomes.py::test_after_a_failure_the_command_of_the_report_goes_on_and_the_account_lands",
    "tests/integration/test_launching.py::test_a_daemon_is_started_where_none_runs_and_found_by_the_next",
    "tests/integration/test_git.py",
)
GITCONFIG = """\
[init]
	defaultBranch = trunk
	templateDir = {home}/template
[commit]
	gpgSign = true
[gpg]
	program = {home}/touches
[core]
	hooksPath = {home}/hooks
"""


def test_the_suite_passes_on_an_ordinary_login_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    """The user has every XDG variable set, a git configuration, and a daemon with a plan at work."""
    user = a_user(tmp_path)
    with none_left(user.home):
        shell_agent(user, tmp_path, implement=waits(tmp_path, "agent"))
        assert user.runplan("start", "X", "auto").code == 0
        until((tmp_path / "agent.here").exists)
        daemon, before = answering(user), files_below(user.home)
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", *TESTS],
            cwd=ROOT,
            env={name: value for name, value in user.env.items() if not name.startswith(("PYTEST_", "GIT_"))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout
        assert files_below(user.home) == before
        assert daemon
        assert answering(user) == daemon
        assert run_of(user)["state"] == "running"


def a_user(place: Path) -> Project:
    """A project in the environment of a login that has everything set."""
    project = a_project(place, "1")
    home = project.home
    names = ("CACHE_HOME", "CONFIG_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR")
    directories = {f"XDG_{name}": home / f"xdg-{name.lower()}" for name in names}
    for directory in (*directories.values(), home / "hooks", home / "template", home / "tmp"):
        directory.mkdir(mode=0o700)
    refuses = f"#!/bin/sh\necho $0 >>{home}/touched\nexit 1\n"
    for program in (home / "touches", home / "hooks/pre-commit", home / "hooks/reference-transaction"):
        program.write_text(refuses)
        program.chmod(0o755)
    (home / ".gitconfig").write_text(GITCONFIG.format(home=home))
    project.extra |= {name: str(path) for name, path in directories.items()}
    project.extra |= {"TMPDIR": str(home / "tmp"), "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"}
    project.extra |= {"CI": "true", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", "RUNPLAN_RUN_BRANCH_PREFIX": "my/"}
    return project


def files_below(home: Path) -> dict[str, str]:
    """What each file holds, by its path; the directory for temporary files is the suite's to use."""
    found = {}
    for directory, _, names in os.walk(home):
        for name in names:
            path = Path(directory, name)
            if path.is_file() and not path.is_relative_to(home / "tmp"):
                found[str(path.relative_to(home))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
