"""`make chaos`: the matrix and the soak, told in a table; ends with what was lost and what was doubled."""

# ruff: noqa: T201 - a command for people

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos import landings, lanes, listing, matrix, page, soak
from tests.chaos.ways import WAYS
from tests.support.surroundings import own_surroundings

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 5  #: cells that failed and are told in full


def main() -> int:
    asked = _asked()
    with own_surroundings():
        return _run(asked)


def _run(asked: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="runplan-chaos-", ignore_cleanup_errors=True) as place:
        results = _matrix(Path(place), asked) if asked.what in ("all", "matrix") else []
        beside = _lanes(Path(place), asked) if asked.what in ("all", "lanes") else []
        results += beside
        account = _soak(Path(place), asked) if asked.what in ("all", "soak") else soak.Account()
        killed = _landings(Path(place), asked) if asked.what in ("all", "landing") else landings.Account()
        account.wrong += killed.wrong
        account.lost += len(killed.lost)
        account.doubled += len(killed.doubled)
        bad = any(not result.ok for result in results) or bool(account.wrong or lanes.too_few(beside))
        if bad:  # what failed stays to be looked at
            kept = Path(tempfile.gettempdir()) / f"runplan-chaos-failed-{os.getpid()}"
            Path(place).rename(kept)
            Path(place).mkdir()
            print(f"what failed is kept under {kept}")
    lost = account.lost + sum(result.found.lost for result in results)
    doubled = account.doubled + sum(result.found.doubled for result in results)
    print(f"{lost} lost, {doubled} doubled")
    return 1 if bad or lost or doubled else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("all", "matrix", "lanes", "soak", "landing"), default="all")
    parser.add_argument("--soak", type=int, default=40, metavar="KILLS", help="how often the soak kills")
    parser.add_argument("--kills", type=int, default=60, help="how often landings are killed while a user works")
    parser.add_argument("--step", type=int, default=4, help="landings are killed before every so manieth call")
    parser.add_argument("--first", type=int, default=1, help="and before this one first")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of the soak's moments")
    parser.add_argument("--full", action="store_true", help="every passing of every point in every mode")
    parser.add_argument("--write", action="store_true", help="write the points the runs pass to points.txt")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _matrix(place: Path, asked: argparse.Namespace) -> list[matrix.Result]:
    began = time.monotonic()
    benches = [matrix.Bench(place, f"{number}w") for number in range(asked.workers)]
    try:
        found = benches[0].list_points()
        cells = matrix.cells(found, full=asked.full)
        print(f"{len({one.name for one in found})} points, {len(cells)} cells, {asked.workers} at a time", flush=True)
        results = matrix.run_all(cells, benches, lambda _: None)
    finally:
        for bench in benches:
            bench.close()
    print(page.table(results))
    _tell_failures([result for result in results if not result.ok])
    kills, good = sum(result.kills for result in results), sum(result.ok for result in results)
    summary = f"{len(results)} cells, {kills} kills, {good} ended as they must"
    print(f"matrix: {summary}, in {time.monotonic() - began:.0f} s", flush=True)
    if asked.write:
        listing.keep(found)
    return results


def _lanes(place: Path, asked: argparse.Namespace) -> list[matrix.Result]:
    began = time.monotonic()
    benches = [matrix.Bench(place, f"{number}l") for number in range(asked.workers)]
    try:
        cells = lanes.cells(benches[0], *(way.name for way in WAYS))
        print(f"side by side: {len(cells)} cells, {asked.workers} at a time", flush=True)
        results = matrix.run_all(cells, benches, lambda _: None)
    finally:
        for bench in benches:
            bench.close()
    _tell_failures([result for result in results if not result.ok])
    kills, tried = sum(result.kills for result in results), [result for result in results if result.tried]
    good, passed_by = sum(result.ok for result in tried), len(results) - len(tried)
    summary = f"{len(results)} cells, {kills} kills, {good} ended as they must, in {passed_by} nobody was killed"
    print(f"side by side: {summary}, in {time.monotonic() - began:.0f} s", flush=True)
    if found := lanes.too_few(results):
        print(f"FAILED side by side: {found}, and at most {1 - lanes.LEAST:.0%} may be")
    return results


def _tell_failures(failed: Sequence[matrix.Result]) -> None:
    for result in failed[:SHOWN]:
        print(f"FAILED {result.cell}", *result.found.wrong, sep="\n    ")
    for result in failed[SHOWN:]:
        print(f"FAILED {result.cell}")


def _soak(place: Path, asked: argparse.Namespace) -> soak.Account:
    began = time.monotonic()
    print(f"soak: {asked.soak} kills over plans of {len(soak.PHASES)} phases, seed {asked.seed} …", flush=True)
    account = soak.soak(place, kills=asked.soak, seed=asked.seed)
    who = ", ".join(f"{count} of {victim}" for victim, count in sorted(account.kills.items())) or "none"
    ended = "differs from an undisturbed run" if account.wrong else "the same as an undisturbed run"
    print(
        f"soak: {account.kills.total()} kills ({who}), {account.starts} starts, {account.rounds} plans: "
        f"{ended}, in {time.monotonic() - began:.0f} s"
    )
    print(*account.wrong, sep="\n    ", end="\n" if account.wrong else "")
    return account


def _landings(place: Path, asked: argparse.Namespace) -> landings.Account:
    """Landings alone: killed before every call, then at random moments while a user works in the checkout."""
    began = time.monotonic()
    (place / "calls").mkdir()
    bench = landings.kill_before_every_call(place / "calls", step=asked.step, first=asked.first)
    print(f"landing: {bench.kills} kills before a call, {len(bench.wrong)} flaws, in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    (place / "user").mkdir()
    account = landings.soak(place / "user", kills=asked.kills, seed=asked.seed) if asked.kills else landings.Account()
    print(f"landing: seed {asked.seed}: {account}, in {time.monotonic() - began:.0f} s", flush=True)
    account.wrong += bench.wrong
    print(*account.wrong, *account.lost, *account.doubled, sep="\n    ")
    return account


if __name__ == "__main__":
    sys.exit(main())
