"""Real dispatches for tests: under an id that nobody else has, and ended when the test is over."""

from __future__ import annotations

import os
import sys
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runplan.adapters import processes
from runplan.adapters.dispatches import Dispatches
from runplan.core.dispatch import Launch, Outcome, Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 30.0


class Stage:
    """A directory of dispatches and the means to play on it."""

    def __init__(self, dispatches: Dispatches, path: Path) -> None:
        self.dispatches = dispatches
        self.path = path
        self.ids: list[str] = []

    def launch(self, *argv: str, **changes: object) -> Launch:
        """A launch with an id of its own; ids are marks, and other tests run beside this one."""
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
        return int(path.read_text().partition(": ")[2].strip('"{}').partition(":")[0])


@contextmanager
def stage(path: Path, *, wakeup: int | None = None) -> Iterator[Stage]:
    """Dispatches under `path`; whatever still runs at the end is ended."""
    with Dispatches(path / "dispatch", wakeup=wakeup) as dispatches:
        made = Stage(dispatches, path)
        try:
            yield made
        finally:
            for dispatch in made.ids:
                if dispatches.standing(dispatch) == Running():
                    dispatches.end(dispatch, grace_s=0)
                dispatches.sweep(dispatch)


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.002)


def gone(pid: int) -> bool:
    return processes.identity(pid) is None


def pid_in(path: Path) -> int:
    """The pid that a process writes into the file."""
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())
