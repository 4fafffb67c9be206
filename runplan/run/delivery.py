"""The rules of a delivery, which needs no agent: a candidate is approved and lands, a landed phase is reverted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.run import actions as a
from runplan.run.actions import Decision, fail_phase, perform_action
from runplan.run.kinds import PhaseStep, WaitKind
from runplan.run.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.run.attempts import Attempt, CompletionAttempt, UndoAttempt
    from runplan.run.events import RunStarted

MAX_MOVES = 5  #: how often a candidate is rebuilt because the target moved


def land_candidate(
    started: RunStarted, attempt: Attempt, *, proof: str = "all checks passed", sign_off: Sequence[str] | None = None
) -> Decision:
    """Land when a person has approved it, or need not; `sign_off`: what a person has to see, also with `auto`."""
    delivery = attempt.delivery
    tree = delivery.candidate.tree if delivery.candidate else ""
    if delivery.held:
        return Decision(why=f"the landing waits: {delivery.held}", waiting=WaitKind.CHECKOUT, about=delivery.held)
    is_free = started.auto or started.concludes  # a pull request is approved as a whole
    if (is_free and sign_off is None) or not tree or delivery.approved == tree:
        return perform_action(a.LAND, f"{proof}; code, tracker and report land together")
    is_signed = sign_off is not None
    if delivery.asked != tree:
        asks = "a person signs the phase off" if is_signed else "without `auto` a person approves each landing"
        return perform_action(a.ASK, asks)
    proven = f"phase {attempt.chosen.phase} passed all checks and needs your"
    if is_signed:
        criteria = f": {'; '.join(sign_off)}" if sign_off else ""
        return Decision(why=f"{proven} sign-off{criteria}", waiting=WaitKind.SIGN_OFF)
    return Decision(why=f"{proven} approval", waiting=WaitKind.APPROVAL)


def complete_plan(started: RunStarted, attempt: CompletionAttempt) -> Decision:
    """Only bookkeeping lands."""
    return land_candidate(started, attempt)


def undo_phase(started: RunStarted, attempt: UndoAttempt) -> Decision:
    """Undo needs no gate."""
    delivery = attempt.delivery
    phase = attempt.chosen.phase
    if delivery.conflict is not None:
        changed = f"later work on the target changes the same lines as phase {phase}, in {delivery.conflicting_paths}"
        return fail_phase(Reason.CONFLICT, PhaseStep.UNDO, changed)
    if delivery.moves > MAX_MOVES:
        return fail_phase(Reason.TARGET_MOVING, PhaseStep.UNDO, f"the target moved {delivery.moves} times meanwhile")
    if delivery.candidate is None:
        return perform_action(a.BUILD_UNDO, f"phase {phase} is to be reverted")
    return land_candidate(started, attempt, proof="an undo needs no checks")
