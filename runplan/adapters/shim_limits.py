"""Holds what an agent has told that it used against what it may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.dispatch import Ending
from runplan.core.gauge import Reading, full, reached
from runplan.core.meter import used_by

if TYPE_CHECKING:
    from runplan.adapters.shim_output import Intake
    from runplan.core.agentevents import Usage
    from runplan.core.dispatch import Launch


class Limits:
    """The limits of one agent. Work that is finished is not cut off for what it cost."""

    def __init__(self, launch: Launch, intake: Intake) -> None:
        self._launch = launch
        self._intake = intake
        self._seen: Usage | None = None  #: what it had used when it was over a limit with an answer that was whole
        self._until = 0.0  #: when that is no excuse any more

    def over(self, now: float) -> Ending | None:
        """Which limit ends it, if one does.

        One whose last answer was too dear, and may have been its last, gets its grace to put it to use and to end.
        """
        over = self._reached()
        ended = self._intake.harvest.tally.finished
        if over is None or ended is None or not ended.ok:
            self._seen = None
            return over
        used = self._intake.harvest.tally.usage
        if self._seen is None:
            self._seen, self._until = used, now + self._launch.grace_s
        if used == self._seen and now < self._until:
            return None
        self._intake.consult()
        return self._reached()

    def moments(self) -> list[float]:
        """When it has to be looked at again, although it says nothing."""
        return [] if self._seen is None else [self._until]

    def filling(self) -> Reading | None:
        """What there is to tell when its context is so full that a hand-over has to be prepared."""
        harvest = self._intake.harvest
        tally, launch = harvest.tally, self._launch
        ended = tally.finished
        if (ended is not None and not ended.so_far) or not reached(launch.arm_at, tally, launch):
            return None
        return Reading(percent=full(tally, launch), estimated=tally.estimated, message=harvest.message)

    def _reached(self) -> Ending | None:
        tally, launch = self._intake.harvest.tally, self._launch
        if tally.finished is not None and tally.finished.ok and not tally.finished.so_far:
            return None
        used = used_by(launch, tally, sure=True)
        if (0 < launch.tokens <= used.input_tokens + used.output_tokens) or (0 < launch.usd <= used.usd):
            return Ending.BUDGET
        return Ending.CONTEXT if reached(launch.hand_over_at, tally, launch) else None
