"""The tools of the MCP server: their descriptions, their arguments, and the request of each.

Clients send every description with every request to a model, so they are short.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import schema_components
from msgspec.structs import astuple

from runplan.app.operations.model import Where
from runplan.domain.decoding import convert
from runplan.domain.errors import UsageError
from runplan.domain.settings.options import parse_words

FOLLOWED_S = 50.0  #: default of `follow`; Codex ends a call after 60 s
LONGEST = 100_000  #: bytes of an argument; Linux takes 131,071
COMMAND_S = 120.0  #: for a tool that reads, or hands its work to the daemon
_OPTIONS = """\
A phase id or finish (all phases; default: the next one); auto (land without approval; only if the user says so); \
cherry-pick, pr or direct; every SCHEDULE; now."""


class Access(Enum):
    """What a tool does."""

    READS = "reads"
    ADDS = "adds"
    CHANGES = "changes"


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of all tools; each tool takes some of them."""

    plan: Annotated[str, Meta(description="Path or name.")] = ""
    phase: Annotated[str, Meta(description="Phase id.")] = ""
    options: Annotated[tuple[str, ...], Meta(description=_OPTIONS)] = ()
    id: Annotated[str, Meta(description="Of the question, from inbox.")] = ""
    text: str = ""
    goal: str = ""
    quick: Annotated[bool, Meta(description="Fewer steps.")] = False
    then: Annotated[str, Meta(description='Start it when approved, e.g. "finish".')] = ""
    fresh: Annotated[bool, Meta(description="Without the work that was kept.")] = False
    tree: Annotated[str, Meta(description="`tree` of the diff that the user saw.")] = ""
    why: Annotated[str, Meta(description="What to change, in the user's words.")] = ""
    file: Annotated[str, Meta(description="Only this file of the diff.")] = ""
    offset: Annotated[int, Meta(description="Skip so many characters of the diff.", ge=0)] = 0
    timeout: Annotated[float, Meta(description="Seconds.", ge=0, le=3600)] = FOLLOWED_S
    repository: Annotated[str, Meta(description="Path; default: here.")] = ""


class Tool(Struct, frozen=True, kw_only=True):
    """A tool and its command."""

    text: str  #: for the model of the client
    access: Access = Access.READS
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    can_wait: bool = True  #: exit code 4 is a result, not a refusal


def _changing(text: str, *required: str, optional: tuple[str, ...] = ()) -> Tool:
    return Tool(text=text, access=Access.ADDS, required=required, optional=optional)


def _answering(text: str, *optional: str) -> Tool:
    required = ("plan", "tree")
    return Tool(text=text, access=Access.CHANGES, required=required, optional=("phase", *optional), can_wait=False)


TOOLS = {
    "status": Tool(text="List the plans, or show one with its phases and run.", optional=("plan",)),
    "check": Tool(text="Show how runplan reads a plan file, and what is wrong with it.", required=("plan",)),
    "plan": Tool(
        text="Have agents write a plan for a goal. It waits for approval: follow, diff, then approve or reject.",
        access=Access.ADDS,
        required=("goal",),
        optional=("quick", "then"),
    ),
    "start": _changing(
        "Start work on a committed plan. Returns when it is accepted; then follow.", "plan", optional=("options",)
    ),
    "follow": Tool(
        text="Wait, with progress, until the plan's run ends or needs the user. Call again while it goes on.",
        required=("plan",),
        optional=("timeout",),
    ),
    "stop": Tool(
        text="End the plan's run and schedule; its work is kept.",
        access=Access.CHANGES,
        required=("plan",),
    ),
    "pause": _changing("Pause a plan after its current step.", "plan"),
    "resume": _changing("Resume a paused plan.", "plan"),
    "retry": _changing("Work again on what failed.", "plan", optional=("phase", "fresh")),
    "report": Tool(text="The report of a plan: phases, evidence, failures, cost.", required=("plan",)),
    "diff": Tool(
        text="The change or proposed plan that waits, with checks, verdict and `tree`; or the work of a failed phase.",
        required=("plan",),
        optional=("phase", "file", "offset"),
    ),
    "inbox": Tool(text="What waits for the user in all repositories: changes, plans, questions."),
    "approve": _answering("Land the change or plan that diff showed. Only when the user has seen it and says so."),
    "reject": _answering("Reject the change or plan that diff showed. With `why` an agent changes it.", "why"),
    "answer": _changing("Give the user's answer to a question of an agent.", "id", "text"),
}


def parse_arguments(name: str, given: dict[str, Any]) -> Arguments:
    """The arguments of a call; refused when the tool does not take one, or lacks one."""
    tool = TOOLS[name]
    known = (*tool.required, *tool.optional, "repository")
    if unknown := [word for word in given if word not in known]:
        raise UsageError(f"{name}: unknown argument {', '.join(unknown)}; there are: {', '.join(known)}")
    if missing := [word for word in tool.required if not given.get(word)]:
        raise UsageError(f"{name}: {', '.join(missing)} is missing")
    arguments = convert(given, Arguments)
    texts = [value for value in astuple(arguments) if isinstance(value, str)]
    if any("\0" in text for text in (*texts, *arguments.options)):
        raise UsageError("an argument holds a null character")
    if any(len(text.encode("utf-8", "replace")) > LONGEST for text in texts):
        raise UsageError(f"an argument is longer than {LONGEST} bytes; write it into a file, and name that")
    return arguments


def read_request(name: str, arguments: Arguments) -> dict[str, object]:
    """The fields of the request of a tool that changes something; the daemon carries it out."""
    tool = TOOLS[name]
    words = {"options": arguments.options, "then": tuple(arguments.then.split())}
    given = {field: getattr(arguments, field) for field in (*tool.required, *tool.optional)}
    fields = {field: parse_words(words[field]) if field in words else value for field, value in given.items() if value}
    return fields if name in ("stop", "pause", "resume") else {**fields, "where": Where.DAEMON.value}


def schema_of(tool: Tool) -> dict[str, Any]:
    """The JSON schema of the arguments."""
    _, components = schema_components([Arguments])
    fields = components["Arguments"]["properties"]
    names = (*tool.required, *tool.optional, "repository")
    properties = {name: {key: fields[name][key] for key in fields[name] if key != "default"} for name in names}
    return {"type": "object", "properties": properties, "required": [*tool.required], "additionalProperties": False}
