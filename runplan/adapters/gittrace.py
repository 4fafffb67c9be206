"""Lets git itself write down what an agent asked of it, as evidence for the guard.

Configuration, tags and deletions leave no trace of who made them. Git's own trace (Trace2, from git 2.22 on) names
every command that ran below the agent, whatever the agent tells about itself.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import open_plain
from runplan.core.dispatch import ToolUsed

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

LONGEST_LINE = 1024 * 1024
_WANTED = (b'"event":"start"', b'"event":"def_repo"')


def traced_commands(path: Path, checkouts: Collection[Path]) -> tuple[ToolUsed, ...]:
    """The git commands that ran in one of `checkouts`; those in a test's own repositories do not count."""
    started: dict[str, list[str]] = {}
    where: dict[str, str] = {}
    file = open_plain(path)
    if file is None:
        return ()
    with file:
        for line in iter(lambda: file.readline(LONGEST_LINE), b""):
            if any(word in line for word in _WANTED):
                _note(line, started, where)
    places = {os.path.realpath(place) for place in checkouts}
    return tuple(
        ToolUsed(tool="git", path=shlex.join(["git", *argv[1:]]))
        for sid, argv in started.items()
        if where.get(sid) in places
    )


def _note(line: bytes, started: dict[str, list[str]], where: dict[str, str]) -> None:
    try:
        event = json.loads(line)
        if event["event"] == "start":
            started[event["sid"]] = [str(word) for word in event["argv"]]
        elif event["event"] == "def_repo":
            where[event["sid"]] = os.path.realpath(event["worktree"])
    except (ValueError, KeyError, TypeError):
        return  # a torn or foreign line proves nothing
