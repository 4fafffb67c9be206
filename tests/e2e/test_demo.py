"""runplan demo works a whole plan for a newcomer, shows what came of it, and leaves nothing behind."""

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest

from tests.support.cli import RUNPLAN, Ran, run_program
from tests.support.documents import ROOT


@dataclass(frozen=True)
class Machine:
    """A home with settings that must not matter, and a directory for temporary files."""

    home: Path
    tmp: Path
    env: dict[str, str]

    def demo(self, *words: str) -> Ran:
        """Both streams in one, as on a terminal."""
        with started(self, *words) as (process, output):
            printed = output.read()
        return Ran(code=process.wait(), out=printed, err=printed)

    def left(self) -> list[str]:
        return sorted(path.name for path in [*self.tmp.iterdir(), *self.home.iterdir()] if path.name != ".gitconfig")


HOSTILE = """\
[user]
    name = Uma
[commit]
    gpgsign = true
[gpg]
    program = /bin/false
[core]
    hooksPath = /nowhere
[init]
    defaultBranch = trunk
"""


def a_machine(place: Path) -> Machine:
    home, tmp = place / "home", place / "tmp"
    home.mkdir()
    tmp.mkdir()
    (home / ".gitconfig").write_text(HOSTILE)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "LC_ALL": "C.UTF-8",
        "RUNPLAN_RUN_LANDING": "pr",
        "GIT_DIR": str(home / "nowhere"),
    }
    return Machine(home=home, tmp=tmp, env=env)


@pytest.mark.promise
def test_the_demo_shows_a_whole_plan_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """On a machine with hostile settings."""
    machine = a_machine(tmp_path)
    out = machine.demo().exits(0).out
    marks = ["$ runplan start plans/", "phase 1  ", "phase 2  ", "phase 3  ", "3 phases landed", "$ runplan report"]
    assert [mark for mark in marks if mark not in out] == []
    assert sorted(marks, key=out.index) == marks
    second = out.partition("phase 2  ")[2].partition("phase 3  ")[0]
    assert re.search(r"gate +failed.*fix .*gate +passed.*landed", second, re.DOTALL)
    assert [f"## Phase — {n} " in out for n in (1, 2, 3)] == [True] * 3
    rows = re.findall(r"^\| (\d) — .* \| ✅ Done \| `([0-9a-f]{7})` \|", out, re.MULTILINE)
    assert [phase for phase, _ in rows] == ["1", "2", "3"]
    commits = re.findall(r"^\* ([0-9a-f]{7}) ", out, re.MULTILINE)
    assert {commit for _, commit in rows} <= set(commits)
    assert len(commits) == 8
    own = re.search(r"^In one of your own: (\S+) init$", out, re.MULTILINE)
    assert own is not None
    assert shutil.which(own[1], path=machine.env["PATH"])
    # Only the report, which is Markdown, may have lines that do not fit a terminal.
    assert [line for line in out.splitlines() if len(line) > 100 and not line.startswith(("|", "- "))] == []
    assert machine.left() == []


def test_the_demo_of_planning_goes_from_a_goal_to_a_complete_plan(tmp_path: Path) -> None:
    machine = a_machine(tmp_path)
    out = machine.demo("--plan").exits(0).out
    marks = [
        *("$ runplan plan 'Give discounts'", "critique   F1: phase 2: A discount of -10 percent raises the price."),
        *("$ runplan diff plans/give-discounts.md", "status: proposed", "below 0 and above 100"),
        *("$ runplan approve plans/give-discounts.md", "3 phases landed (1, 2, 3)"),
        *("changed: Phase 2 refuses discounts below 0 too", "give-discounts: add the plan"),
    ]
    assert [mark for mark in marks if mark not in out] == []
    assert sorted(marks, key=out.index) == marks
    assert machine.left() == []


@contextlib.contextmanager
def started(machine: Machine, *words: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A demo in a session of its own, and its output."""
    process = subprocess.Popen(
        [RUNPLAN, "demo", *words],
        cwd=machine.home,
        env=machine.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        yield process, process.stdout


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    machine = a_machine(tmp_path)
    with started(machine, "--web", "--pause", "0") as (demo, output):
        next(line for line in output if line.startswith("  baseline"))
        os.killpg(demo.pid, signal.SIGINT)
        output.read()  # until its last process has ended
        assert demo.wait(timeout=60) == 130
    assert machine.left() == []


def test_the_demo_with_its_page_serves_it_and_ends_by_itself(tmp_path: Path) -> None:
    machine = a_machine(tmp_path)
    with started(machine, "--web", "--pause", "0.05") as (demo, output):
        line = next(line for line in output if "http://" in line)
        page = urlsplit(line.split()[-1])
        connection = http.client.HTTPConnection("127.0.0.1", page.port or 0, timeout=60)
        connection.request("GET", f"{page.path}?{page.query}")
        assert connection.getresponse().getheader("Set-Cookie")
        connection.close()
        printed = output.read()  # until its last process has ended
        assert demo.wait(timeout=60) == 0
    marks = ["needs your approval", "$ runplan approve", "2 phases landed (2, 3)", "The page is closed"]
    assert [mark for mark in marks if mark not in printed] == []
    assert machine.left() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", page.port or 0))


MARKS = ("$ runplan fleet init", "is killed: kill -9", "has taken over after", "continued what", "each landed once")


def test_the_demo_of_a_fleet_lands_each_phase_once_and_leaves_nothing() -> None:
    """The demo itself counts the landings of each phase on the remote."""
    words = ["-m", "tests.support.fleet_demo", "--lease", "2", "--pause", "0.3"]
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # the server runs as another user
        env = {**os.environ, "TMPDIR": place, "RUNPLAN_RUN_LANDING": "pr", "GIT_DIR": f"{place}/nowhere"}
        out = run_program([sys.executable, *words], ROOT, env).exits(0).out
        left = list(Path(place).iterdir())
    assert [mark for mark in MARKS if mark not in out] == []
    assert sorted(MARKS, key=out.index) == list(MARKS)
    assert left == []
