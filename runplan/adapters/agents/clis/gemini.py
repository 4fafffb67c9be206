"""The `gemini` agent: Gemini CLI with its stream of JSON events."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from runplan.adapters.agents import adapter as f
from runplan.adapters.agents.adapter import Agent, Task, under_home
from runplan.adapters.agents.budgets import tokens_in
from runplan.adapters.agents.endings import classify_trouble
from runplan.domain.run import dispatch as d

#: With an address in the environment it would choose another login, and fail. It ignores such a file elsewhere.
_SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"disableAutoUpdate": True}}
#: Without a person, its model may end the mode that only reads by a tool, and goes on with every permission.
_POLICY_FILE = "policy.toml"
_POLICY = """[[rule]]
toolName = "exit_plan_mode"
decision = "deny"
priority = 999
"""
_LINE = 40  #: characters of a line, in an estimate
_MOST_LINES = 2_000  #: that it reads at once
_DENIED = ("policy_violation", "permission_denied")


class Gemini(Agent):
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    base = ("--skip-trust", "-o", "stream-json")
    writing = ("--approval-mode", "yolo")
    reading = ("--approval-mode", "plan")
    overhead = 48_000
    prints_json = True
    rank = 3
    keys = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    addresses = ("GOOGLE_GEMINI_BASE_URL",)
    models = ("GEMINI_MODEL",)
    passed = ("GEMINI_CLI_HOME", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
    instructions = ("**/.gemini",)
    closes = True
    #: Its own, and from 145 on the provider's status modulo 256.
    codes: ClassVar = {
        **dict.fromkeys((41, 145, 147), d.EndingKind.AUTH),
        53: d.EndingKind.MAX_TURNS,
        55: d.EndingKind.SETUP,
        173: d.EndingKind.LIMIT,
        **dict.fromkeys((244, 247), d.EndingKind.OVERLOADED),
    }
    reports_usd = False
    fixed: ClassVar = {"GEMINI_CLI_NO_RELAUNCH": "true"}
    folder = ".gemini"
    configuration = ("settings.json", ".env", "GEMINI.md", "commands", "extensions", "policies", "skills")
    logins = ("oauth_creds.json", "google_accounts.json", "gemini-credentials.json")

    def find_folder(self, caller: Mapping[str, str]) -> Path:
        return Path(caller.get("GEMINI_CLI_HOME") or under_home(caller)) / self.folder

    def role_arguments(self, task: Task) -> tuple[str, ...]:
        policy = () if task.writes else ("--policy", str(task.directory / _POLICY_FILE))
        return (*super().role_arguments(task), *policy)

    def build_environment(self, task: Task) -> dict[str, str]:
        is_own = not self.find_key(task.table, task.caller)
        return dict(self.fixed) if is_own else {**self.fixed, "GEMINI_CLI_HOME": str(task.own)}

    def make_files(self, task: Task) -> dict[str, str]:
        files = {} if task.writes else {_POLICY_FILE: _POLICY}
        if self.find_key(task.table, task.caller):
            files[f"{d.OWN}/.gemini/settings.json"] = json.dumps(_SETTINGS)
        return files

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        settings = f.read_json(self.find_folder(caller) / "settings.json")
        return bool(f.get_text(settings, "security", "auth", "selectedType"))

    def read_event(self, event: f.JsonObject) -> Iterable[d.AgentEvent]:
        match f.get_text(event, "type"):
            case "init":
                return (d.Started(model=f.get_text(event, "model")),)
            case "message":
                if f.get_text(event, "role") != "assistant":  # the prompt
                    return ()
                before = () if f.get_value(event, "delta") is True else (d.Message(text="", final=True),)
                text = f.get_text(event, "content")
                return (*before, d.Message(text=text), f.estimate_context(text))
            case "tool_use":
                used = f.get_text(event, "tool_name")
                parameters = f.get_value(event, "parameters")
                # Text after the use of a tool is a new message. The context has the text that the tool writes.
                tool = f.read_tool(used, parameters)
                events = (tool, d.Message(text="", final=True), f.estimate_context(json.dumps(parameters)))
                if used != "read_file":
                    return events
                # No event has the text of the file that it reads.
                lines = min(f.get_count(parameters, "end_line") - f.get_count(parameters, "start_line"), _MOST_LINES)
                tokens = tokens_in(_LINE * max(0, lines))
                return (*events, d.Context(tokens=tokens, estimated=True, file=tool.path if lines <= 0 else ""))
            case "tool_result":
                denied = f.get_text(event, "error", "type") in _DENIED
                refused = (f.read_tool(f.get_text(event, "tool_id"), {}, denied=True),) if denied else ()
                output = f.get_text(event, "output")
                ended = d.ToolEnded(output=output, ending="failed" if f.get_text(event, "status") == "error" else "")
                return (ended, f.estimate_context("", output, resent=True), *refused)
            case "result":
                spent = d.Spent(usage=f.read_usage(f.get_value(event, "stats"), "cached"), total=True)
                if f.get_text(event, "status") == "success":
                    return (spent, d.Finished(ok=True))
                words = f.get_text(event, "error", "message")
                return (spent, classify_trouble(words), d.Finished(ok=False, words=words))
            case "error":  # a warning, or an error that the result repeats
                return ()
            case _:
                return (d.Unread(),)


AGENT = Gemini()
