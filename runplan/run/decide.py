"""What next? The one function that answers, for start, resume, recovery and schedule alike.

`decide` looks only at recorded facts. Its answer carries the reason, which `explain` prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.globs import literal, matches
from runplan.plan.marks import PlanStatus, Status
from runplan.plan.tracker import hindrance
from runplan.run import actions as a
from runplan.run.dispatch import WRITERS
from runplan.run.events import TESTS, DispatchStarted, ProofKind
from runplan.run.reasons import (
    Beginning,
    Reason,
    conflicting,
    describe_ending,
    describe_pause,
    gave_reason,
    step_of,
    unsolved,
    variables,
)
from runplan.run.rows import wait_of
from runplan.run.state import failed_lane, failure, open_lanes, open_states
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runplan.plan.model import Phase, Plan
    from runplan.run.events import (
        CandidateBuilt,
        DispatchEnded,
        GateJudged,
        Paused,
        ProofRun,
        RulesBroken,
        RunStarted,
        WorkTaken,
    )
    from runplan.run.state import Lane, PhaseRun, RunState

ANSWERED = ("approval", "sign-off")  #: waits that `approve` and `reject` end
MAX_MOVES = 5  #: how often a candidate is rebuilt because the target moved
MAX_LOST = 3  #: lost processes in a row
MAX_HANDOVERS = 3  #: fresh agents that continue a phase after a full context
GATE_RUNS = 2  #: a red gate runs once more before it counts
#: Why each of the proofs runs.
PROOFS = {
    ProofKind.OLD_TESTS: "tests changed: the base's tests run on the new code",
    ProofKind.LANDED_TESTS: "tests of earlier phases changed again: their landed versions run on the new code",
    ProofKind.NEW_TESTS: "tests changed: the new tests run on the base's code",
}
#: Endings of an agent that may be chance: an unknown error, a signal (as of a kernel out of memory), silence.
REPEATED = ("crashed", "killed", "silent")
#: The reason for an ending that a limit of runplan caused.
STOPPED_BY = {
    "timeout": Reason.TIMEOUT,
    "silent": Reason.SILENT,
    "missing": Reason.AGENT_MISSING,
    "budget": Reason.BUDGET,
}


class Decision(Struct, frozen=True, kw_only=True):
    """What to do, and why; without actions the run has ended or waits."""

    actions: tuple[a.Action, ...] = ()
    why: str
    waiting: str = ""  #: approval, sign-off, checkout, paused, key: for a person; slot, limit, …: for a time
    about: str = ""  #: the cause of the wait
    wake: str = ""  #: when the wait ends, UTC ISO-8601; "" when only a person can end it


def decide(state: RunState) -> Decision:
    """The actions that are due in this state."""
    started, phase = state.started, state.phase
    if started is None:
        return Decision(why="nothing has been started")
    if state.ended is not None:
        failed = failure(state)
        is_known = failed is not None and failed.detail == state.ended.detail  # by the failure of the phase
        words = ": ".join(filter(None, (state.ended.reason, "" if is_known else state.ended.detail)))
        return Decision(why=f"the run ended: {state.ended.outcome}" + (f" ({words})" if state.ended.reason else ""))
    if lanes := open_lanes(state):
        return _side_by_side(state, started, lanes)
    if state.pause is not None and state.pause.kind == "unreachable" and not (state.stop and phase and phase.dispatch):
        return _until(state.pause)  # git, disk or network did not answer
    if phase is None or phase.cleaned:
        return _between_phases(state, started, phase)
    if (running := phase.dispatch) is not None:
        if state.stop:
            return _do(a.END, f"stopped by {state.stop}; {running.agent or running.role} is being ended")
        return _do(a.AWAIT, f"{running.agent or 'a command'} is running ({running.role})")
    if phase.failure is not None:
        return _do(a.CLEAN_UP, f"the phase failed ({phase.failure.reason}); its work is kept on a branch")
    if phase.landed is not None:
        return _do(a.CLEAN_UP, "the phase has landed; its branch is not needed any more")
    if phase.landing is not None:
        return _do(a.LAND, "a landing was started; git is asked whether it happened")
    if state.stop:
        return _fail(Reason.STOPPED, "stop", f"stopped by {state.stop}")
    if phase.refusal is not None:
        reason, detail = phase.refusal
        step = step_of(phase)
        is_landing = reason == Reason.ALREADY_ON_TARGET and step != "undo"
        return _fail(Reason(reason), "land" if is_landing else step, detail)
    return _wait(state) or _work(started, phase)


def _do(action: a.Action, why: str) -> Decision:
    return Decision(actions=(action,), why=why)


def _start(dispatch: DispatchStarted, why: str) -> Decision:
    return _do(a.Start(dispatch=dispatch), why)


def _fail(reason: Reason, step: str, detail: str) -> Decision:
    return _do(a.Fail(reason=reason, at=step, detail=detail), f"{reason}: {detail}")


def _until(pause: Paused) -> Decision:
    return Decision(
        actions=(a.SLEEP,),
        why=f"waiting until {pause.until} ({describe_pause(pause)})",
        waiting=pause.kind,
        about=describe_pause(pause),
        wake=pause.until,
    )


def _wait(state: RunState) -> Decision | None:
    """Why nothing new may start; running processes continue."""
    if state.missing:
        about = f"the daemon restarted and lost {variables(state.missing)}"
        return Decision(why=about, waiting="key", about=about)
    if state.halted:
        about = f"paused by {state.halted}"
        return Decision(why=about, waiting="paused", about=about)
    if state.queued:
        why = "the limit of concurrent runs is reached; this run starts when another one ends or waits"
        return Decision(why=why, waiting="slot", about="its turn")
    return _until(state.pause) if state.pause is not None else None


def _between_phases(state: RunState, started: RunStarted, phase: PhaseRun | None) -> Decision:
    if phase is not None and phase.failure is not None:
        special = {Reason.BASELINE_RED: "refused", Reason.STOPPED: "stopped"}
        outcome = special.get(Reason(phase.failure.reason), "failed")
        finish = a.Finish(outcome=outcome, reason=phase.failure.reason, detail=phase.failure.detail)
        return _do(finish, "the failed phase is cleaned up")
    lane = failed_lane(state)
    if lane is not None and (ended := lane.state.ended) is not None:
        finish = a.Finish(outcome=ended.outcome, reason=ended.reason, detail=ended.detail)
        return _do(finish, f"phase {lane.phase} did not land, and the other phases have ended")
    if state.stop:
        return _do(a.Finish(outcome="stopped", reason=Reason.STOPPED), f"stopped by {state.stop}")
    if state.concluded is not None and state.concluded.reason:
        return _conclude(state)
    if started.claim and started.issues and not state.claimed and not state.is_lane:
        return _wait(state) or _do(a.CLAIM_ISSUES, "show on the forge which issues the run works on")
    if state.review and not state.is_lane:
        return _wait(state) or _do(a.REVIEW, "comments of reviewers are to be handled")
    if started.concludes and not state.is_lane and state.landed and state.landed[-1].complete:
        return _wait(state) or _conclude(state)
    if (phase is not None or state.lanes) and started.mode != "finish":
        return _do(a.Finish(outcome="done"), "everything requested has landed")
    if waiting := _wait(state):
        return waiting
    if state.plan is None:
        return _do(a.READ_PLAN, "the next phase is chosen from the plan on the target")
    detail = state.plan.detail
    if started.concludes and state.plan.choice == "complete":
        return _conclude(state)
    if state.plan.choice in ("complete", "phase-done"):
        finish = a.Finish(outcome="done" if state.landed else "nothing-to-do", detail=detail)
    else:
        outcome = "failed" if state.landed else "refused"
        finish = a.Finish(outcome=outcome, reason=Reason.BLOCKED, detail=detail)
    return _do(finish, f"no phase is due: {detail}")


def _conclude(state: RunState) -> Decision:
    """Every phase has landed, and the lander has something left to do."""
    done = state.concluded
    if done is None:
        return _do(a.CONCLUDE, "every phase is on the branch of the pull request; now it is to be merged")
    outcome = "failed" if done.reason else "done" if state.landed else "nothing-to-do"
    return _do(a.Finish(outcome=outcome, reason=done.reason, detail=done.note), done.note or "merged")


def _work(started: RunStarted, phase: PhaseRun) -> Decision:
    if phase.read.choice == "all-done":
        return _land(started, phase)
    if phase.read.choice == "undo":
        return _undo(started, phase)
    if phase.read.merge and phase.lease is not None and phase.work is None and not phase.rebuilt:
        return _do(a.MERGE_TARGET, "the target is merged into the branch of the pull request")
    if phase.lost >= MAX_LOST:
        return _fail(Reason.CRASHED, step_of(phase), f"{phase.lost} processes in a row were gone and left no result")
    if phase.lease is None:
        return _do(a.LEASE, "the phase needs a worktree and a branch")
    if phase.ended is not None:
        return _judge(phase, phase.ended)
    if phase.broken is not None:
        return _take_back(started, phase, phase.broken)
    if phase.work is not None:
        return _prove(started, phase, phase.work)
    kept = phase.leased.kept
    if kept is not None and kept.beginning is Beginning.PROVE and phase.cycle == 1:
        return _do(a.TAKE_WORK, "the attempt begins with the checks of the kept work")
    last = phase.handovers[-2:]
    if len(last) == 2 and last[0].tree == last[1].tree:
        detail = "two agents in a row filled their context, and the second one changed nothing"
        return _fail(Reason.NO_PROGRESS, step_of(phase), detail)
    return _prepare(started, phase, phase.base_tree) or _set_up_agents(started, phase) or _write(phase)


def _undo(started: RunStarted, phase: PhaseRun) -> Decision:
    """Undo needs no approval and no gate."""
    if phase.conflict is not None:
        detail = f"later work on the target changes the same lines as phase {phase.read.phase}, in {conflicting(phase)}"
        return _fail(Reason.CONFLICT, "undo", detail)
    if phase.moves > MAX_MOVES:
        return _fail(Reason.TARGET_MOVING, "undo", f"the target moved {phase.moves} times meanwhile")
    if phase.candidate is None:
        return _do(a.BUILD_UNDO, f"phase {phase.read.phase} is to be reverted")
    return _land(started, phase)


def _prepare(started: RunStarted, phase: PhaseRun, tree: str) -> Decision | None:
    """The checks on the base, with run.setup before them."""
    for group in started.gates:
        if unknown := tuple(name for name in group if name not in phase.baselines):
            baseline = DispatchStarted(role="baseline", gates=unknown, cycle=phase.cycle, tree=tree)
            why = f"{_run(unknown)} on the base first, to know old failures"
            return _set_up(started, phase, tree) or _start(baseline, why)
    return None


def _set_up_agents(started: RunStarted, phase: PhaseRun) -> Decision | None:
    """Run run.setup once in the worktree of implementers and fixers."""
    if not started.setup or phase.set_up:
        return None
    return _start(DispatchStarted(role="setup", cycle=phase.cycle), "run.setup prepares the agent's worktree")


def _set_up(started: RunStarted, phase: PhaseRun, tree: str) -> Decision | None:
    """Run run.setup in the proof worktree where it has not run on this tree, or its products have changed."""
    done = phase.prepared == tree or (phase.proof_set_up and started.clean == "untracked")
    if not started.setup or done:
        return None
    return _start(
        DispatchStarted(role="setup", cycle=phase.cycle, tree=tree), "run.setup prepares the worktree of the checks"
    )


def _write(phase: PhaseRun) -> Decision:
    if phase.cycle == 1 and phase.read.choice != "repair":
        return _start(DispatchStarted(role="implement", cycle=1), f"phase {phase.read.phase} is to be implemented")
    tree, complaint = (phase.failed_tree, phase.complaint) if phase.cycle > 1 else (phase.base_tree, phase.read.text)
    return _start(
        DispatchStarted(role="fix", cycle=phase.cycle, tree=tree, complaint=complaint), "a fresh agent fixes it"
    )


def _judge(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    """What follows from the end of a process."""
    match ended.role:
        case "baseline":
            return _do(a.JUDGE_BASELINE, "the checks on the base have ended")
        case "gate":
            return _do(a.JUDGE_GATE, "the checks have ended")
        case "prove":
            return _do(a.JUDGE_PROOF, "the tests of the other side have ended")
        case "setup":
            return _fail(Reason.SETUP_FAILED, "setup", describe_ending(ended))
        case _ if ended.kind in ("context", "max-turns") and ended.role in WRITERS:
            return _follow_up(phase, ended)
        case _:
            return _judge_agent(phase, ended)


def _follow_up(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    """After an agent with a full context."""
    if ended.said == "done":
        return _do(a.TAKE_WORK, "the agent's context was full, but it reports that it is done; now checking its work")
    if len(phase.handovers) >= MAX_HANDOVERS:
        detail = f"{len(phase.handovers) + 1} agents in a row filled their context; make the phase smaller"
        return _fail(Reason.AGENT_FAILED, ended.role, detail)
    return _do(a.HAND_OVER, "the agent's context is full; a fresh agent continues")


def _judge_agent(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    """An ending that may be chance is repeated once per role and cycle, which costs no fix cycle."""
    how = describe_ending(ended)
    if ended.said == "blocked" and ended.kind in ("", "success", *REPEATED):
        return _fail(Reason.BLOCKED, ended.role, ended.detail)
    if ended.kind in REPEATED and ended.said != "failed":
        before = next((one for one in phase.again if (one.role, one.cycle) == (ended.role, phase.cycle)), None)
        if before is None:
            assert phase.newest is not None
            return _start(replace(phase.newest, again=how), f"{how}; it is tried once more")
        how = f"{how}; it was tried once more" + ("" if before.again == how else f" after {before.again}")
    elif ended.kind in ("", "success") and ended.ending == "exited" and ended.code == 0 and ended.said != "failed":
        if ended.role == "verify":
            return _do(a.JUDGE_VERDICT, "the verifier has answered")
        return _do(a.TAKE_WORK, f"{ended.agent or ended.role} finished; now checking what it changed")
    if ended.kind == "budget":
        reason = Reason.BUDGET
    else:
        reason = Reason.AGENT_FAILED if gave_reason(ended) else STOPPED_BY.get(ended.ending, Reason.AGENT_FAILED)
    if phase.unsolved is not None and reason is Reason.AGENT_FAILED and ended.kind in ("", "success", *REPEATED):
        return _fail(Reason.CONFLICT, ended.role, unsolved(phase, how))
    return _fail(reason, ended.role, how)


def _take_back(started: RunStarted, phase: PhaseRun, broken: RulesBroken) -> Decision:
    """A fixer takes back what the phase does not permit, once."""
    detail = "; ".join(broken.lines)
    if phase.breaks > 1 or phase.cycle > started.max_fix_cycles:
        step = "fix" if phase.cycle > 1 else "implement"
        return _fail(broken.reason, step, f"{detail}{broken.remedy}")
    complaint = f"the phase does not permit these changes; take them back: {detail}"
    fixer = DispatchStarted(role="fix", cycle=phase.cycle + 1, tree=broken.tree, complaint=complaint)
    return _start(fixer, f"{complaint}; fix cycle {phase.cycle} of {started.max_fix_cycles}")


def _prove(started: RunStarted, phase: PhaseRun, work: WorkTaken) -> Decision:
    if work.commits == 0 and phase.unsolved is not None:
        return _fail(Reason.CONFLICT, "fix", unsolved(phase, "it left no change"))
    if work.commits == 0:
        return _fail(Reason.NO_COMMITS, "fix" if phase.cycle > 1 else "implement", "the agent left no change")
    if phase.conflict is not None and phase.rebuilt:
        detail = f"the work conflicts with the target in {conflicting(phase)}, again after it was redone on the new tip"
        return _fail(Reason.CONFLICT, "land", f"{detail}; the work before that is kept at {phase.parked}")
    if phase.conflict is not None:
        rebuild = a.RebuildBranch(onto=phase.conflict.onto, start=phase.conflict.onto)
        return _do(rebuild, f"the work conflicts with the target in {conflicting(phase)}")
    if phase.moves > MAX_MOVES:
        return _fail(Reason.TARGET_MOVING, "land", f"the target moved {phase.moves} times while landing")
    if phase.candidate is None:
        return _do(a.BUILD_CANDIDATE, "the work is replayed on the target's tip")
    if phase.candidate.tree == phase.failed_tree:
        return _fail(Reason.NO_PROGRESS, "fix", f"the fixer changed nothing; {phase.complaint}")
    # When the target moved, its own failures have to be known.
    if baseline := _prepare(started, phase, phase.candidate.onto_tree):
        return baseline
    if started.setup and phase.prepared == phase.candidate.onto_tree:  # else it would be prepared again later
        early = tuple(run for run in phase.candidate.proofs if run.kind is ProofKind.NEW_TESTS)
        return _run_proofs(started, phase, phase.candidate, early) or _gate(started, phase, phase.candidate)
    return _gate(started, phase, phase.candidate)


def _gate(started: RunStarted, phase: PhaseRun, candidate: CandidateBuilt) -> Decision:
    if not started.gates and not phase.gates:
        return _do(a.JUDGE_GATE, "there is no test command; that is recorded")
    for group in started.gates:
        judged = [phase.judged[name] for name in group if name in phase.judged]
        new = tuple(name for name in group if name not in phase.judged)
        unfinished = None if new else next((gate for gate in judged if gate.answer == "unfinished"), None)
        if unfinished is not None:
            detail = _of_gate(unfinished, unfinished.line)
            if unfinished.code is None:
                return _fail(Reason.TESTS_UNFINISHED, "gate", detail)
            return _fix(started, phase, candidate, Reason.TESTS_UNFINISHED, detail)  # the work may have broken it
        failed = [gate for gate in judged if gate.answer == "failed"]
        if due := new or tuple(gate.name for gate in failed if gate.time < GATE_RUNS):
            again = "" if new else f"the first run failed: {'; '.join(gate.line for gate in failed)}"
            gate = DispatchStarted(role="gate", gates=due, cycle=phase.cycle, tree=candidate.tree, again=again)
            why = f"{_run(due)} on the exact tree" if new else f"{_run(due)} a second time, because {again}"
            return _set_up(started, phase, candidate.tree) or _start(gate, why)
        if failed:
            detail = "; ".join(_of_gate(gate, f"the checks failed: {gate.line}") for gate in failed)
            return _fix(started, phase, candidate, Reason.TESTS_FAILED, detail)
    return _prove_tests(started, phase, candidate)


def _prove_tests(started: RunStarted, phase: PhaseRun, candidate: CandidateBuilt) -> Decision:
    """Where tests changed: the base's tests on the new code, and the new tests on the base's code."""
    if due := _run_proofs(started, phase, candidate, candidate.proofs):
        return due
    if phase.questions and started.changed == "refuse":
        detail = "; ".join(f"{test}" for _, test in phase.questions)
        return _fix(started, phase, candidate, Reason.TESTS_FAILED, detail)
    hollow = next((proof for proof in phase.proven.values() if proof.is_hollow), None)
    if hollow is not None and started.prove == "require":
        return _fix(started, phase, candidate, Reason.TESTS_FAILED, f'{hollow.line} (tests.prove = "require")')
    return _verify(started, phase, candidate)


def _run_proofs(
    started: RunStarted, phase: PhaseRun, candidate: CandidateBuilt, runs: Sequence[ProofRun]
) -> Decision | None:
    """The first of these runs that is due; a broken promise is looked at twice."""
    for run in runs:
        judged = phase.proven.get(run.kind)
        if judged is None or (judged.promises and judged.time < GATE_RUNS):
            again = f"the first run failed: {judged.line}" if judged else ""
            proof = DispatchStarted(
                role="prove", gates=(TESTS,), cycle=phase.cycle, tree=run.tree, scope=run.kind, again=again
            )
            # Only tests differ, so the products of run.setup are those of the code that they run on.
            tree = candidate.onto_tree if run.kind is ProofKind.NEW_TESTS else candidate.tree
            return _set_up(started, phase, tree) or _start(proof, PROOFS[run.kind])
    return None


def _run(names: Sequence[str]) -> str:
    """`the tests run`, `lint and types run`."""
    if tuple(names) == (TESTS,):
        return "the tests run"
    return f"{' and '.join(names)} {'runs' if len(names) == 1 else 'run'}"


def _of_gate(gate: GateJudged, line: str) -> str:
    return line if gate.name == TESTS else f"{gate.name}: {line}"


def _verify(started: RunStarted, phase: PhaseRun, candidate: CandidateBuilt) -> Decision:
    """One verifier after the other, then one for all phases where the plan ends; the first that fails starts a fix."""
    if phase.read.merge and not phase.rebuilt:  # a clean merge: no agent has changed anything
        return _land(started, phase)
    if phase.verdict is not None and not phase.verdict.passed:
        return _fix(started, phase, candidate, Reason.VERIFICATION_FAILED, phase.verdict.why)
    verifiers = started.verifiers or ("",)
    asked = phase.questions_to_verifiers(started.changed)
    given = sum(not verdict.scope and verdict.questions == asked for verdict in phase.verdicts)
    verifier = DispatchStarted(role="verify", cycle=phase.cycle, tree=candidate.tree)
    again = "; it is asked once more, because its evidence did not resolve" if phase.unresolved else ""
    if given < len(verifiers):
        verify = replace(verifier, agent=verifiers[given])
        why = f"an independent verifier judges the exact tree{again}"
        return _set_up(started, phase, candidate.tree) or _start(verify, why)
    if phase.is_last and not any(verdict.scope for verdict in phase.verdicts):
        final = replace(verifier, agent=verifiers[0], scope="final")
        why = f"the plan ends with this phase; a verifier judges all phases together{again}"
        return _set_up(started, phase, candidate.tree) or _start(final, why)
    return _land(started, phase)


def _fix(started: RunStarted, phase: PhaseRun, candidate: CandidateBuilt, reason: Reason, detail: str) -> Decision:
    if phase.cycle > started.max_fix_cycles:
        return _fail(reason, "verify" if reason is Reason.VERIFICATION_FAILED else "gate", detail)
    why, tree = f"{detail}; fix cycle {phase.cycle} of {started.max_fix_cycles}", candidate.tree
    if candidate.onto == phase.base:
        return _start(DispatchStarted(role="fix", cycle=phase.cycle + 1, tree=tree, complaint=detail), why)
    # The fixer has to see the tree that failed, which is the work on the moved target.
    start = candidate.commits[-1]
    return _do(a.RebuildBranch(onto=candidate.onto, start=start, complaint=detail, tree=tree), why)


def _land(started: RunStarted, phase: PhaseRun) -> Decision:
    tree = phase.candidate.tree if phase.candidate else ""
    if phase.held:
        return Decision(why=f"the landing waits: {phase.held}", waiting="checkout", about=phase.held)
    signed = needs_sign_off(started, phase)
    is_free = started.auto or started.concludes  # a pull request is approved as a whole
    if (is_free and not signed) or not tree or phase.approved == tree:
        proof = "an undo needs no checks" if phase.read.choice == "undo" else "all checks passed"
        return _do(a.LAND, f"{proof}; code, tracker and report land together")
    if phase.asked != tree:
        asks = "a person signs the phase off" if signed else "without `auto` a person approves each landing"
        return _do(a.ASK, asks)
    proven = f"phase {phase.read.phase} passed all checks and needs your"
    if signed:
        asked = (*phase.read.sign_off, *(text for _, text in phase.questions if started.changed == "ask"))
        what = f": {'; '.join(asked)}" if asked else ""
        return Decision(why=f"{proven} sign-off{what}", waiting="sign-off")
    return Decision(why=f"{proven} approval", waiting="approval")


def needs_sign_off(started: RunStarted, phase: PhaseRun) -> bool:
    """Whether a person has to see the result, also with `auto`.

    The plan says so, files of the interface changed, or tests of the base fail and `tests.changed` is "ask".
    """
    changed = phase.work.files if phase.work else ()
    if started.changed == "ask" and phase.questions:
        return True
    return bool(phase.read.sign_off) or any(matches(pattern, path) for pattern in started.sign_off for path in changed)


# --- phases side by side ------------------------------------------------------------------------------


def _side_by_side(state: RunState, started: RunStarted, lanes: list[Lane]) -> Decision:
    """Each lane by the same rules as a run of its own; and a search for further phases."""
    each = [decide(lane.state) for lane in lanes]
    more = _search(state, started, len(lanes))
    actions = [
        replace(action, lane=lane.name)
        for lane, decision in zip(lanes, each, strict=True)
        for action in decision.actions
    ]
    # The run waits only when all lanes wait. It then waits for the first thing that can happen.
    waits = sorted((one for one in each if one.waiting), key=lambda one: one.wake or "~")
    first = waits[0] if len(waits) == len(each) and (more is None or more.waiting) else None
    why = [f"phase {lane.phase}: {one.why}" for lane, one in zip(lanes, each, strict=True)]
    if (failed := failed_lane(state)) is not None:
        why.append(f"phase {failed.phase} did not land, so no further phase starts")
    return Decision(
        actions=(*actions, *(more.actions if more else ())),
        why="; ".join(why),
        waiting=first.waiting if first else "",
        about=first.about if first else "",
        wake=min((one.wake for one in (*each, *([more] if more else [])) if one.wake), default=""),
    )


def _search(state: RunState, started: RunStarted, lanes: int) -> Decision | None:
    """Read the plan for phases that can start next to the open lanes; None when none may."""
    may_start = started.mode == "finish" and lanes < started.parallel and not state.looked
    if not may_start or state.stop or state.halted or state.queued or failed_lane(state) is not None:
        return None
    if state.pause is not None:  # the target could not be read; the open lanes continue
        return _until(state.pause)
    return _do(a.READ_PLAN, "the plan is searched for phases that can start next to the running ones")


def startable(plan: Plan, worked: Mapping[str, Sequence[str]], *, limit: int) -> list[Phase]:
    """The phases to start now, in the plan's order, at most `limit`; `worked` maps running phases to touched paths.

    A phase without `Touches:` may touch everything, so it runs alone.
    """
    chosen: list[Phase] = []
    taken = list(worked.values())
    for phase in plan.phases if plan.status is PlanStatus.ACTIVE else ():
        is_open = phase.status is not Status.DONE and not hindrance(plan, phase)
        is_free = phase.id not in worked and not any(overlap(phase.touches, other) for other in taken)
        if len(chosen) < limit and is_open and is_free:
            chosen.append(phase)
            taken.append(phase.touches)
    return chosen


def overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether both may cover the same path; true in doubt, and when either is empty."""
    one, two = [_place(pattern) for pattern in some], [_place(pattern) for pattern in others]
    if not one or not two:
        return True
    return any(a[: len(b)] == b[: len(a)] for a in one for b in two)


def _place(pattern: str) -> tuple[str, ...]:
    """The folder or file that contains every match; casefolded, since some file systems ignore case."""
    fixed = literal(pattern)
    whole = fixed == pattern.strip().removeprefix("./").lstrip("/")
    path = fixed if whole else fixed.rpartition("/")[0]
    return tuple(part for part in path.casefold().split("/") if part not in ("", "."))


# --- for the worker and schedules ---------------------------------------------------------------------


def without_beginnings(decision: Decision) -> Decision:
    """The decision without the actions that begin something; a draining daemon leaves these to the next one."""
    begins = ("read-plan", "lease", "start")
    return replace(decision, actions=tuple(one for one in decision.actions if one.step not in begins))


def ends(state: RunState) -> tuple[a.Action, ...]:
    """The actions that end every process of a run; each process is due again afterwards."""
    at_work = [lane for lane, one in open_states(state) if one.phase is not None and one.phase.dispatch is not None]
    return tuple(replace(a.END, lane=lane) for lane in at_work)


def pause_reason(state: RunState) -> str:
    """Why the plan's schedule pauses after this run, until a person resumes it; "" when it does not."""
    ended, failed = state.ended, failure(state)
    if phase := rejected_phase(state):
        return f"phase {phase} was rejected"
    is_daemons = state.started is not None and state.started.daemon  # not in the foreground
    if not is_daemons or ended is None or ended.outcome not in ("failed", "refused"):
        return ""
    if state.phase or state.lanes:
        return f"phase {failed.phase} failed ({ended.reason})" if failed else f"the run failed ({ended.reason})"
    # A blocked phase may be free the next time; a plan that is unreadable or not active needs a person.
    needs_person = state.plan is not None and state.plan.choice in ("unreadable", "inactive")
    return ended.detail if needs_person else ""


def rejected_phase(state: RunState) -> str:
    """The phase whose rejection ended the run; "" for none."""
    phases = [one.phase for one in (state, *(lane.state for lane in state.lanes)) if state.ended is not None]
    return next((phase.read.phase for phase in phases if phase is not None and phase.rejected is not None), "")


def pending_answer(state: RunState, plan: str) -> str:
    """Why a schedule may not continue the plan's unfinished run; "" when it may.

    A run without `auto` lands only approved changes, so a schedule may not turn it into one with `auto`.
    """
    if state.started is None or state.ended is not None:
        return ""
    decision, see = decide(state), command("runplan", "status", plan)
    if decision.waiting in ANSWERED:
        return f"{decision.why}. {wait_of(decision.waiting).help(plan)}"
    return "" if state.started.auto else f"a run of {plan} without `auto` has not ended: {decision.why}; see: {see}"


def describe_rejection(phase: str, plan: str) -> str:
    """Why `now` starts nothing after a rejection, and the commands that help."""
    retry, resume = command("runplan", "retry", plan), command("runplan", "resume", plan)
    return f"phase {phase} was rejected; retry it: {retry}; or resume the schedule: {resume}"
