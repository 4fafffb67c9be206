"""Budgets: what an agent has used, as reported or estimated, and what it may still use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.agents.context import tokens_in
from runplan.run.usage import Usage
from runplan.text import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runplan.run.dispatch import Launch
    from runplan.run.usage import Tally
    from runplan.settings.schema import AgentTable

_MILLION = 1_000_000
_CACHED = 0.1  #: share of the price for cached tokens


class Price(Struct, frozen=True, kw_only=True):
    """Dollars per million tokens; 0 when unknown."""

    sent: float = 0.0
    answered: float = 0.0
    guessed: bool = False  #: good enough to charge unreported usage, not to end an agent


def price_of(table: AgentTable, *, guess: Price) -> Price:
    """The price of the settings, else the guess for this kind of agent."""
    found = Price(sent=table.usd_per_mtok_in, answered=table.usd_per_mtok_out)
    return guess if found == Price() else found


def used_by(launch: Launch, tally: Tally, *, sure: bool) -> Usage:
    """The usage of a process; `sure`: to end it by, so that no price is guessed."""
    price = Price(sent=launch.usd_in, answered=launch.usd_out, guessed=launch.usd_guessed)
    known = Price() if sure and price.guessed else price
    return metered(tally, prompt=launch.prompt, price=known, most=launch.usd)


def metered(tally: Tally, *, prompt: int, price: Price, most: float = 0.0) -> Usage:
    """The usage with its dollars; `prompt` is its length in characters, `most` the dollars allowed, 0 for no limit."""
    used = tally.usage
    if tally.estimated and used == Usage():  # everything was sent once at least
        used = Usage(input_tokens=tally.context + tokens_in(prompt))
    if used.usd:
        return used
    fresh = used.input_tokens - used.cached_tokens * (1 - _CACHED)
    usd = (max(0.0, fresh) * price.sent + used.output_tokens * price.answered) / _MILLION
    return replace(used, usd=min(usd, most) if price.guessed and most else usd)


class Cost(Struct, frozen=True, kw_only=True):
    """Usage in one scope, or its limits: tokens sent and received, dollars, time. As a limit 0 means none."""

    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(tokens=self.tokens + other.tokens, usd=self.usd + other.usd, seconds=self.seconds + other.seconds)


class Left(Struct, frozen=True, kw_only=True):
    """What the next dispatch may use, by the tightest scope; 0 means no limit."""

    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    bounds: tuple[str, str, str] = ("", "", "")  #: the settings that limit tokens, dollars and time


class UsedUp(Struct, frozen=True):
    """Nothing may be started any more."""

    why: str


class GivenOut(Struct, frozen=True):
    """The rest is reserved for running agents; what they do not use becomes free."""

    why: str


#: Each measure with its name in the settings, and how its amounts are shown.
_MEASURES: tuple[tuple[str, str, Callable[[float, float], str]], ...] = (
    ("tokens", "tokens", lambda used, limit: f"{used} of {limit} tokens"),
    ("usd", "usd", lambda used, limit: f"${used:.2f} of ${limit:.2f}"),
    ("seconds", "wall", lambda used, limit: f"{in_words(used)} of {in_words(limit)}"),
)


def left(
    budgets: Mapping[str, Cost], spent: Mapping[str, Cost], given: Mapping[str, Cost] | None = None
) -> Left | UsedUp | GivenOut:
    """What is left for the next dispatch; `given` is what running agents may still use, by scope."""
    rests: dict[str, tuple[float, str]] = {}
    waits: GivenOut | None = None
    for scope, budget in budgets.items():
        used = spent.get(scope, Cost())
        if why := _used_up(scope, budget, used):
            return UsedUp(f"the {scope}'s budget is used up: {why}")
        used = used.plus((given or {}).get(scope, Cost()))
        if why := _used_up(scope, budget, used):
            waits = GivenOut(f"the rest of the {scope}'s budget, which running agents may use: {why}")
        for measure, name, _ in _MEASURES:
            if limit := getattr(budget, measure):
                rest = (limit - getattr(used, measure), _setting(scope, name))
                rests[measure] = min(rest, rests.get(measure, rest))
    tokens, usd, seconds = (rests.get(measure, (0, "")) for measure, _, _ in _MEASURES)
    bounds = (tokens[1], usd[1], seconds[1])
    return waits or Left(tokens=int(tokens[0]), usd=float(usd[0]), seconds=float(seconds[0]), bounds=bounds)


def _setting(scope: str, name: str) -> str:
    return f"limits.{name}" if scope == "dispatch" else f"limits.{scope}_{name}"


def _used_up(scope: str, budget: Cost, used: Cost) -> str:
    for measure, name, shown in _MEASURES:
        limit, amount = getattr(budget, measure), getattr(used, measure)
        if limit and amount >= limit:
            return f"{shown(amount, limit)} ({_setting(scope, name)})"
    return ""
