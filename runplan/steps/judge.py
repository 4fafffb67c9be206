"""Judges the reply of a verifier; a verdict is bound to a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.checks import returns, verdict
from runplan.checks.returns import Unusable
from runplan.names import DIFF_FILE
from runplan.run.dispatch import RETURN, Outcome
from runplan.run.events import VerdictGiven, WorkRefused
from runplan.run.reasons import Reason
from runplan.steps.context import phase_of
from runplan.steps.drift import measured
from runplan.steps.final import final_items
from runplan.steps.work import without_copies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import JudgeVerdict
    from runplan.run.events import Event
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext


EVIDENCE = 2000  #: characters of evidence that are kept for an item


def return_text(context: RunContext, id: str) -> str | Unusable | None:
    """The agent's return without secrets; None when there is no file."""
    text = context.dispatches.read(id, RETURN)
    if text is not None:
        return context.agents.redacted(text)
    path = context.dispatches.directory(id) / RETURN
    odd = Unusable(why="the return file is no plain file, or larger than 8 MiB", found=True)
    return odd if path.is_symlink() or path.exists() else None


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
    scope = phase.newest.scope if phase.newest else ""
    ids = [item for item, _ in (final_items(phase, context) if scope else phase.read.items)]
    answer = returns.parse_return(return_text(context, phase.ended.id), message)
    is_red = any(gate.answer == "failed" for gate in phase.judged.values())
    judged = verdict.judge(answer, message, ids, gates_red=is_red)
    if isinstance(judged, verdict.NoVerdict):
        yield WorkRefused(reason=Reason.INVALID_VERDICT, detail=judged.why)
        return
    is_last = sum(not one.scope for one in phase.verdicts) + 1 >= len(context.settings.agents.judges)
    if judged.passed and is_last and not scope and (found := measured(phase, context, message)) is not None:
        yield found  # before the verdict: after a crash in between both are found again
        if found.abort:
            return
    yield VerdictGiven(
        tree=phase.candidate.tree,
        patch=phase.candidate.patch,
        passed=judged.passed,
        items=tuple((item.item, item.passed, item.evidence[:EVIDENCE]) for item in judged.items),
        agent=phase.ended.agent,
        scope=scope,
        pristine=not left.ignored,
        why=judged.why,
    )
