"""What agents have used in the last days: by day, plan, agent and role, over all repositories."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta

from msgspec import Struct

from runplan.adapters.store.location import Location
from runplan.adapters.store.protocol import open_store
from runplan.domain.errors import RunplanError
from runplan.domain.run.rows import UsageTotal
from runplan.domain.standing.usage import AgentUsage, sum_usage

DAYS = 30
MOST_PLANS = 30  #: with a row of their own; the others are summed


class CostRow(AgentUsage, frozen=True, kw_only=True):
    name: str
    repository: str = ""  #: the root of the plan's
    count: int = 0


class Costs(Struct, frozen=True, kw_only=True):
    total: CostRow
    days: tuple[CostRow, ...]  #: the oldest first, with those without use
    plans: tuple[CostRow, ...]  #: these and the next have the most expensive first
    agents: tuple[CostRow, ...]
    roles: tuple[CostRow, ...]
    unreadable: tuple[str, ...] = ()  #: the repositories whose journal cannot be read, each with the reason


def read_costs(journals: Mapping[str, Location], *, today: date) -> Costs:
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
    others = sum_usage(CostRow, plans[MOST_PLANS:], name="", repository="")
    return Costs(
        total=sum_usage(CostRow, by_day.values(), name="", repository=""),
        days=tuple(by_day.get(day, CostRow(name=day)) for day in days),
        plans=(*plans[:MOST_PLANS], *([others] if others.count else [])),
        agents=tuple(_group(pairs, lambda _, total: (total.agent, ""))),
        roles=tuple(_group(pairs, lambda _, total: (total.role, ""))),
        unreadable=tuple(unreadable),
    )


def _group(pairs: list[tuple[str, UsageTotal]], key: Callable[[str, UsageTotal], tuple[str, str]]) -> list[CostRow]:
    """The sums by name and repository, the most expensive first."""
    groups: dict[tuple[str, str], list[UsageTotal]] = {}
    for root, total in pairs:
        groups.setdefault(key(root, total), []).append(total)
    usages = (sum_usage(CostRow, members, name=name, repository=root) for (name, root), members in groups.items())
    return sorted(usages, key=lambda usage: (-usage.usd, -usage.tokens, usage.name, usage.repository))
