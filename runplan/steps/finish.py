"""Hands a phase over to the next agent, and ends a phase and a run. Nothing unsaved is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.agents.prompts import Standing, note
from runplan.checks import returns
from runplan.git.removal import Kept
from runplan.run.dispatch import Outcome, Return
from runplan.run.events import CleanedUp, HandedOver, PhaseFailed, RunEnded, WorkRefused
from runplan.run.reasons import Reason, describe_ending
from runplan.steps.conclude import release_issues
from runplan.steps.context import phase_of
from runplan.steps.gates import content, log_files
from runplan.steps.verify import return_text
from runplan.steps.work import commit_leftovers
from runplan.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import Action, Fail, Finish
    from runplan.run.events import Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext


OUTPUT_READ = 64 * 1024  #: bytes at the end of a failed command's output that are read
LINES_SHOWN = 20  #: lines of it in the report
LONGEST_LINE = 300


def hand_over(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    assert phase.ended is not None
    number = len(phase.handovers) + 1
    message = f"wip: {context.slug} phase {phase.read.phase} hand-over {number}\n"
    head = commit_leftovers(phase, context, message=message)
    if isinstance(head, WorkRefused):
        yield head
        return
    outcome = context.dispatches.standing(phase.ended.id)
    message = outcome.message if isinstance(outcome, Outcome) else ""
    returned = returns.parse_return(return_text(context, phase.ended.id), message)
    why = describe_ending(phase.ended)
    standing = Standing(
        number=number,
        why=why,
        plan=context.plan,
        phase=phase.read.phase,
        items=phase.read.items,
        done=tuple(item.item for item in returned.items if item.passed) if isinstance(returned, Return) else (),
        summary=returned.summary if isinstance(returned, Return) else "",
        files=tuple(change.path for change in context.candidates.changes(phase.base, head)),
        message=message,
        commit=head,
    )
    text = plain(note(standing))
    context.dispatches.write(phase.ended.id, "handoff.md", text)
    yield HandedOver(number=number, tree=context.objects.commit(head).tree, note=text, why=why)


def fail(action: Fail, state: RunState, context: RunContext) -> Iterator[Event]:
    phase = phase_of(state)
    branch = context.worktrees.publish(phase.lease.branch, base=phase.base) if phase.lease else ""
    tree = phase.work.tree if phase.work else ""
    stuck = _is_stuck(action, phase.read.phase, tree, context)
    yield PhaseFailed(
        phase=phase.read.phase,
        reason=Reason.NO_PROGRESS if stuck else action.reason,
        step=action.at,
        detail=f"same tree and same failure as the previous attempt: {action.detail}" if stuck else action.detail,
        tree=tree,
        title=phase.read.title,
        attempt=phase.lease.attempt if phase.lease else 1,
        branch=branch.removeprefix("refs/heads/"),
        parked=phase.parked,
        evidence="\n".join((*phase.cycles, *_evidence(action.reason, phase, context))),
        dispatch=phase.newest.id if phase.newest else "",
        rejected=phase.rejected or "",
    )


def _is_stuck(action: Fail, phase: str, tree: str, context: RunContext) -> bool:
    """Whether the previous attempt failed for the same reason with the same work."""
    if action.reason == Reason.STOPPED or not tree:  # a person ended both
        return False
    failures = [one.event for one in context.store.facts(PhaseFailed, plan=context.plan) if one.event.phase == phase]
    reasons = (action.reason, Reason.NO_PROGRESS)
    return any(one.tree == tree and one.reason in reasons and one.step == action.at for one in failures[-1:])


def _evidence(reason: str, phase: PhaseRun, context: RunContext) -> list[str]:
    """A few lines that prove the failure: failed items, guard findings, or the end of the output."""
    match reason:
        case Reason.VERIFICATION_FAILED | Reason.NO_PROGRESS if phase.verdict is not None:
            lines = [f"{item}: {found}" for item, passed, found in phase.verdict.items if not passed]
        case Reason.NO_PROGRESS | Reason.TESTS_FAILED | Reason.TESTS_UNFINISHED if phase.gates:
            red = (gate.output for gate in phase.judged.values() if gate.answer != "passed")
            lines = [line for output in red for line in output.splitlines()[-LINES_SHOWN:]]
        case Reason.GUARD_VIOLATED:
            lines = [line for line in phase.warnings if phase.refusal is None or line not in phase.refusal[1]]
        case Reason.BASELINE_RED | Reason.SETUP_FAILED if phase.newest is not None:
            logs = (content(path)[-OUTPUT_READ:] for path in log_files(phase.newest, context).values())
            lines = [line for log in logs for line in log.decode("utf-8", "replace").splitlines()[-LINES_SHOWN:]]
        case _:
            lines = []
    return [context.agents.redacted(line[:LONGEST_LINE]) for line in lines]


def clean_up(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    branch = phase.lease.branch if phase.lease else ""
    tip = context.worktrees.tip(branch) if branch else None
    if phase.landed is not None and phase.lease is not None and phase.work is not None and tip == phase.work.head:
        context.removal.landed(branch, tip, worktree=phase.lease.worktree)
    elif branch:
        context.worktrees.give_to_user(branch, base=phase.base)
    yield CleanedUp(phase=phase.read.phase)


def finish(action: Finish, state: RunState, context: RunContext) -> Iterator[Event]:
    detail, parked = action.detail, ""
    context.worktrees.unpin(context.mark)  # a run that was stopped while it leased has a pin and no lease
    if state.leased:
        answer = context.removal.worktree(context.worktree)
        if isinstance(answer, Kept):
            detail = f"{detail}; {answer.what} was kept: {answer.why}".lstrip("; ")
        else:
            parked = answer.parked
    if state.claimed:
        detail = "; ".join(filter(None, (detail, *release_issues(action.outcome, state, context))))
    yield RunEnded(outcome=action.outcome, reason=action.reason, detail=detail, parked=parked)
