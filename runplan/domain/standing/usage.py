"""What agents have used: tokens and dollars, and how far a sum can be trusted. Cheap to import."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from runplan.domain.decoding import convert


class AgentUsage(Struct, frozen=True, kw_only=True):
    tokens: int = 0  #: sent and received
    usd: float = 0.0
    unpriced: bool = False  #: an agent reported tokens but no cost
    estimated: bool = False  #: an agent was stopped before it reported tokens

    @property
    def cost(self) -> str:
        """In dollars; `-` when no agent reported it."""
        return f"{'≥ ' if self.unpriced else '≈ ' if self.estimated else ''}${self.usd:.2f}" if self.usd else "-"

    @property
    def token_words(self) -> str:
        return f"{'≈ ' if self.estimated else ''}{self.tokens:,}"

    @property
    def words(self) -> str:
        cost = self.cost if self.usd else "cost -" if self.tokens else ""
        return ", ".join(filter(None, [f"{self.token_words} tokens" if self.tokens else "", cost]))


U = TypeVar("U", bound=AgentUsage)
_MARKS = ("unpriced", "estimated")  #: of one part, they hold for the sum


def sum_usage(kind: type[U], parts: Iterable[Struct], **named: str) -> U:
    """The sum of values that have the fields of the kind; those that are named are no numbers."""
    members = list(parts)
    sums: dict[str, object] = dict(named)
    for name in kind.__struct_fields__:
        if name not in named:
            values = [getattr(part, name) for part in members]
            sums[name] = any(values) if name in _MARKS else sum(values)
    return convert(sums, kind)


def usage_of(part: Struct) -> AgentUsage:
    return sum_usage(AgentUsage, [part])
