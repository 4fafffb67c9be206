"""The MCP server on standard input and output."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio import CancelScope, create_task_group, current_time, from_thread, to_thread
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from msgspec import ValidationError

from runplan import __version__
from runplan.adapters.configuration.load import environment
from runplan.app.operations.model import Accepted, Caller
from runplan.app.operations.table import try_named
from runplan.app.views.changes import view_planning
from runplan.app.views.commands import CommandResult
from runplan.domain.errors import Exit, NotFound, RunplanError, Unreachable
from runplan.domain.text import as_json, command
from runplan.engine.loop.context import refuse_under_agent
from runplan.interfaces.mcp.commands import Report, report_regularly, run_command
from runplan.interfaces.mcp.results import Result, make_result, view_change, view_followed, view_plans
from runplan.interfaces.mcp.tools import (
    COMMAND_S,
    TOOLS,
    Access,
    Arguments,
    Tool,
    parse_arguments,
    read_request,
    schema_of,
    words_of,
)

INSTRUCTIONS = """\
runplan works through Markdown plans with coding agents, and asks the user before a change lands. After start or plan, \
call follow until the run ends or needs the user. Show the user the diff; approve or reject only as the user says."""


def serve() -> None:
    """Answer the client until it closes standard input. Nothing but the protocol is written to standard output."""
    # The SDK reads standard input in a thread, for which Python would wait.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(_serve)


async def _serve() -> None:
    server = Server(
        "runplan",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )
    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())


async def _list_tools(
    _ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_describe_tool(name, tool) for name, tool in TOOLS.items()])


def _describe_tool(name: str, tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.access is Access.READS,
        destructive_hint=tool.access is Access.CHANGES,
        open_world_hint=False,
    )
    return types.Tool(name=name, description=tool.text, input_schema=schema_of(tool), annotations=hints)


async def _call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"{params.name}: no such tool; there are: {', '.join(TOOLS)}")
    count = 0

    async def report(line: str) -> None:
        nonlocal count
        count += 1
        await ctx.session.report_progress(count, message=line)

    try:
        refuse_under_agent("mcp")  # an agent may have taken the place of the client since
        arguments = parse_arguments(params.name, params.arguments or {})
        result = await (_follow if params.name == "follow" else _run_tool)(params.name, arguments, report)
    except (RunplanError, ValidationError) as error:
        result = make_result({"error": str(error)}, is_error=True)
    text = types.TextContent(text=result.text)
    return types.CallToolResult(content=[text], structured_content=result.content, is_error=result.is_error)


async def _run_tool(name: str, arguments: Arguments, report: Report) -> Result:
    if TOOLS[name].access is not Access.READS:
        return await _carry_out(name, arguments, report)
    words = words_of(name, arguments)
    ended = await run_command(words, Path(arguments.repository), report, timeout_s=COMMAND_S)
    if ended is None:
        raise Unreachable(f"{command('runplan', *words)} took longer than {COMMAND_S:.0f} s and was ended")
    return _result_of(name, arguments, ended)


async def _carry_out(name: str, arguments: Arguments, report: Report) -> Result:
    """Carry out the operation in a thread. A call that is given up leaves it to end there."""
    limit = CancelScope(deadline=current_time() + COMMAND_S)
    async with create_task_group() as alive:
        alive.start_soon(report_regularly, report)
        with limit:
            result = await to_thread.run_sync(_operate, name, arguments, report, abandon_on_cancel=True)
        alive.cancel_scope.cancel()
    if limit.cancelled_caught:
        raise Unreachable(f"{name} takes longer than {COMMAND_S:.0f} s; see: runplan status")
    if isinstance(result, RunplanError):  # a task group would wrap it
        raise result
    return result


def _operate(name: str, arguments: Arguments, report: Report) -> Result | RunplanError:
    try:
        return _operate_in_repository(name, arguments, report)
    except RunplanError as error:
        return error


def _operate_in_repository(name: str, arguments: Arguments, report: Report) -> Result:
    def say(line: str) -> None:
        with suppress(RuntimeError):  # the call was given up
            from_thread.run(report, line)

    cwd = Path(os.path.expanduser(arguments.repository or "."))  # noqa: PTH111 - a user that is not there is a path that is not there
    if not cwd.is_dir():
        raise NotFound(f"repository {arguments.repository}: no such directory")
    caller = Caller(cwd=cwd.absolute(), env=environment(), by="mcp", say=say, limit_s=COMMAND_S)
    outcome = try_named(name, caller, read_request(name, arguments))
    content: dict[str, Any] = {}
    if name == "plan" and isinstance(outcome.answer, Accepted):
        with caller.open(lenient=True) as context:
            run = context.store().get_newest_run(outcome.answer.plan)
            content = view_change(as_json(view_planning(context, run.id)), "", 0) if run is not None else {}
    is_waiting = outcome.code is Exit.WAITING
    if outcome.code is not Exit.DONE and not (is_waiting and TOOLS[name].can_wait):
        return make_result({"error": outcome.why, "exit_code": outcome.code, **content}, is_error=True)
    return make_result({**content, "messages": "\n".join(outcome.notices), "needs_user": is_waiting or None})


def _result_of(name: str, arguments: Arguments, ended: CommandResult) -> Result:
    needs_user = ended.code == Exit.WAITING
    content = _view_output(name, arguments, ended.output) if ended.output.strip() else {}
    if ended.code not in (Exit.DONE, Exit.WAITING) or (needs_user and not TOOLS[name].can_wait):
        return make_result({"error": ended.last_line, "exit_code": ended.code, **content}, is_error=True)
    return make_result({**content, "messages": ended.errors.strip(), "needs_user": needs_user or None})


def _view_output(name: str, arguments: Arguments, output: str) -> dict[str, Any]:
    match name:
        case "status":
            return view_plans(output)
        case "diff":
            return view_change(output, arguments.file, arguments.offset)
        case _ if "--json" in TOOLS[name].flags:
            return dict(json.loads(output))
        case _:
            return {"output": output.strip()}


async def _follow(name: str, arguments: Arguments, report: Report) -> Result:
    """Wait for the end of the run; at the time limit, say how far it is."""
    directory = Path(arguments.repository)
    followed = await run_command(words_of(name, arguments), directory, report, timeout_s=arguments.timeout)
    if followed is not None and followed.code:
        return _result_of(name, arguments, followed)
    ended = await run_command(["status", arguments.plan, "--json"], directory, report, timeout_s=COMMAND_S)
    if ended is None or ended.code:
        raise Unreachable(f"cannot read the state of {arguments.plan}; see: runplan status")
    return make_result(view_followed(ended.output, followed.output if followed else None))
