"""Takes a plan up: a new run, or the one that was interrupted, by one process at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from runplan.app.foreground import work
from runplan.app.journal import Journal
from runplan.core import events as e
from runplan.core.claims import Taken, Theirs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runplan import ports
    from runplan.app.world import World
    from runplan.core.decide import Decision
    from runplan.core.rows import RunRow
    from runplan.core.run import RunState

UNFINISHED = ("queued", "running", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Somebody else is at it; nothing was changed."""

    owner: str
    why: str
    readable: bool  #: whether the claim could be read; if not, only a person can say that it is nobody's


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The run came to its end, or to where it waits."""

    run: str
    decision: Decision
    state: RunState


Answer: TypeAlias = Declined | Carried

if TYPE_CHECKING:
    Person: TypeAlias = Callable[[RunState], e.Approved | e.Rejected | None]
    Told: TypeAlias = Callable[[e.Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What somebody asked for, resolved."""

    started: e.RunStarted
    issues: Sequence[int]
    answer: Callable[[RunState], e.Approved | e.Rejected | None] | None = None  #: said in advance, by approve or reject


def interrupted(store: ports.Store, plan: str) -> RunRow | None:
    """The newest run of the plan, if it has not ended."""
    row = store.newest(plan)
    return row if row is not None and row.state in UNFINISHED else None


def carry(
    errand: Errand,
    *,
    claims: ports.Claims,
    store: ports.Store,
    clock: ports.Clock,
    new_id: Callable[[], str],
    world: Callable[[str], World],
    person: Person,
    told: Told,
    warn: Callable[[str], None],
) -> Answer:
    """Own the plan, go on where the journal stands, and work until the run has ended or waits for a person."""
    plan = errand.started.plan
    while True:
        row = interrupted(store, plan)
        run = row.id if row else new_id()
        here = world(run)
        match claims.take_plan(plan, run=run, at=here.iso()):
            case Theirs(owner=owner, why=why, readable=readable):
                return Declined(owner=owner, why=why, readable=readable)
            case standing:
                pass
        if (now := interrupted(store, plan)) != row and (now is None or row is None or now.id != row.id):
            claims.release(plan, run=run)  # somebody was quicker; look again
            continue
        journal = Journal(store, clock, run=run, plan=plan, fence=standing.fence, told=told)
        taken = e.ClaimTaken(
            owner=claims.me, fence=standing.fence, took_over=standing.took_over if isinstance(standing, Taken) else ""
        )
        if row is None:
            journal.append(errand.started, taken)
            break
        if _is_other_errand(journal.state, errand.started):
            journal.append(taken, e.StopRequested(by="a new start"))
            work(journal, here, person=person)
            continue
        asked = errand.started
        journal.append(taken, e.RunResumed(mode=asked.mode, wanted=asked.wanted, auto=asked.auto))
        break
    for number in errand.issues:
        if isinstance(held := claims.take_issue(number, run=run, at=here.iso()), Theirs):
            warn(f"issue #{number} is claimed by {held.owner}; going on all the same")
    if errand.answer is not None and (answer := errand.answer(journal.state)) is not None:
        journal.append(answer)
    decision = work(journal, here, person=person)
    return Carried(run=run, decision=decision, state=journal.state)


def _is_other_errand(state: RunState, asked: e.RunStarted) -> bool:
    """Whether what is asked for cannot be had by going on with the interrupted run."""
    was = state.started
    if was is None or state.phase is None or state.phase.landed is not None:
        return was is not None and asked.landing != was.landing
    return asked.landing != was.landing or (asked.mode == "phase" and asked.wanted != state.phase.read.phase)
