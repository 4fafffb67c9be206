"""`make chaos-fleet`: many plans on two and four workers, and every fault of a fleet; a table of the outcomes."""

# ruff: noqa: T201 - a command for people

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fleet import scenarios
from tests.fleet.scenarios import FAULTS, Outcome, try_fault, try_load
from tests.support.environment import own_environment
from tests.support.network import SEPARATE, SHARED, namespaces_work

COLUMNS = ("phases", "lost", "doubled", "stuck", "dispatches", "repeated", "fenced", "overlaps")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("all", "load", "faults"), default="all")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the faults whose name contains this")
    parser.add_argument("--workers", type=int, action="append", help="of the load; 2 and 4 unless given")
    parser.add_argument("--plans", type=int, default=20, help="of the load")
    parser.add_argument("--away", type=float, default=300.0, metavar="SECONDS", help="how long the remote is away")
    asked = parser.parse_args()
    scenarios.AWAY_S = asked.away
    with own_environment():
        return run(asked)


def run(asked: argparse.Namespace) -> int:
    print(f"hosts: {SEPARATE if namespaces_work() else SHARED}")
    print(f"{'':60} {' '.join(f'{name:>10}' for name in COLUMNS)}    seconds", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="runplan-fleet-", ignore_cleanup_errors=True) as place:
        for number in asked.workers or (2, 4) if asked.what in ("all", "load") else ():
            outcomes.append(try_load(Path(place, f"load-{number}"), workers=number, plans=asked.plans))
            show(outcomes[-1])
        for number, fault in enumerate(FAULTS if asked.what in ("all", "faults") else ()):
            if asked.only in fault.name:
                outcomes.append(try_fault(Path(place, f"fault-{number}"), fault))
                show(outcomes[-1])
    bad = [outcome for outcome in outcomes if not outcome.ok]
    print(f"fleet: {len(outcomes)} trials, {len(bad)} wrong")
    return 1 if bad else 0


def show(outcome: Outcome) -> None:
    figures = " ".join(f"{getattr(outcome, name):>10}" for name in COLUMNS)
    ended = f"  agents of the fenced host ended after {outcome.ended_s:.1f} s" if outcome.ended_s else ""
    print(f"{outcome.name:60} {figures} {outcome.seconds:10.1f}{ended}", *outcome.wrong, sep="\n    ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
