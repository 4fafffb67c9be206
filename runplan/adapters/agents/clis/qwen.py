"""The `qwen` agent: Qwen Code. Its events have Claude's form, and its errors look like answers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from runplan.adapters.agents import adapter as f
from runplan.adapters.agents.adapter import Agent, Task, first_set, under_home
from runplan.adapters.agents.clis import claude
from runplan.adapters.agents.endings import classify_trouble
from runplan.adapters.store.files import read_text
from runplan.domain.run.dispatch import AgentEvent, EndingKind, Finished, Message, Retrying
from runplan.domain.settings.schema import AgentTable

_ERROR = "[API Error: "
_OPENAI = "openai"  #: the login by a key, also for other providers with that interface
_ABORTED = "Request was aborted."  #: by us, when it was ended
_REQUESTS = ("qwen-code.api_error", "qwen-code.api_response")
#: By default it adds a co-author to commits, and asks its model once more what to remember of a worktree.
_SETTINGS_FILE = "qwen.json"
_SETTINGS = {"general": {"gitCoAuthor": False, "disableAutoUpdate": True}, "memory": {"enableManagedAutoMemory": False}}


class Qwen(Agent):
    program = "qwen"
    install = "npm install -g @qwen-code/qwen-code"
    base = ("-o", "stream-json")
    writing = ("--approval-mode", "yolo")
    reading = ("--approval-mode", "plan")
    rank = 5
    instructions = ("**/QWEN.md", "**/.qwen")
    keys = ("OPENAI_API_KEY",)
    addresses = ("OPENAI_BASE_URL",)
    models = ("OPENAI_MODEL",)
    closes = True
    codes: ClassVar = {53: EndingKind.MAX_TURNS}
    reports_usd = False
    fixed: ClassVar = {"QWEN_CODE_NO_RELAUNCH": "true"}
    folder = ".qwen"
    configuration = ("settings.json", ".env", "QWEN.md", "commands", "extensions", "skills", "agents")
    copied = ("oauth_creds.json",)

    def build_arguments(self, task: Task) -> tuple[str, ...]:
        # Without a key it uses the login it knows.
        auth = ("--auth-type", "openai") if self.find_key(task.table, task.caller) else ()
        return (*auth, *super().build_arguments(task))

    def build_environment(self, task: Task) -> dict[str, str]:
        settings = str(task.directory / _SETTINGS_FILE)
        return {**self.fixed, "QWEN_CODE_SYSTEM_SETTINGS_PATH": settings, "QWEN_RUNTIME_DIR": str(task.own)}

    def make_files(self, task: Task) -> dict[str, str]:  # noqa: ARG002
        return {_SETTINGS_FILE: json.dumps(_SETTINGS)}

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        return bool(f.get_text(_read_settings(caller), "security", "auth", "selectedType"))

    def find_key(self, table: AgentTable, caller: Mapping[str, str]) -> str:
        """The key in the environment wins, unless its settings choose another login or a provider for the model."""
        login = f.get_text(_read_settings(caller), "security", "auth", "selectedType") or _OPENAI
        is_own = login != _OPENAI or _find_provider(table, caller)
        return "" if is_own else first_set(caller, *self.keys)

    def find_choice(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, str]:
        """Likewise the address; of the model its settings win."""
        settings = _read_settings(caller)
        address = f.get_text(_find_provider(table, caller), "baseUrl")
        if not address and f.get_text(settings, "security", "auth", "selectedType") == _OPENAI:
            address = caller.get("OPENAI_BASE_URL") or f.get_text(settings, "security", "auth", "baseUrl")
        return address, f.get_text(settings, "model", "name")

    def read_line(self, line: bytes) -> tuple[AgentEvent, ...]:
        """As Claude's, but an answer that is an error counts as one."""
        events = claude.AGENT.read_line(line)
        error = next((event.text for event in events if isinstance(event, Message) and event.final), "")
        if not error.startswith(_ERROR):
            return events
        kept = (event for event in events if not isinstance(event, (Finished, Message)))
        return (*kept, classify_trouble(error), Finished(ok=False, words=error))

    def read_reports(self, directory: Path) -> tuple[AgentEvent, ...]:
        """It retries silently: only the records of its sessions have the provider's last answer, so its last wait."""
        waits = []
        for session in sorted((directory / "projects").glob("*/chats/*.jsonl")):
            lines = (read_text(session, largest=32 * 1024 * 1024) or "").encode().splitlines()
            for line in reversed(lines):
                event = f.get_value(f.parse_object(line), "systemPayload", "uiEvent")
                words = f.get_text(event, "error_message")
                if f.get_text(event, "event.name") in _REQUESTS and words != _ABORTED:
                    waits += [Retrying(words=f"error {f.get_count(event, 'status_code')} {words}")] if words else []
                    break
        return tuple(waits)


AGENT = Qwen()


def _read_settings(caller: Mapping[str, str]) -> f.JsonObject:
    return f.read_json(under_home(caller, ".qwen", "settings.json"))


def _find_provider(table: AgentTable, caller: Mapping[str, str]) -> f.JsonObject:
    """The provider that the user's settings name for the model; an empty object for none."""
    settings = _read_settings(caller)
    model = table.model or f.get_text(settings, "model", "name")
    known = f.get_objects(settings, "modelProviders", _OPENAI)
    return next((provider for provider in known if model and f.get_text(provider, "id") == model), {})
