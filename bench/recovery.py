"""What going on after a crash costs beyond the work itself, with many finished runs in the journal."""

from __future__ import annotations

import json
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from bench.projects import environment, make
from tests.support import inject

if TYPE_CHECKING:
    from pathlib import Path

RUNS = 1_000
#: Nearly all of the work is done there: what is left is to see that the landing happened, and to end the run.
POINT = "before Landed"


def recovery(place: Path, command: list[str], *, rounds: int) -> None:
    """Seconds from the command to its end, for a run that died with its last landing done; empty and full journal."""
    empty = [_resumed(place / f"recover-0-{number}", command, runs=0) for number in range(rounds)]
    full = [_resumed(place / f"recover-{RUNS}-{number}", command, runs=RUNS) for number in range(rounds)]
    a, b = statistics.median(full), statistics.median(empty)
    print(
        f"recovery: {a * 1000:.0f} ms with {RUNS} finished runs in the journal, {b * 1000:.0f} ms with none, "
        f"ratio {a / b:.2f} (target: under 1000 ms)",
        flush=True,
    )


def _resumed(place: Path, command: list[str], *, runs: int) -> float:
    root = make(place, files=100, phases=1)
    env = environment(place / "home")
    dying = [sys.executable, "-P", "-c", inject.RUN, *command[1:]]
    killed = subprocess.run(dying, cwd=root, env=env | {inject.KILL: POINT}, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    _fill(root / ".git/runplan/journal.db", runs)
    began = time.perf_counter()
    subprocess.run(command, cwd=root, env=env, check=True, capture_output=True)
    return time.perf_counter() - began


def _fill(journal: Path, runs: int) -> None:
    """Copies of the run that is there, as runs of the same plan that ended before it."""
    with closing(sqlite3.connect(journal)) as db, db:
        (run,) = db.execute("SELECT id FROM runs").fetchone()
        events = db.execute("SELECT plan, at, type, body FROM events WHERE run=? ORDER BY seq", (run,)).fetchall()
        plan, at, *_ = events[-1]
        ended = (plan, at, "RunEnded", json.dumps({"outcome": "done"}))
        db.execute("UPDATE runs SET number=? WHERE id=?", (runs + 1, run))
        for number in range(1, runs + 1):
            other = f"{run}x{number}"
            db.execute(
                "INSERT INTO runs (id, number, row)"
                " SELECT ?, ?, json_set(row, '$.id', ?, '$.state', 'done', '$.outcome', 'done') FROM runs WHERE id=?",
                (other, number, other, run),
            )
            rows = [(other, *row) for row in (*events, ended)]
            db.executemany("INSERT INTO events (run, plan, at, type, body) VALUES (?,?,?,?,?)", rows)
