"""The rules of an attempt in which agents write, at a phase or a repair: write, prove, fix, and then deliver."""

from collections.abc import Sequence

from msgspec.structs import replace

from runplan.domain.globs import matches
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.actions import Decision, fail_phase, perform_action, start_dispatch, wait_for
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.dispatch import Ending, EndingKind, NewTestsAnswer, ReturnStatus
from runplan.domain.run.kinds import Beginning, GateAnswer, PhaseStep, ProofKind, Reason, Role, WaitKind
from runplan.domain.run.reasons import describe_ending, describe_proof
from runplan.domain.run.rules import shared
from runplan.domain.text import counted

MAX_HANDOVERS = 3  #: fresh agents that continue a phase after a full context
MAX_SETUPS = 3  #: on one tree for the same reason
GATE_RUNS = 2  #: a red gate runs once more before it counts
#: Why each of the proofs runs.
PROOFS = {
    ProofKind.OLD_TESTS: "tests changed: the base's tests run on the new code",
    ProofKind.LANDED_TESTS: "tests of earlier phases changed again: their landed versions run on the new code",
    ProofKind.NEW_TESTS: "tests changed: the new tests run on the base's code",
    ProofKind.EMPTIED: "new tests that cannot be loaded on the base run with the added functions emptied",
}


def work_on(started: e.RunStarted, attempt: WorkAttempt) -> Decision:
    match attempt.chosen:
        case e.PhaseChosen(phase=phase):
            implementer = e.DispatchStarted(role=Role.IMPLEMENT, cycle=1)
            return _write(started, attempt, start_dispatch(implementer, f"phase {phase} is to be implemented"))
        case e.MergeChosen() if attempt.lease is not None and attempt.work is None and not attempt.rebuilt:
            return perform_action(a.MERGE_TARGET, "the target is merged into the branch of the pull request")
        case e.RepairChosen(text=text) | e.MergeChosen(text=text):  # a merge needs a fixer only for conflicts
            return _write(started, attempt, _start_fixer(attempt, tree=attempt.base_tree, complaint=text))
        case e.SubplanChosen(subplan=subplan) if not attempt.is_last:
            if attempt.over is None:
                return shared.await_subplan(attempt)
            if not attempt.over.complete:
                return fail_phase(Reason.BLOCKED, PhaseStep.SUBPLAN, attempt.over.detail)
            return shared.land_candidate(started, attempt, proof=f"{subplan} is complete")
    # The work lands by itself, so it is neither fixed nor approved; only the row of the phase is left.
    decision = _follow_command(replace(started, auto=True), attempt)
    match decision.actions:
        case (a.Fail(reason=reason, at=step, detail=detail),) if attempt.delivery.candidate is not None:
            landed = f"what has landed stays on the target: {attempt.base[:7]}..{attempt.built.commits[-1][:7]}"
            return fail_phase(reason, step, f"{detail}; {landed}")
    return decision


def _follow_command(started: e.RunStarted, phase: WorkAttempt) -> Decision:
    ended = phase.dispatches.ended
    candidate = phase.delivery.candidate
    if lost := shared.fail_lost(phase):
        return lost
    if phase.lease is None:
        return perform_action(a.LEASE, "the phase needs a worktree for its checks")
    if ended is not None and ended.role is Role.DELEGATE and not ended.succeeded:
        reason = shared.STOPPED_BY.get(ended.ending, Reason.AGENT_FAILED)
        return fail_phase(reason, PhaseStep.DELEGATE, describe_ending(ended))
    if ended is not None and ended.role is not Role.DELEGATE:
        return _judge_ended(phase, ended)
    has_landed = phase.is_last or (phase.work is not None and phase.work.commits)
    if ended is not None or (has_landed and candidate is None):
        return perform_action(a.TAKE_DELEGATED, "the target shows what has landed")
    if phase.delivery.moves > shared.MAX_MOVES:
        return fail_phase(Reason.TARGET_MOVING, PhaseStep.LAND, f"the target moved {phase.delivery.moves} times")
    if candidate is not None:
        return _run_baseline(started, phase, candidate.onto_tree) or _run_gates(started, phase)
    if phase.work is not None:
        return fail_phase(Reason.NO_COMMITS, PhaseStep.DELEGATE, "the command did not move the target")
    command = e.DispatchStarted(role=Role.DELEGATE, cycle=phase.cycle)
    start = start_dispatch(command, f"the command of phase {phase.chosen.phase} runs in your checkout")
    altered = phase.altered
    if isinstance(phase.chosen, e.DelegateChosen) and altered and phase.delivery.approved != altered.tree:
        # A person approves what the command would run with the user's rights, also with `auto`.
        files = ", ".join(altered.files)
        why = f"`{phase.chosen.command}` runs with your rights, and {files} changed since the plan began"
        asks = f"{why}; phase {phase.chosen.phase} needs your sign-off"
        is_asked = phase.delivery.asked == altered.tree
        start = wait_for(WaitKind.SIGN_OFF, "", asks) if is_asked else perform_action(a.ASK, why)
    return _run_baseline(started, phase, phase.base_tree) or start


def _write(started: e.RunStarted, phase: WorkAttempt, first: Decision) -> Decision:
    if lost := shared.fail_lost(phase):
        return lost
    if phase.lease is None:
        return perform_action(a.LEASE, "the phase needs a worktree and a branch")
    if phase.dispatches.ended is not None:
        return _judge_ended(phase, phase.dispatches.ended)
    if (broken := phase.broken) is not None:  # a fixer takes back what the phase does not permit, once
        detail = "; ".join(broken.lines)
        if phase.breaks > 1 or phase.fixes >= started.kept.run.max_fix_cycles:
            return fail_phase(broken.reason, _written_at(phase), f"{detail}{broken.remedy}")
        complaint = f"the phase does not permit these changes; take them back: {detail}"
        fixer = e.DispatchStarted(role=Role.FIX, cycle=phase.cycle + 1, tree=broken.tree, complaint=complaint)
        why = f"{complaint}; fix cycle {phase.fixes + 1} of {started.kept.run.max_fix_cycles}"
        return _set_up_agents(started, phase) or start_dispatch(fixer, why)
    if phase.revision and phase.delivery.candidate is not None:
        return _send_fixer(started, phase, f"a person rejected the change: {phase.revision}")
    if phase.work is not None:
        return _prove_work(started, phase, phase.work)
    kept = phase.leased.kept
    if kept is not None and kept.beginning is Beginning.PROVE and phase.cycle == 1:
        return perform_action(a.TAKE_WORK, "the attempt begins with the checks of the kept work")
    last = phase.handovers[-2:]
    if len(last) == 2 and last[0].tree == last[1].tree:
        detail = "two agents in a row filled their context, and the second one changed nothing"
        return fail_phase(Reason.NO_PROGRESS, phase.step, detail)
    begin = first if phase.cycle == 1 else _start_fixer(phase, tree=phase.failed_tree, complaint=phase.complaint)
    # The gate of the phase that it began on is its baseline.
    before = _run_baseline(started, phase, phase.base_tree, agents=True) if not phase.chosen.base else None
    return before or _set_up_agents(started, phase) or begin


def _run_baseline(started: e.RunStarted, phase: WorkAttempt, tree: str, *, agents: bool = False) -> Decision | None:
    """The checks on the base, with run.setup before them; with `agents` also in the worktree of the agents."""
    for group in started.kept.check_groups:
        if unknown := tuple(name for name in group if name not in phase.proof.baselines):
            baseline = e.DispatchStarted(role=Role.BASELINE, gates=unknown, cycle=phase.cycle, tree=tree)
            why = f"{_describe_checks(unknown)} on the base first, to know old failures"
            return _set_up_proof(started, phase, tree, agents=agents) or start_dispatch(baseline, why)
    return None


def _set_up_agents(started: e.RunStarted, phase: WorkAttempt) -> Decision | None:
    if not started.kept.run.setup or phase.setup.agents:
        return None
    setup = e.DispatchStarted(role=Role.SETUP, cycle=phase.cycle)
    return start_dispatch(setup, "run.setup prepares the agent's worktree")


def _set_up_proof(
    started: e.RunStarted, phase: WorkAttempt, tree: str, red: str = "", *, agents: bool = False
) -> Decision | None:
    """Run run.setup in the proof worktree, unless that is prepared for this tree; `red`: why a check is repeated."""
    setup = phase.setup
    # What failed with products of an earlier tree counts only if it fails with new ones, too.
    doubt = setup.doubt or (red if setup.is_reused else "")
    if not started.kept.run.setup or (setup.tree == tree and not doubt):
        return None
    if why := next((why for on, why in setup.ran if on == tree and setup.ran.count((on, why)) >= MAX_SETUPS), ""):
        detail = f"run.setup ran {MAX_SETUPS} times on the same tree, and its products could not be used: {why}"
        return fail_phase(Reason.SETUP_FAILED, PhaseStep.SETUP, detail)
    again = f"{doubt}, with products of an earlier set-up" if doubt else ""
    why = f"run.setup prepares the worktree of the checks{f': {again}' if again else ''}"
    agents = agents and not phase.setup.agents and not again
    dispatch = e.DispatchStarted(role=Role.SETUP, cycle=phase.cycle, tree=tree, again=again, agents=agents)
    return start_dispatch(dispatch, why)


def _start_fixer(phase: WorkAttempt, *, tree: str, complaint: str) -> Decision:
    fixer = e.DispatchStarted(role=Role.FIX, cycle=phase.cycle, tree=tree, complaint=complaint)
    return start_dispatch(fixer, "a fresh agent fixes it")


def _judge_ended(phase: WorkAttempt, ended: e.DispatchEnded) -> Decision:
    match ended.role:
        case Role.BASELINE | Role.GATE | Role.PROVE if ended.ending in (Ending.BUDGET, Ending.SURVIVED):
            reason = shared.STOPPED_BY.get(ended.ending, Reason.TESTS_UNFINISHED)
            return fail_phase(reason, PhaseStep(ended.role), describe_ending(ended))
        case Role.BASELINE:
            return perform_action(a.JUDGE_BASELINE, "the checks on the base have ended")
        case Role.GATE:
            return perform_action(a.JUDGE_GATE, "the checks have ended")
        case Role.PROVE:
            return perform_action(a.JUDGE_PROOF, "the tests of the other side have ended")
        case Role.SETUP:
            return fail_phase(Reason.SETUP_FAILED, PhaseStep.SETUP, describe_ending(ended))
        case _ if ended.kind in (EndingKind.CONTEXT, EndingKind.MAX_TURNS) and ended.role.is_writer:
            if ended.said == ReturnStatus.DONE:
                why = "the agent's context was full, but it reports that it is done; now checking its work"
                return perform_action(a.TAKE_WORK, why)
            if len(phase.handovers) >= MAX_HANDOVERS:
                detail = f"{len(phase.handovers) + 1} agents in a row filled their context; make the phase smaller"
                return fail_phase(Reason.AGENT_FAILED, PhaseStep(ended.role), detail)
            return perform_action(a.HAND_OVER, "the agent's context is full; a fresh agent continues")
    succeeded = perform_action(a.TAKE_WORK, f"{ended.agent or ended.role} finished; now checking what it changed")
    if ended.role is Role.VERIFY:
        succeeded = perform_action(a.JUDGE_VERDICT, "the verifier has answered")
    if ended.role is Role.TRY:
        succeeded = perform_action(a.JUDGE_TRIAL, "the trial has ended")
        if ended.kind == EndingKind.UNSERVED:
            return succeeded
    decision = shared.judge_agent(phase.dispatches, ended, succeeded)
    (action,) = decision.actions
    is_unsolved = phase.unsolved and ended.kind in shared.UNNAMED
    if is_unsolved and isinstance(action, a.Fail) and action.reason is Reason.AGENT_FAILED:
        return fail_phase(Reason.CONFLICT, action.at, phase.describe_unsolved(action.detail))
    return decision


def _prove_work(started: e.RunStarted, phase: WorkAttempt, work: e.WorkTaken) -> Decision:
    if work.commits == 0 and phase.unsolved is not None:
        return fail_phase(Reason.CONFLICT, PhaseStep.FIX, phase.describe_unsolved("it left no change"))
    if phase.is_answer:
        return perform_action(a.CLEAN_UP, "the agent answers the review without a change")
    if work.commits == 0:
        return fail_phase(Reason.NO_COMMITS, _written_at(phase), "the agent left no change")
    conflict = f"the work conflicts with the target in {phase.delivery.conflicting_paths}"
    if phase.delivery.conflict is not None and phase.rebuilt:
        again = f"again after it was redone on the new tip; the work before that is kept at {phase.parked}"
        return fail_phase(Reason.CONFLICT, PhaseStep.LAND, f"{conflict}, {again}")
    if phase.delivery.conflict is not None:
        rebuild = a.RebuildBranch(onto=phase.delivery.conflict.onto, start=phase.delivery.conflict.onto)
        return perform_action(rebuild, conflict)
    if phase.delivery.moves > shared.MAX_MOVES:
        moved = f"the target moved {phase.delivery.moves} times while landing"
        return fail_phase(Reason.TARGET_MOVING, PhaseStep.LAND, moved)
    if (candidate := phase.delivery.candidate) is None:
        return perform_action(a.BUILD_CANDIDATE, "the work is replayed on the target's tip")
    if candidate.tree == phase.failed_tree:
        return fail_phase(Reason.NO_PROGRESS, PhaseStep.FIX, f"the fixer changed nothing; {phase.complaint}")
    # When the target moved, its own failures have to be known.
    if baseline := _run_baseline(started, phase, candidate.onto_tree):
        return baseline
    # Tests on the base's code run while the worktree is prepared for it.
    is_prepared = started.kept.run.setup and phase.setup.tree == candidate.onto_tree
    early = tuple(run for run in candidate.proofs if run.kind is ProofKind.NEW_TESTS) if is_prepared else ()
    return _run_proofs(started, phase, early) or _run_gates(started, phase)


def _written_at(phase: WorkAttempt) -> PhaseStep:
    return PhaseStep.FIX if phase.cycle > 1 else PhaseStep.IMPLEMENT


def _run_gates(started: e.RunStarted, phase: WorkAttempt) -> Decision:
    tree = phase.built.tree
    if not started.kept.check_groups and not phase.proof.gates:
        return perform_action(a.JUDGE_GATE, "there is no test command; that is recorded")
    for group in started.kept.check_groups:
        judged = [phase.proof.newest_gates[name] for name in group if name in phase.proof.newest_gates]
        new = tuple(name for name in group if name not in phase.proof.newest_gates)
        # An unfinished gate counts as red while it may be for products of an earlier set-up.
        repeatable = [gate for gate in judged if gate.time < _count_runs(gate, phase) and _is_doubtful(gate, phase)]
        red = (GateAnswer.FAILED, GateAnswer.UNFINISHED)
        failed = [gate for gate in judged if gate.answer in (red if gate in repeatable else red[:1])]
        open_gates = (gate for gate in judged if gate.answer is GateAnswer.UNFINISHED and gate not in failed)
        unfinished = next(open_gates, None) if not new else None
        if unfinished is not None:
            detail = _name_gate(unfinished, unfinished.line)
            if unfinished.code is None:
                return fail_phase(Reason.TESTS_UNFINISHED, PhaseStep.GATE, detail)
            return _fix_candidate(started, phase, Reason.TESTS_UNFINISHED, detail)  # the work may have broken it
        repeated = [gate for gate in failed if gate.time < _count_runs(gate, phase)]
        is_third = not new and any(gate.time > 1 for gate in repeated)
        which = "second run failed, too" if is_third else "first run failed"
        again = f"the {which}: {'; '.join(gate.line for gate in failed)}" if repeated and not new else ""
        if due := new or tuple(gate.name for gate in repeated):
            gate = e.DispatchStarted(role=Role.GATE, gates=due, cycle=phase.cycle, tree=tree, again=again)
            gate = replace(gate, why="all tests, with a fresh set-up") if is_third else gate
            times = "a third time" if is_third else "a second time"
            why = f"{_describe_checks(due)} {f'{times}, because {again}' if again else 'on the exact tree'}"
            is_last = all(gate.time + 1 == _count_runs(gate, phase) for gate in repeated)
            return _set_up_proof(started, phase, tree, again if is_last else "") or start_dispatch(gate, why)
        if failed:
            detail = "; ".join(_name_gate(gate, f"the checks failed: {gate.line}") for gate in failed)
            return _fix_candidate(started, phase, Reason.TESTS_FAILED, detail)
    return _prove_tests(started, phase)


def _count_runs(gate: e.GateJudged, phase: WorkAttempt) -> int:
    """How often a gate, and those beside it, run before a red result counts; the last time after a fresh set-up."""
    # Before that, tests that failed are repeated alone: a flaky one says nothing about the set-up.
    return GATE_RUNS + (_is_doubtful(gate, phase) and any(run.rerun for run in phase.proof.gates))


def _is_doubtful(gate: e.GateJudged, phase: WorkAttempt) -> bool:
    return phase.setup.is_reused or phase.setup.renewed == gate.tree


def _prove_tests(started: e.RunStarted, phase: WorkAttempt) -> Decision:
    if due := _run_proofs(started, phase, phase.built.proofs):
        return due
    if phase.proof.questions and started.kept.tests.changed == "refuse":
        detail = "; ".join(test for _, test in phase.proof.questions)
        return _fix_candidate(started, phase, Reason.TESTS_FAILED, detail)
    proven = phase.proof.newest_runs.get(ProofKind.EMPTIED)
    if proven is not None and proven.answer is NewTestsAnswer.HOLLOW and started.kept.tests.prove == "require":
        detail = f'{describe_proof(proven)} (tests.prove = "require")'
        return _fix_candidate(started, phase, Reason.TESTS_FAILED, detail)
    if phase.proof.verdict is not None and not phase.proof.verdict.passed:
        why = phase.proof.verdict.why
        return _fix_candidate(started, phase, Reason.VERIFICATION_FAILED, why, PhaseStep.VERIFY)
    # One verifier after the other, then one for all phases where the plan ends; the first that fails starts a fix.
    verifier_of_phase = phase.chosen.own.verifier
    verifiers = (verifier_of_phase,) if verifier_of_phase else started.kept.agents.judges
    asked = phase.proof.questions_to_verifiers(started.kept.tests.changed)
    count = sum(not verdict.scope and verdict.questions == asked for verdict in phase.proof.verdicts)
    verifier = e.DispatchStarted(role=Role.VERIFY, cycle=phase.cycle, tree=phase.built.tree)
    again = f"; it is asked once more, because {phase.proof.doubted.why}" if phase.proof.doubted else ""
    is_clean_merge = isinstance(phase.chosen, e.MergeChosen) and not phase.rebuilt  # no agent has changed anything
    is_verified = is_clean_merge or isinstance(phase.chosen, e.SubplanChosen)  # by its own run
    if not is_verified and count < len(verifiers):
        verify = replace(verifier, agent=verifiers[count])
        why = f"an independent verifier judges the exact tree{again}"
        return _set_up_proof(started, phase, phase.built.tree) or start_dispatch(verify, why)
    if phase.is_last and not any(verdict.scope for verdict in phase.proof.verdicts):
        final = replace(verifier, agent=verifiers[0], scope="final")
        why = f"the plan ends with this phase; a verifier judges all phases together{again}"
        return _set_up_proof(started, phase, phase.built.tree) or start_dispatch(final, why)
    # An agent uses the work, if it changes files of try.paths; a finding starts a fix.
    trial = phase.proof.trial
    if trial is not None and trial.findings:
        first, *others = trial.findings  # the fixer gets all of them as items
        more = f"; and {counted(len(others), 'other finding')}" if others else ""
        detail = f"the trial found: {first}{more}"
        return _fix_candidate(started, phase, Reason.VERIFICATION_FAILED, detail, PhaseStep.TRY)
    tried = started.kept.trial.paths if started.kept.trial.serve else ()
    is_due = any(matches(pattern, path) for pattern in tried for path in phase.changed_files)
    if is_due and trial is None and not is_verified:
        user = e.DispatchStarted(role=Role.TRY, cycle=phase.cycle, tree=phase.built.tree)
        start = start_dispatch(user, f"the change touches try.paths; an agent tries it in use{again}")
        return _set_up_proof(started, phase, phase.built.tree) or start
    return shared.land_candidate(started, phase, sign_off=list_sign_off(started, phase))


def _run_proofs(started: e.RunStarted, phase: WorkAttempt, runs: Sequence[e.ProofRun]) -> Decision | None:
    for run in runs:
        judged = phase.proof.newest_runs.get(run.kind)
        if judged is None or (judged.promises and judged.time < GATE_RUNS):
            again = f"the first run failed: {judged.line}" if judged else ""
            proof = e.DispatchStarted(role=Role.PROVE, gates=(e.TESTS,), cycle=phase.cycle, tree=run.tree)
            proof = replace(proof, scope=run.kind, again=again)
            # Only tests or bodies of functions differ, so the products of run.setup are those of the code under test.
            tree = phase.built.onto_tree if run.kind is ProofKind.NEW_TESTS else phase.built.tree
            return _set_up_proof(started, phase, tree, again) or start_dispatch(proof, PROOFS[run.kind])
    return None


def _describe_checks(names: Sequence[str]) -> str:
    if tuple(names) == (e.TESTS,):
        return "the tests run"
    return f"{' and '.join(names)} {'runs' if len(names) == 1 else 'run'}"


def _name_gate(gate: e.GateJudged, line: str) -> str:
    return line if gate.name == e.TESTS else f"{gate.name}: {line}"


def list_sign_off(started: e.RunStarted, phase: WorkAttempt) -> tuple[str, ...] | None:
    asked = [text for _, text in phase.proof.questions if started.kept.tests.changed == "ask"]
    is_shown = any(matches(pattern, path) for pattern in started.kept.run.sign_off for path in phase.changed_files)
    built = phase.delivery.candidate
    criteria = (*([built.rejected] if built and built.rejected else []), *phase.chosen.sign_off, *asked)
    return (*criteria, *phase.proof.exceptions) if criteria or is_shown else None


def _fix_candidate(
    started: e.RunStarted, phase: WorkAttempt, reason: Reason, detail: str, step: PhaseStep = PhaseStep.GATE
) -> Decision:
    most = started.kept.run.max_fix_cycles
    if phase.lands_itself or phase.fixes >= most:
        return fail_phase(reason, step, detail)
    return _send_fixer(started, phase, detail, f"; fix cycle {phase.fixes + 1} of {most}")


def _send_fixer(started: e.RunStarted, phase: WorkAttempt, detail: str, number: str = "") -> Decision:
    """Start a fixer on the candidate; `number`: which fix cycle that is, in words."""
    why = f"{detail}{number}"
    candidate = phase.built
    tree = candidate.tree
    if candidate.onto == phase.base:
        fixer = e.DispatchStarted(role=Role.FIX, cycle=phase.cycle + 1, tree=tree, complaint=detail)
        return _set_up_agents(started, phase) or start_dispatch(fixer, why)
    start = candidate.commits[-1]  # the fixer has to see the tree that failed, which is the work on the moved target
    return perform_action(a.RebuildBranch(onto=candidate.onto, start=start, complaint=detail, tree=tree), why)
