"""The `opencode` agent: `opencode run --format json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.agents.endings import trouble
from runplan.agents.kit.about import About
from runplan.agents.kit.lines import at, count, money, record, text, tool
from runplan.agents.kit.task import first_set, provider_keys, provider_names, under_home
from runplan.agents.limits import reset_header
from runplan.run.usage import (
    AgentEvent,
    Context,
    Finished,
    Message,
    Spent,
    Started,
    Trouble,
    TroubleKind,
    Unread,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.agents.kit.task import Task
    from runplan.settings.schema import AgentTable

ABOUT = About(
    program="opencode",
    rank=4,
    keys=("OPENCODE_API_KEY", *provider_keys()),
    addresses=("OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"),
    closes=True,
)

_QUIET = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
_ROOMS = {"XDG_DATA_HOME": "data", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache"}
#: Without it 60 MB are fetched and unpacked for every dispatch.
_INSTALLED = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
_DENIED = "rule which prevents"


def keys(table: AgentTable) -> tuple[str, ...]:
    return (*_own_key(table), *provider_keys(table.model))


def _own_key(table: AgentTable) -> tuple[str, ...]:
    """The key of its own provider, unless the model is another's."""
    return ABOUT.keys[:1] if "/" not in table.model or table.model.startswith("opencode/") else ()


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
    model = ("-m", table.model) if table.model else ()
    # Its own `--agent plan` still commits by way of bash: what a reader may not do stands in the configuration.
    role = ("--auto",) if task.writes else ()
    return (*ABOUT.call(table), "run", "--format", "json", *role, *model, *table.args)


def environment(
    table: AgentTable,
    task: Task,
    caller: Mapping[str, str],  # noqa: ARG001 - every agent is asked the same way
) -> tuple[dict[str, str], tuple[str, ...]]:
    names = (*_own_key(table), *provider_names(table.model))
    own = _QUIET | {"OPENCODE_CONFIG": str(_config(task))}
    if task.home is not None:
        own |= {name: str(task.home / folder) for name, folder in _ROOMS.items()}
    return own, names


def prepare(table: AgentTable, task: Task, caller: Mapping[str, str]) -> None:
    if task.home is not None:
        _furnish(task.home)
    settings: dict[str, object] = {"share": "disabled", "autoupdate": False}
    if not task.writes:
        settings["permission"] = {"bash": "deny", "edit": "deny"}
    address = first_set(caller, "OPENAI_BASE_URL", "OPENAI_API_BASE")
    provider, _, model = table.model.partition("/")
    if address and model and provider == "openai":
        options = {"baseURL": caller[address], "apiKey": "{env:OPENAI_API_KEY}"}
        # Its own client is kept: under this name it insists on one that speaks Responses.
        settings["provider"] = {provider: {"options": options, "models": {model: {}}}}
    _config(task).write_text(json.dumps(settings), encoding="utf-8")


def _furnish(home: Path) -> None:
    """A fresh configuration, which says of its library for plugins that it is there: it has none to need it."""
    for folder in _ROOMS.values():
        (home / folder).mkdir(parents=True, exist_ok=True)
    own = home / _ROOMS["XDG_CONFIG_HOME"] / "opencode"
    (own / "node_modules").mkdir(parents=True, exist_ok=True)
    (own / "package-lock.json").write_text(json.dumps(_INSTALLED), encoding="utf-8")


def _config(task: Task) -> Any:
    return task.directory / "opencode.json"


def configured(caller: Mapping[str, str]) -> bool:
    """Whether its user has logged in, or has a configuration, which may name providers."""
    return any(file.is_file() for file in logins(caller))


def logins(caller: Mapping[str, str]) -> tuple[Path, ...]:
    data = Path(caller.get("XDG_DATA_HOME") or under_home(caller, ".local", "share")) / "opencode"
    config = Path(caller.get("XDG_CONFIG_HOME") or under_home(caller, ".config")) / "opencode"
    return (data / "auth.json", config / "opencode.json", config / "opencode.jsonc", config / "config.json")


def read(line: bytes) -> tuple[AgentEvent, ...]:
    event = record(line)
    if event is None:
        return (Unread(),) if line.strip() else ()
    started = Started(session=text(event, "sessionID"))
    match text(event, "type"):
        case "step_start":
            return (started, Message(text="", final=True))
        case "text":
            return (Message(text=text(event, "part", "text") + "\n"),)
        case "tool_use":
            return tuple(_used(at(event, "part")))
        case "step_finish":
            return tuple(_step(at(event, "part")))
        case "error":
            told = _trouble(event)
            return (started, told, Finished(ok=False, words=told.words))
        case "reasoning":
            return ()
        case _:
            return (Unread(),)


def _used(part: Any) -> list[AgentEvent]:
    name, state = text(part, "tool"), at(part, "state")
    used: list[AgentEvent] = [tool(name, at(state, "input"))]
    if text(state, "status") == "error" and _DENIED in text(state, "error")[:400]:
        used.append(tool(name, at(state, "input"), denied=True))
    return used


def _step(part: Any) -> list[AgentEvent]:
    tokens = at(part, "tokens")
    cached = count(tokens, "cache", "read")
    full = count(tokens, "input") + cached + count(tokens, "cache", "write")
    answered = count(tokens, "output") + count(tokens, "reasoning")
    used = Usage(input_tokens=full, output_tokens=answered, usd=money(part, "cost"), cached_tokens=cached)
    told: list[AgentEvent] = [Spent(usage=used), Context(tokens=full)]
    match text(part, "reason"):
        case "tool-calls":
            return told
        case "stop":
            return [*told, Finished(ok=True)]
        case reason:  # "unknown" is what an answer that was none looks like
            return [*told, Finished(ok=False, words=f"its last step ended with the reason {reason[:80]!r}")]


def _trouble(event: dict[str, Any]) -> Trouble:
    name, data = text(event, "error", "name"), at(event, "error", "data")
    words = text(data, "message") or name
    if name == "ContentFilterError":
        return Trouble(kind=TroubleKind.REFUSAL, words=words)
    headers = at(data, "responseHeaders")
    said_at = count(event, "timestamp") / 1000
    resets = reset_header(headers, now=said_at) if isinstance(headers, dict) and said_at else None
    return trouble(words, status=count(data, "statusCode"), resets=resets)
