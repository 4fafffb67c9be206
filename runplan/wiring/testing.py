"""What tests may inject from outside the process: the moment, the id, and the point of death."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, TypeVar

from runplan.adapters.clock import FrozenClock, SystemClock
from runplan.core.times import parse_iso

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from runplan.adapters.git import Git
    from runplan.ports import Clock

Rooms = TypeVar("Rooms")
_ASKED = ("RUNPLAN_TEST_KILL", "RUNPLAN_TEST_KILL_WHAT", "RUNPLAN_TEST_KILL_AWAIT", "RUNPLAN_TEST_POINTS")


def clock(env: Mapping[str, str]) -> Clock:
    """The machine's clock, or the moment RUNPLAN_TEST_NOW has frozen."""
    frozen = env.get("RUNPLAN_TEST_NOW")
    return FrozenClock(parse_iso(frozen)) if frozen else SystemClock()


def new_run_id(env: Mapping[str, str]) -> str:
    """Unlike any other, or the one RUNPLAN_TEST_RUN gives."""
    return env.get("RUNPLAN_TEST_RUN") or f"r{os.urandom(4).hex()}"


def kill_point(env: Mapping[str, str]) -> KillPoint:
    """The same one in all of a process: a point is counted wherever it is passed."""
    asked = ((name, env[name]) for name in ("HOME", *_ASKED) if name in env)
    return _kill_point(tuple(asked))


@functools.cache
def _kill_point(asked: tuple[tuple[str, str], ...]) -> KillPoint:
    return KillPoint(dict(asked))


class KillPoint:
    """Kills by SIGKILL at the point RUNPLAN_TEST_KILL names: `NAME` at its first passing, `NAME#3` at its third.

    RUNPLAN_TEST_KILL_WHAT says whom: `daemon` (this process; so if nothing is said), `agent`, `git` (the child that was
    just started) or `power` (everything with this HOME, this process last). RUNPLAN_TEST_KILL_AWAIT names a file
    that has to be there first, so that an agent can be met in the middle of its work.
    RUNPLAN_TEST_POINTS names a file that lists every point as it is passed, so that none has to be known by heart,
    and the kill.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._name, _, count = env.get("RUNPLAN_TEST_KILL", "").partition("#")
        self._left = int(count or 1)
        self._whom = env.get("RUNPLAN_TEST_KILL_WHAT", "daemon")
        self._await = env.get("RUNPLAN_TEST_KILL_AWAIT", "")
        self._list = env.get("RUNPLAN_TEST_POINTS", "")
        self._home = env.get("HOME", "")
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, name: str) -> None:
        self._note(name)
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                self._note(f"killed:{self._whom}")
                self._strike()

    def _note(self, word: str) -> None:
        if self._list:
            with open(self._list, "a", encoding="utf-8") as file:
                file.write(f"{word}\n")

    def watched(self, rooms: Rooms) -> Rooms:
        """The same rooms; when a test asks, every effect of their ports is a point."""
        if not self._name and not self._list:
            return rooms
        from runplan.wiring.points import watch

        watched: Rooms = watch(rooms, self)
        return watched

    def watch_git(self, git: Git) -> None:
        """When a test asks, every git child is a point as it starts."""
        if self._name or self._list:
            git.started = self._started

    def _started(self, words: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        from runplan.wiring.points import subcommand

        self._child = process
        self(f"git.{subcommand(words)}.started")

    def _strike(self) -> None:
        from runplan.wiring import points

        if self._await:
            points.await_file(self._await)
        match self._whom:
            case "agent":
                points.kill_agents(self._home)
            case "git" if self._child is not None:
                self._child.kill()
            case "power":
                points.kill_everything(self._home)
            case _:
                points.kill_this()
