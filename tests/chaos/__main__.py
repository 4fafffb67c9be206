"""`make chaos`: kill matrix and soak of both runners, random plans, landings alone; and a summary line."""

# ruff: noqa: T201 - a command for people

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from runplan.adapters.sandbox.engines import CONTAINER
from tests.chaos import landings, matrix, plans, proofs, scenes, soak
from tests.chaos.runners import RUNNERS
from tests.support import inject
from tests.support.environment import own_environment

PACE_S = 0.3  #: how long an agent of a random plan works at most
WHATS = ("all", "matrix", "soak", "plans", "landing")


class Tally:
    """The sum over everything that was tried."""

    def __init__(self) -> None:
        self.cells = self.wrong = self.lost = self.doubled = self.stuck = 0

    def add(self, wrong: int, lost: int, doubled: int, *, cells: int = 0, stuck: int = 0) -> None:
        self.cells += cells
        self.wrong += wrong
        self.lost += lost
        self.doubled += doubled
        self.stuck += stuck


def main() -> int:
    asked = _asked()
    with own_environment():
        return _run(asked)


def _run(asked: argparse.Namespace) -> int:
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="runplan-chaos-", ignore_cleanup_errors=True) as place:
        for runner in [asked.runner] if asked.runner else [runner.name for runner in RUNNERS]:
            for way in [asked.landing] if asked.landing else scenes.WAY_BY_NAME:
                if asked.what in ("all", "matrix"):
                    _matrix(Path(place), asked, runner, way, tally)
            if asked.what in ("all", "soak"):
                _soak(Path(place), asked, runner, tally)
        if asked.what in ("all", "plans"):
            _plans(Path(place), asked, tally)
        if asked.what in ("all", "landing"):
            _landings(Path(place), asked, tally)
        if tally.wrong:  # what failed stays to be looked at
            kept = Path(tempfile.gettempdir()) / f"runplan-chaos-failed-{os.getpid()}"
            Path(place).rename(kept)
            Path(place).mkdir()
            print(f"what failed is kept under {kept}")
    summary = f"{tally.cells} cells, {tally.lost} lost, {tally.doubled} doubled, {tally.stuck} stuck"
    print(f"chaos: {summary}, {tally.wrong} otherwise wrong")
    return 1 if tally.wrong or tally.lost or tally.doubled else 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("what", nargs="?", choices=WHATS, default="all")
    parser.add_argument("--runner", choices=[runner.name for runner in RUNNERS], help="one of them only")
    parser.add_argument("--landing", choices=list(scenes.WAY_BY_NAME), default="", help="one way of landing only")
    parser.add_argument("--scene", choices=list(scenes.BY_NAME), default="", help="one scene only, with all its points")
    parser.add_argument("--sample", type=int, default=0, metavar="K", help="cells of a matrix, spread evenly; 0: all")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cells whose name contains this")
    parser.add_argument("--sandbox", choices=("none", "bwrap", CONTAINER), default="none", help="of a matrix")
    parser.add_argument("--fault", choices=inject.FAULTS, default="", help="the points fail so, instead of kills")
    parser.add_argument("--lasting", action="store_true", help="and so do all later ones of their kind, for a while")
    parser.add_argument("--list", action="store_true", help="print the cells, run none")
    parser.add_argument("--soak", type=int, default=40, metavar="KILLS", help="how often a soak kills")
    parser.add_argument("--kills", type=int, default=60, help="how often landings are killed while a user works")
    parser.add_argument("--count", type=int, default=20, help="how many random plans are worked with phases ahead")
    parser.add_argument("--step", type=int, default=4, help="landings are killed before every so manieth call")
    parser.add_argument("--first", type=int, default=1, help="and before this one first")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of the sample and the soaks")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _matrix(place: Path, asked: argparse.Namespace, runner: str, way: str, tally: Tally) -> None:
    began, shapes = time.monotonic(), dict[matrix.World, proofs.Shape]()
    names = (f"{runner}-{way}-{number}" for number in range(asked.workers))
    benches = [matrix.Bench(place, name, shapes, asked.sandbox) for name in names]
    worlds = [world for world in matrix.worlds(runner, way) if asked.scene in ("", world.scene)]
    passed = matrix.spread(matrix.Bench.undisturbed, worlds, benches)
    points = list(chain.from_iterable(passed))
    cells = matrix.fault_cells(points, asked.fault, lasting=asked.lasting) if asked.fault else matrix.cells(points)
    every = [cell for cell in cells if asked.only in str(cell)]
    chosen = matrix.sample(every, asked.sample, asked.seed)
    print(f"{runner}, {way}: {len(chosen)} of {len(every)} cells", flush=True)
    if asked.list:
        print(*chosen, sep="\n")
        return
    results = matrix.spread(_tried, chosen, benches)
    found = [result.found for result in results]
    bad = [result for result in results if not result.ok]
    if few := matrix.too_few(results):
        print(f"FAILED {runner}, {way}: {few}")
    kills = Counter(result.cell.kill.victim for result in results if result.kills)
    victims = ", ".join(f"{count} of {victim}" for victim, count in sorted(kills.items()))
    lost, doubled = sum(one.lost for one in found), sum(one.doubled for one in found)
    stuck = sum(one.stuck for one in found)
    summary = f"{len(results)} cells (kills: {victims}), {lost} lost, {doubled} doubled, {stuck} stuck"
    print(f"{runner}, {way}: {summary}, {len(bad)} wrong, in {time.monotonic() - began:.0f} s", flush=True)
    tally.add(len(bad) + bool(few), lost, doubled, cells=len(results), stuck=stuck)


def _tried(bench: matrix.Bench, cell: matrix.Cell) -> matrix.Result:
    result = bench.run(cell)
    if not result.ok:
        print(f"FAILED {cell}", *result.found.wrong, sep="\n    ", flush=True)
    return result


def _soak(place: Path, asked: argparse.Namespace, runner: str, tally: Tally) -> None:
    began = time.monotonic()
    print(f"soak: {runner}, {soak.STORMS[runner].scene.about}, seed {asked.seed} …", flush=True)
    account = soak.soak(place, kills=asked.soak, seed=asked.seed, runner=runner)
    print(f"soak: {account}, in {time.monotonic() - began:.0f} s", *account.wrong, sep="\n    ", flush=True)
    tally.add(len(account.wrong), account.lost, account.doubled)


def _plans(place: Path, asked: argparse.Namespace, tally: Tally) -> None:
    """Random plans with and without phases ahead, by agents that need a random time."""
    began = time.monotonic()

    def compare(seed: int) -> list[str]:
        wrong = plans.compare(place / f"plan-{seed}", seed=seed, pace_s=PACE_S)
        print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
        if not wrong:
            shutil.rmtree(place / f"plan-{seed}")
        return wrong

    with ThreadPoolExecutor(asked.workers) as pool:
        wrong = list(filter(None, pool.map(compare, range(asked.seed, asked.seed + asked.count))))
    print(f"plans: {asked.count} plans, {len(wrong)} differ, in {time.monotonic() - began:.0f} s", flush=True)
    tally.add(len(wrong), 0, 0, cells=asked.count)


def _landings(place: Path, asked: argparse.Namespace, tally: Tally) -> None:
    """Landings alone: killed before every call, then at random moments while a user works in the checkout."""
    began = time.monotonic()
    (place / "calls").mkdir()
    bench = landings.kill_before_every_call(place / "calls", step=asked.step, first=asked.first)
    print(f"landing: {bench.kills} kills before a call, {len(bench.wrong)} flaws, in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    (place / "user").mkdir()
    account = landings.soak(place / "user", kills=asked.kills, seed=asked.seed) if asked.kills else landings.Account()
    print(f"landing: seed {asked.seed}: {account}, in {time.monotonic() - began:.0f} s", flush=True)
    print(*bench.wrong, *account.wrong, *account.lost, *account.doubled, sep="\n    ")
    tally.add(len(bench.wrong) + len(account.wrong), len(account.lost), len(account.doubled))


if __name__ == "__main__":
    sys.exit(main())
