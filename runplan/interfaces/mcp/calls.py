"""Carries out the call of a tool: one operation, or one reading. It may take its time, and runs in a thread."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from runplan.app.operations.model import Accepted, Caller
from runplan.app.operations.table import try_named
from runplan.app.views.changes import read_change, view_planning
from runplan.app.views.checks import read_plan_file, view_plan_file
from runplan.app.views.ending import follow_run
from runplan.app.views.plans import read_plans
from runplan.app.views.reports import read_report
from runplan.app.views.repositories import read_all_inboxes
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit
from runplan.interfaces.mcp.results import LINES_SHOWN, Result, cut_diff, list_plan, make_result
from runplan.interfaces.mcp.tools import TOOLS, Access, Arguments, read_request


def carry_out(name: str, arguments: Arguments, caller: Caller, is_over: Callable[[], bool]) -> Result:
    """The result of the call; `is_over` ends one that follows a run."""
    if TOOLS[name].access is not Access.READS:
        return _change(name, arguments, caller)
    match name:
        case "status":
            return make_result(_read_status(arguments, caller))
        case "check":
            read = read_plan_file(caller, arguments.plan)
            content = _encode(view_plan_file(read))
            refused = read.plan.refusals(strict=False)
            return make_result({**content, **({"exit_code": Exit.USAGE} if refused else {})}, is_error=bool(refused))
        case "report":
            report = read_report(caller, arguments.plan)
            view = {"plan": report.plan, "report": report.markdown, "title": report.title, "phases": report.phases}
            return make_result(_encode(view))
        case "inbox":
            return make_result(_encode(read_all_inboxes(caller.env)))
        case "diff":
            with caller.open(lenient=True) as context:
                change = _encode(read_change(context, arguments.plan, arguments.phase))
            return make_result(_cut_change(change, arguments))
        case _:
            return make_result(_follow(arguments, caller, is_over))


def _encode(view: object) -> dict[str, Any]:
    """The view as the command prints it with `--json`."""
    encoded: dict[str, Any] = json.loads(as_json(view))
    return encoded


def _change(name: str, arguments: Arguments, caller: Caller) -> Result:
    outcome = try_named(name, caller, read_request(name, arguments))
    content: dict[str, Any] = {}
    if name == "plan" and isinstance(outcome.answer, Accepted):
        with caller.open(lenient=True) as context:
            run = context.store().get_newest_run(outcome.answer.plan)
            content = _cut_change(_encode(view_planning(context, run.id)), arguments) if run is not None else {}
    is_waiting = outcome.code is Exit.WAITING
    if outcome.code is not Exit.DONE and not (is_waiting and TOOLS[name].can_wait):
        return make_result({"error": outcome.why, "exit_code": outcome.code, **content}, is_error=True)
    return make_result({**content, "messages": "\n".join(outcome.notices), "needs_user": is_waiting or None})


def _cut_change(view: dict[str, Any], arguments: Arguments) -> dict[str, Any]:
    """The change with a part of its diff. The tree of a proposed plan is its SHA-256."""
    if "proposal" in view:
        return {**view, "tree": view["proposal"] and view["proposal"]["sha256"]}
    return {**view, "diff": cut_diff(view["diff"], arguments.file, arguments.offset)}


def _read_status(arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """One plan, or all of them in short."""
    with caller.open(lenient=True) as context:
        views, host = read_plans(context, arguments.plan, datetime.now(UTC), warn=caller.warn)
        if not arguments.plan:
            return {"plans": [list_plan(view) for view in views]}
        return _encode(replace(views[0], repository=str(context.root), daemon=host))


def _follow(arguments: Arguments, caller: Caller, is_over: Callable[[], bool]) -> dict[str, Any]:
    """Wait for the end of the run, or for a wait for the user; at the time limit, say how far it is."""
    lines: list[str] = []
    has_ended = False
    with caller.open(lenient=True) as context:
        for new, has_ended in follow_run(context, arguments.plan):  # noqa: B007 - the last one is used
            for line in filter(str.strip, new):
                lines.append(line)
                caller.say(line.strip())
            if is_over():
                break
        (view, *_), _ = read_plans(context, arguments.plan, datetime.now(UTC), warn=caller.warn)
    if not has_ended:
        return {**list_plan(view), "note": "the run goes on: call follow again"}
    return {**list_plan(view), "log": lines[-LINES_SHOWN:]}
