"""runplan status: every plan with its phases, and what is being done about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runplan.core.errors import Exit, PlanUnreadable

if TYPE_CHECKING:
    import argparse

    from runplan.wiring.here import Here

EXAMPLES = """\
  runplan status                every plan that has ever been run, and the open ones under plans/
  runplan status X --json       one plan, for a script"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a path, a base name, or a unique part of one")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.wiring.here import here, plan_path

    with here() as at:
        if args.plan is not None:
            view = _view(at, plan_path(at, args.plan))
            print(json.dumps(view, ensure_ascii=False, indent=2) if args.json else _table(view))
            return Exit.DONE
        views = _all(at)
    if args.json:
        print(json.dumps(views, ensure_ascii=False, indent=2))
    else:
        print("\n\n".join(map(_table, views)) or "No plans yet; write one under plans/ and commit it.")
    return Exit.DONE


def _all(at: Here) -> list[dict[str, Any]]:
    from runplan.app.views import unreadable_view
    from runplan.wiring.here import known_plans

    views = []
    for path in known_plans(at):
        try:
            views.append(_view(at, path))
        except PlanUnreadable as error:
            views.append(unreadable_view(path, str(error)))
    return views


def _view(at: Here, path: str) -> dict[str, Any]:
    from runplan.adapters.processes import alive
    from runplan.app.views import status_view
    from runplan.core.plan import parse

    text = at.repository.git.blob(at.for_plan(path).tip(), path)
    if text is None:
        text = (at.repository.root / path).read_bytes()
    store = at.store()
    claim = store.claim("plan", path) if store else None
    owner = claim[1] if claim else ""
    newest = store.newest(path) if store else None
    landing = at.settings.run.landing
    return status_view(parse(text, path=path), run=newest, owner=owner, alive=alive(owner), landing=landing)


WORDS = {"done": "Done", "todo": "Todo", "in-progress": "In progress", "blocked": "Blocked"}


def _table(view: dict[str, Any]) -> str:
    if not view["phases"]:
        return str(view["error"])
    lines = [f"{view['title']}  ({view['plan']}, {view['status']})"]
    width = max(len(phase["id"]) for phase in view["phases"])
    lines += [
        f"  {phase['id']:<{width}}  {_standing(phase, view['next']):<24}  {phase['title']}" for phase in view["phases"]
    ]
    if view["run"] is not None:
        lines.append(f"  {_running(view)}")
    return "\n".join(lines)


def _standing(phase: dict[str, Any], following: str | None) -> str:
    if phase["status"] == "done":
        return f"Done ({phase['commit']})" if phase["commit"] else "Done"
    if phase["status"] == "todo" and phase["blocked_by"]:
        return f"Blocked (needs {', '.join(phase['blocked_by'])})"
    return WORDS[phase["status"]] + (" <- next" if phase["id"] == following and phase["status"] == "todo" else "")


def _running(view: dict[str, Any]) -> str:
    run = view["run"]
    if run["state"] in ("queued", "running", "waiting"):
        where = f"phase {run['phase']}, {run['step']}" if run["phase"] else "between phases"
        if run["wake"]:
            return f"run {run['id']}: waiting until {_moment(run['wake'])} ({run['about']}; {where})"
        if run["waiting_for"]:
            return f"run {run['id']}: waiting for {run['waiting_for']} ({where}, since {run['since']}); {_help(view)}"
        if not (view["claim"] and view["claim"]["alive"]):
            return f"run {run['id']}: interrupted at {where} ({run['since']}); start the plan again to go on"
        return f"run {run['id']}: {where}, since {run['since']}"
    why = f": {run['reason']}" if run["reason"] else ""
    more = f"; see: runplan report {view['plan']}" if run["state"] in ("failed", "stopped") else ""
    return f"last run {run['id']}: {run['state']}{why} ({run['since']}){more}"


def _moment(wake: str) -> str:
    """The time of day, with its date where that is not today."""
    from datetime import UTC, datetime

    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"{wake[11:16]} UTC" if wake.startswith(today) else f"{wake[:10]} {wake[11:16]} UTC"


def _help(view: dict[str, Any]) -> str:
    if view["run"]["waiting_for"] == "approval":
        return f"to land it: runplan approve {view['plan']}"
    return f"see: runplan explain {view['plan']}"
