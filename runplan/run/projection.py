"""The row of a run that `status` shows, from the same state and decision that drive the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, replace

from runplan.run.decide import decide
from runplan.run.reasons import step_of
from runplan.run.rows import RunRow, Work
from runplan.run.state import GOOD, open_lanes, open_states, shown

if TYPE_CHECKING:
    from runplan.run.state import Lane, PhaseRun, RunState


def project(state: RunState, *, run: str, plan: str, started: str, since: str) -> RunRow:
    began, ended, lanes, phase = state.started, state.ended, open_lanes(state), shown(state)
    states = (state, *(lane.state for lane in state.lanes))
    work = _work(state, phase, since)
    works = [one for lane in state.lanes if (one := _lane(lane, since)).failed or lane in lanes] if lanes else []
    if ended:
        run_state = {"done": "done", "nothing-to-do": "done", "stopped": "stopped"}.get(ended.outcome, "failed")
    else:
        run_state = {None: "running", "slot": "queued"}.get(work.waiting_for, "waiting")
    work = replace(
        work,
        phase=work.phase or next((lane.phase for lane in lanes), None),  # of a lane that has not begun
        step=None if ended else work.step,
        retries=max([work.retries, *(one.retries for one in works)]),
        tokens=sum(one.tokens for one in states),
        usd=sum(one.usd for one in states),
        unpriced=any(one.unpriced for one in states),
    )
    return RunRow(
        **asdict(work),
        id=run,
        plan=plan,
        started=started,
        state=run_state,
        landing=began.landing if began else "cherry-pick",
        target=began.target if began else "",
        remote=began.remote if began else "",
        title=began.title if began else "",
        slug=began.slug if began else "",
        concludes=began is not None and began.concludes,
        daemon=began is not None and began.daemon,
        attempt=phase.lease.attempt if phase and phase.lease else 1,
        outcome=ended.outcome if ended else None,
        reason=(ended.reason or None) if ended else None,
        asked="stop" if state.stop else "pause" if state.halted else None,
        lanes=tuple(works),
    )


def _work(state: RunState, phase: PhaseRun | None, since: str) -> Work:
    decision = decide(state)
    work = Work(
        since=since,
        waiting_for=decision.waiting or None,
        about=decision.about or None,
        wake=decision.wake or None,
        tokens=state.tokens,
        usd=state.usd,
        unpriced=state.unpriced,
    )
    if phase is None:
        return work
    step = step_of(phase)
    work = replace(
        work,
        phase=phase.chosen.phase or None,
        step=step,
        began=phase.began if phase.newest is not None and phase.newest.role == step else None,
        retries=phase.cycle - 1 + len(phase.handovers) + len(phase.again),
    )
    if (now := phase.dispatch) is None:
        return work
    return replace(
        work,
        dispatch=now.id,
        agent=now.agent or None,
        version=now.version or None,
        dispatched=now.at or None,
        gates=now.gates,
    )


def _lane(lane: Lane, since: str) -> Work:
    work, ended = _work(lane.state, lane.state.phase, since), lane.state.ended
    failed = (ended.reason or ended.outcome) if ended is not None and ended.outcome not in GOOD else None
    return replace(work, phase=lane.phase, since=work.began or work.dispatched or since, failed=failed)


class Since(Struct, frozen=True, kw_only=True):
    """The start of the current step or wait."""

    at: str = ""
    ended: bool = False
    steps: tuple[str, ...] = ()
    waiting: str = ""


def moved(before: Since, state: RunState, at: str) -> Since:
    """The same after an event that was recorded at `at` and led to `state`."""
    states = [one for _, one in open_states(state)]
    steps = tuple(step_of(one.phase) if one.phase is not None else "" for one in states)
    now = Since(at=before.at or at, ended=state.ended is not None, steps=steps, waiting=decide(state).waiting)
    works = not now.waiting and not now.ended
    is_look = before.waiting and works and steps == before.steps and any(one.waits for one in states)
    # A look in between two waits for the same thing changes nothing.
    return before if is_look or now == replace(before, at=now.at) else replace(now, at=at)
