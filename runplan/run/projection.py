"""The row of a run that `status` shows, from the same state and decision that drive the run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from runplan.run.decide import decide
from runplan.run.reasons import step_of
from runplan.run.rows import RunRow, Work
from runplan.run.state import GOOD, open_lanes, open_states, shown

if TYPE_CHECKING:
    from runplan.run.state import Lane, RunState


def project(state: RunState, *, run: str, plan: str, started: str, since: str) -> RunRow:
    decision, ended, phase = decide(state), state.ended, shown(state)
    if ended:
        run_state = {"done": "done", "nothing-to-do": "done", "stopped": "stopped"}.get(ended.outcome, "failed")
    elif decision.waiting:
        run_state = "queued" if decision.waiting == "slot" else "waiting"
    else:
        run_state = "running"
    first = next((lane.phase for lane in open_lanes(state)), "")  # of lanes that have not begun
    return RunRow(
        id=run,
        plan=plan,
        started=started,
        state=run_state,
        phase=(phase.read.phase if phase else first) or None,
        step=None if ended or phase is None else step_of(phase),
        since=since,
        attempt=phase.lease.attempt if phase and phase.lease else 1,
        outcome=ended.outcome if ended else None,
        reason=(ended.reason or None) if ended else None,
        waiting_for=decision.waiting or None,
        landing=state.started.landing if state.started else "cherry-pick",
        about=decision.about or None,
        wake=decision.wake or None,
        progress=json.dumps(to_builtins(work_of(state))),
    )


def work_of(state: RunState) -> Work:
    """The current work of the run; of several lanes, that of the first open one, and the usage of all."""
    lanes, states = open_lanes(state), (state, *(lane.state for lane in state.lanes))
    first = _work(lanes[0].state if lanes else state)
    shown = [work for lane in state.lanes if (work := _lane(lane)).failed or lane in lanes] if lanes else []
    return replace(
        first,
        retries=max([first.retries, *(lane.retries for lane in shown)]),
        tokens=sum(one.tokens for one in states),
        usd=sum(one.usd for one in states),
        unpriced=any(one.unpriced for one in states),
        asked="stop" if state.stop else "pause" if state.halted else None,
        lanes=tuple(shown),
    )


def _work(state: RunState) -> Work:
    phase = state.phase
    if phase is None:
        return Work(tokens=state.tokens, usd=state.usd, unpriced=state.unpriced)
    work = Work(
        phase=phase.read.phase,
        step=step_of(phase),
        began=phase.began if phase.newest is not None and phase.newest.role == step_of(phase) else None,
        retries=phase.cycle - 1 + len(phase.handovers) + len(phase.again),
        tokens=state.tokens,
        usd=state.usd,
        unpriced=state.unpriced,
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


def _lane(lane: Lane) -> Work:
    decision, ended = decide(lane.state), lane.state.ended
    return replace(
        _work(lane.state),
        phase=lane.phase,
        waiting_for=decision.waiting or None,
        about=decision.about or None,
        wake=decision.wake or None,
        failed=(ended.reason or ended.outcome) if ended is not None and ended.outcome not in GOOD else None,
    )


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
