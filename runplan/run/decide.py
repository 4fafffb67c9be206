"""What next? The one function that answers, for start, resume, recovery and schedule alike.

`decide` looks only at recorded facts. Its answer carries the reason in words, which `explain` prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.globs import literal
from runplan.plan.marks import Status
from runplan.plan.tracker import missing
from runplan.run import actions as a
from runplan.run.dispatch import WRITERS
from runplan.run.reasons import Reason
from runplan.run.state import failed_lane, open_lanes, strands
from runplan.run.wording import conflicting, filling, how, is_told, run_ended, step_of, unsolved, variables, waited_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runplan.plan.model import Phase, Plan
    from runplan.run.events import DispatchEnded, Paused, RunStarted
    from runplan.run.state import Lane, PhaseRun, RunState


class Decision(Struct, frozen=True, kw_only=True):
    """What to do, and why; nothing to do means ended or waiting."""

    actions: tuple[a.Action, ...]
    why: str
    waiting: str = ""  #: approval, checkout: what only a person can bring about; limit, overloaded: what time does
    about: str = ""  #: what exactly is waited for, in words
    wake: str = ""  #: when it is looked at again, UTC ISO-8601; "" when only a person can bring it about


def until(pause: Paused) -> Decision:
    """To wait for what time will mend."""
    about = waited_for(pause)
    return Decision(
        actions=(a.Sleep(kind=pause.kind, until=pause.until),),
        why=f"waiting until {pause.until} ({about})",
        waiting=pause.kind,
        about=about,
        wake=pause.until,
    )


def beside(plan: Plan, worked: Mapping[str, Sequence[str]], *, room: int) -> list[Phase]:
    """The phases to begin now, in the plan's order, at most `room`; `worked` are those at work, with what they touch.

    A phase that does not say what it touches may touch everything, so it is worked alone.
    """
    chosen: list[Phase] = []
    taken = list(worked.values())
    for phase in plan.phases:
        if len(chosen) >= room:
            break
        if phase.id in worked or not _is_due(plan, phase) or any(overlap(phase.touches, other) for other in taken):
            continue
        chosen.append(phase)
        taken.append(phase.touches)
    return chosen


def _is_due(plan: Plan, phase: Phase) -> bool:
    free = phase.status not in (Status.DONE, Status.BLOCKED)
    return free and phase.execution == "worktree" and not missing(plan, phase)


def overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether a path may be covered by both; in doubt, and where nothing is said, it may."""
    one, two = [_place(pattern) for pattern in some], [_place(pattern) for pattern in others]
    if not one or not two:
        return True
    return any(a[: len(b)] == b[: len(a)] for a in one for b in two)


def _place(pattern: str) -> tuple[str, ...]:
    """The folder, or the file, that everything the pattern covers lies in; some file systems fold the case."""
    fixed = literal(pattern)
    whole = fixed == pattern.strip().removeprefix("./").lstrip("/")
    path = fixed if whole else fixed.rpartition("/")[0]
    return tuple(part for part in path.casefold().split("/") if part not in ("", "."))


def side_by_side(
    state: RunState, started: RunStarted, lanes: list[Lane], decide: Callable[[RunState], Decision]
) -> Decision:
    """Each lane by the same rules, as if it were alone; and a look at what may begin beside them."""
    each = [decide(lane.state) for lane in lanes]
    look = _look(state, started, len(lanes))
    actions: list[a.Action] = [
        a.LaneAction(lane=lane.name, action=action)
        for lane, decision in zip(lanes, each, strict=True)
        for action in decision.actions
    ]
    # They wait as one only when all do; what comes first is then what the run waits for.
    waits = sorted((one for one in each if one.waiting), key=lambda one: one.wake or "~")
    first = waits[0] if len(waits) == len(each) and (look is None or look.waiting) else None
    told = [f"phase {lane.phase}: {one.why}" for lane, one in zip(lanes, each, strict=True)]
    if (failed := failed_lane(state)) is not None:
        told.append(f"phase {failed.phase} did not land, so nothing new begins")
    return Decision(
        actions=(*actions, *(look.actions if look else ())),
        why="; ".join(told),
        waiting=first.waiting if first else "",
        about=first.about if first else "",
        wake=min((one.wake for one in (*each, *([look] if look else [])) if one.wake), default=""),
    )


def _look(state: RunState, started: RunStarted, at_work: int) -> Decision | None:
    """Whether to see what can begin beside them; None when nothing may."""
    room = started.mode == "finish" and at_work < started.parallel and not state.looked
    if not room or state.stop or state.halted or state.queued or failed_lane(state) is not None:
        return None
    if state.pause is not None:  # the target could not be asked; that holds nobody up who is at work
        return until(state.pause)
    return Decision(actions=(a.ReadPlan(),), why="what may begin beside them is seen from the plan on the target")


MAX_MOVES = 5  #: how often a candidate is rebuilt because the target moved
MAX_LOST = 3  #: how often a process may vanish without a trace
MOST_HANDOVERS = 3  #: how often a fresh agent may go on with a phase
#: Endings of an agent that may be chance: an error without a name, a signal (as of a kernel out of memory), silence.
ONCE_MORE = ("crashed", "killed", "silent")
GATE_RUNS = 2  #: a red gate is run once more before it is believed
#: Where a phase was refused, for the reasons whose step cannot be told from what is done so far.
REFUSED_AT: dict[str, str] = {
    Reason.BASELINE_RED: "baseline",
    Reason.ALREADY_ON_TARGET: "land",
    Reason.CONFLICT: "fix",
    Reason.PROTECTED: "land",
}


def decide(state: RunState) -> Decision:
    """The actions that are due in this state."""
    if state.started is None:
        return Decision(actions=(), why="nothing has been started")
    if state.ended is not None:
        return Decision(actions=(), why=run_ended(state))
    if lanes := open_lanes(state):
        return side_by_side(state, state.started, lanes, decide)
    phase = state.phase
    if state.pause is not None and state.pause.kind == "unreachable" and not _ends(state, phase):
        return until(state.pause)  # git, disk or network did not answer, whatever was asked of them
    if phase is None or phase.cleaned:
        return _between_phases(state, state.started, phase)
    if phase.dispatch is not None:
        return _while_running(state, phase)
    if phase.failure is not None:
        return _do(a.CleanUp(), f"the phase failed ({phase.failure.reason}); its work is kept by name")
    if phase.landed is not None:
        return _do(a.CleanUp(), "the phase has landed; its branch is no longer needed")
    if phase.landing is not None:
        return _do(a.Land(), "a landing was begun; whether it happened is asked of git")
    if state.stop:
        return _fail(Reason.STOPPED, "stop", f"stopped by {state.stop}")
    if phase.refusal is not None:
        reason, detail = phase.refusal
        step = step_of(phase)
        return _fail(Reason(reason), step if step == "undo" else REFUSED_AT.get(reason, step), detail)
    return _not_now(state) or _work(state, state.started, phase)


def _ends(state: RunState, phase: PhaseRun | None) -> bool:
    """Whether a process is to be ended, for which nobody else has to answer."""
    return bool(state.stop) and phase is not None and phase.dispatch is not None


def _not_now(state: RunState) -> Decision | None:
    """What keeps a run from beginning anything new; what is under way goes on."""
    if state.missing:
        about = f"the daemon restarted and lost {variables(state.missing)}"
        return Decision(actions=(), why=about, waiting="key", about=about)
    if state.halted:
        return Decision(
            actions=(), why=f"paused by {state.halted}", waiting="paused", about=f"paused by {state.halted}"
        )
    if state.queued:
        why = "as many runs are at work as may be; this one has its turn when one of them ends or waits"
        return Decision(actions=(), why=why, waiting="slot", about="its turn")
    return until(state.pause) if state.pause is not None else None


def _between_phases(state: RunState, started: RunStarted, phase: PhaseRun | None) -> Decision:
    if phase is not None and phase.failure is not None:
        special = {Reason.BASELINE_RED: "refused", Reason.STOPPED: "stopped"}
        outcome = special.get(Reason(phase.failure.reason), "failed")
        finish = a.Finish(outcome=outcome, reason=phase.failure.reason, detail=phase.failure.detail)
        return _do(finish, "the failed phase is cleaned up")
    lane = failed_lane(state)
    if lane is not None and (ended := lane.state.ended) is not None:
        finish = a.Finish(outcome=ended.outcome, reason=ended.reason, detail=ended.detail)
        return _do(finish, f"phase {lane.phase} did not land, and those beside it have ended")
    if state.stop:
        return _do(a.Finish(outcome="stopped", reason=Reason.STOPPED), f"stopped by {state.stop}")
    if (phase is not None or state.lanes) and started.mode != "finish":
        return _do(a.Finish(outcome="done"), "everything that was asked for has landed")
    if waiting := _not_now(state):
        return waiting
    if state.plan is None:
        return _do(a.ReadPlan(), "the next phase is chosen from the plan on the target")
    finish = _no_phase(state.plan.choice, state.plan.detail, landed=bool(state.landed))
    return _do(finish, f"no phase is due: {state.plan.detail}")


def _no_phase(choice: str, detail: str, *, landed: bool) -> a.Finish:
    match choice:
        case "complete" | "phase-done":
            return a.Finish(outcome="done" if landed else "nothing-to-do", detail=detail)
        case _:
            return a.Finish(outcome="refused", reason=Reason.BLOCKED, detail=detail)


def _while_running(state: RunState, phase: PhaseRun) -> Decision:
    running = phase.dispatch
    assert running is not None
    if state.stop:
        return _do(a.End(id=running.id), f"stopped by {state.stop}; the {running.role} process is ended")
    return _do(a.Await(id=running.id, role=running.role), f"the {running.role} process is running{filling(phase)}")


def _work(state: RunState, started: RunStarted, phase: PhaseRun) -> Decision:
    if phase.read.choice == "all-done":
        return _land(state, phase)
    if phase.read.choice == "undo":
        return _undo(state, phase)
    if phase.lost >= MAX_LOST:
        return _fail(Reason.CRASHED, step_of(phase), f"{phase.lost} processes in a row vanished without a trace")
    if phase.lease is None:
        return _do(a.Lease(), "the phase needs a worktree on a branch of its own")
    if phase.ended is not None:
        return _judge(phase, phase.ended)
    if phase.work is None:
        if _stands_still(phase):
            told = "two agents in a row had no room left, and the second changed nothing"
            return _fail(Reason.NO_PROGRESS, step_of(phase), told)
        return _prepare(started, phase, phase.base_tree) or _write(phase)
    return _prove(state, started, phase)


def _undo(state: RunState, phase: PhaseRun) -> Decision:
    """A person asked for it, so nobody is asked again; what is taken back was proven when it did not exist."""
    if phase.conflict is not None:
        told = f"later work on the target touches what phase {phase.read.phase} did, in {conflicting(phase)}"
        return _fail(Reason.CONFLICT, "undo", told)
    if phase.moves > MAX_MOVES:
        return _fail(Reason.TARGET_MOVING, "undo", f"the target moved {phase.moves} times meanwhile")
    if phase.candidate is None:
        return _do(a.BuildUndo(), f"phase {phase.read.phase} is to be taken back")
    return _land(state, phase)


def _prepare(started: RunStarted, phase: PhaseRun, tree: str) -> Decision | None:
    """What has to be known and done before anybody works on top of `tree`: the baseline, and run.setup."""
    if started.test_command and phase.baseline is None:
        start = a.Start(role="baseline", cycle=phase.cycle, tree=tree)
        why = "the checks are run on the base first, so that old failures are known"
        return _set_up(started, phase, tree) or _do(start, why)
    if started.setup and not phase.set_up:
        return _set_up(started, phase, tree)
    return None


def _set_up(started: RunStarted, phase: PhaseRun, tree: str) -> Decision | None:
    """Run run.setup where it has not run, or where what it made was swept away."""
    done = phase.prepared == tree or (phase.set_up and started.clean == "untracked")
    if not started.setup or done:
        return None
    return _do(a.Start(role="setup", cycle=phase.cycle, tree=tree), "run.setup prepares the swept tree")


def _write(phase: PhaseRun) -> Decision:
    why = "a fresh fixer is sent" if phase.cycle > 1 else f"phase {phase.read.phase} is to be implemented"
    return _do(_writer(phase), why)


def _writer(phase: PhaseRun) -> a.Start:
    if phase.cycle > 1:
        return a.Start(role="fix", cycle=phase.cycle, tree=phase.failed_tree, complaint=phase.errand)
    return a.Start(role="implement", cycle=1)


def _judge(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    """A process has ended: what is to be made of it?"""
    match ended.role:
        case "baseline":
            return _do(a.JudgeBaseline(), "the checks on the base have ended")
        case "gate":
            return _do(a.JudgeGate(tree=phase.candidate.tree if phase.candidate else ""), "the checks have ended")
        case "setup":
            return _fail(Reason.SETUP_FAILED, "setup", how(ended))
        case _:
            pass
    endings = {
        "timeout": Reason.TIMEOUT,
        "silent": Reason.SILENT,
        "missing": Reason.AGENT_MISSING,
        "budget": Reason.BUDGET,
    }
    if ended.kind in ("context", "max-turns") and ended.role in WRITERS:
        return _take_or_hand_over(phase, ended)
    if ended.kind in ("", "success", *ONCE_MORE) and (named := _named_by_itself(phase, ended)):
        return named
    if ended.kind in ONCE_MORE and ended.said != "failed":
        tried = next((one for one in phase.again if (one.role, one.cycle) == (ended.role, phase.cycle)), None)
        if tried is None:
            return _once_more(phase, ended)
        told = f"{how(ended)}; it was tried once more after {tried.again}"
        if ended.kind == "crashed" and phase.unsolved is not None:
            return _fail(Reason.CONFLICT, ended.role, unsolved(phase, told))
        return _fail(Reason.SILENT if ended.kind == "silent" else Reason.AGENT_FAILED, ended.role, told)
    if ended.ending in endings and not is_told(ended):
        return _fail(endings[ended.ending], ended.role, how(ended))
    if ended.kind == "budget":  # its own limit, which it was given or has
        return _fail(Reason.BUDGET, ended.role, how(ended))
    if ended.kind not in ("", "success"):
        return _fail(Reason.AGENT_FAILED, ended.role, how(ended))
    if ended.role == "verify" and ended.ending == "exited" and ended.code == 0:
        return _do(a.JudgeVerdict(), "the verifier has answered")
    if ended.ending != "exited" or ended.code != 0 or ended.said == "failed":
        return _fail(Reason.AGENT_FAILED, ended.role, how(ended))
    return _do(a.TakeWork(), f"the {ended.role} agent has ended; its words count for nothing, its tree does")


def _named_by_itself(phase: PhaseRun, ended: DispatchEnded) -> Decision | None:
    """The failure that the agent names itself, whatever its exit code; None when it names none."""
    if ended.said == "blocked":
        return _fail(Reason.BLOCKED, ended.role, ended.detail)
    if ended.said == "failed" and phase.unsolved is not None:
        return _fail(Reason.CONFLICT, ended.role, unsolved(phase, f"it says: {ended.detail}"))
    return None


def _once_more(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    """The same work again, for one crash of each role in a cycle; no fix cycle is used up."""
    tree = phase.candidate.tree if phase.candidate else ""
    start = a.Start(role="verify", cycle=phase.cycle, tree=tree) if ended.role == "verify" else _writer(phase)
    return _do(replace(start, again=how(ended)), f"{how(ended)}; it is tried once more")


def _stands_still(phase: PhaseRun) -> bool:
    """Whether the last two hand-overs left the same tree: a third agent would fill its context with the same."""
    last = phase.handovers[-2:]
    return len(last) == 2 and last[0].tree == last[1].tree


def _take_or_hand_over(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    if ended.said == "done":
        return _do(a.TakeWork(), "the agent had no room left, and says that nothing is left to do; its tree will tell")
    if len(phase.handovers) >= MOST_HANDOVERS:
        told = f"{len(phase.handovers) + 1} agents in a row had no room left; make the phase smaller"
        return _fail(Reason.AGENT_FAILED, ended.role, told)
    return _do(a.HandOver(why=how(ended)), "the agent has no room left; a fresh one goes on")


def _prove(state: RunState, started: RunStarted, phase: PhaseRun) -> Decision:
    assert phase.work is not None
    if phase.work.commits == 0 and phase.unsolved is not None:
        return _fail(Reason.CONFLICT, "fix", unsolved(phase, "it left no change"))
    if phase.work.commits == 0:
        return _fail(Reason.NO_COMMITS, "fix" if phase.cycle > 1 else "implement", "the agent left no change")
    if phase.conflict is not None and phase.rebuilt:
        told = f"the work conflicts with the target in {conflicting(phase)}, again after it was redone on the new tip"
        return _fail(Reason.CONFLICT, "land", f"{told}; the work before that is kept at {phase.parked}")
    if phase.conflict is not None:
        onto = phase.conflict.onto
        rebuild = a.RebuildBranch(onto=onto, start=onto, conflict=True, errand="", tree="")
        return _do(rebuild, f"the work conflicts with the target in {conflicting(phase)}")
    if phase.moves > MAX_MOVES:
        return _fail(Reason.TARGET_MOVING, "land", f"the target moved {phase.moves} times while landing")
    if phase.candidate is None:
        return _do(a.BuildCandidate(), "the work is replayed on the target's tip")
    if phase.candidate.tree == phase.failed_tree:
        return _fail(Reason.NO_PROGRESS, "fix", f"the fixer changed nothing; {phase.errand}")
    if started.test_command and phase.baseline is None:  # the target moved: what fails there is known first
        return _prepare(started, phase, phase.candidate.onto_tree) or _gate(state, started, phase, phase.candidate.tree)
    return _gate(state, started, phase, phase.candidate.tree)


def _gate(state: RunState, started: RunStarted, phase: PhaseRun, tree: str) -> Decision:
    last = phase.gates[-1] if phase.gates else None
    if last is None and not started.test_command:
        return _do(a.JudgeGate(tree=tree), "there is no test command; that is recorded")
    if last is None:
        gate = a.Start(role="gate", cycle=phase.cycle, tree=tree)
        return _set_up(started, phase, tree) or _do(gate, "the checks are run on the exact tree")
    if last.answer == "unfinished" and last.code is None:
        return _fail(Reason.TESTS_UNFINISHED, "gate", last.line)
    if last.answer == "unfinished":  # it ended by itself, without its closing words: something in the work broke it
        return _fix(started, phase, Reason.TESTS_UNFINISHED, last.line)
    if last.answer == "failed" and last.time < GATE_RUNS:
        again = a.Start(role="gate", cycle=phase.cycle, tree=tree)
        return _set_up(started, phase, tree) or _do(again, "the checks failed; once more, in case one is flaky")
    if last.answer == "failed":
        return _fix(started, phase, Reason.TESTS_FAILED, f"the checks failed: {last.line}")
    if phase.verdict is None:
        return _do(
            a.Start(role="verify", cycle=phase.cycle, tree=tree),
            "an independent verifier judges the exact tree",
        )
    if not phase.verdict.passed:
        return _fix(started, phase, Reason.VERIFICATION_FAILED, phase.verdict.why)
    return _land(state, phase)


def _fix(started: RunStarted, phase: PhaseRun, reason: Reason, detail: str) -> Decision:
    if phase.cycle > started.max_fix_cycles:
        return _fail(reason, "verify" if reason is Reason.VERIFICATION_FAILED else "gate", detail)
    candidate = phase.candidate
    assert candidate is not None
    why = f"{detail}; fix cycle {phase.cycle} of {started.max_fix_cycles}"
    if candidate.onto != phase.base:
        # The fixer has to see the tree that failed, which is the work on the moved target.
        start = candidate.commits[-1]
        return _do(
            a.RebuildBranch(onto=candidate.onto, start=start, conflict=False, errand=detail, tree=candidate.tree), why
        )
    return _do(a.Start(role="fix", cycle=phase.cycle + 1, tree=candidate.tree, complaint=detail), why)


def _land(state: RunState, phase: PhaseRun) -> Decision:
    tree = phase.candidate.tree if phase.candidate else ""
    if phase.held:
        return Decision(actions=(), why=f"the landing waits: {phase.held}", waiting="checkout")
    if not state.auto and tree and phase.approved != tree:
        if phase.asked == tree:
            return Decision(actions=(), why="the candidate is proven and waits for a person", waiting="approval")
        return _do(a.Ask(), "without `auto` a person says yes before anything lands")
    return _do(a.Land(), "the candidate is proven; code, tracker and report land in one step")


def _do(action: a.Action, why: str) -> Decision:
    return Decision(actions=(action,), why=why)


def _fail(reason: Reason, step: str, detail: str) -> Decision:
    return _do(a.Fail(reason=reason, step=step, detail=detail), f"{reason}: {detail}")


#: What is past its dispatch is judged and landed; nothing is read, leased or started for what would come after.
BEGINNINGS = (a.ReadPlan, a.Lease, a.Start)


def without_beginnings(decision: Decision) -> Decision:
    """The same decision without what begins something new; the next runner decides it again."""
    actions = tuple(action for action in decision.actions if not isinstance(_inner(action), BEGINNINGS))
    return decision if actions == decision.actions else replace(decision, actions=actions)


def ends(state: RunState) -> tuple[a.Action, ...]:
    """What ends every process of a run; each is recorded as ended by us, and is due again afterwards."""
    found: list[a.Action] = []
    for name, one in strands(state):
        if one.phase is not None and one.phase.dispatch is not None:
            end = a.End(id=one.phase.dispatch.id)
            found.append(a.LaneAction(lane=name, action=end) if name else end)
    return tuple(found)


def _inner(action: a.Action) -> a.Action:
    return action.action if isinstance(action, a.LaneAction) else action
