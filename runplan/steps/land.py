"""Lands a phase: intent, compare-and-swap, observed. Code, tracker and report move in one step."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from runplan.git.trailers import add_trailers
from runplan.landing.lander import Declined, Landed, Landing, Pending, Refused, TargetMoved
from runplan.run import events as e
from runplan.steps.candidate import bookkeeping, landing_id, trailers_of
from runplan.steps.context import phase_of
from runplan.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import Ask, Land
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext

LATELY = timedelta(days=2)  #: how long a candidate may have been under way


def ask(action: Ask, state: RunState, world: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    candidate = phase_of(state).candidate
    assert candidate is not None
    yield e.ApprovalAsked(tree=candidate.tree)


def observe(action: Land, state: RunState, world: RunContext) -> tuple[e.Event, ...]:  # noqa: ARG001
    """A landing that was begun has happened when its id stands between the old tip and the target."""
    phase = phase_of(state)
    if phase.landing is None:
        return ()
    landing = _landing(phase.landing)
    with world.claims.landing_lock():
        world.lander.recover(landing)
        seen = world.lander.observe(landing)
    return () if seen is None else (_landed(phase, phase.landing, seen),)


def land(action: Land, state: RunState, world: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    phase = phase_of(state)
    onto = phase.candidate.onto if phase.candidate else phase.read.tip
    name = landing_id(world, state)
    with world.claims.landing_lock():
        tip = world.tip()
        if phase.landing is None:
            gone = phase.candidate is not None and world.objects.tip(phase.candidate.commits[-1]) is None
            if tip != onto or gone:
                yield _moved(world, name, tip)
                return
            files = bookkeeping(state, world, onto)
            if not isinstance(files, dict):
                yield files
                return
            started = _intend(state, world, onto, files)
            yield started
        else:
            started = phase.landing
        answer = world.lander.land(_landing(started), lambda: world.worktrees.deliver(started.new, without=started.old))
        match answer:
            case Landed() as seen:
                world.worktrees.delivered()
                yield _landed(phase, started, seen)
            case Pending(why=why):
                yield e.LandingHeld(id=name, why=why)
            case Refused(reason=reason):
                yield _refused(world, name, reason)
            case unreachable:
                assert_never(unreachable)


def _refused(world: RunContext, name: str, reason: TargetMoved | Declined) -> e.Event:
    match reason:
        case TargetMoved(tip=tip):
            return _moved(world, name, tip)
        case Declined(why=why):
            return e.LandingRefused(id=name, why=why)
        case unreachable:
            assert_never(unreachable)


def _moved(world: RunContext, name: str, tip: str) -> e.LandingMoved:
    """What we landed ourselves meanwhile is no sign of a target that never rests: one day it all has landed."""
    lately = iso(world.clock.now() - LATELY)
    ours = any(json.loads(row.body)["tip"] == tip for row in world.store.since("Landed", lately))
    return e.LandingMoved(id=name, tip=tip, ours=ours)


def _intend(state: RunState, world: RunContext, onto: str, files: dict[str, bytes]) -> e.LandingStarted:
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
        run=world.mark,
    )
    landing = world.lander.prepare(id=landing_id(world, state), old=onto, new=new)
    return e.LandingStarted(
        id=landing.id,
        ref=landing.ref,
        old=landing.old,
        new=landing.new,
        code=code,
        follows=landing.follows,
    )


def _subject(phase: PhaseRun, world: RunContext) -> str:
    if not phase.read.phase:
        return f"{world.slug}: mark the plan complete\n"
    if phase.read.choice == "undo":
        return f"{world.slug}: set phase {phase.read.phase} back to todo\n"
    return f"{world.slug}: record phase {phase.read.phase} as done\n"


def _landing(started: e.LandingStarted) -> Landing:
    return Landing(
        id=started.id,
        ref=started.ref,
        old=started.old,
        new=started.new,
        follows=started.follows,
    )


def _landed(phase: PhaseRun, started: e.LandingStarted, seen: Landed) -> e.Landed:
    return e.Landed(id=started.id, phase=phase.read.phase, tip=seen.tip, code=started.code, note=seen.note)
