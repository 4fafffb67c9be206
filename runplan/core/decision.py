"""An answer to "what next?": the actions that are due, or what is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core import actions as a
from runplan.core.quickclass import dataclass
from runplan.core.told import waited_for

if TYPE_CHECKING:
    from runplan.core.events import Paused


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, and why; nothing to do means ended or waiting."""

    actions: tuple[a.Action, ...]
    why: str
    waiting: str = ""  #: approval, checkout: what only a person can bring about; limit, overloaded: what time does
    about: str = ""  #: what exactly is waited for, in words
    wake: str = ""  #: when it is looked at again, UTC ISO-8601; "" when only a person can bring it about


def until(pause: Paused) -> Decision:
    """To wait for what time will mend."""
    about = waited_for(pause)
    return Decision(
        actions=(a.Sleep(kind=pause.kind, until=pause.until),),
        why=f"waiting until {pause.until} ({about})",
        waiting=pause.kind,
        about=about,
        wake=pause.until,
    )
