"""`make chaos-fleet`: many plans on two and four workers, and every fault of a fleet; a table of the outcomes.

`python -m tests.fleet far`: how long a plan of small phases takes on a host that is far from its database.
"""

# ruff: noqa: T201 - a command for people

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fleet import scenarios
from tests.fleet.scenarios import FAULTS, NAMES, Outcome, is_ended, make_plans, running, try_fault, try_load
from tests.support.cli import until
from tests.support.environment import own_environment
from tests.support.network import SEPARATE, SHARED, namespaces_work

COLUMNS = ("phases", "lost", "doubled", "stuck", "dispatches", "repeated", "fenced", "overlaps")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("all", "load", "faults", "far"), default="all")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the faults whose name contains this")
    parser.add_argument("--workers", type=int, action="append", help="of the load; 2 and 4 unless given")
    parser.add_argument("--plans", type=int, default=20, help="of the load")
    parser.add_argument("--away", type=float, default=300.0, metavar="SECONDS", help="how long the remote is away")
    parser.add_argument("--round-trip", type=float, default=0.4, metavar="SECONDS", help="to the database that is far")
    asked = parser.parse_args()
    scenarios.AWAY_S = asked.away
    with own_environment():
        return work_far_away(asked.round_trip) if asked.what == "far" else run(asked)


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


def work_far_away(round_trip_s: float, phases: int = 12) -> int:
    plans = make_plans(1, phases)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place,
        running(Path(place), plans, workers=1, slots=1) as fleet,
    ):
        fleet.hosts[NAMES[0]].proxy.delay_s = round_trip_s / 2
        began = time.monotonic()
        fleet.hosts["desk"].run("start", *plans, "finish", "auto", "direct").exits(0)
        until(lambda: is_ended(fleet, list(plans)), seconds=600)
        took = time.monotonic() - began
        print(f"{phases} phases with a round trip of {round_trip_s * 1000:.0f} ms: {took:.0f} s")
        print(f"{took / phases:.1f} s for a phase; {fleet.states()}, {len(fleet.landings())} landed")
    return 0


def show(outcome: Outcome) -> None:
    figures = " ".join(f"{getattr(outcome, name):>10}" for name in COLUMNS)
    ended = f"  agents of the fenced host ended after {outcome.ended_s:.1f} s" if outcome.ended_s else ""
    print(f"{outcome.name:60} {figures} {outcome.seconds:10.1f}{ended}", *outcome.wrong, sep="\n    ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
