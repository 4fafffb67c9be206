"""The `codex` agent: `codex exec --json`."""

import json
import shlex
import signal
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import compress

from runplan.adapters.agents import adapter as f
from runplan.adapters.agents.adapter import Agent, Task
from runplan.adapters.agents.endings import classify_trouble
from runplan.domain.run.dispatch import AgentEvent, Context, Finished, Message, Retrying, Spent, ToolUsed, Unread
from runplan.domain.settings.schema import AgentTable

_OPENAI = "https://api.openai.com/v1"
#: Settings that choose a provider or a login.
_CHOICES = ("model_provider", "openai_base_url", "cli_auth_credentials_store")
#: Its tools for goals across sessions are of no use in a run.
_NO_GOALS = ("-c", "features.goals=false")


class Codex(Agent):
    program = "codex"
    install = "npm install -g @openai/codex"
    base = ("exec", "--json", "--skip-git-repo-check", "-c", "check_for_update_on_startup=false", *_NO_GOALS)
    writing = ("--dangerously-bypass-approvals-and-sandbox",)
    reading = ("-s", "read-only")
    overhead = 37_000
    prints_json = True
    rank = 2
    effort_arguments = ("-c", 'model_reasoning_effort="{}"')
    keys = ("OPENAI_API_KEY", "CODEX_API_KEY")
    addresses = ("OPENAI_BASE_URL",)
    closes = True
    reports_usd = False
    stop_signal = signal.SIGINT
    folder_variable = "CODEX_HOME"
    passed = (folder_variable,)
    instructions = ("**/AGENTS.override.md",)
    folder = ".codex"
    configuration = ("config.toml", "AGENTS.md", "AGENTS.override.md", "instructions.md", "prompts", "rules", "skills")
    logins = ("auth.json",)

    def build_arguments(self, task: Task) -> tuple[str, ...]:
        return (*super().build_arguments(task), "-")

    def role_arguments(self, task: Task) -> tuple[str, ...]:
        # As root its own sandbox cannot be made inside another one, where it is not needed.
        role = self.writing if task.sandboxed else super().role_arguments(task)
        key = self.find_key(task.table, task.caller)
        if not key:
            return role
        # It takes a key from the environment only through a provider that names the variable.
        url = json.dumps(task.caller.get("OPENAI_BASE_URL") or _OPENAI)
        provider = f'{{name="OpenAI", base_url={url}, wire_api="responses", env_key="{key}"}}'
        return ("-c", 'model_provider="runplan"', "-c", f"model_providers.runplan={provider}", *role)

    def list_variables(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, ...]:
        key = str(_chosen_provider(_read_config(caller)).get("env_key") or "")
        return (*super().list_variables(table, caller), *((key,) if key else ()))

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        """A login or a provider; a model alone is neither."""
        config = _read_config(caller)
        return (AGENT.find_folder(caller) / "auth.json").is_file() or any(name in config for name in _CHOICES)

    def find_choice(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, str]:  # noqa: ARG002
        config = _read_config(caller)
        address = _chosen_provider(config).get("base_url") or config.get("openai_base_url")
        return str(address or ""), str(config.get("model") or "")

    def explain_lack(self, table: AgentTable, caller: Mapping[str, str]) -> str:  # noqa: ARG002
        config = _read_config(caller)
        key = str(_chosen_provider(config).get("env_key") or "")
        if not key or caller.get(key):
            return ""
        name = config.get("model_provider")
        return f"needs {key}, which its config.toml names for {name} and which is not set; set {key} in this terminal"

    def read_event(self, event: f.JsonObject) -> Iterable[AgentEvent]:
        item = f.get_value(event, "item")
        match f.get_text(event, "type"), f.get_text(item, "type"):
            case "item.started", "command_execution":
                line = f.get_text(item, "command")[:4_096]
                parts: list[str] = []
                with suppress(ValueError):  # a quote is not closed
                    parts = shlex.split(line)
                is_wrapped = len(parts) == 3 and parts[1] in ("-c", "-lc")  # `/bin/bash -lc 'make test'`
                return (ToolUsed(tool="command", detail=parts[2] if is_wrapped else line),)
            case "thread.started" | "turn.started" | "item.started" | "item.updated", _:
                return ()
            case "item.completed", "agent_message":
                words = f.get_text(item, "text")
                return (Message(text="", final=True), Message(text=words), f.estimate_context(words))
            case "item.completed", "command_execution":
                output = f.get_text(item, "aggregated_output")
                ended = f.end_tool(output, f.get_value(item, "exit_code"))
                return (ended, f.estimate_context(f.get_text(item, "command"), output, resent=True))
            case "item.completed", "file_change":
                denied = f.get_text(item, "status") == "declined"
                changes = list(f.get_objects(item, "changes"))
                paths = [f.get_text(change, "path")[:4_096] for change in changes]
                tools = (ToolUsed(tool="file_change", path=path, denied=denied) for path in paths)
                # Of a patch the event has no text; a new file is as long as its patch.
                added = (f.get_text(change, "kind") == "add" for change in changes)
                written = (Context(tokens=0, estimated=True, file=path) for path in compress(paths, added))
                return (*tools, *written, f.estimate_context("", resent=True))
            case "item.completed", "reasoning":
                return (f.estimate_context(f.get_text(item, "text")),)
            case "item.completed", ("mcp_tool_call" | "web_search" | "todo_list") as name:
                used = ToolUsed(tool=name, detail=(f.get_text(item, "query") or f.get_text(item, "tool"))[:4_096])
                return (used, f.estimate_context("", resent=True))
            case "item.completed", "error":  # a warning, such as an unknown model name
                return ()
            case "turn.completed", _:
                usage = f.read_usage(f.get_value(event, "usage"), "cached_input_tokens")
                return (Spent(usage=usage, total=True), Finished(ok=True))
            case "turn.failed", _:
                words = f.get_text(event, "error", "message")
                return (classify_trouble(words), Finished(ok=False, words=words))
            case "error", _:
                words = f.get_text(event, "message")
                return (Retrying(words=words) if words.startswith("Reconnecting...") else classify_trouble(words),)
            case _:
                return (Unread(),)


AGENT = Codex()


def _read_config(caller: Mapping[str, str]) -> f.JsonObject:
    """The user's configuration with the profile it chooses; an empty one when it cannot be read."""
    try:
        config = tomllib.loads((AGENT.find_folder(caller) / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    profile = f.get_value(config, "profiles", str(config.get("profile", "")))
    return {**config, **profile} if isinstance(profile, dict) else config


def _chosen_provider(config: f.JsonObject) -> f.JsonObject:
    provider = f.get_value(config, "model_providers", str(config.get("model_provider", "")))
    return provider if isinstance(provider, dict) else {}
