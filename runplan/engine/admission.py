"""May this plan be started? Everything that can be refused is refused before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan import names
from runplan.errors import NotFound, RefusedEarly
from runplan.git.trailers import built_upon
from runplan.plan.model import parse
from runplan.run.reasons import Reason
from runplan.steps.read_plan import reading
from runplan.text import command, committing

if TYPE_CHECKING:
    from runplan.checks.testcommand import Infrastructure
    from runplan.plan.model import Phase, Plan
    from runplan.run.events import PlanRead, RunStarted
    from runplan.settings.options import Resolved
    from runplan.settings.schema import Settings


class Admitted(Struct, frozen=True, kw_only=True):
    """There is work to do."""

    plan: Plan
    read: PlanRead


class NothingToDo(Struct, frozen=True, kw_only=True):
    """Everything that was asked for is done."""

    told: str


def committed_plan(path: str, tip: str, blob: bytes | None, in_checkout: str, *, target: str) -> bytes:
    """The plan's bytes on the target; `in_checkout` is "same", "differs" or "absent"."""
    commit = committing(path, f"Plan {names.slug(path)}")
    if blob is None and in_checkout == "absent":
        raise NotFound(f"{path}: no such plan on {target} ({tip[:12]})")
    if blob is None:
        raise RefusedEarly(f"{Reason.PLAN_NOT_COMMITTED}: {path} is not committed on {target}; run: {commit}")
    if in_checkout == "differs":
        raise RefusedEarly(
            f"{Reason.PLAN_NOT_COMMITTED}: {path} in the checkout differs from {target}; commit it there, run: {commit}"
        )
    return blob


def admit(text: bytes, path: str, *, tip: str, options: Resolved, resuming: bool) -> Admitted | NothingToDo:
    """Whether there is a phase to work, by the same choice the loop will make."""
    plan = parse(text, path=path)
    if options.phase and plan.phase(options.phase) is None:
        known = ", ".join(phase.id for phase in plan.phases)
        raise NotFound(f"{path} has no phase {options.phase}; there are: {known}")
    read = reading(plan, text, tip=tip, wanted=options.phase or "")
    match read.choice:
        case "all-done" if options.every is not None:
            return NothingToDo(told=f"{path}: every phase is done; a schedule would have nothing to do")
        case "next" | "all-done":
            return Admitted(plan=plan, read=read)
        case _ if resuming:
            # An interrupted run may have landed the very phase that is asked for; it is heard first.
            return Admitted(plan=plan, read=read)
        case "complete" | "phase-done":
            return NothingToDo(told=f"{path}: {read.detail}; nothing to do")
        case _:
            raise RefusedEarly(read.detail if read.detail.startswith(path) else f"{path}: {read.detail}")


def due(admitted: Admitted, options: Resolved) -> list[str]:
    """The phases this start is about, as far as the plan tells now."""
    if options.mode == "finish":
        return [phase.id for phase in admitted.plan.phases if phase.status != "done"]
    return [admitted.read.phase] if admitted.read.phase else []


def require_test_command(settings: Settings, found: Infrastructure) -> None:
    """Never guess a command, and never skip tests that are there."""
    if not settings.tests.command and found.present:
        hint = f'; for example: command = "{found.command}"' if found.command else ""
        raise RefusedEarly(
            f"the repository has tests ({found.found}) but tests.command is empty; set it in runplan.toml "
            f"under [tests]{hint}"
        )


def phase_to_undo(plan: Plan, wanted: str, *, under_way: RunStarted | None) -> Phase:
    """The phase that may be taken back; `under_way` is the plan's run that has not ended."""
    phase = plan.phase(wanted)
    if phase is None:
        known = ", ".join(phase.id for phase in plan.phases)
        raise NotFound(f"{plan.path} has no phase {wanted}; there are: {known}")
    if under_way is not None:
        if (under_way.mode, under_way.wanted) == ("undo", phase.id):
            return phase
        raise RefusedEarly(
            f"a run of {plan.path} has not ended; first let it end: {command('runplan', 'retry', plan.path)}"
        )
    if phase.status != "done":
        raise RefusedEarly(f"phase {phase.id} of {plan.path} is not done; there is nothing to undo")
    if upon := built_upon(plan, phase.id):
        first = command("runplan", "undo", plan.path, upon[0])
        raise RefusedEarly(f"phase {phase.id} is what {', '.join(upon)} build upon; first run: {first}")
    return phase
