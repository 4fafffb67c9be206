"""The `opencode` agent: `opencode run --format json`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from runplan.adapters.agents import adapter as f
from runplan.adapters.agents.adapter import Agent, Task, first_set, provider_keys, under_home
from runplan.adapters.agents.endings import classify_trouble, reset_header
from runplan.adapters.sandbox.view import HomeUse
from runplan.domain.run import dispatch as d

_DENIED = "rule which prevents"


class OpenCode(Agent):
    program = "opencode"
    install = "npm install -g opencode-ai"
    names_provider = True
    closes = True
    base = ("run", "--format", "json", "--title", "runplan")  # without a title it asks a model for one
    writing = ("--auto",)  # its `--agent plan` can still commit through bash: the configuration denies that to readers
    prints_json = True
    rank = 4
    effort_arguments = ("--variant", "{}")
    instructions = ("**/.opencode", "**/opencode.json", "**/opencode.jsonc")
    keys = ("OPENCODE_API_KEY", *provider_keys())
    folder = "opencode"
    configuration = (
        *("opencode.json", "opencode.jsonc", "config.json", "AGENTS.md", "agent", "agents", "command", "commands"),
        *("mode", "modes", "plugin", "plugins", "skill", "skills", "tool", "tools"),
        *("package.json", "package-lock.json", "bun.lock", "node_modules"),  # of plugins, fetched at its first start
    )
    logins = ("auth.json",)
    fixed: ClassVar = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def keys_for(self, model: str) -> tuple[str, ...]:
        is_own = "/" not in model or model.startswith("opencode/")
        return (*(self.keys[:1] if is_own else ()), *provider_keys(model))

    def build_environment(self, task: Task) -> dict[str, str]:
        # With a shared database, programs that start at the same time fail: "database is locked".
        files = {"OPENCODE_CONFIG": str(task.directory / "opencode.json"), "OPENCODE_DB": str(task.own / "opencode.db")}
        return {**self.fixed, **files}

    def make_files(self, task: Task) -> dict[str, str]:
        settings: dict[str, object] = {"share": "disabled", "autoupdate": False}
        if not task.writes:
            settings["permission"] = {"bash": "deny", "edit": "deny"}
        address = first_set(task.caller, "OPENAI_BASE_URL", "OPENAI_API_BASE")
        provider, _, model = task.table.model.partition("/")
        if address and model and provider == "openai":
            options = {"baseURL": task.caller[address]}
            if task.caller.get("OPENAI_API_KEY"):  # else it uses its login
                options["apiKey"] = "{env:OPENAI_API_KEY}"
            # Its own client is kept: under this name it insists on one that speaks Responses.
            settings["provider"] = {provider: {"options": options, "models": {model: {}}}}
        return {"opencode.json": json.dumps(settings)}

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        """Whether the user has logged in, or has a configuration, which may name providers."""
        names = self.configuration[:3]
        files = (_data_folder(caller) / "auth.json", *(self.find_folder(caller) / name for name in names))
        return any(file.is_file() for file in files)

    def find_folder(self, caller: Mapping[str, str]) -> Path:
        return Path(caller.get("XDG_CONFIG_HOME") or under_home(caller, ".config")) / self.folder

    def use_home(self, caller: Mapping[str, str]) -> HomeUse:
        data = _data_folder(caller)
        login = HomeUse(private=(str(data),), copied=tuple(str(data / name) for name in self.logins))
        return replace(super().use_home(caller), shared=()) | login

    def read_event(self, event: f.JsonObject) -> Iterable[d.AgentEvent]:
        match f.get_text(event, "type"):
            case "step_start":
                return (d.Message(text="", final=True),)
            case "text":
                return (d.Message(text=f.get_text(event, "part", "text") + "\n"),)
            case "tool_use":
                state = f.get_value(event, "part", "state")
                denied = f.get_text(state, "status") == "error" and _DENIED in f.get_text(state, "error")[:400]
                used = f.read_tool(f.get_text(event, "part", "tool"), f.get_value(state, "input"), denied=denied)
                output = f.get_text(state, "metadata", "output")
                return (used, f.end_tool(output, f.get_value(state, "metadata", "exit")))
            case "step_finish":
                tokens = f.get_value(event, "part", "tokens")
                cached = f.get_count(tokens, "cache", "read")
                sent = f.get_count(tokens, "input") + cached + f.get_count(tokens, "cache", "write")
                answered = f.get_count(tokens, "output") + f.get_count(tokens, "reasoning")
                usd = f.get_number(event, "part", "cost")
                usage = d.Usage(input_tokens=sent, output_tokens=answered, usd=usd, cached_tokens=cached)
                reason = f.get_text(event, "part", "reason")
                # "unknown" means that there was no real answer.
                words = "" if reason == "stop" else f"its last step ended with the reason {reason[:80]!r}"
                ended = () if reason == "tool-calls" else (d.Finished(ok=not words, words=words),)
                return (d.Spent(usage=usage), d.Context(tokens=sent), *ended)
            case "error":
                name = f.get_text(event, "error", "name")
                data = f.get_value(event, "error", "data")
                words = f.get_text(data, "message") or name
                headers = f.get_value(data, "responseHeaders")
                now = f.get_count(event, "timestamp") / 1000
                resets = reset_header(headers, now=now) if isinstance(headers, dict) and now else None
                trouble = classify_trouble(words, status=f.get_count(data, "statusCode"), resets=resets)
                if name == "ContentFilterError":
                    trouble = d.Trouble(kind=d.EndingKind.REFUSAL, words=words)
                return (trouble, d.Finished(ok=False, words=trouble.words))
            case "reasoning":
                return ()
            case _:
                return (d.Unread(),)


AGENT = OpenCode()


def _data_folder(caller: Mapping[str, str]) -> Path:
    return Path(caller.get("XDG_DATA_HOME") or under_home(caller, ".local", "share")) / "opencode"
