"""Claims a plan and opens the journal of its run, new or resumed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.errors import RefusedEarly
from runplan.names import base_ref
from runplan.run import events as e
from runplan.run.rows import UNFINISHED, Acquired, HeldByOther
from runplan.run.state import open_lanes, open_states
from runplan.store.journal import Journal, recorded
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.engine.repository import OpenRepository
    from runplan.engine.worker import RepositoryWorker
    from runplan.run.requests import RunRequest
    from runplan.run.rows import RunRow
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext
    from runplan.store.sqlite import Store


class Declined(Struct, frozen=True, kw_only=True):
    """Another process owns the plan, or there is nothing to do; nothing was changed."""

    owner: str  #: "" when there is none
    why: str


class ActiveRun(Struct, frozen=True, kw_only=True):
    """A run that this process owns."""

    world: RunContext
    journal: Journal
    warnings: tuple[str, ...] = ()  #: for the caller
    ends: bool = False  #: the run ends first; then the requested one begins


def interrupted(store: Store, plan: str) -> RunRow | None:
    """The newest run of the plan, if it has not ended."""
    row = store.newest(plan)
    return row if row is not None and row.state in UNFINISHED else None


def acquire(request: RunRequest, repository: OpenRepository, worker: RepositoryWorker) -> ActiveRun | Declined:
    """Claim the plan and resume its unfinished run, or begin one; a run that does other work is stopped."""
    while (claimed := _claim(request.started, repository, worker)) is None:
        pass  # another process was faster; look again
    if isinstance(claimed, Declined):
        return claimed
    world, journal, taken, asked = claimed
    if journal.state.started is None:
        if why := _nothing_left(request, repository.store):  # decided under the claim
            repository.claims.release(asked.plan, run=world.run)
            return Declined(owner="", why=why)
        journal.append(asked, taken)
    else:
        _unlock_refs(world, journal)
        if does_other_work(journal.state, asked):
            journal.append(taken, e.StopRequested(by="a new start"))
            return ActiveRun(world=world, journal=journal, ends=True)
        journal.append(taken, resumed(asked, journal.state.started))
    warnings = _claim_issues(asked.issues, journal, world, repository)
    for words in warnings:
        worker.warned(words)
    if request.answer is not None:
        journal.append(request.answer)
    return ActiveRun(world=world, journal=journal, warnings=warnings)


def _claim_issues(
    issues: Sequence[int], journal: Journal, world: RunContext, repository: OpenRepository
) -> tuple[str, ...]:
    """Claim the issues for the run; warn about those of another unfinished run, and record that once."""
    warnings = []
    for number in issues:
        if not isinstance(theirs := repository.claims.take_issue(number, run=world.run, at=world.iso()), HeldByOther):
            continue
        plan = next((row.plan for row in repository.store.unfinished() if row.id == theirs.owner), "")
        shared = e.IssueShared(number=number, run=theirs.owner, plan=plan)
        if shared.words not in journal.state.warnings:
            journal.append(shared)
        warnings.append(shared.words)
    return tuple(warnings)


def _nothing_left(request: RunRequest, store: Store) -> str:
    """Why a retry or an answer comes too late, since its run has ended; "" when a run may begin."""
    plan = request.started.plan
    if request.answer is not None:
        return nothing_waits(plan)
    row = store.newest(plan) if request.again else None
    return ended_well(plan) if row is not None and row.state == "done" else ""


def is_current(state: RunState, answer: e.Approved | e.Rejected) -> bool:
    """Whether the answer is about a candidate that waits now: the trees are the same."""
    phases = (one.phase for _, one in open_states(state) if one.phase)
    open_ = (phase for phase in phases if not (phase.refusal or phase.landed or _is_approved(phase)))
    return answer.tree in {phase.candidate.tree if phase.candidate else "" for phase in open_}


def _is_approved(phase: PhaseRun) -> bool:
    """Whether the candidate is approved and nothing holds its landing."""
    return phase.candidate is not None and phase.approved == phase.candidate.tree and not phase.held


def nothing_waits(plan: str) -> str:
    """The message for an answer that comes too late."""
    return f"no change of {plan} waits for an answer; see: {command('runplan', 'status', plan)}"


def ended_well(plan: str) -> str:
    """The message for a retry after success."""
    return f"the last run of {plan} succeeded; nothing to retry"


def adopt(
    row: RunRow, started: e.RunStarted, repository: OpenRepository, worker: RepositoryWorker
) -> ActiveRun | Declined:
    """Claim the plan of an unfinished run and continue it unchanged."""
    world = repository.world(run=row.id, started=started)
    standing = repository.claims.take_plan(row.plan, run=row.id, at=world.iso())
    if isinstance(standing, HeldByOther):
        return Declined(owner=standing.owner, why=standing.why)
    on_event = functools.partial(worker.recorded, row.plan, row.id)
    journal = Journal(
        repository.store, repository.clock, run=row.id, plan=row.plan, fence=standing.fence, on_event=on_event
    )
    if isinstance(standing, Acquired):
        dead = standing.took_over if row.state != "waiting" else ""
        journal.append(e.ClaimTaken(owner=repository.claims.me, fence=standing.fence, took_over=dead))
        _unlock_refs(world, journal)
        for words in _claim_issues(started.issues, journal, world, repository):
            worker.warned(words)
    return ActiveRun(world=world, journal=journal)


def resumed(asked: e.RunStarted, begun: e.RunStarted) -> e.RunResumed:
    """The event that resumes a run, with the options of now and the settings it began with."""
    return e.RunResumed(
        mode=asked.mode,
        wanted=asked.wanted,
        auto=asked.auto,
        max_fix_cycles=begun.max_fix_cycles,
        test_command=begun.test_command,
        setup=begun.setup,
        clean=begun.clean,
        parallel=begun.parallel,
        daemon=asked.daemon,
        needs=asked.needs,
    )


def _claim(
    asked: e.RunStarted, repository: OpenRepository, worker: RepositoryWorker
) -> tuple[RunContext, Journal, e.ClaimTaken, e.RunStarted] | Declined | None:
    """Claim the plan for its unfinished run, or for a new one; None when another process was faster."""
    row = interrupted(repository.store, asked.plan)
    run = row.id if row else repository.new_run_id()
    asked = asked if row else repository.fixed(asked)
    # A run keeps the target it began with.
    world = repository.world(run=run, started=_begun(repository.store, row) if row else asked)
    standing = repository.claims.take_plan(asked.plan, run=run, at=world.iso())
    if isinstance(standing, HeldByOther):
        return Declined(owner=standing.owner, why=standing.why)
    now = interrupted(repository.store, asked.plan)
    if (now and now.id) != (row and row.id):
        # Before we had the claim, another process ended its run, or began one and died.
        repository.claims.release(asked.plan, run=run)
        return None
    on_event = functools.partial(worker.recorded, asked.plan, run)
    journal = Journal(
        repository.store, repository.clock, run=run, plan=asked.plan, fence=standing.fence, on_event=on_event
    )
    # A process that left its run waiting for a person did not die.
    left = row is not None and row.state == "waiting"
    dead = standing.took_over if isinstance(standing, Acquired) and not left else ""
    return world, journal, e.ClaimTaken(owner=repository.claims.me, fence=standing.fence, took_over=dead), asked


def _begun(store: Store, row: RunRow) -> e.RunStarted:
    for one in recorded(store, row.id):
        if isinstance(one.event, e.RunStarted):
            return one.event
    raise RefusedEarly(f"{row.plan}: the run {row.id} cannot be read; see: {command('runplan', 'logs', row.plan)}")


def _unlock_refs(world: RunContext, journal: Journal) -> None:
    """Remove locks on the run's own refs that a killed git left; no other process uses these refs."""
    for lane, state in open_states(journal.state):
        leased = state.phase.lease if state.phase else None
        strand = replace(world, lane=lane)
        refs = (strand.candidate, base_ref(strand.mark), *([leased.branch] if leased else []))
        world.removal.remove_stale_locks(refs)


def does_other_work(state: RunState, asked: e.RunStarted) -> bool:
    """Whether the request cannot be met by resuming this run."""
    was = state.started
    if was is None:
        return False
    if "undo" in (asked.mode, was.mode):
        return (asked.mode, asked.wanted) != (was.mode, was.wanted)
    at = state.phase.read.phase if state.phase is not None else None
    elsewhere = (asked.landing, asked.target, asked.remote) != (was.landing, was.target, was.remote)
    other = (at is not None and asked.wanted != at) or bool(open_lanes(state))
    return elsewhere or (asked.mode == "phase" and other)
