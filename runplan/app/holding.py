"""Takes a plan up: owns it, and brings its journal to where the errand begins or was interrupted."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from runplan.app.journal import Journal, recorded
from runplan.core import events as e
from runplan.core.claims import Taken, Theirs
from runplan.core.commands import command
from runplan.core.errors import RefusedEarly
from runplan.core.names import base_ref
from runplan.core.quickclass import dataclass
from runplan.core.rows import UNFINISHED
from runplan.core.run import open_lanes, strands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runplan import ports
    from runplan.app.world import World
    from runplan.core.rows import RunRow
    from runplan.core.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Somebody else is at it, or there is nothing to go on with; nothing was changed."""

    owner: str  #: "" when nobody is
    why: str
    readable: bool  #: whether the claim could be read; if not, only a person can say that it is nobody's


class Rooms(Protocol):
    """What taking a plan up needs of a repository that is open for work."""

    @property
    def claims(self) -> ports.Claims: ...

    @property
    def store(self) -> ports.Store: ...

    @property
    def clock(self) -> ports.Clock: ...

    def new_run_id(self) -> str: ...

    def fixed(self, asked: e.RunStarted) -> e.RunStarted:
        """What is asked for, with the settings of now where it has none."""
        ...

    def world(self, *, run: str, started: e.RunStarted) -> World:
        """Everything the actions of a run may reach, where that run was asked to land."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """How a run tells people what happens."""

    tell: Callable[[str, str, e.Fact], None]  #: plan, run, fact
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What somebody asked for, resolved."""

    started: e.RunStarted
    answer: e.Approved | e.Rejected | None = None  #: what a person said beforehand, by approve or reject
    fired: bool = False  #: begun by a schedule, which answers nothing that a person was asked
    again: bool = False  #: a retry of the run before it, of which nothing is to be done where that has ended well


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A plan that is ours, with the journal of the run that goes on or begins."""

    world: World
    journal: Journal
    warnings: tuple[str, ...] = ()  #: what whoever asked for it is warned of
    ends: bool = False  #: the run is one that has to end first; take the plan up again after that


def interrupted(store: ports.Store, plan: str) -> RunRow | None:
    """The newest run of the plan, if it has not ended."""
    row = store.newest(plan)
    return row if row is not None and row.state in UNFINISHED else None


def take_up(errand: Errand, rooms: Rooms, voice: Voice) -> Held | Declined:
    """Own the plan and go on where its journal stands; another run that was interrupted is told to end."""
    while (claimed := _claim(errand.started, rooms, voice)) is None:
        pass  # somebody was quicker; look again
    if isinstance(claimed, Declined):
        return claimed
    world, journal, taken, asked = claimed
    if journal.state.started is None:
        if why := _nothing_left(errand, rooms.store):  # now that nobody else can end or begin a run
            rooms.claims.release(asked.plan, run=world.run)
            return Declined(owner="", why=why, readable=True)
        journal.append(asked, taken)
    else:
        _free(world, journal)
        if is_other_errand(journal.state, asked):
            journal.append(taken, e.StopRequested(by="a new start"))
            return Held(world=world, journal=journal, ends=True)
        journal.append(taken, resumed(asked, journal.state.started))
    warnings = _claim_issues(asked.issues, journal, world, rooms)
    for words in warnings:
        voice.warn(words)
    if errand.answer is not None:
        journal.append(errand.answer)
    return Held(world=world, journal=journal, warnings=warnings)


def _claim_issues(issues: Sequence[int], journal: Journal, world: World, rooms: Rooms) -> tuple[str, ...]:
    """Claim the issues for the run; those of another run that has not ended are recorded once, and told."""
    warnings = []
    for number in issues:
        if not isinstance(theirs := rooms.claims.take_issue(number, run=world.run, at=world.iso()), Theirs):
            continue
        plan = next((row.plan for row in rooms.store.unfinished() if row.id == theirs.owner), "")
        shared = e.IssueShared(number=number, run=theirs.owner, plan=plan)
        if shared.words not in journal.state.warnings:
            journal.append(shared)
        warnings.append(shared.words)
    return tuple(warnings)


def _nothing_left(errand: Errand, store: ports.Store) -> str:
    """What is told of an errand that goes on with a run, where that has ended meanwhile; "" when one may be begun."""
    plan = errand.started.plan
    if errand.answer is not None:
        return nothing_waits(plan)
    row = store.newest(plan) if errand.again else None
    return ended_well(plan) if row is not None and row.state == "done" else ""


def is_meant(state: RunState, answer: e.Approved | e.Rejected) -> bool:
    """Whether what a person said is about what waits now, and not about what waited when they looked."""
    candidates = (one.phase.candidate for _, one in strands(state) if one.phase)
    return answer.tree in {candidate.tree if candidate else "" for candidate in candidates}


def nothing_waits(plan: str) -> str:
    """What is told of an answer that nobody waits for."""
    return f"no candidate of {plan} waits any more; see: {command('runplan', 'status', plan)}"


def ended_well(plan: str) -> str:
    """What is told of a run that there is no need to retry."""
    return f"the last run of {plan} ended well; nothing to retry"


def reopen(row: RunRow, started: e.RunStarted, *, rooms: Rooms, voice: Voice) -> Held | Declined:
    """Own again a run that was left as it stands: nobody asks for anything new, it just goes on."""
    world = rooms.world(run=row.id, started=started)
    standing = rooms.claims.take_plan(row.plan, run=row.id, at=world.iso())
    if isinstance(standing, Theirs):
        return Declined(owner=standing.owner, why=standing.why, readable=standing.readable)
    told = functools.partial(voice.tell, row.plan, row.id)
    journal = Journal(rooms.store, rooms.clock, run=row.id, plan=row.plan, fence=standing.fence, told=told)
    if isinstance(standing, Taken):
        dead = standing.took_over if row.state != "waiting" else ""
        journal.append(e.ClaimTaken(owner=rooms.claims.me, fence=standing.fence, took_over=dead))
        _free(world, journal)
        for words in _claim_issues(started.issues, journal, world, rooms):
            voice.warn(words)
    return Held(world=world, journal=journal)


def resumed(asked: e.RunStarted, begun: e.RunStarted) -> e.RunResumed:
    """The fact that somebody calls a run on, with what is asked for now and the settings it began with."""
    return e.RunResumed(
        mode=asked.mode,
        wanted=asked.wanted,
        auto=asked.auto,
        max_fix_cycles=begun.max_fix_cycles,
        test_command=begun.test_command,
        setup=begun.setup,
        clean=begun.clean,
        parallel=begun.parallel,
    )


def _claim(
    asked: e.RunStarted, rooms: Rooms, voice: Voice
) -> tuple[World, Journal, e.ClaimTaken, e.RunStarted] | Declined | None:
    """Claim the plan for the run that was interrupted, or for a new one; None when somebody was quicker."""
    row = interrupted(rooms.store, asked.plan)
    run = row.id if row else rooms.new_run_id()
    asked = asked if row else rooms.fixed(asked)
    # What was begun at one place is ended there, whatever is asked for now.
    world = rooms.world(run=run, started=_begun(rooms.store, row) if row else asked)
    standing = rooms.claims.take_plan(asked.plan, run=run, at=world.iso())
    if isinstance(standing, Theirs):
        return Declined(owner=standing.owner, why=standing.why, readable=standing.readable)
    now = interrupted(rooms.store, asked.plan)
    if (now and now.id) != (row and row.id):
        # Between the look and the claim another process ended its run, or began one and died.
        rooms.claims.release(asked.plan, run=run)
        return None
    told = functools.partial(voice.tell, asked.plan, run)
    journal = Journal(rooms.store, rooms.clock, run=run, plan=asked.plan, fence=standing.fence, told=told)
    # A process that left its run waiting for a person is not one that died.
    left = row is not None and row.state == "waiting"
    dead = standing.took_over if isinstance(standing, Taken) and not left else ""
    return world, journal, e.ClaimTaken(owner=rooms.claims.me, fence=standing.fence, took_over=dead), asked


def _begun(store: ports.Store, row: RunRow) -> e.RunStarted:
    for one in recorded(store, row.id):
        if isinstance(one.event, e.RunStarted):
            return one.event
    raise RefusedEarly(f"{row.plan}: the run {row.id} cannot be read; see: {command('runplan', 'logs', row.plan)}")


def _free(world: World, journal: Journal) -> None:
    """The run's own refs may be locked by a git that was killed with the last process; nobody else uses them."""
    for lane, state in strands(journal.state):
        leased = state.phase.lease if state.phase else None
        strand = replace(world, lane=lane)
        refs = (strand.candidate, base_ref(strand.mark), *([leased.branch] if leased else []))
        world.removal.free(refs)


def is_other_errand(state: RunState, asked: e.RunStarted) -> bool:
    """Whether what is asked for cannot be had by going on with the interrupted run."""
    was = state.started
    if was is None:
        return False
    if "undo" in (asked.mode, was.mode):
        return (asked.mode, asked.wanted) != (was.mode, was.wanted)
    at = state.phase.read.phase if state.phase is not None else None
    elsewhere = (asked.landing, asked.target, asked.remote) != (was.landing, was.target, was.remote)
    other = (at is not None and asked.wanted != at) or bool(open_lanes(state))
    return elsewhere or (asked.mode == "phase" and other)
