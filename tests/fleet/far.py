"""`python -m tests.fleet.far`: how long a plan of small phases takes on a host that is far from its database."""

# ruff: noqa: T201 - a command for people

import argparse
import tempfile
import time
from pathlib import Path

from tests.fleet.scenarios import is_ended, make_plans, running
from tests.support.cli import until
from tests.support.environment import own_environment

LEASE_S = 30.0  #: as in a fleet of people


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.far", description=__doc__)
    parser.add_argument("--phases", type=int, default=12)
    parser.add_argument("--round-trip", type=float, default=0.4, metavar="SECONDS")
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="give up after so long")
    asked = parser.parse_args()
    plans = make_plans(1, asked.phases)
    with (
        own_environment(),
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place,
        running(Path(place), plans, workers=1, slots=1, lease_s=LEASE_S) as fleet,
    ):
        (host,) = (host for name, host in fleet.hosts.items() if name != "desk")
        host.proxy.delay_s = asked.round_trip / 2
        began = time.monotonic()
        fleet.hosts["desk"].run("start", *plans, "finish", "auto", "direct").exits(0)
        until(lambda: is_ended(fleet, list(plans)), seconds=asked.limit)
        took = time.monotonic() - began
        print(f"{asked.phases} phases with a round trip of {asked.round_trip * 1000:.0f} ms: {took:.0f} s")
        print(f"{took / asked.phases:.1f} s for a phase; {fleet.states()}, {len(fleet.landings())} landed")


if __name__ == "__main__":
    main()
