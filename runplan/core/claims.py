"""Results of a claim: acquired, held already, or held by another process; and the warning about a shared issue."""

from __future__ import annotations

from typing import TypeAlias

from runplan.core.quickclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """This process owns it now; `took_over` names the dead owner, if there was one."""

    fence: int
    took_over: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reentered:
    """This process owned it already."""

    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByOther:
    """Another process or run owns it."""

    owner: str
    why: str
    readable: bool = True  #: False for a claim that cannot be read; it is never taken over


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueShared:
    """An unfinished run of another plan claims the same issue; both runs continue."""

    number: int
    run: str
    plan: str = ""  #: of the other run, where the journal knows it

    @property
    def words(self) -> str:
        of = f" of {self.plan}" if self.plan else ""
        return f"issue #{self.number} is claimed by the run {self.run}{of}; both runs continue"


ClaimResult: TypeAlias = Acquired | Reentered | HeldByOther
