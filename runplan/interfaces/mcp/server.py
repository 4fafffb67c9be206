"""The MCP server on standard input and output: each call runs the `runplan` command."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import anyio
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from msgspec import ValidationError

from runplan import __version__
from runplan.app.views.commands import CommandResult
from runplan.domain.errors import Exit, RunplanError, Unreachable
from runplan.domain.text import command
from runplan.engine.loop.context import refuse_under_agent
from runplan.interfaces.mcp.commands import Report, run_command
from runplan.interfaces.mcp.results import Result, make_result, view_change, view_followed, view_plans
from runplan.interfaces.mcp.tools import COMMAND_S, TOOLS, Access, Arguments, Tool, parse_arguments, schema_of, words_of

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
    words = words_of(name, arguments)
    ended = await run_command(words, Path(arguments.repository), report, timeout_s=COMMAND_S)
    if ended is None:
        raise Unreachable(f"{command('runplan', *words)} took longer than {COMMAND_S:.0f} s and was ended")
    return _result_of(name, arguments, ended)


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
        case "diff" | "plan":
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
