"""Test hooks set by the environment: the clock, the run id, and the kill point."""

from __future__ import annotations

import functools
import os
import signal
from typing import TYPE_CHECKING

from runplan.clock import FrozenClock, SystemClock
from runplan.times import parse_iso

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.clock import Clock


def clock(env: Mapping[str, str]) -> Clock:
    """The machine's clock, or the moment RUNPLAN_TEST_NOW has frozen."""
    frozen = env.get("RUNPLAN_TEST_NOW")
    return FrozenClock(parse_iso(frozen)) if frozen else SystemClock()


def new_run_id(env: Mapping[str, str]) -> str:
    """Unlike any other, or the one RUNPLAN_TEST_RUN gives."""
    return env.get("RUNPLAN_TEST_RUN") or f"r{os.urandom(4).hex()}"


def kill_point(env: Mapping[str, str]) -> KillPoint:
    """The same one in all of a process: a point is counted wherever it is passed."""
    return _kill_point(env.get("RUNPLAN_TEST_KILL", ""))


@functools.cache
def _kill_point(asked: str) -> KillPoint:
    return KillPoint(asked)


class KillPoint:
    """Kills this process at the point RUNPLAN_TEST_KILL names: `NAME` at its first passing, `NAME#3` at its third."""

    def __init__(self, asked: str) -> None:
        self._name, _, count = asked.partition("#")
        self._left = int(count or 1)

    def __call__(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
