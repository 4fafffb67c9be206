"""Lets the log, followers and people hear what becomes of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.events import DispatchEnded, DispatchStarted, Halted, LaneFact, PlanRead
from runplan.core.eventtext import name_of
from runplan.core.notices import of_ending, of_lost_keys, of_waiting
from runplan.core.run import awaiting

if TYPE_CHECKING:
    from runplan.adapters.noticed import Noticed
    from runplan.adapters.notify import Notifier
    from runplan.core.decide import Decision
    from runplan.core.events import Fact
    from runplan.core.notices import Notice
    from runplan.core.run import RunState
    from runplan.ports import Log
    from runplan.wiring.answering import Answering


class DaemonAudience:
    """Called in the threads of desks; nothing here waits."""

    def __init__(self, log: Log, notifier: Notifier, noticed: Noticed) -> None:
        self._log = log
        self.notifier = notifier
        self._noticed = noticed
        self._phases: dict[str, dict[str, str]] = {}  #: by run and lane
        self.followers: Answering | None = None

    def happened(self, root: str, event: str, **fields: object) -> None:
        tell = self._log.warning if event in ("trouble", "warning", "closed", "declined") else self._log.info
        tell(event, repository=root, **fields)

    def told(self, root: str, plan: str, run: str, fact: Fact) -> None:
        lane, event = (fact.lane, fact.event) if isinstance(fact, LaneFact) else ("", fact)
        phases = self._phases.setdefault(run, {})
        if isinstance(event, PlanRead):
            phases[lane] = event.phase
        dispatch = event.id if isinstance(event, DispatchStarted | DispatchEnded) else ""
        facts = {"repository": root, "plan": plan, "run": run, "phase": phases.get(lane, ""), "dispatch": dispatch}
        self._log.info(name_of(event), **facts)
        if isinstance(event, Halted) and event.missing:  # recorded once, however often the daemon is started
            self.notifier.send(of_lost_keys(event.missing, repository=root, plan=plan, run=run))
        if self.followers is not None:
            self.followers.told(root, plan, run, fact)

    def ended(self, root: str, plan: str, run: str, state: RunState) -> None:
        outcome = state.ended.outcome if state.ended else ""
        self._phases.pop(run, None)
        self._noticed.forget(run)
        self._log.info("ended", repository=root, plan=plan, run=run, outcome=outcome)
        if (notice := of_ending(state, repository=root, plan=plan, run=run)) is not None:
            self.notifier.send(notice)
        if self.followers is not None:
            self.followers.over(root, plan, run, state)

    def waits(self, root: str, plan: str, run: str, state: RunState, decision: Decision) -> None:
        self._log.info("waits", repository=root, plan=plan, run=run, why=decision.why)
        if (notice := of_waiting(state, decision, repository=root, plan=plan, run=run)) is not None:
            self._notice(notice, state)
        person = decision.waiting == "checkout" or not (decision.wake or decision.waiting == "slot")
        if person and self.followers is not None:
            self.followers.over(root, plan, run, None)

    def _notice(self, notice: Notice, state: RunState) -> None:
        """Call a person once to what waits for them, however often a daemon finds it so."""
        waits = awaiting(state)
        what = f"{notice.phase} {notice.reason} {waits.asked if waits else ''}"
        if not self._noticed.has(notice.run, what):
            self.notifier.send(notice)
            self._noticed.add(notice.run, what)
