"""Metrics of the daemon and its repositories."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from typing import TYPE_CHECKING

from runplan.core.errors import RunplanError
from runplan.core.metrics import Process, render, samples
from runplan.store.figures import figures
from runplan.store.sqlite import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from runplan.core.metrics import Figures


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
