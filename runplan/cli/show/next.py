"""runplan next: the schedules of this repository and when they fire next."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runplan.cli.terminal import Warnings

if TYPE_CHECKING:
    import argparse

    from runplan.errors import Exit

EXAMPLES = """\
  runplan next             each schedule with its next time
  runplan next --json      for a script"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context
    from runplan.report.views import schedule_view
    from runplan.store.schedules import Schedules

    now = datetime.now(UTC)
    warnings = Warnings()
    with open_context(warn=warnings.warn) as at:
        store = at.store()
        rows = Schedules(store).all() if store is not None else []
        views: list[dict[str, Any]] = [{"plan": row.plan, **schedule_view(row, now), "zone": row.zone} for row in rows]
        unattended = _unattended(at.env, due=any(view["due"] for view in views)) if rows else ""
    if args.json:
        print(json.dumps(views, ensure_ascii=False, indent=2))
        return warnings.exit
    print("\n".join(_lines(views, now)) or "No schedules.")
    if unattended:
        print(f"\n{unattended}")
    return warnings.exit


def _unattended(env: Any, *, due: bool) -> str:
    """Why no schedule fires; "" when the daemon runs."""
    from runplan.daemon import singleton
    from runplan.settings.places import state_directory

    state = state_directory(env)
    if singleton.holder(state) is None:
        then = "Schedules that are due fire as soon as you start it" if due else "Start it with"
        return f"No daemon is running, so nothing fires. {then}: runplan daemon"
    if (found := singleton.stopped(state)) is not None:
        return f"The daemon (process {found.pid}) is stopped, so nothing fires. Continue it: kill -CONT {found.pid}"
    return ""


def _lines(views: list[dict[str, Any]], now: datetime) -> list[str]:
    from runplan.cli.show.status import scheduled
    from runplan.times import zone

    width = max((len(view["plan"]) for view in views), default=0)
    # A zone that this machine does not know has no next time either.
    zones = {view["zone"]: zone(view["zone"]) if view["next"] else UTC for view in views}
    return [f"{view['plan']:<{width}}  {scheduled(view, now=now, zone=zones[view['zone']])}" for view in views]
