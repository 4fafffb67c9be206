"""The tools of the MCP server. Clients send every description with every request to a model, so they are short.

Results are structured content and readable text, bounded. Pure.
"""

import json
import re
from inspect import cleandoc
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

from msgspec import Meta, Struct, to_builtins
from msgspec.json import schema

from runplan.app.operations import requests
from runplan.app.operations.requests import Help, NamedPlan
from runplan.app.views.status import PlanView
from runplan.domain.errors import NotFound
from runplan.domain.text import visible

FOLLOWED_S = 50.0  #: default of `follow`; Codex ends a call after 60 s
COMMAND_S = 120.0  #: for a tool that reads, or hands its work to the daemon
LARGEST_TEXT = 20_000  #: characters of one text of a result
LINES_SHOWN = 30  #: of a followed run
_FILE_OF_DIFF = re.compile(r"(?m)^(?=diff --git )")
#: The fields of a plan and of its run in a list.
_PLAN_FIELDS = ("plan", "title", "status", "words", "next", "schedule")
_RUN_FIELDS = ("id", "state", "phase", "step", "waiting_for", "outcome", "reason")
Content: TypeAlias = dict[str, object]


class ReadArguments(Struct, frozen=True, kw_only=True):
    """The arguments of the tools that read; each takes some of them."""

    plan: NamedPlan = ""
    phase: Annotated[str, Help("a phase id")] = ""
    file: Annotated[str, Help("only this file of the diff")] = ""
    offset: Annotated[int, Meta(ge=0), Help("skip so many characters of the diff")] = 0
    timeout: Annotated[float, Meta(ge=0, le=3600), Help("seconds")] = FOLLOWED_S


class McpTool(Struct, frozen=True, kw_only=True):
    text: str  #: for the model of the client
    kind: type[Any] = ReadArguments  #: of the request
    required: tuple[str, ...] = ()  #: fields of the request
    optional: tuple[str, ...] = ()
    is_destructive: bool = False


def _changing(kind: type[Any], *required: str, optional: tuple[str, ...] = (), destroys: bool = False) -> McpTool:
    text = cleandoc(str(kind.__doc__))
    return McpTool(text=text, kind=kind, required=required, optional=optional, is_destructive=destroys)


TOOLS = {
    "status": McpTool(text="List the plans, or show one with its phases and run.", optional=("plan",)),
    "check": McpTool(text="Show how runplan reads a plan file, and what is wrong with it.", required=("plan",)),
    "plan": _changing(requests.PlanRequest, "goal", optional=("quick", "then")),
    "start": _changing(requests.StartRequest, "plan", optional=("options",)),
    "follow": McpTool(
        text="Wait, with progress, until the plan's run ends or needs the user. Call again while it goes on.",
        required=("plan",),
        optional=("timeout",),
    ),
    "queue": McpTool(text="List the plans in the order in which work takes them, and why one waits."),
    "work": _changing(requests.WorkRequest, optional=("options",)),
    "stop": _changing(requests.StopRequest, "plan", destroys=True),
    "pause": _changing(requests.PauseRequest, "plan"),
    "resume": _changing(requests.ResumeRequest, "plan"),
    "retry": _changing(requests.RetryRequest, "plan", optional=("phase", "fresh")),
    "report": McpTool(text="The report of a plan: phases, evidence, failures, cost.", required=("plan",)),
    "diff": McpTool(
        text="The change or proposed plan that waits, with checks, verdict and `tree`; or the work of a failed phase.",
        required=("plan",),
        optional=("phase", "file", "offset"),
    ),
    "inbox": McpTool(text="What waits for the user in all repositories: changes, plans, questions."),
    "approve": _changing(requests.ApproveRequest, "plan", "tree", optional=("phase",), destroys=True),
    "reject": _changing(requests.RejectRequest, "plan", "tree", optional=("phase", "why"), destroys=True),
    "answer": _changing(requests.AnswerRequest, "id", "text"),
}


def schema_of(tool: McpTool) -> dict[str, object]:
    hints = {**get_type_hints(tool.kind, include_extras=True), "repository": Annotated[str, Help("default: here")]}
    names = (*tool.required, *tool.optional, "repository")
    properties = {name: schema(hints[name]) for name in names}
    for name in names:
        for about in get_args(hints[name]):
            properties[name] |= {"description": about.text} if isinstance(about, Help) else {}
    required = {"required": [*tool.required]} if tool.required else {}
    return {"type": "object", "properties": properties, **required}  # a call with any other is refused


class Result(Struct, frozen=True, kw_only=True):
    text: str
    content: Content
    is_error: bool = False


def make_result(content: Content, *, is_error: bool = False) -> Result:
    kept: Content = bound(content)
    return Result(text=render(kept), content=kept, is_error=is_error)


def list_plan(view: PlanView) -> Content:
    return {
        **{name: to_builtins(getattr(view, name)) for name in _PLAN_FIELDS},
        "done": f"{view.done} of {len(view.phases)} phases",
        "run": view.run and {name: getattr(view.run, name) for name in _RUN_FIELDS},
        "user_can": [f"{action.label}: {action.command}" for action in view.needed_actions],
    }


def cut_diff(diff: str, file: str, offset: int) -> str:
    """The part of the diff, and how to see the rest. Every character is visible."""
    diff = visible(diff)
    if file:
        head, *parts = _FILE_OF_DIFF.split(diff)
        ends = (f" b/{file}", f' "b/{file}"')  # git quotes special characters
        diff = next((part for part in parts if part.partition("\n")[0].endswith(ends)), "")
        if not diff:
            raise NotFound(f"{file}: no such file in the diff:\n{head}")
    end = offset + LARGEST_TEXT
    rest = len(diff) - end
    note = f"\n[{rest} more characters: call diff with file, or with offset {end}]" if rest > 0 else ""
    return diff[offset:end] + note


def bound(value: Any) -> Any:
    """The value without empty fields, its longest texts cut and each character visible: a model pays for each word."""
    match value:
        case dict():
            return {name: bound(inner) for name, inner in value.items() if inner not in (None, "", [], {})}
        case list():
            return [bound(inner) for inner in value]
        case str() if len(value) > LARGEST_TEXT + 100:  # the note of a diff that was cut
            more = len(value) - LARGEST_TEXT
            return f"{visible(value[:LARGEST_TEXT], is_prose=True)}\n[{more} more characters: use the runplan command]"
        case str():
            return visible(value, is_prose=True)
        case _:
            return value


def render(value: Any, indent: str = "") -> str:
    """The value as indented lines: `name: value`, and `-` before the entries of a list."""
    match value:
        case dict():
            lines = []
            for name, inner in value.items():
                is_block = isinstance(inner, (dict, list)) or (isinstance(inner, str) and "\n" in inner.rstrip())
                shown = f"\n{render(inner, f'{indent}  ')}" if is_block else f" {render(inner)}"
                lines.append(f"{indent}{name}:{shown}")
            return "\n".join(lines)
        case list():
            return "\n".join(f"{indent}- {render(inner, f'{indent}  ').lstrip()}" for inner in value)
        case str():
            return "\n".join(f"{indent}{line}" for line in value.rstrip().split("\n"))
        case _:
            return f"{indent}{json.dumps(value)}"
