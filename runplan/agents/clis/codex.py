"""The `codex` agent: `codex exec --json`."""

from __future__ import annotations

import json
import shlex
import signal
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.agents.adapter import Agent, at, estimate, objects, text, under_home, usage
from runplan.agents.endings import trouble
from runplan.run.dispatch import Context, Finished, Message, Retrying, Spent, ToolUsed, Unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runplan.agents.adapter import Task
    from runplan.run.dispatch import AgentEvent
    from runplan.settings.schema import AgentTable

_OPENAI = "https://api.openai.com/v1"
#: Settings that choose a provider or a login.
_CHOICES = ("model_provider", "openai_base_url", "cli_auth_credentials_store")


#: Its tools for goals across sessions are of no use in a run.
_NO_GOALS = ("-c", "features.goals=false")


class Codex(Agent):
    program = "codex"
    base = ("exec", "--json", "--skip-git-repo-check", "-c", "check_for_update_on_startup=false", *_NO_GOALS)
    writing = ("--dangerously-bypass-approvals-and-sandbox",)
    reading = ("-s", "read-only")
    overhead = 37_000
    prints_json = True
    rank = 2
    keys = ("OPENAI_API_KEY", "CODEX_API_KEY")
    addresses = ("OPENAI_BASE_URL",)
    closes = True
    reports_usd = False
    stop_signal = signal.SIGINT
    passed = ("CODEX_HOME",)

    def arguments(self, task: Task) -> tuple[str, ...]:
        return (*super().arguments(task), "-")

    def role_arguments(self, task: Task) -> tuple[str, ...]:
        # As root its own sandbox cannot be made inside another one, where it is not needed.
        role = self.writing if task.sandboxed else super().role_arguments(task)
        return (*self._provider(task), *role)

    def _provider(self, task: Task) -> tuple[str, ...]:
        """It takes a key from the environment only through a provider that names the variable."""
        key = self.key(task.table, task.caller)
        url = json.dumps(task.caller.get("OPENAI_BASE_URL") or _OPENAI)
        provider = f'{{name="OpenAI", base_url={url}, wire_api="responses", env_key="{key}"}}'
        return ("-c", 'model_provider="runplan"', "-c", f"model_providers.runplan={provider}") if key else ()

    def names(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, ...]:
        key = str(_provider(_config(caller)).get("env_key") or "")
        return (*super().names(table, caller), *((key,) if key else ()))

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        """A login or a provider; a model alone is neither."""
        return (_folder(caller) / "auth.json").is_file() or any(name in _config(caller) for name in _CHOICES)

    def chosen(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, str]:  # noqa: ARG002
        config = _config(caller)
        address = _provider(config).get("base_url") or config.get("openai_base_url")
        return str(address or ""), str(config.get("model") or "")

    def lacks(self, table: AgentTable, caller: Mapping[str, str]) -> str:  # noqa: ARG002
        config = _config(caller)
        key, name = str(_provider(config).get("env_key") or ""), config.get("model_provider")
        missing = (
            f"needs {key}, which its config.toml names for {name} and which is not set; set {key} in this terminal"
        )
        return missing if key and not caller.get(key) else ""

    def read_event(self, event: dict[str, Any]) -> Iterable[AgentEvent]:
        match text(event, "type"):
            case "thread.started" | "turn.started" | "item.started" | "item.updated":
                return ()
            case "item.completed":
                return _item(at(event, "item"))
            case "turn.completed":
                used = usage(at(event, "usage"), "input_tokens", "output_tokens", "cached_input_tokens")
                return (Spent(usage=used, total=True), Finished(ok=True))
            case "turn.failed":
                words = text(event, "error", "message")
                return (trouble(words), Finished(ok=False, words=words))
            case "error":
                words = text(event, "message")
                return (Retrying(words=words) if words.startswith("Reconnecting...") else trouble(words),)
            case _:
                return (Unread(),)


AGENT = Codex()


def _item(item: Any) -> Iterable[AgentEvent]:
    match text(item, "type"):
        case "agent_message":
            words = text(item, "text")
            return (Message(text="", final=True), Message(text=words), estimate(words))
        case "command_execution":
            line = text(item, "command")
            used = ToolUsed(tool="command", detail=_script(line[:4_096]))
            return (used, estimate(line, text(item, "aggregated_output"), resent=True))
        case "file_change":
            denied = text(item, "status") == "declined"
            changes = [(text(each, "path")[:4_096], text(each, "kind")) for each in objects(item, "changes")]
            tools = (ToolUsed(tool="file_change", path=path, denied=denied) for path, _ in changes)
            # Of a patch the event has no text; a new file is as long as its patch.
            written = (Context(tokens=0, estimated=True, file=path) for path, kind in changes if kind == "add")
            return (*tools, *written, estimate("", resent=True))
        case "reasoning":
            return (estimate(text(item, "text")),)
        case "mcp_tool_call" | "web_search" | "todo_list" as tool:
            used = ToolUsed(tool=tool, detail=(text(item, "query") or text(item, "tool"))[:4_096])
            return (used, estimate("", resent=True))
        case "error":  # a warning, such as an unknown model name
            return ()
        case _:
            return (Unread(),)


def _script(line: str) -> str:
    """The script of a line such as `/bin/bash -lc 'make test'`; other lines stay as they are."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote is not closed
        return line
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else line


def _folder(caller: Mapping[str, str]) -> Path:
    return Path(caller.get("CODEX_HOME") or under_home(caller, ".codex"))


def _config(caller: Mapping[str, str]) -> dict[str, Any]:
    """The user's configuration with the profile it chooses; an empty one when it cannot be read."""
    try:
        config = tomllib.loads((_folder(caller) / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    profile = at(config, "profiles", str(config.get("profile", "")))
    return {**config, **profile} if isinstance(profile, dict) else config


def _provider(config: dict[str, Any]) -> dict[str, Any]:
    """The user's provider that the configuration chooses."""
    found = at(config, "model_providers", str(config.get("model_provider", "")))
    return found if isinstance(found, dict) else {}
