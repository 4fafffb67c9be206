"""What grows with the work behind: a phase, and the commands that look at all plans or all runs.

`python -m bench.growth` measures it alone.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from bench.projects import environment, make, plan
from runplan.adapters.clock import SystemClock
from runplan.adapters.store.journal import Journal
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.run.recorded import from_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.domain.run.events import Event
    from runplan.domain.run.rows import EventRow

RUNPLAN = str(Path(sys.executable).with_name("runplan"))
START = [RUNPLAN, "start", "X", "finish", "auto", "--foreground"]
RUNS = 1_000
PLANS = 1_000
EDGE = 10  #: phases at either end of a long plan that are compared


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        growth(Path(place), phases=200, rounds=3)


def growth(place: Path, *, phases: int, rounds: int) -> None:
    long_plan(place / "long", phases)
    full_journal(place, rounds)
    overviews(place / "overviews", rounds + 1)


def long_plan(place: Path, phases: int) -> None:
    """The first phases of a long plan against the last."""
    took = durations(make(place, files=100, phases=phases))
    first, last = statistics.median(took[1 : 1 + EDGE]), statistics.median(took[-EDGE:])
    summary = f"phase {phases} of a plan {last * 1000:.0f} ms, phase 2 {first * 1000:.0f} ms"
    print(f"{summary}, ratio {last / first:.2f} (target 1.0)", flush=True)


def full_journal(place: Path, rounds: int) -> None:
    """The same phases with many finished runs of the plan behind them, and with none."""
    empty, full = [], []
    for number in range(rounds):
        empty += durations(make(place / f"empty{number}", files=100, phases=EDGE))[1:]
        root = make(place / f"full{number}", files=100, phases=EDGE)
        first_run(root)
        fill(root, ["plans/X.md"] * RUNS)
        full += durations(root)[1:]
    a, b = statistics.median(full), statistics.median(empty)
    summary = f"phase with {RUNS} finished runs behind it {a * 1000:.0f} ms, with none {b * 1000:.0f} ms"
    print(f"{summary}, ratio {a / b:.2f} (target 1.0)", flush=True)


def overviews(place: Path, rounds: int) -> None:
    """Commands over a thousand open plans with a finished run each, as multiples of `python -c pass`."""
    root = make(place, files=100, phases=2)
    names = [f"plans/P{number}.md" for number in range(PLANS)]
    for name in names:
        (root / name).write_text(plan(2), encoding="utf-8")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Plans")
    first_run(root)
    few = {name: timed(root, *words, rounds=rounds) for name, words in COMMANDS.items()}
    fill(root, names)
    bare = timed(root, rounds=rounds)
    for name, words in COMMANDS.items():
        took = timed(root, *words, rounds=rounds)
        summary = f"runplan {name}, {PLANS} plans with a run each: {took * 1000:.0f} ms"
        print(
            f"{summary}, {took / bare:.1f} times python -c pass, {took / few[name]:.1f} times with one run", flush=True
        )


COMMANDS = {"status": ["status"], "metrics": ["metrics"], "gc --dry-run": ["gc", "--dry-run"]}


def timed(root: Path, *words: str, rounds: int) -> float:
    command = [RUNPLAN, *words] if words else [sys.executable, "-c", "pass"]
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, cwd=root, env=environment(root.parent / "home"), check=True, capture_output=True)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


# --- phases, timed by their agents -----------------------------------------------------------------------------


def durations(root: Path) -> list[float]:
    """Seconds from the start of each phase's agent to that of the next."""
    stamps = root.parent / "stamps"
    stamps.mkdir()
    agent = root.parent / "agent.sh"
    agent.write_text(f'[ "$RUNPLAN_ROLE" = implement ] && : >"{stamps}/$RUNPLAN_PHASE"\n{agent.read_text()}')
    subprocess.run(START, cwd=root, env=environment(root.parent / "home"), check=True, capture_output=True)
    begun = sorted(one.stat().st_mtime for one in stamps.iterdir())
    return [after - before for before, after in pairwise(begun)]


def first_run(root: Path) -> None:
    """Work one plan of one phase, and put everything but its journal back."""
    (root / "plans/FIRST.md").write_text(plan(1), encoding="utf-8")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "First")
    command = [*START[:2], "FIRST", *START[3:]]
    subprocess.run(command, cwd=root, env=environment(root.parent / "home"), check=True, capture_output=True)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, env=environment(root.parent / "home"), check=True)


# --- a past ----------------------------------------------------------------------------------------------------


def fill(root: Path, plans: Iterable[str], *, has_logs: bool = True) -> None:
    """Add finished runs of these plans: copies of the existing run under other names."""
    state = root / ".git/runplan"
    with closing(SqliteStore(state)) as store:
        (first,) = store.list_runs(limit=1)
        rows = store.list_events(first.id)
        logs = sorted((state / "dispatch").glob(f"*{first.id}*")) if has_logs else []
        for number, name in enumerate(plans):
            run = f"{first.id}x{number}"
            with store.transaction():
                fence = store.set_claim("plan", name, run=run, owner="1:1:1")
            journal = Journal(store, SystemClock(), run=run, plan=name, fence=fence, on_event=lambda *_: None)
            journal.append(*renamed_events(rows, (first.id, run), (first.plan, name)))
            for log in logs:
                shutil.copytree(log, log.with_name(log.name.replace(first.id, run)))


def renamed_events(rows: Iterable[EventRow], *others: tuple[str, str]) -> list[Event]:
    found = []
    for row in rows:
        body = row.body
        for old, new in others:
            body = body.replace(old, new)
        if (event := from_json(row.type, body)) is not None:
            found.append(event)
    return found


if __name__ == "__main__":
    main()
