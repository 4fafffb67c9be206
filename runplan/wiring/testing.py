"""What tests may inject from outside the process: the moment, the id, and the point of death."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from runplan.adapters.clock import FrozenClock, SystemClock
from runplan.core.times import parse_iso

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.ports import Clock


def clock(env: Mapping[str, str]) -> Clock:
    """The machine's clock, or the moment RUNPLAN_TEST_NOW has frozen."""
    frozen = env.get("RUNPLAN_TEST_NOW")
    return FrozenClock(parse_iso(frozen)) if frozen else SystemClock()


def new_run_id(env: Mapping[str, str]) -> str:
    """Unlike any other, or the one RUNPLAN_TEST_RUN gives."""
    return env.get("RUNPLAN_TEST_RUN") or f"r{os.urandom(4).hex()}"


class KillPoint:
    """Dies by SIGKILL at the point RUNPLAN_TEST_KILL names: `NAME` at its first passing, `NAME#3` at its third.

    RUNPLAN_TEST_POINTS names a file that lists every point as it is passed, so that none has to be known by heart.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._name, _, count = env.get("RUNPLAN_TEST_KILL", "").partition("#")
        self._left = int(count or 1)
        self._list = env.get("RUNPLAN_TEST_POINTS", "")

    def __call__(self, name: str) -> None:
        if self._list:
            with open(self._list, "a", encoding="utf-8") as file:
                file.write(f"{name}\n")
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
