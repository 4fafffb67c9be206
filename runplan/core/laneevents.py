"""The facts of phases that are worked side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from runplan.core.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesChosen:
    """These phases are worked side by side from here on; none when nothing can begin beside those at work."""

    tip: str  #: where the plan was read
    lanes: tuple[tuple[str, str, tuple[str, ...]], ...]  #: name of the lane, phase, what it touches


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFact:
    """A fact of one lane; everything else is a fact of the run."""

    lane: str
    event: Event
