"""Lands a phase: intent, compare-and-swap, observed. Code, tracker and report land in one ref update."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from runplan.git.trailers import add_trailers
from runplan.landing.lander import Landed, Landing, Pending, Refused, TargetMoved
from runplan.run import events as e
from runplan.steps.candidate import bookkeeping, landing_id, trailers_of
from runplan.steps.context import phase_of
from runplan.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import Ask, Land
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext

RECENT = timedelta(days=2)  #: older landings of ours do not explain a moved target


def ask(action: Ask, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    candidate = phase_of(state).candidate
    assert candidate is not None
    yield e.ApprovalAsked(tree=candidate.tree)


def already_done(action: Land, state: RunState, context: RunContext) -> tuple[e.Event, ...]:  # noqa: ARG001
    """A recorded landing has happened when its id is between the old tip and the target."""
    phase = phase_of(state)
    if phase.landing is None:
        return ()
    landing = _landing(phase.landing)
    with context.claims.landing_lock():
        context.lander.recover(landing)
        seen = context.lander.observe(landing)
    return () if seen is None else (_landed(phase, phase.landing, seen),)


def land(action: Land, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    phase = phase_of(state)
    onto = phase.candidate.onto if phase.candidate else phase.read.tip
    name = landing_id(context, state)
    with context.claims.landing_lock():
        tip = context.tip()
        if phase.landing is None:
            gone = phase.candidate is not None and context.objects.tip(phase.candidate.commits[-1]) is None
            if tip != onto or gone:
                yield _moved(context, name, tip)
                return
            files = bookkeeping(state, context, onto)
            if not isinstance(files, dict):
                yield files
                return
            started = _intend(state, context, onto, files)
            yield started
        else:
            started = phase.landing
        deliver = functools.partial(context.worktrees.deliver, started.new, without=started.old)
        answer = context.lander.land(_landing(started), deliver)
        match answer:
            case Landed() as seen:
                context.worktrees.end_delivery()
                yield _landed(phase, started, seen)
            case Pending(why=why):
                yield e.LandingHeld(id=name, why=why)
            case Refused(reason=reason):
                if isinstance(reason, TargetMoved):
                    yield _moved(context, name, reason.tip)
                else:
                    yield e.LandingRefused(id=name, why=reason.why)
            case unreachable:
                assert_never(unreachable)


def _moved(context: RunContext, name: str, tip: str) -> e.LandingMoved:
    """Landings of our own are not counted as moves of the target."""
    since = iso(context.clock.now() - RECENT)
    ours = any(one.event.tip == tip for one in context.store.facts(e.Landed, since=since))
    return e.LandingMoved(id=name, tip=tip, ours=ours)


def _intend(state: RunState, context: RunContext, onto: str, files: dict[str, bytes]) -> e.LandingStarted:
    phase = phase_of(state)
    code = phase.candidate.commits[-1] if phase.candidate else onto
    new = context.candidates.bookkeep(
        code=code,
        files=files,
        message=add_trailers(_subject(phase, context), trailers_of(context, state)),
        by=context.signature(),
        run=context.mark,
    )
    landing = context.lander.prepare(id=landing_id(context, state), old=onto, new=new)
    return e.LandingStarted(
        id=landing.id, ref=landing.ref, old=landing.old, new=landing.new, code=code, follows=landing.follows
    )


def _subject(phase: PhaseRun, context: RunContext) -> str:
    if not phase.read.phase:
        return f"{context.slug}: mark the plan complete\n"
    if phase.read.choice == "undo":
        return f"{context.slug}: set phase {phase.read.phase} back to todo\n"
    return f"{context.slug}: record phase {phase.read.phase} as done\n"


def _landing(started: e.LandingStarted) -> Landing:
    return Landing(id=started.id, ref=started.ref, old=started.old, new=started.new, follows=started.follows)


def _landed(phase: PhaseRun, started: e.LandingStarted, seen: Landed) -> e.Landed:
    return e.Landed(id=started.id, phase=phase.read.phase, tip=seen.tip, code=started.code, note=seen.note)
