"""Counts what the journals hold, and prints it as Prometheus metrics."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from runplan.errors import RunplanError
from runplan.report.metrics import Figures, Process, Used, render, samples
from runplan.run.usage import believable
from runplan.store.schedules import Schedules
from runplan.store.sqlite import Store
from runplan.times import parse_iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path


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


def metrics_text(states: Mapping[str, Path], *, now: datetime, process: Process | None = None) -> str:
    """The metrics of the repositories whose journals lie in these directories; one that cannot be read is left out."""
    return render(samples(_readable(states, now), process))


def _readable(states: Mapping[str, Path], now: datetime) -> Iterator[Figures]:
    for repository, state in states.items():
        try:
            if Store.exists(state):
                yield _figures(repository, state, now)
        except (RunplanError, OSError):
            continue  # moved away, damaged or of a newer version: `status` there says which


def _figures(repository: str, state: Path, now: datetime) -> Figures:
    store = Store(state, writable=False)
    try:
        return figures(store, repository=repository, now=now)
    finally:
        store.close()


def this_process(*, version: str, uptime_s: float, repositories: int, working: int = 0, queued: int = 0) -> Process:
    """The metrics of this process."""
    return Process(
        version=version,
        uptime_s=uptime_s,
        rss_bytes=resident_bytes(),
        cpu_s=time.process_time(),
        threads=threading.active_count(),
        repositories=repositories,
        working=working,
        queued=queued,
    )


def resident_bytes() -> int:
    """Resident memory; the peak where the kernel reports only that."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
