"""Real dispatches for tests: with unique ids, ended with the test."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from runplan.adapters import processes
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain.run.dispatch import Launch, Outcome, Running
from tests.support.cli import until as until

PATIENCE_S = 30.0

RUNNER = """
import os, sys, time
from pathlib import Path
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain.run.dispatch import Launch
dispatches = Dispatches(Path(sys.argv[1]))
dispatches.start(Launch(id=sys.argv[2], argv=("sh", "-c", sys.argv[3]), cwd=sys.argv[4], env=dict(os.environ),
                        stdin="", reader="command", wall_s=30, silence_s=0))
print("started", flush=True)
time.sleep(30)
"""


class Stage:
    """A directory of dispatches and the means to play on it."""

    def __init__(self, dispatches: Dispatches, path: Path) -> None:
        self.dispatches = dispatches
        self.path = path
        self.ids: list[str] = []

    def launch(self, *argv: str, **changes: object) -> Launch:
        """A launch with a unique id; other tests run at the same time."""
        fields: dict[str, object] = {
            "id": f"r{uuid.uuid4().hex}.1.1.implement.1",
            "argv": argv,
            "cwd": str(self.path),
            "env": {"PATH": os.environ["PATH"]},
            "stdin": "",
            "reader": "command",
            "wall_s": PATIENCE_S,
            "silence_s": 0.0,
            "grace_s": 0.2,
        }
        made = Launch(**{**fields, **changes})  # type: ignore[arg-type]
        self.ids.append(made.id)
        return made

    def start(self, *argv: str, **changes: object) -> str:
        launch = self.launch(*argv, **changes)
        self.dispatches.start(launch)
        return launch.id

    def sh(self, text: str, **changes: object) -> str:
        return self.start("sh", "-c", text, **changes)

    def python(self, text: str, **changes: object) -> str:
        return self.start(sys.executable, "-I", "-S", "-c", text, **changes)

    def outcome(self, dispatch: str) -> Outcome:
        """How the dispatch ended, after waiting for it."""
        self.dispatches.wait([dispatch], timeout_s=PATIENCE_S)
        standing = self.dispatches.standing(dispatch)
        assert isinstance(standing, Outcome), standing
        return standing

    def out(self, dispatch: str) -> bytes:
        return (self.dispatches.directory(dispatch) / "out.log").read_bytes()

    def err(self, dispatch: str) -> bytes:
        return (self.dispatches.directory(dispatch) / "err.log").read_bytes()

    def shim(self, dispatch: str) -> int:
        """The pid of the shim, once it has said who it is."""
        path = self.dispatches.directory(dispatch) / "shim.json"
        until(path.exists)
        return int(json.loads(path.read_text())["identity"].partition(":")[0])


@contextmanager
def stage(path: Path, *, wakeup: int | None = None) -> Iterator[Stage]:
    """Dispatches under `path`; processes that still run at the end are ended."""
    with Dispatches(path / "dispatch", wakeup=wakeup) as dispatches:
        made = Stage(dispatches, path)
        try:
            yield made
        finally:
            dispatches.end(made.ids, grace_s=0)


@contextmanager
def shared_stage(path: Path) -> Iterator[Stage]:
    """The same with the spawner and the directory of dispatches that all tests of this process share."""
    made = Stage(_shared_dispatches(), path)
    try:
        yield made
    finally:
        made.dispatches.end(made.ids, grace_s=0)


@cache
def _shared_dispatches() -> Dispatches:
    place = tempfile.mkdtemp(prefix="runplan-tests-dispatches-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    made = Dispatches(Path(place))
    atexit.register(made.close)
    return made


def with_killed_runner(on: Stage, text: str) -> str:
    """Let another runner start a dispatch, whose agent finds its own directory in $D, and kill it."""
    dispatch = on.launch("unused").id
    words = f"D='{on.dispatches.directory(dispatch)}'\n{text}"
    places = (str(on.dispatches.directory(dispatch).parent), dispatch, words, str(on.path))
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, *places], stdout=subprocess.PIPE)
    with runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"started\n"
        assert on.dispatches.standing(dispatch) == Running()
        runner.kill()
    return dispatch


def gone(pid: int) -> bool:
    return processes.identity(pid) is None


def pid_in(path: Path) -> int:
    """The pid that a process writes into the file."""
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())
