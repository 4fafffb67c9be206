"""Does at a desk what a person wants of a plan that is there: that it be stopped, paused, or called on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.app import scheduling
from runplan.core import events as e
from runplan.core.carried import told_missing
from runplan.core.errors import RefusedEarly

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan import ports
    from runplan.app.desk import Desk
    from runplan.app.lending import Lend
    from runplan.app.station import Opened
    from runplan.core.errors import RunplanError
    from runplan.core.rows import ScheduleRow, Wish


class Grants:
    """Those of one repository; belongs to the thread of its desk."""

    def __init__(
        self,
        *,
        clock: ports.Clock,
        arm: Callable[[ScheduleRow], object],
        disarm: Callable[[str], None],
        troubled: Callable[[str, RunplanError], None],
    ) -> None:
        """`arm` lets a schedule fire, `disarm` that of a plan not any more."""
        self._clock = clock
        self._arm = arm
        self._disarm = disarm
        self._troubled = troubled

    def grant(self, wish: Wish, desk: Desk, opened: Opened) -> list[str]:
        match wish.what:
            case "pause":
                return self._pause(wish.plan, wish.by, desk, opened)
            case "resume":
                return self._resume(wish.plan, desk, opened)
            case _:
                every = sorted({*desk.plans, *(row.plan for row in opened.schedules.all())})
                plans = [wish.plan] if wish.plan else every
                return [line for plan in plans for line in self._stop(plan, wish.by, desk, opened)]

    def failed(self, wish: Wish, error: RunplanError) -> None:
        self._troubled(wish.plan, error)

    def _stop(self, plan: str, by: str, desk: Desk, opened: Opened) -> list[str]:
        """Cancel its schedule and end its run."""
        told = []
        row = opened.schedules.get(plan)
        if row is not None:
            scheduling.give_up(row, opened.schedules, self._clock.now(), "the schedule was cancelled")
            opened.schedules.drop(plan)
            self._disarm(plan)
            told.append(f"the schedule of {plan} (every {row.spec}) is cancelled")
        if desk.tell(plan, e.StopRequested(by=by)):
            told.append(f"the run of {plan} ends; what was made is kept")
        return told

    def _pause(self, plan: str, by: str, desk: Desk, opened: Opened) -> list[str]:
        """Begin nothing new for the plan; what runs may end."""
        rests = opened.schedules.pause(plan, f"paused by {by}")
        return [f"nothing new is begun for {plan}"] if desk.tell(plan, e.Halted(by=by)) or rests else []

    def _resume(self, plan: str, desk: Desk, opened: Opened) -> list[str]:
        """Let the plan and its schedule go on; whoever calls a run on that has lost its keys has to bring them."""
        self.require_keys(plan, opened)
        goes_on = self.unpause(plan, opened)
        return [f"{plan} goes on"] if desk.tell(plan, e.Continued()) or goes_on else []

    def require_keys(self, plan: str, opened: Opened) -> None:
        """Refuse to go on with a run that has lost its keys."""
        names = [name for started in opened.left() if started.plan == plan for name in opened.missing(started)]
        if names:
            raise RefusedEarly(told_missing(names, plan=plan))

    def bring_keys(self, plan: str, lend: Lend, desk: Desk, opened: Opened) -> None:
        """Let a run go on that lost its keys, where this caller has them all; else nothing is changed."""
        if plan not in desk.plans or not desk.newest(plan).missing:
            return
        take_back = lend(False)
        if any(opened.missing(started) for started in opened.left() if started.plan == plan):
            take_back()
        else:
            desk.tell(plan, e.Continued())

    def unpause(self, plan: str, opened: Opened) -> bool:
        """Let the plan's schedule go on; False when it has none."""
        goes_on = opened.schedules.pause(plan, None)
        if goes_on and (row := opened.schedules.get(plan)):
            self._arm(row)
        return goes_on
