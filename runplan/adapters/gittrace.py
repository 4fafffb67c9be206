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
_WANTED = (b'"event":"start"', b'"event":"def_repo"', b'"event":"def_param"')


def traced_commands(path: Path, checkouts: Collection[Path], git_dir: Path) -> dict[str, tuple[ToolUsed, ...]]:
    """The git commands that ran in one of `checkouts`, or were sent to `git_dir` from elsewhere, by that place.

    Those in a test's own repositories do not count.
    """
    file = open_plain(path)
    if file is None:
        return {}
    trace = _Trace()
    with file:
        for line in iter(lambda: file.readline(LONGEST_LINE), b""):
            if any(word in line for word in _WANTED):
                trace.note(line)
    places, repository = {os.path.realpath(place) for place in checkouts}, os.path.realpath(git_dir)
    found: dict[str, list[ToolUsed]] = {}
    for sid, argv in trace.started.items():
        place = trace.where.get(sid, "")
        if place in places or _is_inside(trace.sent_to(sid), repository):
            told = ToolUsed(tool="git", path=shlex.join(["git", *argv[1:]]))
            found.setdefault(place if place in places else repository, []).append(told)
    return {place: tuple(ran) for place, ran in found.items()}


def _is_inside(path: str, repository: str) -> bool:
    """Whether a git directory is the repository's, or one of its worktrees'; a submodule's is not."""
    return path == repository or (path.startswith(f"{repository}/") and not path.startswith(f"{repository}/modules/"))


class _Trace:
    """What git has told of each of its processes."""

    def __init__(self) -> None:
        self.started: dict[str, list[str]] = {}
        self.where: dict[str, str] = {}  #: the checkout; none where git knows of none
        self._variables: dict[str, dict[str, str]] = {}

    def note(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            if event["event"] == "start":
                self.started[event["sid"]] = [str(word) for word in event["argv"]]
            elif event["event"] == "def_repo":
                self.where[event["sid"]] = os.path.realpath(event["worktree"])
            else:
                self._variables.setdefault(event["sid"], {})[event["param"]] = str(event["value"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # a torn or foreign line proves nothing

    def sent_to(self, sid: str) -> str:
        """The git directory that a command names, or the place it was started in where that is no checkout."""
        variables = self._variables.get(sid, {})
        place, named = variables.get("PWD", ""), variables.get("GIT_DIR", "")
        words = iter(self.started[sid][1:])
        for word in words:
            option, given, value = word.partition("=")
            if word == "-C":
                place = os.path.join(place, next(words, ""))
            elif option == "--git-dir":
                named = value if given else next(words, "")
            elif word == "-c":
                next(words, "")
            elif not word.startswith("-"):
                break
        if not named and sid in self.where:
            return ""
        asked = os.path.join(place, named)
        return os.path.realpath(asked) if asked.startswith("/") else ""
