"""`runplan watch` on a real terminal."""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import RUNPLAN, Project, a_project, steps
from tests.support.daemons import none_left

BOUND_S = 30.0
LEFT = "\x1b[?1049l"  #: the end of the alternate screen


class Watched:
    """A command on a terminal of its own, which is its controlling terminal."""

    def __init__(self, project: Project, script: str) -> None:
        self._ours, self.terminal = os.openpty()
        self.modes = termios.tcgetattr(self.terminal)
        self.resize(24, 80)
        env = {**project.env, "TERM": "xterm", "PAGER": "cat"}
        # A session leader gets the terminal that it opens.
        argv = ["sh", "-c", f'exec <>"$0" >&0 2>&0; {script}', os.ttyname(self.terminal)]
        self.process = subprocess.Popen(argv, cwd=project.path, env=env, start_new_session=True)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def read_until(self, *words: str) -> str:
        """The output, without colours, until it contains all the words."""
        shown = ""
        deadline = time.monotonic() + BOUND_S
        while not all(word in shown for word in words):
            ready, _, _ = select.select([self._ours], [], [], deadline - time.monotonic())
            assert ready, f"{words} are not in: {shown!r}"
            shown += re.sub(r"\x1b\[[0-9;]*m", "", os.read(self._ours, 65536).decode())
        return shown

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)
        os.close(self.terminal)


@contextlib.contextmanager
def watched(project: Project, script: str = f"exec {RUNPLAN} watch") -> Iterator[Watched]:
    terminal = Watched(project, script)
    try:
        yield terminal
    finally:
        terminal.close()


def test_a_change_is_approved_on_the_board_and_the_terminal_is_given_back(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    assert project.start("finish").code == 4
    with none_left(project.home), watched(project) as board:
        board.read_until("Needs you (1)", "> X", "Review: Phase 1", "q quit")
        board.press("a")
        assert LEFT in board.read_until("$ runplan diff plans/X.md 1", "+1", "y/n")
        board.press("y")
        board.read_until("approving phase 1 of plans/X.md", "Exit code 0. Press a key.")
        board.press(" ")
        board.read_until("Review: Phase 2", "1/2")
        board.resize(10, 40)
        shown = board.read_until("\x1b[10;1Hd diff  a approve")
        assert "\x1b[11;1H" not in shown
        board.press("q")
        board.read_until(LEFT)
        assert board.process.wait(BOUND_S) == 0
        assert termios.tcgetattr(board.terminal) == board.modes


@pytest.mark.rest
def test_a_plan_that_starts_elsewhere_appears_and_its_log_is_left_with_q(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    go = tmp_path / "go"
    project.agent(steps(f'wait_for = "{go}"', 'write = "1.txt"'))
    with watched(project) as board:
        board.read_until("Ready to start (1)")
        with project.running("start", "X", "--foreground"):
            board.read_until("Running (1)", "implement")
            board.press("l")
            board.read_until("$ runplan logs plans/X.md -f", "implement")
            board.press("q")
            board.read_until("Running (1)")
            go.touch()
            board.read_until("Needs you (1)", "Review: Phase 1")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_the_terminal_back(tmp_path: Path, ending: signal.Signals) -> None:
    with watched(a_project(tmp_path, "1")) as board:
        board.read_until("Ready to start (1)")
        board.process.send_signal(ending)
        board.read_until(LEFT)
        assert board.process.wait(BOUND_S) == (143 if ending is signal.SIGTERM else 0)
        assert termios.tcgetattr(board.terminal) == board.modes


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_draws_the_board_again(tmp_path: Path) -> None:
    with watched(a_project(tmp_path, "1"), f"set -m; {RUNPLAN} watch; stty -a; fg; echo code $?") as board:
        board.read_until("Ready to start (1)")
        board.press("\x1a")
        shown = board.read_until(LEFT, " icanon", " echo ", "Ready to start (1)")
        assert shown.index(LEFT) < shown.index(" icanon") < shown.rindex("\x1b[?1049h")
        board.press("q")
        board.read_until(LEFT, "code 0")


def test_without_a_terminal_it_names_the_command_that_needs_none(tmp_path: Path) -> None:
    a_project(tmp_path, "1").runplan("watch").ends(2, "runplan: watch needs a terminal; without one: runplan logs -f")
