"""The `codex` agent: `codex exec --json`."""

from __future__ import annotations

import json
import signal
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from runplan.agents.adapter import Account, Agent, at, estimate, first_set, objects, read_json, text, under_home, usage
from runplan.agents.endings import trouble
from runplan.run.usage import Finished, Message, Retrying, Spent, Started, ToolUsed, Unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runplan.agents.adapter import Task
    from runplan.run.usage import AgentEvent
    from runplan.settings.schema import AgentTable

_BASE = ("exec", "--json", "--skip-git-repo-check", "-c", "check_for_update_on_startup=false")
_OPENAI = "https://api.openai.com/v1"
#: Settings that choose a provider or a login.
_CHOICES = ("model_provider", "openai_base_url", "cli_auth_credentials_store")


class Codex(Agent):
    program = "codex"
    prints_json = True
    rank = 2
    keys = ("OPENAI_API_KEY", "CODEX_API_KEY")
    addresses = ("OPENAI_BASE_URL",)
    closes = True
    reports_usd = False
    stop_signal = signal.SIGINT
    private: ClassVar = {"CODEX_HOME": "codex"}

    def arguments(self, task: Task) -> tuple[str, ...]:
        # As root its own sandbox cannot be made inside another one, where it is not needed.
        is_free = task.writes or task.sandboxed
        role = ("--dangerously-bypass-approvals-and-sandbox",) if is_free else ("-s", "read-only")
        return (*_BASE, *role, *task.options("-m"), "-")

    def names(self, task: Task) -> tuple[str, ...]:
        key = "" if task.home else _provider(_config(task.caller)).get("env_key")
        return (*super().names(task), *((str(key),) if key else ()))

    def files(self, task: Task) -> dict[Path, str]:
        """It takes a key from the environment only through a provider that names the variable."""
        if task.home is None:
            return {}
        url = task.caller.get("OPENAI_BASE_URL") or _OPENAI
        # The key is the environment's; the model is the user's, unless the configuration is private.
        own = _config(task.caller).get("model") if task.table.private is None else ""
        model = f"model = {json.dumps(str(own))}\n" if own else ""
        content = (
            f'{model}model_provider = "runplan"\n\n[model_providers.runplan]\nname = "OpenAI"\n'
            f'base_url = {json.dumps(url)}\nwire_api = "responses"\nenv_key = "{self._key(task.caller)}"\n'
        )
        return {task.home / "codex" / "config.toml": content}

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        """A login or a provider; a model alone is neither."""
        return (_folder(caller) / "auth.json").is_file() or any(name in _config(caller) for name in _CHOICES)

    def account(self, table: AgentTable, caller: Mapping[str, str], *, own: bool) -> Account:
        """In the order in which the program looks: its provider, CODEX_API_KEY, its login."""
        config = _config(caller) if table.private is not True else {}
        model = table.model or str(config.get("model") or "its default")
        if own and (provider := _provider(config)):
            return _at_provider(provider, str(config["model_provider"]), model, caller)
        address = str(config.get("openai_base_url") or _OPENAI)
        stored = read_json(_folder(caller) / "auth.json")
        key, login = "CODEX_API_KEY", ""
        if not own:
            key, address = self._key(caller), caller.get("OPENAI_BASE_URL") or _OPENAI
        elif not caller.get(key) and stored.get("OPENAI_API_KEY") and not stored.get("tokens"):
            key, login = "that key", "the key in auth.json"
        elif not caller.get(key):
            plan = "the ChatGPT plan of that login"
            return Account(login="of its own (codex login)", address="that of the login", model=model, bill=plan)
        return Account(login=login or key, address=address, model=model, bill=f"the account of {key}, by use")

    def _key(self, caller: Mapping[str, str]) -> str:
        return first_set(caller, *self.keys) or self.keys[0]

    def read_event(self, event: dict[str, Any]) -> Iterable[AgentEvent]:
        match text(event, "type"):
            case "thread.started":
                return (Started(session=text(event, "thread_id")),)
            case "turn.started" | "item.started" | "item.updated":
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
            return (Message(text=text(item, "text"), final=True), estimate(text(item, "text")))
        case "command_execution":
            return (ToolUsed(tool="command"), estimate(text(item, "command"), text(item, "aggregated_output")))
        case "file_change":
            denied = text(item, "status") == "declined"
            paths = (text(each, "path")[:4_096] for each in objects(item, "changes"))
            return (ToolUsed(tool="file_change", path=path, denied=denied) for path in paths)
        case "reasoning":
            return (estimate(text(item, "text")),)
        case "mcp_tool_call" | "web_search" | "todo_list" as tool:
            return (ToolUsed(tool=tool),)
        case "error":  # a warning, such as an unknown model name
            return ()
        case _:
            return (Unread(),)


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


def _at_provider(provider: dict[str, Any], name: str, model: str, caller: Mapping[str, str]) -> Account:
    key, address = str(provider.get("env_key") or ""), str(provider.get("base_url") or "its default")
    lacks = f"needs {key}, which its config.toml names for {name} and which is not set"
    return Account(
        login=key or "none",
        address=address,
        model=model,
        bill=f"the account at {name}",
        lacks=lacks if key and not caller.get(key) else "",
        remedy=f"set {key} in this terminal",
    )
