"""The way down for an agent that has to end: which signals it gets, and how long after each."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from runplan.adapters.processes import KILLED_S
from runplan.core.dispatch import Ending
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.core.dispatch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step."""

    signal: signal.Signals
    seconds: float  #: until the next


def ladder(ending: Ending, launch: Launch, asked: signal.Signals) -> Iterator[Rung]:
    """The steps, the last of them again and again; `asked` is the signal that this kind of agent ends cleanly by.

    Where it is only out of room nothing is urgent: an interrupt leaves it the most, so every kind gets one first.
    """
    if ending is Ending.CONTEXT:
        yield Rung(signal=signal.SIGINT, seconds=launch.rung_s)
        yield Rung(signal=signal.SIGTERM, seconds=launch.rung_s)
    else:
        yield Rung(signal=asked, seconds=launch.grace_s)
    while True:
        yield Rung(signal=signal.SIGKILL, seconds=KILLED_S)
