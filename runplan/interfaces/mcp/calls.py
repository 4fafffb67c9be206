"""Carries out the call of a tool: one operation, or one reading. It may take its time, and runs in a thread."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from runplan.app.operations.model import Accepted, Caller
from runplan.app.operations.table import try_operation
from runplan.app.views.board import read_queue_here
from runplan.app.views.changes import ChangeView, ProposalView, read_change, view_newest_planning
from runplan.app.views.checks import read_plan_file, view_plan_file
from runplan.app.views.journal import follow_run
from runplan.app.views.plans import read_plans
from runplan.app.views.reports import read_report
from runplan.app.views.repositories import read_all_inboxes
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit
from runplan.interfaces.mcp.results import LINES_SHOWN, Content, Result, cut_diff, list_plan, make_result
from runplan.interfaces.mcp.tools import TOOLS, ReadArguments


def carry_out(name: str, asked: object, caller: Caller, is_over: Callable[[], bool]) -> Result:
    """The result of the call; `is_over` ends one that follows a run."""
    if not isinstance(asked, ReadArguments):
        return _change(name, asked, caller)
    match name:
        case "status":
            with caller.open(lenient=True) as context:
                views, host = read_plans(context, asked.plan, datetime.now(UTC), warn=caller.warn)
            if not asked.plan:
                return make_result({"plans": [list_plan(view) for view in views]})
            return make_result(_encode(replace(views[0], repository=str(context.root), daemon=host)))
        case "check":
            read = read_plan_file(caller, asked.plan)
            refused = read.plan.refusals(strict=False)
            content = {**_encode(view_plan_file(read)), **({"exit_code": Exit.USAGE} if refused else {})}
            return make_result(content, is_error=bool(refused))
        case "report":
            return make_result(_encode(read_report(caller, asked.plan)))
        case "queue":
            return make_result(_encode(read_queue_here(caller, "", datetime.now(UTC))))
        case "inbox":
            return make_result(_encode(read_all_inboxes(caller.env)))
        case "diff":
            with caller.open(lenient=True) as context:
                change = read_change(context, asked.plan, asked.phase)
            return make_result(_view_change(change, asked))
        case _:
            return make_result(_follow(asked.plan, caller, is_over))


def _encode(view: object) -> Content:
    encoded: Content = json.loads(as_json(view))
    return encoded


def _change(name: str, request: object, caller: Caller) -> Result:
    result = try_operation(name, caller, request)
    content: Content = {}
    if name == "plan" and isinstance(result.answer, Accepted):
        with caller.open(lenient=True) as context:
            view = view_newest_planning(context, result.answer.plan)
            content = _view_change(view, ReadArguments()) if view is not None else {}
    is_waiting = result.code is Exit.WAITING
    is_answer = "tree" in TOOLS[name].required  # to a change that does not wait any more
    if result.code is not Exit.DONE and (is_answer or not is_waiting):
        return make_result({"error": result.why, "exit_code": result.code, **content}, is_error=True)
    return make_result({**content, "messages": "\n".join(result.notices), "needs_user": is_waiting or None})


def _view_change(view: ChangeView | ProposalView, asked: ReadArguments) -> Content:
    """The change with a part of its diff. The tree of a proposed plan is its SHA-256."""
    if isinstance(view, ProposalView):
        return {**_encode(view), "tree": view.tree}
    return {**_encode(view), "diff": cut_diff(view.diff, asked.file, asked.offset)}


def _follow(plan: str, caller: Caller, is_over: Callable[[], bool]) -> Content:
    """Wait for the end of the run, or for a wait for the user; at the time limit, say how far it is."""
    lines: list[str] = []
    has_ended = False
    with caller.open(lenient=True) as context:
        for new, has_ended in follow_run(context, plan):  # noqa: B007 - the last one is used
            for line in filter(str.strip, new):
                lines.append(line)
                caller.say(line.strip())
            if is_over():
                break
        (view, *_), _ = read_plans(context, plan, datetime.now(UTC), warn=caller.warn)
    if not has_ended:
        return {**list_plan(view), "note": "the run goes on: call follow again"}
    return {**list_plan(view), "log": lines[-LINES_SHOWN:]}
