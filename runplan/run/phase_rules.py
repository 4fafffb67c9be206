"""The rules of an attempt at a phase: write, prove, fix, and then deliver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.run import actions as a
from runplan.run.actions import Decision, fail_phase, perform_action, start_dispatch
from runplan.run.delivery import MAX_MOVES, land_candidate
from runplan.run.dispatch import WRITERS
from runplan.run.events import TESTS, DispatchStarted, MergeChosen, ProofKind, RepairChosen
from runplan.run.reasons import (
    Beginning,
    Reason,
    conflicting,
    describe_ending,
    describe_proof,
    gave_reason,
    step_of,
    unsolved,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.run.events import (
        CandidateBuilt,
        DispatchEnded,
        GateJudged,
        ProofRun,
        RulesBroken,
        RunStarted,
        WorkTaken,
    )
    from runplan.run.state import PhaseRun

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


def work_on_phase(started: RunStarted, phase: PhaseRun) -> Decision:
    if isinstance(phase.chosen, MergeChosen) and phase.lease is not None and phase.work is None and not phase.rebuilt:
        return perform_action(a.MERGE_TARGET, "the target is merged into the branch of the pull request")
    if phase.lost >= MAX_LOST:
        return fail_phase(
            Reason.CRASHED, step_of(phase), f"{phase.lost} processes in a row were gone and left no result"
        )
    if phase.lease is None:
        return perform_action(a.LEASE, "the phase needs a worktree and a branch")
    if phase.ended is not None:
        return _judge(phase, phase.ended)
    if phase.broken is not None:
        return _take_back(started, phase, phase.broken)
    if phase.work is not None:
        return _prove(started, phase, phase.work)
    kept = phase.leased.kept
    if kept is not None and kept.beginning is Beginning.PROVE and phase.cycle == 1:
        return perform_action(a.TAKE_WORK, "the attempt begins with the checks of the kept work")
    last = phase.handovers[-2:]
    if len(last) == 2 and last[0].tree == last[1].tree:
        detail = "two agents in a row filled their context, and the second one changed nothing"
        return fail_phase(Reason.NO_PROGRESS, step_of(phase), detail)
    return _prepare(started, phase, phase.base_tree) or _set_up_agents(started, phase) or _write(phase)


def _prepare(started: RunStarted, phase: PhaseRun, tree: str) -> Decision | None:
    """The checks on the base, with run.setup before them."""
    for group in started.gates:
        if unknown := tuple(name for name in group if name not in phase.baselines):
            baseline = DispatchStarted(role="baseline", gates=unknown, cycle=phase.cycle, tree=tree)
            why = f"{_run(unknown)} on the base first, to know old failures"
            return _set_up(started, phase, tree) or start_dispatch(baseline, why)
    return None


def _set_up_agents(started: RunStarted, phase: PhaseRun) -> Decision | None:
    """Run run.setup once in the worktree of implementers and fixers."""
    if not started.setup or phase.set_up:
        return None
    return start_dispatch(DispatchStarted(role="setup", cycle=phase.cycle), "run.setup prepares the agent's worktree")


def _set_up(started: RunStarted, phase: PhaseRun, tree: str) -> Decision | None:
    """Run run.setup in the proof worktree where it has not run on this tree, or its products have changed."""
    done = phase.prepared == tree or (phase.proof_set_up and started.clean == "untracked")
    if not started.setup or done:
        return None
    return start_dispatch(
        DispatchStarted(role="setup", cycle=phase.cycle, tree=tree), "run.setup prepares the worktree of the checks"
    )


def _write(phase: PhaseRun) -> Decision:
    if phase.cycle == 1 and not isinstance(phase.chosen, RepairChosen):
        return start_dispatch(
            DispatchStarted(role="implement", cycle=1), f"phase {phase.chosen.phase} is to be implemented"
        )
    tree, complaint = (phase.failed_tree, phase.complaint) if phase.cycle > 1 else (phase.base_tree, phase.chosen.text)
    return start_dispatch(
        DispatchStarted(role="fix", cycle=phase.cycle, tree=tree, complaint=complaint), "a fresh agent fixes it"
    )


def _judge(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    """What follows from the end of a process."""
    match ended.role:
        case "baseline":
            return perform_action(a.JUDGE_BASELINE, "the checks on the base have ended")
        case "gate":
            return perform_action(a.JUDGE_GATE, "the checks have ended")
        case "prove":
            return perform_action(a.JUDGE_PROOF, "the tests of the other side have ended")
        case "setup":
            return fail_phase(Reason.SETUP_FAILED, "setup", describe_ending(ended))
        case _ if ended.kind in ("context", "max-turns") and ended.role in WRITERS:
            return _follow_up(phase, ended)
        case _:
            return _judge_agent(phase, ended)


def _follow_up(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    """After an agent with a full context."""
    if ended.said == "done":
        return perform_action(
            a.TAKE_WORK, "the agent's context was full, but it reports that it is done; now checking its work"
        )
    if len(phase.handovers) >= MAX_HANDOVERS:
        detail = f"{len(phase.handovers) + 1} agents in a row filled their context; make the phase smaller"
        return fail_phase(Reason.AGENT_FAILED, ended.role, detail)
    return perform_action(a.HAND_OVER, "the agent's context is full; a fresh agent continues")


def _judge_agent(phase: PhaseRun, ended: DispatchEnded) -> Decision:
    """An ending that may be chance is repeated once per role and cycle, which costs no fix cycle."""
    how = describe_ending(ended)
    if ended.said == "blocked" and ended.kind in ("", "success", *REPEATED):
        return fail_phase(Reason.BLOCKED, ended.role, ended.detail)
    if ended.kind in REPEATED and ended.said != "failed":
        before = next((one for one in phase.again if (one.role, one.cycle) == (ended.role, phase.cycle)), None)
        if before is None:
            assert phase.newest is not None
            return start_dispatch(replace(phase.newest, again=how), f"{how}; it is tried once more")
        how = f"{how}; it was tried once more" + ("" if before.again == how else f" after {before.again}")
    elif ended.kind in ("", "success") and ended.ending == "exited" and ended.code == 0 and ended.said != "failed":
        if ended.role == "verify":
            return perform_action(a.JUDGE_VERDICT, "the verifier has answered")
        return perform_action(a.TAKE_WORK, f"{ended.agent or ended.role} finished; now checking what it changed")
    if ended.kind == "budget":
        reason = Reason.BUDGET
    else:
        reason = Reason.AGENT_FAILED if gave_reason(ended) else STOPPED_BY.get(ended.ending, Reason.AGENT_FAILED)
    if phase.unsolved is not None and reason is Reason.AGENT_FAILED and ended.kind in ("", "success", *REPEATED):
        return fail_phase(Reason.CONFLICT, ended.role, unsolved(phase, how))
    return fail_phase(reason, ended.role, how)


def _take_back(started: RunStarted, phase: PhaseRun, broken: RulesBroken) -> Decision:
    """A fixer takes back what the phase does not permit, once."""
    detail = "; ".join(broken.lines)
    if phase.breaks > 1 or phase.cycle > started.max_fix_cycles:
        step = "fix" if phase.cycle > 1 else "implement"
        return fail_phase(broken.reason, step, f"{detail}{broken.remedy}")
    complaint = f"the phase does not permit these changes; take them back: {detail}"
    fixer = DispatchStarted(role="fix", cycle=phase.cycle + 1, tree=broken.tree, complaint=complaint)
    return start_dispatch(fixer, f"{complaint}; fix cycle {phase.cycle} of {started.max_fix_cycles}")


def _prove(started: RunStarted, phase: PhaseRun, work: WorkTaken) -> Decision:
    if work.commits == 0 and phase.unsolved is not None:
        return fail_phase(Reason.CONFLICT, "fix", unsolved(phase, "it left no change"))
    if work.commits == 0:
        return fail_phase(Reason.NO_COMMITS, "fix" if phase.cycle > 1 else "implement", "the agent left no change")
    if phase.conflict is not None and phase.rebuilt:
        detail = f"the work conflicts with the target in {conflicting(phase)}, again after it was redone on the new tip"
        return fail_phase(Reason.CONFLICT, "land", f"{detail}; the work before that is kept at {phase.parked}")
    if phase.conflict is not None:
        rebuild = a.RebuildBranch(onto=phase.conflict.onto, start=phase.conflict.onto)
        return perform_action(rebuild, f"the work conflicts with the target in {conflicting(phase)}")
    if phase.moves > MAX_MOVES:
        return fail_phase(Reason.TARGET_MOVING, "land", f"the target moved {phase.moves} times while landing")
    if phase.candidate is None:
        return perform_action(a.BUILD_CANDIDATE, "the work is replayed on the target's tip")
    if phase.candidate.tree == phase.failed_tree:
        return fail_phase(Reason.NO_PROGRESS, "fix", f"the fixer changed nothing; {phase.complaint}")
    # When the target moved, its own failures have to be known.
    if baseline := _prepare(started, phase, phase.candidate.onto_tree):
        return baseline
    if started.setup and phase.prepared == phase.candidate.onto_tree:  # else it would be prepared again later
        early = tuple(run for run in phase.candidate.proofs if run.kind is ProofKind.NEW_TESTS)
        return _run_proofs(started, phase, phase.candidate, early) or _gate(started, phase, phase.candidate)
    return _gate(started, phase, phase.candidate)


def _gate(started: RunStarted, phase: PhaseRun, candidate: CandidateBuilt) -> Decision:
    if not started.gates and not phase.gates:
        return perform_action(a.JUDGE_GATE, "there is no test command; that is recorded")
    for group in started.gates:
        judged = [phase.judged[name] for name in group if name in phase.judged]
        new = tuple(name for name in group if name not in phase.judged)
        unfinished = None if new else next((gate for gate in judged if gate.answer == "unfinished"), None)
        if unfinished is not None:
            detail = _of_gate(unfinished, unfinished.line)
            if unfinished.code is None:
                return fail_phase(Reason.TESTS_UNFINISHED, "gate", detail)
            return _fix(started, phase, candidate, Reason.TESTS_UNFINISHED, detail)  # the work may have broken it
        failed = [gate for gate in judged if gate.answer == "failed"]
        if due := new or tuple(gate.name for gate in failed if gate.time < GATE_RUNS):
            again = "" if new else f"the first run failed: {'; '.join(gate.line for gate in failed)}"
            gate = DispatchStarted(role="gate", gates=due, cycle=phase.cycle, tree=candidate.tree, again=again)
            why = f"{_run(due)} on the exact tree" if new else f"{_run(due)} a second time, because {again}"
            return _set_up(started, phase, candidate.tree) or start_dispatch(gate, why)
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
        return _fix(
            started, phase, candidate, Reason.TESTS_FAILED, f'{describe_proof(hollow)} (tests.prove = "require")'
        )
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
            return _set_up(started, phase, tree) or start_dispatch(proof, PROOFS[run.kind])
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
    if isinstance(phase.chosen, MergeChosen) and not phase.rebuilt:  # a clean merge: no agent has changed anything
        return land_candidate(started, phase)
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
        return _set_up(started, phase, candidate.tree) or start_dispatch(verify, why)
    if phase.is_last and not any(verdict.scope for verdict in phase.verdicts):
        final = replace(verifier, agent=verifiers[0], scope="final")
        why = f"the plan ends with this phase; a verifier judges all phases together{again}"
        return _set_up(started, phase, candidate.tree) or start_dispatch(final, why)
    return land_candidate(started, phase)


def _fix(started: RunStarted, phase: PhaseRun, candidate: CandidateBuilt, reason: Reason, detail: str) -> Decision:
    if phase.cycle > started.max_fix_cycles:
        return fail_phase(reason, "verify" if reason is Reason.VERIFICATION_FAILED else "gate", detail)
    why, tree = f"{detail}; fix cycle {phase.cycle} of {started.max_fix_cycles}", candidate.tree
    if candidate.onto == phase.base:
        return start_dispatch(DispatchStarted(role="fix", cycle=phase.cycle + 1, tree=tree, complaint=detail), why)
    # The fixer has to see the tree that failed, which is the work on the moved target.
    start = candidate.commits[-1]
    return perform_action(a.RebuildBranch(onto=candidate.onto, start=start, complaint=detail, tree=tree), why)
