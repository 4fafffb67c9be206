"""The facts of a landing: asked for, intended, held up, and seen to have happened."""

from __future__ import annotations

from runplan.core.quickclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """The candidate is proven; a person is asked whether it may land."""

    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """A person said yes to exactly this tree."""

    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A person said no."""

    tree: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingStarted:
    """The intent: recorded before the swap, so that a crash in between can be seen."""

    id: str
    ref: str
    old: str
    new: str
    code: str  #: the last code commit
    follows: str = ""  #: where the local branch stood that follows a landing elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingHeld:
    """The checkout of the target is in use; nothing was changed."""

    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingMoved:
    """The target moved meanwhile; the candidate is built again."""

    id: str
    tip: str
    ours: bool = False  #: by another landing of ours, of which there are only so many


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingRefused:
    """Whoever owns the target does not take the candidate; nothing was changed."""

    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The target holds the phase: code, tracker and report in one step."""

    id: str
    phase: str
    tip: str
    code: str
    note: str = ""  #: why a local branch did not follow
