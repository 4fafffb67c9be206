"""The answers to "may I?": taken, mine already, or somebody else's; and the fact that an issue is."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueShared:
    """Another run that has not ended claims an issue of the plan; both runs go on."""

    number: int
    run: str
    plan: str = ""  #: of the other run, where the journal knows it

    @property
    def words(self) -> str:
        of = f" of {self.plan}" if self.plan else ""
        return f"issue #{self.number} is claimed by the run {self.run}{of}; both runs go on"


Standing: TypeAlias = Taken | Mine | Theirs
