"""Lands a phase: intent, compare-and-swap, observed. Code, tracker and report move in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from runplan.app.accounts import failure_sections, phase_account
from runplan.app.actions.building import landing_id, trailers_of
from runplan.app.actions.doing import phase_of
from runplan.core import events as e
from runplan.core import plan as plans
from runplan.core import report, tracker
from runplan.core.errors import PlanUnreadable
from runplan.core.gitfacts import Held, Landed, Landing, Moved, Refused
from runplan.core.reasons import Reason
from runplan.core.target import missing
from runplan.core.trailers import add_trailers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.world import World
    from runplan.core.actions import Ask, Land
    from runplan.core.run import PhaseRun, RunState

SHORT = 7  #: digits of a commit in the tracker


def ask(action: Ask, state: RunState, world: World) -> Iterator[e.Event]:  # noqa: ARG001
    candidate = phase_of(state).candidate
    assert candidate is not None
    yield e.ApprovalAsked(tree=candidate.tree)


def observe(action: Land, state: RunState, world: World) -> tuple[e.Event, ...]:  # noqa: ARG001
    """A landing that was begun has happened when its id stands between the old tip and the target."""
    phase = phase_of(state)
    if phase.landing is None:
        return ()
    landing = _landing(phase.landing)
    with world.claims.landing_lock():
        world.lander.recover(landing)
        seen = world.lander.observe(landing)
    return () if seen is None else (_landed(phase, phase.landing, seen),)


def land(action: Land, state: RunState, world: World) -> Iterator[e.Event]:  # noqa: ARG001
    phase = phase_of(state)
    onto = phase.candidate.onto if phase.candidate else phase.read.tip
    name = landing_id(world, state)
    with world.claims.landing_lock():
        tip = world.tip()
        if phase.landing is None:
            gone = phase.candidate is not None and world.objects.tip(phase.candidate.commits[-1]) is None
            if tip != onto or gone:
                yield e.LandingMoved(id=name, tip=tip)
                return
            refusal, files = _bookkeeping(state, world, onto)
            if refusal is not None:
                yield refusal
                return
            started = _intend(state, world, onto, files)
            yield started
        else:
            started = phase.landing
        answer = world.lander.land(_landing(started))
        world.point("Land.swapped")
        match answer:
            case Landed() as seen:
                yield _landed(phase, started, seen)
            case Held(why=why):
                yield e.LandingHeld(id=name, why=why)
            case Moved(tip=tip):
                yield e.LandingMoved(id=name, tip=tip)
            case Refused(why=why):
                yield e.LandingRefused(id=name, why=why)
            case unreachable:
                assert_never(unreachable)


def _intend(state: RunState, world: World, onto: str, files: dict[str, bytes]) -> e.LandingStarted:
    phase = phase_of(state)
    code = phase.candidate.commits[-1] if phase.candidate else onto
    new = world.candidates.bookkeep(
        code=code,
        files=files,
        message=add_trailers(_subject(phase, world), trailers_of(world, state)),
        author=world.user,
        committer=world.user,
        when=world.git_date(),
        sign=world.sign,
        run=world.run,
    )
    world.point("Land.bookkept")
    landing = world.lander.prepare(id=landing_id(world, state), old=onto, new=new)
    return e.LandingStarted(
        id=landing.id,
        ref=landing.ref,
        old=landing.old,
        new=landing.new,
        code=code,
        locks=landing.locks,
        follows=landing.follows,
    )


def _subject(phase: PhaseRun, world: World) -> str:
    if not phase.read.phase:
        return f"{world.slug}: mark the plan complete\n"
    return f"{world.slug}: record phase {phase.read.phase} as done\n"


def _bookkeeping(
    state: RunState, world: World, onto: str
) -> tuple[e.WorkRefused | e.LandingHeld | None, dict[str, bytes]]:
    """The plan with its row set and the report with its section, made from the target's own texts."""
    phase = phase_of(state)
    text = world.objects.blob(onto, world.plan)
    if text is None:
        return _blocked(f"{world.plan} is no longer on the target"), {}
    try:
        plan = plans.parse(text, path=world.plan)
    except PlanUnreadable as error:
        return _blocked(str(error)), {}
    sections = failure_sections(world.store, world.plan)
    if phase.read.phase:
        row = plan.phase(phase.read.phase)
        if row is None:
            return _blocked(f"{world.plan} has no phase {phase.read.phase} any more"), {}
        if row.status is plans.Status.DONE:
            detail = f"phase {row.id} was marked done on the target meanwhile"
            return e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail=detail), {}
        if row.text.rstrip() != phase.read.text.rstrip():
            why = (
                f"phase {row.id} was reworded on {world.settings.run.target} while it was worked; put the wording "
                f"back, or drop this work and begin anew: runplan reject {world.plan}"
            )
            return e.LandingHeld(id=landing_id(world, state), why=why), {}
        if waits := missing(plan, row):
            why = f"phase {row.id} depends on {', '.join(waits)}, which {world.settings.run.target} shows as not done"
            return e.LandingHeld(id=landing_id(world, state), why=why), {}
        assert phase.candidate is not None
        short = phase.candidate.commits[-1][:SHORT]
        text = tracker.set_status(text, path=world.plan, phase=row.id, status=plans.Status.DONE, commit=short)
        sections = [*sections, report.phase_section(phase_account(state, world))]
    if all(other.status is plans.Status.DONE for other in plan.phases if other.id != phase.read.phase):
        text = tracker.complete(text, path=world.plan, completed=world.iso())
    files = {world.plan: text}
    if sections:
        files[world.report] = _report(world, onto, plan.title, sections)
    return None, files


def _report(world: World, onto: str, title: str, sections: list[str]) -> bytes:
    before = world.objects.blob(onto, world.report)
    old = None if before is None else before.decode("utf-8", "surrogateescape")
    return report.prepend(old, plan_title=title, sections=sections).encode("utf-8", "surrogateescape")


def _blocked(detail: str) -> e.WorkRefused:
    return e.WorkRefused(reason=Reason.BLOCKED, detail=detail)


def _landing(started: e.LandingStarted) -> Landing:
    return Landing(
        id=started.id,
        ref=started.ref,
        old=started.old,
        new=started.new,
        locks=started.locks,
        follows=started.follows,
    )


def _landed(phase: PhaseRun, started: e.LandingStarted, seen: Landed) -> e.Landed:
    return e.Landed(id=started.id, phase=phase.read.phase, tip=seen.tip, code=started.code, note=seen.note)
