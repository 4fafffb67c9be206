"""Output on a terminal: colours, unless NO_COLOR is set, and a live line while a process runs."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import runplan
from tests.support.cli import RUNPLAN, Project, a_project, steps


def on_terminal(command: list[str], *, cwd: Path, env: Mapping[str, str]) -> str:
    """The output of a command whose standard streams are a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    out = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the terminal is closed when the process ends
            break
        if not piece:
            break
        out += piece
    os.close(ours)
    assert process.wait(timeout=100) == 0
    return out.decode()


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["default", "NO_COLOR"])
def test_status_is_coloured_unless_no_color_is_set(tmp_path: Path, more: dict[str, str], coloured: bool) -> None:
    project = a_project(tmp_path, "1")
    env = {**project.env, "TERM": "xterm", **more}
    assert ("\x1b[" in on_terminal([str(RUNPLAN), "status"], cwd=project.path, env=env)) == coloured
    assert "\x1b[" not in project.runplan("status").out, "a pipe gets no colour"


PAGED = "sed s/^/paged:/"


@pytest.fixture(scope="module")
def pending(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A change with a control string, a mark that reverses text, and a pager in the repository's configuration."""
    project = a_project(tmp_path_factory.mktemp("pending"), "1")
    project.repo.git("config", "core.pager", "sed s/^/agent:/")
    project.agent(steps('write = "1.txt"\ntext = "1\\u001bPhidden\\u001b\\\\ \\u202ex"', 'commit = "One"'))
    assert project.start().code == 4
    return project


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("words", "env", "is_paged"),
    [
        ([], {"PAGER": PAGED}, True),
        ([], {"PAGER": "cat", "GIT_PAGER": PAGED}, True),
        (["--no-pager"], {"PAGER": PAGED}, False),
        *(([], {"PAGER": pager}, False) for pager in ("no-such-pager 2>/dev/null", "cat", " ", "/")),
    ],
)
def test_diff_is_paged_on_a_terminal(pending: Project, words: list[str], env: dict[str, str], is_paged: bool) -> None:
    out = on_terminal(
        [str(RUNPLAN), "diff", "X", *words], cwd=pending.path, env={**pending.env, "TERM": "xterm", **env}
    )
    line = "\x1b[32m+1\\x1bPhidden\\x1b\\ <U+202E>x\x1b[0m"
    assert f"\n{'paged:' if is_paged else ''}{line}\r" in out
    piped = pending.runplan("diff", "X", *words, **env).out
    assert "\n+1\\x1bPhidden" in piped
    assert "\x1b" not in piped


@pytest.mark.parametrize("words", ["status", "check X", "start X --dry-run", "explain X", "next", "doctor"])
def test_nothing_that_a_plan_or_a_setting_says_has_an_effect_on_the_terminal(tmp_path: Path, words: str) -> None:
    project = a_project(tmp_path, "1")
    plan = project.repo.path / "plans/X.md"
    plan.write_text(plan.read_text("utf-8").replace("Step 1", "Step\x1b[31m \x9b1m\u202e1"), "utf-8")
    project.repo.git("add", "-A")
    project.settings('[tests]\ncommand = "true \\u001b[31m"\n')
    ran = project.runplan(*words.split())
    assert not {"\x1b", "\x9b", "\u202e"} & set(ran.out + ran.err), ran.out


@pytest.mark.parametrize("words", [("help",), ("help", "start")])
def test_help_fits_the_terminal_and_breaks_no_word(tmp_path: Path, words: tuple[str, ...]) -> None:
    command = [str(RUNPLAN), *words]
    whole = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stdout
    shown = on_terminal(command, cwd=tmp_path, env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"})
    assert max(map(len, shown.splitlines())) <= 80
    assert set(shown.split()) == set(whole.split())


def test_help_into_a_closed_pipe_ends_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    ran = subprocess.run([str(RUNPLAN), "--help"], env=env, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")


RUN = """
import time
from runplan.interfaces.cli.show import progress
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
progress.show_event(e.DispatchStarted(id="r.1", role="implement", agent="claude", cycle=1))
time.sleep(1.5)
progress.show_event(e.DispatchEnded(id="r.1", role="implement", agent="claude", ending=Ending.EXITED, code=0))
"""


@pytest.mark.rest
def test_a_running_agent_has_a_live_line_with_its_elapsed_time(tmp_path: Path) -> None:
    shown = on_terminal([sys.executable, "-c", RUN], cwd=tmp_path, env={**os.environ, "TERM": "xterm"})
    live, _, last = shown.partition("\r\x1b[K")
    assert "  implement  claude, 1s" in live, "in the column of its last line"
    assert last.startswith("  implement  claude, 1s")
    piped = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert piped.stderr == "  implement  claude …\n"


ERROR = """
import sys, time
from runplan.interfaces.cli.show import progress
from runplan.domain.run import events as e
try:
    with progress.live_line():
        progress.show_event(e.DispatchStarted(id="r.1", role="implement", agent="claude", cycle=1))
        time.sleep(1.5)
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
"""


@pytest.mark.rest
def test_an_error_replaces_the_live_line(tmp_path: Path) -> None:
    shown = on_terminal([sys.executable, "-c", ERROR], cwd=tmp_path, env={**os.environ, "TERM": "xterm"})
    assert shown.endswith("\r\x1b[Kinterrupted\r\n")


def test_an_error_is_wrapped_and_needs_no_library(tmp_path: Path) -> None:
    path = f"import sys; sys.path.append({str(Path(runplan.__file__).parents[1])!r})"
    code = f"{path}; from runplan.interfaces.cli.main import main"
    narrow = ["sh", "-c", 'stty cols 40; exec "$0" -I -S -c "$1"', sys.executable, f"{code}; main(['frobnicate'])"]
    first, *rest = on_terminal(narrow, cwd=tmp_path, env=os.environ).splitlines()
    assert first.startswith("runplan: frobnicate: no such verb;")
    assert rest
    assert all(line.startswith(" " * 9) and len(line) <= 40 for line in rest)


WAITS = """
from runplan.interfaces.cli.show import progress
from runplan.domain.run import events as e
from runplan.domain.run.kinds import WaitKind
for words in ("a", "a", "b", "a"):
    progress.show_event(e.Paused(kind=WaitKind.REVIEW, until="2999-01-01T00:00:00Z", words=words))
    progress.show_event(e.Woke(kind=WaitKind.REVIEW))
progress.warn("c")
progress.warn("c")
"""


def test_a_wait_that_goes_on_and_a_warning_are_shown_once() -> None:
    shown = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, check=True).stderr
    assert shown.split() == [*("waiting", "a", "waiting", "b", "waiting", "a"), "runplan:", "warning:", "c"]


def test_progress_is_wrapped_below_its_words(tmp_path: Path) -> None:
    imports = "from runplan.interfaces.cli.show import progress as p; from runplan.domain.run import events as e"
    held = f"{imports}; p.show_event(e.LandingHeld("
    shown = on_terminal(
        [sys.executable, "-c", f"{held}why='a long list of words'))"], cwd=tmp_path, env={**os.environ, "COLUMNS": "30"}
    )
    assert shown.splitlines() == ["  landing    waits: a long", "             list of words"]
