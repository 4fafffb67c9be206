"""runplan logs: the journal, one event a line."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from runplan.errors import Exit, NotFound
from runplan.text import escaped, plain

if TYPE_CHECKING:
    import argparse

    from runplan.run.rows import EventRow, RunRow
    from runplan.store.sqlite import Store

EXAMPLES = """\
  runplan logs                   the newest run of all plans
  runplan logs X -f              follow the newest run of a plan until it ends
  runplan logs X --agent -f      what its agent says and does, in readable form
  runplan logs X --json          one JSON object a line: seq, at, run, type, and the event's own fields"""

FOLLOW_S = 0.5  #: how often a followed journal is looked at; nothing else in runplan polls


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a path, a base name, or a unique part of one")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--agent", action="store_true", help="the transcript of the agent at work, or of the last one")
    how.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.show.aside import Aside
    from runplan.engine.context import open_context, plan_path

    aside = Aside()
    with open_context(warn=aside.warn) as at:
        store = at.store()
        path = plan_path(at, args.plan) if args.plan is not None else None
        found = store.runs(path, limit=1) if store is not None else []
        if store is None or not found:
            raise NotFound(f"no run of {path or 'any plan'} is recorded here")
        if args.agent:
            from runplan.cli.show import transcript

            transcript.show(store, found[0], at.state / "dispatch", follow=args.follow)
        else:
            _print_all(store, found[0], follow=args.follow, as_json=args.json)
    return aside.code


def _print_all(store: Store, run: RunRow, *, follow: bool, as_json: bool) -> None:
    seen = 0
    while True:
        goes_on = follow and _goes_on(store, run)
        for row in store.events(run.id, after=seen):
            print(_json(row) if as_json else _text(row), flush=follow)
            seen = row.seq
        if not goes_on:
            return
        time.sleep(FOLLOW_S)


def _goes_on(store: Store, run: RunRow) -> bool:
    """Whether somebody is at work on it: a run that waits for a person, or whose process is gone, stands still."""
    from runplan.processes import alive

    newest = store.newest(run.plan)
    claim = store.claim("plan", run.plan)
    return newest is not None and newest.id == run.id and newest.state == "running" and bool(claim and alive(claim[1]))


def _json(row: EventRow) -> str:
    own = json.loads(row.body)
    whole = {"seq": row.seq, "at": row.at, "run": row.run, "type": row.type, **own}
    return escaped(json.dumps(whole, ensure_ascii=False))


def _text(row: EventRow) -> str:
    told = json.loads(row.body)
    own = {"lane": told.pop("lane", ""), **told}  # whose it is comes first
    shown = (
        f"{name}={_short(value)}" for name, value in own.items() if value is not False and value not in ("", None, [])
    )
    return f"{row.at}  {row.type:<18}  {'  '.join(shown)}"


def _short(value: object) -> str:
    text = plain(value) if isinstance(value, str) else escaped(json.dumps(value, ensure_ascii=False))
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:59]}…"
