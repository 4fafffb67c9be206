"""Chooses the phase to work next from what the plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from runplan.core.marks import Status, says_complete
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from runplan.core.plan import Phase, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """This phase is to be worked."""

    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class AllDone:
    """Every phase is done; the plan is yet to be marked complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyComplete:
    """The plan says that it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFound:
    """The plan has no such phase, only these."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDone:
    """The phase asked for is done."""

    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsPhases:
    """The phase asked for waits for others."""

    phase: Phase
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a phase cannot be worked: the phases it waits for; none when a person marked it blocked."""

    phase: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllBlocked:
    """Phases are left, and none of them can be worked."""

    why: tuple[Obstacle, ...]


Choice: TypeAlias = Next | AllDone | AlreadyComplete | NotFound | PhaseDone | NeedsPhases | AllBlocked


def choose(plan: Plan, *, wanted: str | None) -> Choice:
    """The phase asked for, else the first in tracker order that is not done, not blocked and not waiting.

    A phase marked in progress counts as todo: whether somebody is at it is known from claims, not from the plan.
    """
    if wanted is not None:
        return _asked(plan, wanted)
    if says_complete(plan.status):
        return AlreadyComplete()
    left = [phase for phase in plan.phases if phase.status is not Status.DONE]
    if not left:
        return AllDone()
    for phase in left:
        if phase.status is not Status.BLOCKED and not missing(plan, phase):
            return Next(phase=phase)
    return AllBlocked(why=tuple(Obstacle(phase=phase.id, missing=missing(plan, phase)) for phase in left))


def _asked(plan: Plan, wanted: str) -> Choice:
    phase = plan.phase(wanted)
    if phase is None:
        return NotFound(ids=tuple(phase.id for phase in plan.phases))
    if says_complete(plan.status):
        return AlreadyComplete()
    if phase.status is Status.DONE:
        return PhaseDone(phase=phase)
    if waits := missing(plan, phase):
        return NeedsPhases(phase=phase, missing=waits)
    return Next(phase=phase)


def missing(plan: Plan, phase: Phase) -> tuple[str, ...]:
    """The phases it must wait for that are not done."""
    done = {other.id for other in plan.phases if other.status is Status.DONE}
    return tuple(id_ for id_ in phase.depends if id_ not in done)
