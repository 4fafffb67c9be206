"""What agents have used in the last days: by day, plan, agent and role, over all repositories."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta

from msgspec import Struct

from runplan.adapters.store.location import Location
from runplan.adapters.store.protocol import open_store
from runplan.domain.errors import RunplanError
from runplan.domain.run.rows import UsageTotal
from runplan.engine.report.views import format_cost, token_count

DAYS = 30
MOST_PLANS = 30  #: with a row of their own; the others are summed


class Usage(Struct, frozen=True, kw_only=True):
    """What some agents have used."""

    name: str  #: of the day, plan, agent or role
    repository: str = ""  #: the root of the plan's
    count: int = 0
    tokens: int = 0
    usd: float = 0.0
    unpriced: bool = False
    estimated: bool = False

    @property
    def cost(self) -> str:
        return format_cost(self.usd, unpriced=self.unpriced, estimated=self.estimated)

    @property
    def token_words(self) -> str:
        return token_count(self.tokens, estimated=self.estimated)


class Costs(Struct, frozen=True, kw_only=True):
    total: Usage
    days: tuple[Usage, ...]  #: the oldest first, with those without use
    plans: tuple[Usage, ...]  #: these and the next have the most expensive first
    agents: tuple[Usage, ...]
    roles: tuple[Usage, ...]
    unreadable: tuple[str, ...] = ()  #: the repositories whose journal cannot be read, each with the reason


def read_costs(journals: Mapping[str, Location], *, today: date) -> Costs:
    """The costs of the repositories with these journals, by their roots."""
    since = (today - timedelta(days=DAYS - 1)).isoformat()
    totals: list[tuple[str, UsageTotal]] = []
    unreadable = []
    for root, journal in sorted(journals.items()):
        try:
            with contextlib.closing(open_store(journal, writable=False, missing_ok=True)) as store:
                totals += [(root, total) for total in store.sum_usage(since)]
        except (RunplanError, OSError) as error:
            unreadable.append(f"{root}: {error}")
    return sum_costs(totals, today=today, unreadable=unreadable)


def sum_costs(totals: Iterable[tuple[str, UsageTotal]], *, today: date, unreadable: Iterable[str] = ()) -> Costs:
    """The sums of (repository, usage) pairs of the last days."""
    pairs = list(totals)
    by_day = {usage.name: usage for usage in _group(pairs, lambda _, total: (total.day, ""))}
    days = [(today - timedelta(days=ago)).isoformat() for ago in reversed(range(DAYS))]
    plans = _group(pairs, lambda root, total: (total.plan, root))
    others = _add_up("", plans[MOST_PLANS:])
    return Costs(
        total=_add_up("", by_day.values()),
        days=tuple(by_day.get(day, Usage(name=day)) for day in days),
        plans=(*plans[:MOST_PLANS], *([others] if others.count else [])),
        agents=tuple(_group(pairs, lambda _, total: (total.agent, ""))),
        roles=tuple(_group(pairs, lambda _, total: (total.role, ""))),
        unreadable=tuple(unreadable),
    )


def _group(pairs: list[tuple[str, UsageTotal]], key: Callable[[str, UsageTotal], tuple[str, str]]) -> list[Usage]:
    """The sums by name and repository, the most expensive first."""
    groups: dict[tuple[str, str], list[UsageTotal]] = {}
    for root, total in pairs:
        groups.setdefault(key(root, total), []).append(total)
    usages = (_add_up(name, members, repository) for (name, repository), members in groups.items())
    return sorted(usages, key=lambda usage: (-usage.usd, -usage.tokens, usage.name, usage.repository))


def _add_up(name: str, parts: Iterable[UsageTotal | Usage], repository: str = "") -> Usage:
    members = list(parts)
    return Usage(
        name=name,
        repository=repository,
        count=sum(part.count for part in members),
        tokens=sum(part.tokens for part in members),
        usd=sum(part.usd for part in members),
        unpriced=any(part.unpriced for part in members),
        estimated=any(part.estimated for part in members),
    )
