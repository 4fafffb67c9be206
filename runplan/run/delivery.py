"""The rules of a delivery, which needs no agent: a candidate is approved and lands, a landed phase is reverted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.globs import matches
from runplan.run import actions as a
from runplan.run.actions import Decision, fail_phase, perform_action
from runplan.run.events import UndoChosen
from runplan.run.reasons import Reason, conflicting

if TYPE_CHECKING:
    from runplan.run.events import RunStarted
    from runplan.run.state import PhaseRun

ANSWERED = ("approval", "sign-off")  #: waits that `approve` and `reject` end
MAX_MOVES = 5  #: how often a candidate is rebuilt because the target moved


def land_candidate(started: RunStarted, phase: PhaseRun) -> Decision:
    tree = phase.candidate.tree if phase.candidate else ""
    if phase.held:
        return Decision(why=f"the landing waits: {phase.held}", waiting="checkout", about=phase.held)
    signed = needs_sign_off(started, phase)
    is_free = started.auto or started.concludes  # a pull request is approved as a whole
    if (is_free and not signed) or not tree or phase.approved == tree:
        proof = "an undo needs no checks" if isinstance(phase.chosen, UndoChosen) else "all checks passed"
        return perform_action(a.LAND, f"{proof}; code, tracker and report land together")
    if phase.asked != tree:
        asks = "a person signs the phase off" if signed else "without `auto` a person approves each landing"
        return perform_action(a.ASK, asks)
    proven = f"phase {phase.chosen.phase} passed all checks and needs your"
    if signed:
        asked = (*phase.chosen.sign_off, *(text for _, text in phase.questions if started.changed == "ask"))
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
    return bool(phase.chosen.sign_off) or any(
        matches(pattern, path) for pattern in started.sign_off for path in changed
    )


def undo_phase(started: RunStarted, phase: PhaseRun) -> Decision:
    """Undo needs no approval and no gate."""
    if phase.conflict is not None:
        detail = (
            f"later work on the target changes the same lines as phase {phase.chosen.phase}, in {conflicting(phase)}"
        )
        return fail_phase(Reason.CONFLICT, "undo", detail)
    if phase.moves > MAX_MOVES:
        return fail_phase(Reason.TARGET_MOVING, "undo", f"the target moved {phase.moves} times meanwhile")
    if phase.candidate is None:
        return perform_action(a.BUILD_UNDO, f"phase {phase.chosen.phase} is to be reverted")
    return land_candidate(started, phase)
