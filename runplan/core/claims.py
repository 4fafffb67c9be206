"""The answers to "may I?": taken, mine already, or somebody else's."""

from __future__ import annotations

from typing import TypeAlias

from runplan.core.quickclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """It is ours now; `took_over` names the dead owner, if there was one."""

    fence: int
    took_over: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    """It was ours already."""

    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """Somebody else owns it."""

    owner: str
    why: str
    readable: bool = True  #: whether the claim could be read; one that cannot is never stolen


Standing: TypeAlias = Taken | Mine | Theirs
