"""runplan next: every schedule of this repository, when it fires next, and how long that is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from runplan.errors import Exit
    from runplan.run.rows import ScheduleRow

EXAMPLES = """\
  runplan next             each schedule with its next time on the clock, and the time left until then
  runplan next --json      the same for a script"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.show.aside import Aside
    from runplan.engine.context import open_context
    from runplan.report.views import schedule_view

    now = datetime.now(UTC)
    aside = Aside()
    with open_context(warn=aside.warn) as at:
        rows = _schedules(at.store())
        views: list[dict[str, Any]] = [{"plan": row.plan, **schedule_view(row, now), "zone": row.zone} for row in rows]
        unattended = _unattended(at.env, due=any(view["due"] for view in views)) if rows else ""
    if args.json:
        print(json.dumps(views, ensure_ascii=False, indent=2))
        return aside.code
    print("\n".join(_lines(views, now)) or "No schedules.")
    if unattended:
        print(f"\n{unattended}")
    return aside.code


def _schedules(store: Any) -> list[ScheduleRow]:
    if store is None:
        return []
    from runplan.store.schedules import Schedules

    return Schedules(store).all()


def _unattended(env: Any, *, due: bool) -> str:
    """Why nobody fires them; "" when somebody does."""
    from runplan.daemon import singleton
    from runplan.settings.places import state_directory

    state = state_directory(env)
    if singleton.holder(state) is None:
        then = "what is due does as soon as there is one" if due else "start it"
        return f"No daemon is running, so nothing fires; {then}: runplan daemon"
    if (found := singleton.stopped(state)) is not None:
        return f"The daemon (process {found.pid}) is stopped, so nothing fires; continue it: kill -CONT {found.pid}"
    return ""


def _lines(views: list[dict[str, Any]], now: datetime) -> list[str]:
    from runplan.cli.show.statustext import scheduled
    from runplan.times import zone

    width = max((len(view["plan"]) for view in views), default=0)
    # A zone that this machine does not know has no next time either.
    zones = {view["zone"]: zone(view["zone"]) if view["next"] else UTC for view in views}
    return [f"{view['plan']:<{width}}  {scheduled(view, now=now, zone=zones[view['zone']])}" for view in views]
