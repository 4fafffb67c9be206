"""Tells a test of every effect of every port, before it and after it; imported only when a test asks.

A point is an instant at which a process may die. Those around the ports are found from the table below, those around
facts in the loop, those between two effects inside a lander are named there, and every git child is one as it starts.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.adapters.processtable import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: What changes anything that outlives a call: files, refs, rows, processes, a remote.
EFFECTS: dict[str, frozenset[str]] = {
    "Clock": frozenset(),
    "Store": frozenset({"append", "keep_baseline"}),
    "Objects": frozenset(),
    "Worktrees": frozenset(
        {
            *("lease", "attach", "take", "publish", "hand_over", "unpin", "deliver", "delivered"),
            *("commit_leftovers", "show", "copy"),
        }
    ),
    "Removal": frozenset({"worktree", "ref", "free", "landed"}),
    "Candidates": frozenset({"replay", "revert", "anchor", "drop", "bookkeep"}),
    "Lander": frozenset({"tip", "land", "observe", "recover"}),  # a remote is asked, and its answer noted
    "Fingerprints": frozenset(),
    "Dispatches": frozenset({"start", "end", "wait"}),  # to wait is to let others act
    "Agents": frozenset(),
    "Log": frozenset(),
    "Claims": frozenset({"take_plan", "take_issue", "release"}),
}
#: What only looks, makes a value, or takes what dies with the process.
READS: dict[str, frozenset[str]] = {
    "Clock": frozenset({"now", "sleep_until"}),
    "Store": frozenset({"events", "newest", "unfinished", "facts", "since", "baseline", "require_there"}),
    "Objects": frozenset({"tip", "blob", "beginning", "commit"}),
    "Worktrees": frozenset({"tip", "path", "standing", "published", "head", "state", "committed"}),
    "Removal": frozenset(),
    "Candidates": frozenset({"commits", "changes", "code_key", "lineage", "marked"}),
    "Lander": frozenset({"ref", "prepare"}),
    "Fingerprints": frozenset({"take", "compare"}),
    # A directory or a note there is made, and made again.
    "Dispatches": frozenset({"directory", "overdue", "read", "standing", "write"}),
    "Agents": frozenset({"command", "launch", "price", "profile", "redacted", "version"}),
    "Log": frozenset({"bind", "error", "info", "warning"}),  # nothing is read from it again
    "Claims": frozenset({"me", "landing_lock"}),
}
PATIENCE_S = 20.0
_LOOK_S = 0.002


class Watched:
    """A port that tells of its effects."""

    def __init__(self, port: Any, name: str, point: Callable[[str], None]) -> None:
        self._port = port
        self._name = name
        self._point = point

    def __getattr__(self, member: str) -> Any:
        found = getattr(self._port, member)
        if member not in EFFECTS[self._name]:
            return found

        @functools.wraps(found)
        def told(*args: Any, **named: Any) -> Any:
            self._point(f"{self._name}.{member}.before")
            answer = found(*args, **named)
            self._point(f"{self._name}.{member}.after")
            return answer

        return told


def watch(rooms: Any, point: Callable[[str], None]) -> Any:
    """The same rooms, every port in them watched; a port that is watched already stays as it is."""
    ports = {name.lower(): name for name in EFFECTS}
    found = {field: getattr(rooms, field) for field in ports if hasattr(rooms, field)}
    watched = {
        field: Watched(port, ports[field], point) for field, port in found.items() if not isinstance(port, Watched)
    }
    return replace(rooms, **watched)


def subcommand(words: Sequence[str]) -> str:
    """The verb of a git command line, behind the options of git itself."""
    rest = iter(words)
    for word in rest:
        if word == "-c":
            next(rest)
        elif not word.startswith("-"):
            return word
    return "nothing"


# --- who dies -----------------------------------------------------------------------------------------


def kill_this() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_agents(home: str) -> None:
    """The agent's processes, which carry the mark of a dispatch; the shim does not, and sees them end."""
    found = _until_some(lambda: list(_of(home, marked=True)))
    for pid in found:
        _kill(pid)


def kill_everything(home: str) -> None:
    """A power cut for all that has this home directory, this process last."""
    while found := [pid for pid in _of(home) if pid != os.getpid()]:
        for pid in found:
            _kill(pid)
    kill_this()


def await_file(path: str) -> None:
    """Let another process come to where it is wanted."""
    _until_some(lambda: [1] if Path(path).exists() else [])


def _until_some(look: Callable[[], list[int]]) -> list[int]:
    end = time.monotonic() + PATIENCE_S
    while not (found := look()) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    return found


def _of(home: str, *, marked: bool = False) -> Iterator[int]:
    ours, mark = f"HOME={home}".encode(), f"{MARK}=".encode() if marked else b""
    for entry in Path("/proc").glob("[0-9]*"):
        variables = _environment(entry)
        if ours in variables and any(variable.startswith(mark) for variable in variables):
            yield int(entry.name)


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # ended meanwhile, or not ours
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
