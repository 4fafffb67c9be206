"""A process of its own that claims a plan and holds on to it until it is told to end."""

from __future__ import annotations

import sys
from pathlib import Path

from runplan.store.claims import Claims
from runplan.store.sqlite import Store


def main() -> None:
    """python -m tests.support.holding DIRECTORY PLAN RUN: prints what it got, then waits for the end of its input."""
    directory, plan, run = sys.argv[1:]
    claims = Claims(Store(Path(directory)), Path(directory) / "locks")
    standing = claims.take_plan(plan, run=run, at="2026-01-01T00:00:00Z")
    sys.stdout.write(f"{type(standing).__name__} {claims.me}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
