"""What an agent has used so far: as it told, else by an estimate; and in dollars by a price where it tells none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.agentevents import Usage
from runplan.core.gauge import tokens_in
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from runplan.core.config import AgentTable
    from runplan.core.dispatch import Launch
    from runplan.core.tally import Tally

_MILLION = 1_000_000
_CACHED = 0.1  #: of the price, for what was read from a cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
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
