"""Counts the events of a journal for the metrics, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runplan.core.agentevents import believable
from runplan.core.metrics import Figures, Used
from runplan.core.times import parse_iso
from runplan.store.schedules import Schedules

if TYPE_CHECKING:
    from datetime import datetime

    from runplan.store.sqlite import Store

_USED = """
SELECT json_extract(body, '$.role'), coalesce(json_extract(body, '$.agent'), ''), json_extract(body, '$.ending'),
       count(*), total(json_extract(body, '$.input_tokens')), total(json_extract(body, '$.output_tokens')),
       total(json_extract(body, '$.cached_tokens')), total(json_extract(body, '$.usd')),
       total(json_extract(body, '$.seconds'))
FROM events WHERE type = 'DispatchEnded' GROUP BY 1, 2, 3
"""
#: Completed plans land without a phase, and what is taken back lands too: neither is a phase that has landed.
_LANDED = """
SELECT plan, count(*) FROM events WHERE type = 'Landed' AND json_extract(body, '$.phase') <> '' AND run NOT IN (
    SELECT run FROM events WHERE type = 'RunStarted' AND json_extract(body, '$.mode') = 'undo'
) GROUP BY 1
"""
_FAILED = """
SELECT plan, json_extract(body, '$.reason'), count(*) FROM events WHERE type = 'PhaseFailed' GROUP BY 1, 2
"""
_WAITING = """
SELECT plan, waiting_for, since FROM runs WHERE state IN ('queued', 'waiting') AND waiting_for IS NOT NULL
"""


def figures(store: Store, *, repository: str, now: datetime) -> Figures:
    """The figures of one repository."""
    ask: Any = store.query  # counts and texts, by the queries below
    return Figures(
        repository=repository,
        runs={(plan, state): n for plan, state, n in ask("SELECT plan, state, count(*) FROM runs GROUP BY 1, 2")},
        landed=dict(ask(_LANDED)),
        failed={(plan, reason): n for plan, reason, n in ask(_FAILED)},
        used=tuple(_used(row) for row in ask(_USED)),
        waiting={(plan, what): _seconds(since, now) for plan, what, since in ask(_WAITING)},
        schedules={row.plan: row.paused is not None for row in Schedules(store).all()},
        firings=_firings(store),
    )


def _used(row: tuple[Any, ...]) -> Used:
    role, agent, ending, count, sent, received, cached, usd, seconds = row
    return Used(
        role=role,
        agent=agent,
        ending=ending,
        count=count,
        input_tokens=believable(sent),
        output_tokens=believable(received),
        cached_tokens=believable(cached),
        usd=usd,
        seconds=seconds,
    )


def _seconds(since: str, now: datetime) -> float:
    return max((now - parse_iso(since)).total_seconds(), 0.0)


def _firings(store: Store) -> dict[tuple[str, str], int]:
    found: Any = store.query("SELECT plan, answer, count(*) FROM firings GROUP BY 1, 2")
    return {(plan, answer): count for plan, answer, count in found}
