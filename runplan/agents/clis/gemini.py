"""The `gemini` agent: Gemini CLI with its stream of JSON events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.agents.endings import EndingKind, trouble
from runplan.agents.kit.about import About
from runplan.agents.kit.lines import at, count, estimate, record, text, tool
from runplan.agents.kit.task import read_json, under_home
from runplan.run.usage import AgentEvent, Finished, Message, Spent, Started, ToolUsed, Unread, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.agents.kit.task import Task
    from runplan.settings.schema import AgentTable

ABOUT = About(
    program="gemini",
    rank=3,
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    addresses=("GOOGLE_GEMINI_BASE_URL",),
    models=("GEMINI_MODEL",),
    closes=True,
    # Its own codes, and the provider's status less 256.
    codes=(
        (41, EndingKind.AUTH),
        (53, EndingKind.MAX_TURNS),
        (55, EndingKind.SETUP),
        (145, EndingKind.AUTH),
        (147, EndingKind.AUTH),
        (173, EndingKind.LIMIT),
        (244, EndingKind.OVERLOADED),
        (247, EndingKind.OVERLOADED),
    ),
    tells_usd=False,
)

#: With an address of its own it would choose another way to log in, and fail.
_SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"disableAutoUpdate": True}}
_DENIED = ("policy_violation", "permission_denied")


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
    model = ("-m", table.model) if table.model else ()
    mode = "yolo" if task.writes else "plan"
    return (*ABOUT.call(table), "--skip-trust", "-o", "stream-json", "--approval-mode", mode, *model, *table.args)


def environment(
    table: AgentTable,  # noqa: ARG001 - every agent is asked the same way
    task: Task,
    caller: Mapping[str, str],  # noqa: ARG001
) -> tuple[dict[str, str], tuple[str, ...]]:
    names = (*ABOUT.keys, "GOOGLE_GEMINI_BASE_URL", "GEMINI_MODEL", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
    quiet = {"GEMINI_CLI_NO_RELAUNCH": "true"}
    if task.home is None:
        return quiet, (*names, "GEMINI_CLI_HOME")
    return quiet | {"GEMINI_CLI_HOME": str(task.home)}, names


def prepare(table: AgentTable, task: Task, caller: Mapping[str, str]) -> None:  # noqa: ARG001
    if task.home is not None:
        (task.home / ".gemini").mkdir(parents=True, exist_ok=True)
        (task.home / ".gemini" / "settings.json").write_text(json.dumps(_SETTINGS), encoding="utf-8")


def _folder(caller: Mapping[str, str]) -> Path:
    return Path(caller.get("GEMINI_CLI_HOME") or under_home(caller)) / ".gemini"


def configured(caller: Mapping[str, str]) -> bool:
    """Whether its user has chosen how it logs in."""
    return bool(text(read_json(_folder(caller) / "settings.json"), "security", "auth", "selectedType"))


def logins(caller: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(_folder(caller) / name for name in ("oauth_creds.json", "google_accounts.json", ".env"))


def read(line: bytes) -> tuple[AgentEvent, ...]:
    event = record(line)
    if event is None:
        return (Unread(),) if line.strip() else ()
    match text(event, "type"):
        case "init":
            return (Started(session=text(event, "session_id"), model=text(event, "model")),)
        case "message":
            return _message(event)
        case "tool_use":
            # What is said after a tool was used is a message of its own.
            used = tool(text(event, "tool_name"), at(event, "parameters"))
            return (used, Message(text="", final=True))
        case "tool_result":
            return _result(event)
        case "result":
            return tuple(_ended(event))
        case "error":  # a warning, or something its result will tell
            return ()
        case "" if isinstance(at(event, "response"), str):
            return _whole(event)
        case _:
            return (Unread(),)


def _message(event: dict[str, Any]) -> tuple[AgentEvent, ...]:
    said = text(event, "content")
    if text(event, "role") != "assistant":
        return (estimate(said),)
    return (Message(text=said, final=at(event, "delta") is not True), estimate(said))


def _result(event: dict[str, Any]) -> tuple[AgentEvent, ...]:
    told = estimate("", text(event, "output"))
    if text(event, "error", "type") in _DENIED:
        return (told, ToolUsed(tool=text(event, "tool_id")[:200], denied=True))
    return (told,)


def _ended(event: dict[str, Any]) -> list[AgentEvent]:
    stats = at(event, "stats")
    used = Usage(
        input_tokens=count(stats, "input_tokens"),
        output_tokens=count(stats, "output_tokens"),
        cached_tokens=count(stats, "cached"),
    )
    told: list[AgentEvent] = [Spent(usage=used, total=True)]
    if text(event, "status") == "success":
        return [*told, Finished(ok=True)]
    words = text(event, "error", "message")
    return [*told, trouble(words), Finished(ok=False, words=words)]


def _whole(event: dict[str, Any]) -> tuple[AgentEvent, ...]:
    """The one object it prints when it is asked for `-o json`."""
    used = Usage()
    models = at(event, "stats", "models")
    for told in models.values() if isinstance(models, dict) else ():
        sent, answered = count(told, "tokens", "prompt"), count(told, "tokens", "candidates")
        used = used.plus(
            Usage(input_tokens=sent, output_tokens=answered, cached_tokens=count(told, "tokens", "cached"))
        )
    words = text(event, "error", "message")
    return (
        Started(session=text(event, "session_id")),
        Spent(usage=used, total=True),
        Message(text=text(event, "response"), final=True),
        *((trouble(words),) if words else ()),
        Finished(ok=not words, words=words),
    )
