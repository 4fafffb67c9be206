"""The MCP server on standard input and output."""

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from anyio import CancelScope, create_task_group, current_time, from_thread, to_thread
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from msgspec import ValidationError
from msgspec.structs import replace

from runplan import __version__
from runplan.app.operations.model import Accepted, Caller, Where
from runplan.app.operations.table import try_operation
from runplan.app.views.board import read_queue_here
from runplan.app.views.changes import ChangeView, ProposalView, read_change, view_newest_planning
from runplan.app.views.checks import read_plan_file, view_plan_file
from runplan.app.views.journal import follow_run
from runplan.app.views.plans import read_plans
from runplan.app.views.reports import read_report
from runplan.app.views.repositories import read_all_inboxes
from runplan.domain.decoding import as_json, convert
from runplan.domain.errors import Exit, NotFound, RunplanError, Unreachable, UsageError
from runplan.domain.text import plain
from runplan.interfaces.mcp import tools as mcp_tools

LONGEST = 100_000  #: bytes of an argument; Linux takes 131,071
GRACE_S = 5.0  #: for a call that is at its time limit
QUIET_S = 10.0  #: between two signs of life; clients give up a call that is silent, opencode after 30 s
Report: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]
INSTRUCTIONS = """\
runplan works through Markdown plans with coding agents, and asks the user before a change lands. After start or plan, \
call follow until the run ends or needs the user. Show the user the diff; approve or reject only as the user says."""


def carry_out(name: str, asked: object, caller: Caller, is_over: Callable[[], bool]) -> mcp_tools.Result:
    """The result of the call; `is_over` ends one that follows a run."""
    if not isinstance(asked, mcp_tools.ReadArguments):
        return _change(name, asked, caller)
    match name:
        case "status":
            caller, warnings = caller.recording()
            with caller.open(lenient=True) as context:
                views, host = read_plans(context, asked.plan, datetime.now(UTC), warn=caller.warn)
            content: mcp_tools.Content = {"plans": [mcp_tools.list_plan(view) for view in views]}
            content["daemon"] = host and host.error
            if asked.plan:
                content = _encode(replace(views[0], repository=str(context.root), daemon=host))
            return mcp_tools.make_result({**content, "messages": "\n".join(warnings)})
        case "check":
            read = read_plan_file(caller, asked.plan)
            refused = read.plan.refusals(strict=False)
            content = {**_encode(view_plan_file(read)), **({"exit_code": Exit.USAGE} if refused else {})}
            return mcp_tools.make_result(content, is_error=bool(refused))
        case "report":
            return mcp_tools.make_result(_encode(read_report(caller, asked.plan)))
        case "queue":
            return mcp_tools.make_result(_encode(read_queue_here(caller, "", datetime.now(UTC))))
        case "inbox":
            return mcp_tools.make_result(_encode(read_all_inboxes(caller.env)))
        case "diff":
            with caller.open(lenient=True) as context:
                change = read_change(context, asked.plan, asked.phase)
            return mcp_tools.make_result(_view_change(change, asked))
        case _:
            return mcp_tools.make_result(_follow(asked.plan, caller, is_over))


def _encode(view: object) -> mcp_tools.Content:
    encoded: mcp_tools.Content = json.loads(as_json(view))
    return encoded


def _change(name: str, request: object, caller: Caller) -> mcp_tools.Result:
    result = try_operation(name, caller, request)
    content: mcp_tools.Content = {}
    if name == "plan" and isinstance(result.answer, Accepted):
        with caller.open(lenient=True) as context:
            view = view_newest_planning(context, result.answer.plan)
            content = _view_change(view, mcp_tools.ReadArguments()) if view is not None else {}
    is_waiting = result.code is Exit.WAITING
    is_answer = "tree" in mcp_tools.TOOLS[name].required  # to a change that does not wait any more
    if result.code is not Exit.DONE and (is_answer or not is_waiting):
        return mcp_tools.make_result({"error": result.why, "exit_code": result.code, **content}, is_error=True)
    return mcp_tools.make_result({**content, "messages": "\n".join(result.notices), "needs_user": is_waiting or None})


def _view_change(view: ChangeView | ProposalView, asked: mcp_tools.ReadArguments) -> mcp_tools.Content:
    """The change with a part of its diff. The tree of a proposed plan is its SHA-256."""
    if isinstance(view, ProposalView):
        return {**_encode(view), "tree": view.tree}
    return {**_encode(view), "diff": mcp_tools.cut_diff(view.diff, asked.file, asked.offset)}


def _follow(plan: str, caller: Caller, is_over: Callable[[], bool]) -> mcp_tools.Content:
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
        return {**mcp_tools.list_plan(view), "note": "the run goes on: call follow again"}
    return {**mcp_tools.list_plan(view), "log": lines[-mcp_tools.LINES_SHOWN :]}


def run_mcp(_args: object) -> None:
    """Answer the client until it closes standard input. Nothing but the protocol is written to standard output."""
    # The SDK reads standard input in a thread, for which Python would wait.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(_serve)


async def _serve() -> None:
    server = Server(
        "runplan", version=__version__, instructions=INSTRUCTIONS, on_list_tools=_list_tools, on_call_tool=_call_tool
    )
    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())


async def _list_tools(
    _ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    tools = []
    for name, tool in mcp_tools.TOOLS.items():
        reads = tool.kind is mcp_tools.ReadArguments
        hints = types.ToolAnnotations(read_only_hint=reads, destructive_hint=tool.is_destructive, open_world_hint=False)
        schema = mcp_tools.schema_of(tool)
        tools.append(types.Tool(name=name, description=tool.text, input_schema=schema, annotations=hints))
    return types.ListToolsResult(tools=tools)


async def _call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    name = params.name
    tool = mcp_tools.TOOLS.get(name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"{name}: no such tool; there are: {', '.join(mcp_tools.TOOLS)}")
    count = 0

    async def report(line: str) -> None:
        nonlocal count
        count += 1
        await ctx.session.report_progress(count, message=line)

    try:
        Caller().refuse_to_agents("mcp")  # an agent may have taken the place of the client since
        arguments = params.arguments or {}
        known = (*tool.required, *tool.optional, "repository")
        if unknown := [word for word in arguments if word not in known]:
            raise UsageError(f"{name}: unknown argument {', '.join(unknown)}; there are: {', '.join(known)}")
        if missing := [word for word in tool.required if not arguments.get(word)]:
            raise UsageError(f"{name}: {', '.join(missing)} is missing")
        words = [word for value in arguments.values() for word in (value if isinstance(value, list) else [value])]
        texts = [word for word in words if isinstance(word, str)]
        if any("\0" in text for text in texts):
            raise UsageError("an argument holds a null character")
        if any(len(text.encode("utf-8", "replace")) > LONGEST for text in texts):
            raise UsageError(f"an argument is longer than {LONGEST} bytes; write it into a file, and name that")
        request = convert(arguments, tool.kind)
        repository = convert(arguments.get("repository", ""), str)
        directory = Path(os.path.expanduser(repository or ".")).absolute()  # noqa: PTH111 - a user that is not there is a path that is not there
        if not directory.is_dir():
            raise NotFound(f"repository {repository}: {os.strerror(errno.ENOENT)}")
        result = await _run_tool(name, request, directory, report)
    except (RunplanError, ValidationError) as error:
        result = mcp_tools.make_result({"error": str(error)}, is_error=True)
    text = types.TextContent(text=result.text)
    return types.CallToolResult(content=[text], structured_content=result.content, is_error=result.is_error)


async def _run_tool(name: str, request: object, directory: Path, report: Report) -> mcp_tools.Result:
    """Carry out the call in a thread, with signs of life. The thread of a call that is given up ends by itself."""
    limit_s = (
        request.timeout if name == "follow" and isinstance(request, mcp_tools.ReadArguments) else mcp_tools.COMMAND_S
    )
    over = threading.Event()
    deadline = time.monotonic() + limit_s
    limit = CancelScope(deadline=current_time() + limit_s + GRACE_S)

    def say(line: str) -> None:
        with suppress(RuntimeError):  # the call was given up
            from_thread.run(report, plain(line))

    async def report_regularly() -> None:
        while True:
            await anyio.sleep(QUIET_S)
            await report("still at work")

    def work() -> mcp_tools.Result | RunplanError:
        try:
            caller = Caller(cwd=directory, by="mcp", say=say, where=Where.DAEMON, limit_s=limit_s)
            return carry_out(name, request, caller, lambda: over.is_set() or time.monotonic() > deadline)
        except RunplanError as error:  # a task group would wrap it
            return error

    try:
        async with create_task_group() as alive:
            alive.start_soon(report_regularly)
            with limit:
                result = await to_thread.run_sync(work, abandon_on_cancel=True)
            alive.cancel_scope.cancel()
    finally:
        over.set()
    if limit.cancelled_caught:
        raise Unreachable(f"{name} takes longer than {limit_s:.0f} s; see: runplan status")
    if isinstance(result, RunplanError):
        raise result
    return result
