"""Budgets: what an agent has used, by its account or by an estimate, and what it may still use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.context import tokens_in
from runplan.run.usage import Usage
from runplan.text import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.run.dispatch import Launch
    from runplan.run.usage import Tally
    from runplan.settings.schema import AgentTable


_MILLION = 1_000_000
_CACHED = 0.1  #: of the price, for what was read from a cache


class Price(Struct, frozen=True, kw_only=True):
    """Dollars per million tokens; 0 when nobody knows."""

    sent: float = 0.0
    answered: float = 0.0
    guessed: bool = False  #: good enough to book what was never told, not to end anybody


def price_of(table: AgentTable, *, guess: Price) -> Price:
    """What the settings say, else what is guessed of the kind."""
    told = Price(sent=table.usd_per_mtok_in, answered=table.usd_per_mtok_out)
    return guess if told == Price() else told


def unwatched_remedy(name: str) -> str:
    """What to do about one whose dollars nobody could watch."""
    return f"set usd_per_mtok_in and usd_per_mtok_out under [agents.{name}], or limit tokens instead of dollars"


def used_by(launch: Launch, tally: Tally, *, sure: bool) -> Usage:
    """What a process has used; `sure`: to end it by, so that no price is guessed."""
    price = Price(sent=launch.usd_in, answered=launch.usd_out, guessed=launch.usd_guessed)
    known = Price() if sure and price.guessed else price
    return metered(tally, prompt=launch.prompt, price=known, most=launch.usd)


def metered(tally: Tally, *, prompt: int, price: Price, most: float = 0.0) -> Usage:
    """What was used; `prompt` is its length in characters, `most` the dollars it was allowed, 0 for no limit."""
    used = tally.usage
    if tally.estimated and used == Usage():  # everything was sent once at least
        used = Usage(input_tokens=tally.context + tokens_in(prompt))
    if used.usd:
        return used
    fresh = used.input_tokens - used.cached_tokens * (1 - _CACHED)
    usd = (max(0.0, fresh) * price.sent + used.output_tokens * price.answered) / _MILLION
    return Usage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cached_tokens,
        usd=min(usd, most) if price.guessed and most else usd,
    )


class Cost(Struct, frozen=True, kw_only=True):
    """What was used."""

    tokens: int = 0  #: sent and received, from a cache or not
    usd: float = 0.0
    seconds: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(tokens=self.tokens + other.tokens, usd=self.usd + other.usd, seconds=self.seconds + other.seconds)


class Budget(Struct, frozen=True, kw_only=True):
    """What may be used in one scope; 0 means no limit."""

    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0


class Left(Struct, frozen=True, kw_only=True):
    """What the next dispatch may use, by the tightest scope; 0 means no limit."""

    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    bounds: tuple[str, str, str] = ("", "", "")  #: the settings that say so, of tokens, dollars and time


class UsedUp(Struct, frozen=True, kw_only=True):
    """Nothing may be started any more."""

    scope: str
    why: str


class GivenOut(Struct, frozen=True, kw_only=True):
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
