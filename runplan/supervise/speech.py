"""Speaks to an agent on its standard input, and holds it to its budget."""

from __future__ import annotations

import os
import selectors
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.agents.budgets import used_by
from runplan.agents.clis import about
from runplan.agents.context import Reading, full, reached
from runplan.run.dispatch import Ending

if TYPE_CHECKING:
    from runplan.run.dispatch import Launch
    from runplan.run.usage import Usage
    from runplan.supervise.output import Intake


class Speech:
    """What is said to one agent; the first is its prompt. The pipe is not to be waited on, and is closed for good."""

    def __init__(self, pipe: int | None, launch: Launch) -> None:
        self.pipe = pipe  #: None: nobody hears us, or not any more
        self._said = about(launch.reader).say if pipe is not None else None
        self._rest = b""
        self._last = False
        self._selector: selectors.BaseSelector | None = None
        if pipe is not None:
            self._queue(Path(launch.stdin).read_text(encoding="utf-8", errors="replace"))

    def by(self, selector: selectors.BaseSelector) -> None:
        """Be told by this one when there is room in the pipe."""
        self._selector = selector
        self.go_on()

    def say_last(self, words: str) -> bool:
        """Say this and no more; False where nobody hears it."""
        if self.pipe is None or self._last:
            return False
        self._queue(words)
        self._last = True
        return self.go_on()

    def go_on(self) -> bool:
        """Write as much as there is room for; False when nobody reads."""
        if self.pipe is None:
            return False
        try:
            while self._rest:
                self._rest = self._rest[os.write(self.pipe, self._rest) :]
        except BlockingIOError:
            pass
        except OSError:  # whoever does not read is not told
            self.close()
            return False
        if self._last and not self._rest:
            self.close()
        else:
            self._wait_for_room()
        return True

    def close(self) -> None:
        """Let it know that nothing more comes."""
        if self.pipe is not None:
            if self._selector and self.pipe in self._selector.get_map():
                self._selector.unregister(self.pipe)
            os.close(self.pipe)
            self.pipe = None

    def _queue(self, words: str) -> None:
        assert self._said is not None
        self._rest += self._said(words)

    def _wait_for_room(self) -> None:
        assert self._selector is not None
        assert self.pipe is not None
        waits = self.pipe in self._selector.get_map()
        if self._rest and not waits:
            self._selector.register(self.pipe, selectors.EVENT_WRITE, self)
        elif waits and not self._rest:
            self._selector.unregister(self.pipe)


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
