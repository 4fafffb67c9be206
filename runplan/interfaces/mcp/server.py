"""The MCP server on standard input and output."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from anyio import CancelScope, create_task_group, current_time, from_thread, to_thread
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from msgspec import ValidationError

from runplan import __version__
from runplan.app.operations.model import Caller, Where
from runplan.domain.errors import NotFound, RunplanError, Unreachable
from runplan.domain.text import plain
from runplan.interfaces.mcp.calls import carry_out
from runplan.interfaces.mcp.results import Result, make_result
from runplan.interfaces.mcp.tools import COMMAND_S, TOOLS, ReadArguments, parse_arguments, schema_of

GRACE_S = 5.0  #: for a call that is at its time limit
QUIET_S = 10.0  #: between two signs of life; clients give up a call that is silent, opencode after 30 s
Report: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]
INSTRUCTIONS = """\
runplan works through Markdown plans with coding agents, and asks the user before a change lands. After start or plan, \
call follow until the run ends or needs the user. Show the user the diff; approve or reject only as the user says."""


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
    for name, tool in TOOLS.items():
        reads = tool.kind is ReadArguments
        hints = types.ToolAnnotations(read_only_hint=reads, destructive_hint=tool.is_destructive, open_world_hint=False)
        tools.append(types.Tool(name=name, description=tool.text, input_schema=schema_of(tool), annotations=hints))
    return types.ListToolsResult(tools=tools)


async def _call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"{params.name}: no such tool; there are: {', '.join(TOOLS)}")
    count = 0

    async def report(line: str) -> None:
        nonlocal count
        count += 1
        await ctx.session.report_progress(count, message=line)

    try:
        Caller().refuse_to_agents("mcp")  # an agent may have taken the place of the client since
        request, repository = parse_arguments(params.name, params.arguments or {})
        directory = Path(os.path.expanduser(repository or ".")).absolute()  # noqa: PTH111 - a user that is not there is a path that is not there
        if not directory.is_dir():
            raise NotFound(f"repository {repository}: {os.strerror(errno.ENOENT)}")
        result = await _run_tool(params.name, request, directory, report)
    except (RunplanError, ValidationError) as error:
        result = make_result({"error": str(error)}, is_error=True)
    text = types.TextContent(text=result.text)
    return types.CallToolResult(content=[text], structured_content=result.content, is_error=result.is_error)


async def _run_tool(name: str, request: object, directory: Path, report: Report) -> Result:
    """Carry out the call in a thread, with signs of life. The thread of a call that is given up ends by itself."""
    limit_s = request.timeout if name == "follow" and isinstance(request, ReadArguments) else COMMAND_S
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

    def work() -> Result | RunplanError:
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
