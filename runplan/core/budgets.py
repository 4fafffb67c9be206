"""What an agent may still use: tokens, dollars and time, per dispatch, phase, plan and day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

SCOPES = ("dispatch", "phase", "plan", "day")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What was used."""

    tokens: int = 0  #: sent and received, from a cache or not
    usd: float = 0.0
    seconds: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(tokens=self.tokens + other.tokens, usd=self.usd + other.usd, seconds=self.seconds + other.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be used in one scope; 0 means no limit."""

    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What the next dispatch may use, by the tightest scope; 0 means no limit."""

    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedUp:
    """Nothing may be started any more."""

    scope: str
    why: str


def left(budgets: Mapping[str, Budget], spent: Mapping[str, Cost]) -> Left | UsedUp:
    """What is left for the next dispatch, by scope."""
    tokens: list[int] = []
    usd: list[float] = []
    seconds: list[float] = []
    for scope, budget in budgets.items():
        used = spent.get(scope, Cost())
        if why := _used_up(budget, used):
            return UsedUp(scope=scope, why=f"the {scope}'s budget is used up: {why}")
        if budget.tokens:
            tokens.append(budget.tokens - used.tokens)
        if budget.usd:
            usd.append(budget.usd - used.usd)
        if budget.seconds:
            seconds.append(budget.seconds - used.seconds)
    return Left(tokens=min(tokens, default=0), usd=min(usd, default=0.0), seconds=min(seconds, default=0.0))


def _used_up(budget: Budget, used: Cost) -> str:
    if budget.tokens and used.tokens >= budget.tokens:
        return f"{used.tokens} of {budget.tokens} tokens"
    if budget.usd and used.usd >= budget.usd:
        return f"${used.usd:.2f} of ${budget.usd:.2f}"
    if budget.seconds and used.seconds >= budget.seconds:
        return f"{used.seconds / 60:.0f} of {budget.seconds / 60:.0f} minutes"
    return ""
