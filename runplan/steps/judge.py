"""Judges the results of checks and verifiers; each result is bound to a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.checks import results, returns, verdict
from runplan.checks.returns import Unusable
from runplan.names import DIFF_FILE
from runplan.run.dispatch import RETURN, Outcome
from runplan.run.events import BaselineKnown, DispatchEnded, GateJudged, VerdictGiven, WorkRefused
from runplan.run.reasons import Reason
from runplan.steps.context import phase_of
from runplan.steps.start import baseline_key
from runplan.steps.work import without_copies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import JudgeBaseline, JudgeGate, JudgeVerdict
    from runplan.run.events import Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext


OUTPUT_READ = 1024 * 1024  #: bytes at the end of a gate's output that are read
OUTPUT_SENT = 6000  #: characters of it that the fixer gets
EVIDENCE = 2000  #: characters of evidence that are kept for an item
NAMED = 3  #: failing tests named in one line


def return_text(context: RunContext, id: str) -> str | Unusable | None:
    """The agent's return without secrets; None when there is no file."""
    text = context.dispatches.read(id, RETURN)
    if text is not None:
        return context.agents.redacted(text)
    path = context.dispatches.directory(id) / RETURN
    odd = Unusable(why="the return file is no plain file, or larger than 8 MiB", found=True)
    return odd if path.is_symlink() or path.exists() else None


def judge_baseline(action: JudgeBaseline, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    assert phase.ended is not None
    found = _results(phase.ended, context)
    fault = results.baseline_fault(found)
    if fault and not context.settings.tests.allow_red_baseline:
        yield WorkRefused(reason=Reason.BASELINE_RED, detail=f"`{context.settings.tests.command}` on the base: {fault}")
        return
    tree = phase.candidate.onto_tree if phase.candidate else phase.base_tree
    key = baseline_key(context, tree)
    _remember(context, key, found)
    yield BaselineKnown(key=key, tree=tree, results=results.to_text(found))


def judge_gate(action: JudgeGate, state: RunState, context: RunContext) -> Iterator[Event]:
    phase = phase_of(state)
    time = len(phase.gates) + 1
    if phase.ended is None:
        line = "Tests: skipped — no test infrastructure"
        yield GateJudged(tree=action.tree, answer="skipped", code=None, line=line, time=time)
        return
    now = _results(phase.ended, context)
    before = _baseline(phase)
    judged = results.compare(
        before,
        now,
        allow_red_baseline=context.settings.tests.allow_red_baseline,
        allows=phase.read.allows,
        changed=phase.work.files if phase.work else (),
    )
    answer, line = _described(judged, now, time)
    if answer == "passed":  # this result is the baseline of the next phase
        _remember(context, baseline_key(context, action.tree), now)
    tail = "" if answer == "passed" else _output(phase.ended, context)[-OUTPUT_SENT:]
    yield GateJudged(tree=action.tree, answer=answer, code=now.exit_code, line=line, time=time, output=tail)


def _remember(context: RunContext, key: str, found: results.Results) -> None:
    """Only green results are kept: a red one may be accidental, and would excuse real failures later."""
    if not found.red and found.finished:
        context.store.keep_baseline(key, results.to_text(found), at=context.iso())


def _described(judged: results.Comparison, now: results.Results, time: int) -> tuple[str, str]:
    again = "; it failed the first time, so something is flaky" if time > 1 else ""
    match judged.kind:
        case results.GateKind.GREEN:
            return "passed", now.line + again
        case results.GateKind.PRE_EXISTING:
            return "passed", f"{now.line}; these tests failed before the work, too" + again
        case results.GateKind.REGRESSED | results.GateKind.MISSING:
            names = ", ".join(name.split()[0] for name in judged.names[:NAMED])
            return "failed", f"{judged.why}: {names}" if names else judged.why
        case results.GateKind.UNFINISHED:
            return "unfinished", judged.why
        case results.GateKind.BASELINE_RED:
            return "failed", f"the checks on the base: {judged.why}"


def _baseline(phase: PhaseRun) -> results.Results | None:
    if phase.baseline is None or not phase.baseline.results:
        return None
    return results.from_text(phase.baseline.results)


def _results(ended: DispatchEnded, context: RunContext) -> results.Results:
    code = ended.code if ended.ending == "exited" else None
    return results.read_results(_output(ended, context), exit_code=code, summary_pattern=context.settings.tests.summary)


def _output(ended: DispatchEnded, context: RunContext) -> str:
    path = context.dispatches.directory(ended.id) / "out.log"
    try:
        return path.read_bytes()[-OUTPUT_READ:].decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def judge_verdict(action: JudgeVerdict, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    assert phase.ended is not None
    assert phase.lease is not None
    assert phase.candidate is not None
    path = context.worktrees.path(phase.lease.worktree)
    (path / DIFF_FILE).unlink(missing_ok=True)
    left = without_copies(context.worktrees.state(path), context.settings.run.copy)
    touched = [*left.changed, *(file.path for file in left.untracked)]
    if touched:
        detail = f"the verifier changed {', '.join(touched[:8])}"
        yield WorkRefused(reason=Reason.READONLY_VIOLATED, detail=detail)
        return
    outcome = context.dispatches.standing(phase.ended.id)
    message = outcome.message if isinstance(outcome, Outcome) else ""
    ids = [item for item, _ in phase.read.items]
    answer = returns.parse_return(return_text(context, phase.ended.id), message)
    judged = verdict.judge(answer, message, ids, gates_red=phase.gates[-1].answer == "failed")
    if isinstance(judged, verdict.NoVerdict):
        yield WorkRefused(reason=Reason.INVALID_VERDICT, detail=judged.why)
        return
    yield VerdictGiven(
        tree=phase.candidate.tree,
        patch=phase.candidate.patch,
        passed=judged.passed,
        items=tuple((item.item, item.passed, item.evidence[:EVIDENCE]) for item in judged.items),
        agent=phase.ended.agent,
        pristine=not left.ignored,
        why=judged.why,
    )
