"""runplan report: the report of a plan as it landed, with the failures since then on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.cli.terminal import warn
from runplan.errors import Exit, NotFound, PlanUnreadable
from runplan.text import command, escaped, plain

if TYPE_CHECKING:
    import argparse

    from runplan.store.sqlite import Store

EXAMPLES = """\
  runplan report                    the plan of the newest run
  runplan report plans/X.md         Markdown, newest first
  runplan report X --json           {"plan": …, "report": …}"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a path, a base name, or a unique part of one")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan import names
    from runplan.engine.context import open_context, plan_path, slug_of
    from runplan.report import text as report
    from runplan.steps.account import failure_sections

    with open_context(warn=warn) as at:
        store = at.store()
        path = plan_path(at, args.plan) if args.plan is not None else _newest(store)
        tip = at.for_plan(path).tip()
        landed = at.repository.git.blob(tip, names.report_path(at.settings.paths.reports, slug_of(at, path)))
        failures = failure_sections(store, path) if store else []
        if landed is None and not failures:
            raise NotFound(f"nothing to report of {path} yet; start it: {command('runplan', 'start', path)}")
        title = _title(at.repository.git.blob(tip, path), path)
    old = None if landed is None else landed.decode("utf-8", "surrogateescape")
    whole = report.prepend(old, plan_title=title, sections=failures)
    if args.json:
        import json

        print(escaped(json.dumps({"plan": path, "report": whole}, ensure_ascii=False)))
    else:
        print(plain(whole), end="")
    return Exit.DONE


def _newest(store: Store | None) -> str:
    """The plan of the newest run."""
    found = store.runs(None, limit=1) if store is not None else []
    if not found:
        raise NotFound("no run of any plan is recorded here")
    return found[0].plan


def _title(text: bytes | None, path: str) -> str:
    from runplan.plan.model import parse

    try:
        return path if text is None else parse(text, path=path).title
    except PlanUnreadable:
        return path
