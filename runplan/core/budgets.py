"""What an agent may still use: tokens, dollars and time, per dispatch, phase, plan and day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass
from runplan.core.spans import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    bounds: tuple[str, str, str] = ("", "", "")  #: the settings that say so, of tokens, dollars and time


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedUp:
    """Nothing may be started any more."""

    scope: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOut:
    """What is left is given to agents that are at work; what they do not use comes back."""

    scope: str
    why: str


def left(
    budgets: Mapping[str, Budget], spent: Mapping[str, Cost], given: Mapping[str, Cost] | None = None
) -> Left | UsedUp | GivenOut:
    """What is left for the next dispatch; `given` is what those that are at work may still use, by scope."""
    tokens: list[tuple[int, str]] = []
    usd: list[tuple[float, str]] = []
    seconds: list[tuple[float, str]] = []
    waits: GivenOut | None = None
    for scope, budget in budgets.items():
        used = spent.get(scope, Cost())
        if why := _used_up(scope, budget, used):
            return UsedUp(scope=scope, why=f"the {scope}'s budget is used up: {why}")
        used = used.plus((given or {}).get(scope, Cost()))
        if why := _used_up(scope, budget, used):
            waits = GivenOut(scope=scope, why=f"the rest of the {scope}'s budget, which agents at work may use: {why}")
        if budget.tokens:
            tokens.append((budget.tokens - used.tokens, _setting(scope, "tokens")))
        if budget.usd:
            usd.append((budget.usd - used.usd, _setting(scope, "usd")))
        if budget.seconds:
            seconds.append((budget.seconds - used.seconds, _setting(scope, "wall")))
    tightest = min(tokens, default=(0, "")), min(usd, default=(0.0, "")), min(seconds, default=(0.0, ""))
    bounds = (tightest[0][1], tightest[1][1], tightest[2][1])
    return waits or Left(tokens=tightest[0][0], usd=tightest[1][0], seconds=tightest[2][0], bounds=bounds)


def _setting(scope: str, name: str) -> str:
    return f"limits.{name}" if scope == "dispatch" else f"limits.{scope}_{name}"


def _used_up(scope: str, budget: Budget, used: Cost) -> str:
    if budget.tokens and used.tokens >= budget.tokens:
        return f"{used.tokens} of {budget.tokens} tokens ({_setting(scope, 'tokens')})"
    if budget.usd and used.usd >= budget.usd:
        return f"${used.usd:.2f} of ${budget.usd:.2f} ({_setting(scope, 'usd')})"
    if budget.seconds and used.seconds >= budget.seconds:
        return f"{in_words(used.seconds)} of {in_words(budget.seconds)} ({_setting(scope, 'wall')})"
    return ""
