"""Stops and pauses what runs and what is scheduled in a repository, whoever carries it, and if nobody does.

A run outlives the process that carries it, and its agents do. Where no daemon runs, what a person wants of its runs is
recorded here, so that no later one goes on as if nothing had been said.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from runplan.adapters.clock import SystemClock
from runplan.adapters.control.client import Silent
from runplan.adapters.interrupting import Interruption
from runplan.adapters.store.schedules import Schedules
from runplan.adapters.store.sqlite import Store
from runplan.adapters.store.wishes import Wishes
from runplan.app.foreground import work
from runplan.app.holding import Declined, Voice, interrupted, reopen
from runplan.app.journal import recorded
from runplan.app.scheduling import give_up
from runplan.app.wishes import without_start
from runplan.core import events as e
from runplan.core.errors import RunplanError, Unreachable
from runplan.core.rows import Wish
from runplan.wiring import handing
from runplan.wiring.beside import end_agents
from runplan.wiring.session import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.app.holding import Held
    from runplan.core.rows import RunRow
    from runplan.wiring.here import Here
    from runplan.wiring.session import Session

#: What is to be heard of these runs is said when they have ended.
SILENT = Voice(tell=lambda _plan, _run, _fact: None, warn=lambda _words: None)
_WANTED = {"stop": "stopped", "pause": "paused"}


def scheduled(at: Here) -> list[str]:
    """The plans of this repository that have a schedule."""
    store = at.store()
    if store is None:
        return []
    with closing(store):
        return [row.plan for row in Schedules(store).all()]


def stop(at: Here, plan: str | None, *, force: bool) -> tuple[list[str], str]:
    """Cancel schedules and end runs; what was stopped, a sentence each, and what could not be, or be recorded."""
    if not Store.exists(at.state):
        return [], ""
    told, untold = _daemons(at, plan)
    left: tuple[bool, ...] = (False,) if told is not None else (False, True)
    told = told or []
    try:
        if True in left:
            told += _cancelled(at, plan)
        told += _ended(at, _left(at, plan, daemons=left))
    except Unreachable as error:
        told += _foreground(at, plan, force=force)
        told += _agents_ended(at, plan, daemons=left)
        unrecorded = f"that {plan or 'everything here'} be stopped could not be recorded: {without_start(str(error))}"
        return told, untold or f"{unrecorded}; then stop it again"
    return [*told, *_foreground(at, plan, force=force)], untold


def _daemons(at: Here, plan: str | None) -> tuple[list[str] | None, str]:
    """Have the daemon stop what it has: what it says of that, None without a daemon; and what is still to be done."""
    try:
        answer = handing.ask(at, "stop", plan, by="runplan stop")
    except Silent as silent:
        unanswered = _noted(at, Wish(plan=plan or "", by="runplan stop"), silent)
        return _agents_ended(at, plan, daemons=(True,)), unanswered
    except Unreachable as unrecorded:
        return [], str(unrecorded)
    return None if answer is None else [str(line) for line in answer.get("stopped", ())], ""


def _agents_ended(at: Here, plan: str | None, *, daemons: Sequence[bool]) -> list[str]:
    ended = end_agents(at.state, plan, daemons=daemons)
    return [f"the agent at work on {one} was ended; what it made is kept" for one in ended]


def pause(at: Here, plan: str) -> tuple[list[str], str]:
    """Begin nothing new for a plan of the daemon; what was done, and what the daemon has not answered.

    Neither when it has neither a run nor a schedule there.
    """
    if not is_there(at, plan):
        return [], ""
    try:
        answer = handing.ask(at, "pause", plan, by="a person")
    except Silent as silent:
        return [], _noted(at, Wish(plan=plan, by="a person", what="pause"), silent)
    if answer is not None:
        return [str(line) for line in answer.get("told", ())], ""
    with closing(Store(at.state)) as store:
        rests = Schedules(store).pause(plan, "paused by a person")
    left = _left(at, plan, daemons=(True,))
    if left:
        with session(at) as rooms:
            row, started = left[0]  # a plan has one
            rests = _halted(row, started, rooms) or rests
    return [f"nothing new is begun for {plan}"] if rests else [], ""


def is_there(at: Here, plan: str) -> bool:
    """Whether the plan has a schedule, or a run of the daemon that has not ended."""
    return Store.exists(at.state) and (plan in scheduled(at) or bool(_left(at, plan, daemons=(True,))))


def _noted(at: Here, wish: Wish, silent: Silent) -> str:
    """Have it done by whoever can: this daemon when it goes on, or the next one."""
    whom = wish.plan or "everything here"
    try:
        with closing(Store(at.state)) as store:
            holds = Wishes(store).note(wish)
    except RunplanError as error:
        return f"it could not be noted that {whom} be {_WANTED[wish.what]}: {error}; {silent}"
    handing.ring(at)
    return f"it is noted that {whom} be {_WANTED[holds.what]}, for this daemon as for the next one; {silent}"


def _cancelled(at: Here, plan: str | None) -> list[str]:
    """Without a daemon nobody fires them, and the next one must not."""
    with closing(Store(at.state)) as store:
        schedules = Schedules(store)
        rows = [row for row in schedules.all() if plan in (None, row.plan)]
        for row in rows:
            give_up(row, schedules, SystemClock().now(), "the schedule was cancelled")
            schedules.drop(row.plan)
        return [f"the schedule of {row.plan} (every {row.spec}) is cancelled" for row in rows]


def _left(at: Here, plan: str | None, *, daemons: Sequence[bool]) -> list[tuple[RunRow, e.RunStarted]]:
    """The runs that have not ended, and how they began; `daemons`: whether those of the daemon, or the others."""
    found = []
    with closing(Store(at.state)) as store:
        for row in store.unfinished():
            facts = (one.event for one in recorded(store, row.id))
            started = next((event for event in facts if isinstance(event, e.RunStarted)), None)
            if plan in (None, row.plan) and started is not None and started.daemon in daemons:
                found.append((row, started))
    return found


def _ended(at: Here, left: Sequence[tuple[RunRow, e.RunStarted]]) -> list[str]:
    """End runs that nobody carries any more, here and now; those of living processes are left to them."""
    told: list[str] = []
    if not left:
        return told
    with Interruption(0.0) as interruption, session(at, wakeup=interruption.wakeup) as rooms:
        taken = [held for row, started in left if (held := _taken(row, started, rooms)) is not None]
        for held in taken:  # all of them, before the first of them takes its time
            held.journal.append(e.StopRequested(by="runplan stop"))
        for held in taken:
            work(held.journal, held.world, person=lambda _: None, interruption=interruption)
            told.append(
                f"the run of {held.world.plan}, which no process carried any more, has ended; what was made is kept"
            )
    return told


def _halted(row: RunRow, started: e.RunStarted, rooms: Session) -> bool:
    held = _taken(row, started, rooms)
    if held is None:
        return False
    held.journal.append(e.Halted(by="a person"))
    rooms.claims.release(row.plan, run=row.id)  # whoever goes on with it takes nothing over
    return True


def _taken(row: RunRow, started: e.RunStarted, rooms: Session) -> Held | None:
    """The run in our hands; None when it is in others', or has ended by now."""
    now = interrupted(rooms.store, row.plan)
    if now is None or now.id != row.id:
        return None
    held = reopen(now, started, rooms=rooms, voice=SILENT)
    return None if isinstance(held, Declined) else held


def _foreground(at: Here, plan: str | None, *, force: bool) -> list[str]:
    """Runs of other terminals are asked to end, as Ctrl-C would; only their own process releases their claims."""
    store = at.store()
    if store is None:
        return []
    with closing(store):
        claims = {key: owner for key, (_, owner, _) in store.claims("plan").items() if plan in (None, key)}
    return [
        f"the run of {key} in process {owner.partition(':')[0]} was asked to end"
        for key, owner in claims.items()
        if handing.end_politely(owner, force=force)
    ]
