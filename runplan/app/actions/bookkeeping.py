"""Writes what lands beside the code: the plan with its row set and the report with its section."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from runplan.app.accounts import failure_sections, phase_account, undo_account
from runplan.app.actions.building import landing_id
from runplan.app.actions.doing import phase_of
from runplan.app.undoable import taken_back_meanwhile
from runplan.core import events as e, plan as plans, report, tracker
from runplan.core.commands import command
from runplan.core.errors import PlanUnreadable
from runplan.core.reasons import Reason
from runplan.core.target import missing

if TYPE_CHECKING:
    from runplan.app.runcontext import RunContext
    from runplan.core.plan import Phase, Plan
    from runplan.core.run import RunState

SHORT = 7  #: digits of a commit in the tracker

Files: TypeAlias = dict[str, bytes]
Refusal: TypeAlias = e.WorkRefused | e.LandingHeld


def bookkeeping(state: RunState, world: RunContext, onto: str) -> Files | Refusal:
    """Plan and report as they land, made from the target's own texts; or why they cannot."""
    phase = phase_of(state)
    text = world.objects.blob(onto, world.plan)
    if text is None:
        return _blocked(f"{world.plan} is no longer on the target")
    try:
        plan = plans.parse(text, path=world.plan)
    except PlanUnreadable as error:
        return _blocked(str(error))
    row = plan.phase(phase.read.phase) if phase.read.phase else None
    if phase.read.phase and row is None:
        return _blocked(f"{world.plan} has no phase {phase.read.phase} any more")
    sections = failure_sections(world.store, world.plan)
    if row is not None and phase.read.choice == "undo":
        return _undone(state, world, plan, row, text, onto, sections)
    if row is not None:
        if refusal := _refusal(state, world, plan, row):
            return refusal
        assert phase.candidate is not None
        short = phase.candidate.commits[-1][:SHORT]
        text = tracker.set_status(text, path=world.plan, phase=row.id, status=plans.Status.DONE, commit=short)
        sections = [*sections, report.phase_section(phase_account(state, world))]
    if all(other.status is plans.Status.DONE for other in plan.phases if other.id != phase.read.phase):
        text = tracker.complete(text, path=world.plan, completed=world.iso())
    return _files(world, onto, plan, text, sections)


def _refusal(state: RunState, world: RunContext, plan: Plan, row: Phase) -> Refusal | None:
    """What somebody changed in the plan meanwhile that the landing must not pass over."""
    target = world.settings.run.target
    if row.status is plans.Status.DONE:
        detail = f"phase {row.id} was marked done on the target meanwhile, so another run has landed it"
        return e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail=detail)
    if row.text.rstrip() != phase_of(state).read.text.rstrip():
        why = (
            f"phase {row.id} was reworded on {target} while it was worked; put the wording "
            f"back, or drop this work and begin anew: {command('runplan', 'reject', world.plan)}"
        )
        return e.LandingHeld(id=landing_id(world, state), why=why)
    if waits := missing(plan, row):
        why = f"phase {row.id} depends on {', '.join(waits)}, which {target} shows as not done"
        return e.LandingHeld(id=landing_id(world, state), why=why)
    return None


def _undone(
    state: RunState, world: RunContext, plan: Plan, row: Phase, text: bytes, onto: str, sections: list[str]
) -> Files | Refusal:
    if row.status is not plans.Status.DONE:
        return taken_back_meanwhile(row.id)
    text = tracker.set_status(text, path=world.plan, phase=row.id, status=plans.Status.TODO)
    text = tracker.reopen(text, path=world.plan)
    return _files(world, onto, plan, text, [*sections, report.undo_section(undo_account(state, world))])


def _files(world: RunContext, onto: str, plan: Plan, text: bytes, sections: list[str]) -> Files:
    if not sections:
        return {world.plan: text}
    before = world.objects.blob(onto, world.report)
    old = None if before is None else before.decode("utf-8", "surrogateescape")
    whole = report.prepend(old, plan_title=plan.title, sections=sections)
    return {world.plan: text, world.report: whole.encode("utf-8", "surrogateescape")}


def _blocked(detail: str) -> e.WorkRefused:
    return e.WorkRefused(reason=Reason.BLOCKED, detail=detail)
