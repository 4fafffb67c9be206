"""The `claude` agent: Claude Code, `claude -p` with its stream of JSON events."""

import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from runplan.adapters.agents import adapter as f
from runplan.adapters.agents.adapter import Agent, Task, first_set, under_home
from runplan.adapters.agents.endings import classify_trouble
from runplan.adapters.sandbox.view import HomeUse
from runplan.domain.run import dispatch as d
from runplan.domain.settings.schema import AgentTable

_SUBTYPES = {"error_max_turns": d.EndingKind.MAX_TURNS, "error_max_budget_usd": d.EndingKind.BUDGET}
_IGNORED = ("status", "task_started", "task_updated", "task_notification", "task_progress", "hook_started")
#: Tools that only make its requests longer: they schedule, switch worktrees, or talk to a person or other sessions.
_USELESS = (
    *("Artifact", "AskUserQuestion", "CronCreate", "CronDelete", "CronList", "EnterPlanMode", "EnterWorktree"),
    *("ExitPlanMode", "ExitWorktree", "ListAgents", "PushNotification", "RemoteTrigger", "ReportFindings"),
    *("ScheduleWakeup", "SendMessage", "SendUserFile", "Workflow"),
)
#: Settings with a command that the program runs for a login.
_HELPERS = (
    *("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh"),
    *("otelHeadersHelper", "proxyAuthHelper"),
)
#: The fields of usage: fresh, written to the cache, read from it, answered.
_FIELDS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_FIELDS_BY_MODEL = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")


class Claude(Agent):
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    #: Without the source `project` it reads no nested CLAUDE.md, skill or agent; without `local` no CLAUDE.local.md.
    base = (
        *("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
        *("--setting-sources", "user,project,local"),
    )
    writing = ("--dangerously-skip-permissions", "--disallowedTools", ",".join(_USELESS))
    #: Bash is needed to look at the diff: without a bypass only commands that change nothing are allowed.
    reading = ("--permission-mode", "default", "--tools", "Read,Grep,Glob,Bash")
    model_flag = "--model"
    effort_arguments = ("--effort", "{}")
    usd_flag = "--max-budget-usd"
    prints_json = True
    rank = 1
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    addresses = ("ANTHROPIC_BASE_URL",)
    models = ("ANTHROPIC_MODEL",)
    passed = ("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_TMPDIR")
    closes = True
    reports_quota = True
    highest_usd = (15.0, 75.0)
    stop_signal = signal.SIGINT
    fixed: ClassVar = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    personal = ("CLAUDE.local.md",)
    folder_variable = "CLAUDE_CONFIG_DIR"
    folder = ".claude"
    configuration = (
        *("settings.json", "CLAUDE.md", "agents", "commands", "skills", "hooks", "plugins", "rules", "output-styles"),
        "local",  # the program itself, where it was installed so
    )
    logins = (".credentials.json",)

    def use_home(self, caller: Mapping[str, str]) -> HomeUse:
        return replace(super().use_home(caller), copied=(str(_state_file(caller)),))

    def role_arguments(self, task: Task) -> tuple[str, ...]:
        """With flags by which the repository's settings run no hook, helper or MCP server and keep the address.

        The flag's settings override those of the repository, so the user's own helpers are named again. Hooks of all
        origins are merged and can only be disabled together.
        """
        user_settings = f.read_json(self.find_folder(task.caller) / "settings.json")
        address, _ = self.find_choice(task.table, task.caller)
        settings = {"disableAllHooks": True, "env": {"ANTHROPIC_BASE_URL": address}}
        settings |= {name: f.get_text(user_settings, name) for name in _HELPERS}
        state = _state_file(task.caller)
        servers = ("--mcp-config", str(state)) if f.get_value(f.read_json(state), "mcpServers") else ()
        flags = ("--settings", json.dumps(settings, separators=(",", ":")), "--strict-mcp-config", *servers)
        return (*flags, *super().role_arguments(task))

    def build_environment(self, task: Task) -> dict[str, str]:
        # As root it refuses to skip permissions unless it runs in a sandbox.
        sandboxed = {"IS_SANDBOX": "1"} if task.writes and os.geteuid() == 0 else {}
        return super().build_environment(task) | sandboxed

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        """Its settings can name an address, a model and a key helper; its login is a file or in the keychain."""
        files = (AGENT.find_folder(caller) / "settings.json", AGENT.find_folder(caller) / ".credentials.json")
        return any(file.is_file() for file in files) or "oauthAccount" in f.read_json(_state_file(caller))

    def find_choice(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, str]:  # noqa: ARG002
        """Variables in its settings override those of the caller."""
        settings = f.read_json(AGENT.find_folder(caller) / "settings.json")
        variables = f.get_value(settings, "env")
        seen = {**caller, **variables} if isinstance(variables, dict) else caller
        model = f.get_text(seen, "ANTHROPIC_MODEL") or f.get_text(settings, "model")
        return f.get_text(seen, "ANTHROPIC_BASE_URL"), model

    def find_key(self, table: AgentTable, caller: Mapping[str, str]) -> str:  # noqa: ARG002
        """It prefers a key in the environment to its login."""
        return first_set(caller, "ANTHROPIC_AUTH_TOKEN", *self.keys)

    def encode_message(self, text: str) -> bytes:
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        return json.dumps({"type": "user", "message": message}).encode() + b"\n"

    def read_event(self, event: f.JsonObject) -> Iterable[d.AgentEvent]:
        match f.get_text(event, "type"), f.get_text(event, "subtype"):
            case "assistant", _:
                return _read_assistant(event)
            case "result", _:
                return _read_result(event)
            case "system", "init":
                # Qwen Code has the same events and its own name for the version.
                version = f.get_text(event, "claude_code_version") or f.get_text(event, "qwen_code_version")
                return (d.Started(model=f.get_text(event, "model"), version=version),)
            case "system", "api_retry":
                return (d.Retrying(words=f"error {f.get_count(event, 'error_status')} {f.get_text(event, 'error')}"),)
            case "system", "compact_boundary":
                return (d.Context(tokens=0),)
            case "system", "model_refusal_no_fallback":
                return (d.Trouble(kind=d.EndingKind.REFUSAL, words="the model refused"),)
            case "system", "model_fallback":
                return (d.Started(model=f.get_text(event, "fallback_model")),)
            case "rate_limit_event", _:
                info = f.get_value(event, "rate_limit_info")
                words = f"usage limit ({f.get_text(info, 'rateLimitType') or 'unnamed'})"
                resets = float(f.get_count(info, "resetsAt")) or None
                if f.get_text(info, "status") == "rejected":
                    return (d.Trouble(kind=d.EndingKind.LIMIT, words=words, resets=resets),)
                used = f.get_number(info, "utilization")  # a share, from three quarters on
                return (d.Quota(percent=round(used * 100), resets=resets),) if used else ()
            case "user", _:
                printed = [f.get_text(event, "tool_use_result", name) for name in ("stdout", "stderr")]
                parts = (part for part in f.get_objects(event, "message", "content") if part.get("is_error"))
                failed = (d.ToolEnded(output=f.get_text(part, "content"), ending="failed") for part in parts)
                return (d.ToolEnded(output="\n".join(printed)), *failed)
            case kind, subtype:
                return () if kind == "stream_event" or (kind == "system" and subtype in _IGNORED) else (d.Unread(),)


AGENT = Claude()


def _state_file(caller: Mapping[str, str]) -> Path:
    return (AGENT.find_folder(caller) if caller.get("CLAUDE_CONFIG_DIR") else under_home(caller)) / ".claude.json"


def _read_assistant(event: f.JsonObject) -> Iterator[d.AgentEvent]:
    message = f.get_value(event, "message")
    if f.get_text(message, "model") == "<synthetic>":  # the program's own words on an error; `result` has them too
        return
    is_main = not f.get_text(event, "parent_tool_use_id")  # the message and context of a sub-agent are its own
    for part in f.get_objects(message, "content"):
        if f.get_text(part, "type") == "text" and is_main:
            yield d.Message(text=f.get_text(part, "text") + "\n")
        elif f.get_text(part, "type") == "tool_use":
            yield f.read_tool(f.get_text(part, "name"), f.get_value(part, "input"))
    used = _sum_usage(f.get_value(message, "usage"))
    if used.input_tokens:
        yield d.Spent(usage=used, of=f.get_text(message, "id"))
        if is_main:
            yield d.Context(tokens=used.input_tokens)


def _read_result(event: f.JsonObject) -> Iterator[d.AgentEvent]:
    listed = f.get_value(event, "errors")
    errors = "; ".join(f.get_text({"": error}, "") for error in (listed if isinstance(listed, list) else ()))
    words = f.get_text(event, "result") or errors or f.get_text(event, "error", "message")
    is_refused = f.get_text(event, "stop_reason") == "refusal"  # which it does not always call an error
    failed = is_refused or f.get_value(event, "is_error") is not False or f.get_text(event, "subtype") != "success"
    # The usage by model is complete; `usage` misses side requests, and everything after a budget's end.
    models = f.get_value(event, "modelUsage")
    by_model = models.values() if isinstance(models, dict) else ()
    usages = [_sum_usage(used, _FIELDS_BY_MODEL) for used in by_model]
    total = d.Usage(usd=f.get_number(event, "total_cost_usd"))
    for used in usages or [_sum_usage(f.get_value(event, "usage"))]:
        total = total.plus(used)
    if usages or total != d.Usage():
        yield d.Spent(usage=total, total=True, least=True)
    if usages:
        main = max(zip(usages, by_model, strict=True), key=lambda pair: pair[0].input_tokens)[1]
        yield d.Context(window=f.get_count(main, "contextWindow"))
    for denial in f.get_objects(event, "permission_denials"):
        yield f.read_tool(f.get_text(denial, "tool_name"), f.get_value(denial, "tool_input"), denied=True)
    kind = _SUBTYPES.get(f.get_text(event, "subtype")) or (d.EndingKind.REFUSAL if is_refused else None)
    if f.get_text(event, "terminal_reason") == "prompt_too_long":
        kind = kind or d.EndingKind.CONTEXT
    if not failed:
        yield d.Message(text=f.get_text(event, "result"), final=True)
    elif kind:
        yield d.Trouble(kind=kind, words=words)
    else:
        yield classify_trouble(words, status=f.get_count(event, "api_error_status"))
    yield d.Finished(ok=not failed, words=words if failed else "")


def _sum_usage(used: object, fields: tuple[str, str, str, str] = _FIELDS) -> d.Usage:
    """Claude counts cached tokens separately. A program with a total, as Qwen Code, does not."""
    fresh, written, cached, answered = (f.get_count(used, field) for field in fields)
    sent = fresh if f.get_count(used, "total_tokens") else fresh + written + cached
    return d.Usage(input_tokens=sent, output_tokens=answered, cached_tokens=cached)
