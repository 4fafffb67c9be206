"""The `claude` agent: Claude Code, `claude -p` with its stream of JSON events."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.agents.budgets import Price
from runplan.agents.endings import trouble
from runplan.agents.kit.about import About
from runplan.agents.kit.lines import at, count, money, objects, record, text, tool
from runplan.agents.kit.module import Account
from runplan.agents.kit.task import first_set, read_json, under_home
from runplan.run.usage import (
    AgentEvent,
    Context,
    Finished,
    Message,
    Retrying,
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


def _say(words: str) -> bytes:
    """A message of the user's. One that comes while it works it takes in after the tool that runs."""
    content = [{"type": "text", "text": words}]
    return json.dumps({"type": "user", "message": {"role": "user", "content": content}}).encode() + b"\n"


ABOUT = About(
    program="claude",
    rank=1,
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    addresses=("ANTHROPIC_BASE_URL",),
    models=("ANTHROPIC_MODEL",),
    closes=True,
    say=_say,
    asked=signal.SIGINT,
    # It tells its dollars at its end, and keeps to its limit itself; one that is ended before that is booked by the
    # dearest price of its list, and never with more than it was allowed.
    guess=Price(sent=15.0, answered=75.0, guessed=True),
)

_BASE = ("-p", "--output-format", "stream-json", "--verbose")
#: Bash is left for looking at the diff: without a bypass only commands that change nothing pass.
_READING = ("--permission-mode", "default", "--tools", "Read,Grep,Glob,Bash")
_HEARING = ("--input-format", "stream-json")
_WRITING = ("--dangerously-skip-permissions",)
#: A repository's settings can run hooks, key helpers and MCP servers, deny tools and move the address; without the
#: source `project` none of that counts. The same flag hides CLAUDE.md, which the program then takes from a directory
#: that is named besides, when the variable below tells it to.
_ISOLATED = ("--add-dir", ".", "--setting-sources", "user")

_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1",
}
_SUBTYPES = {"error_max_turns": TroubleKind.MAX_TURNS, "error_max_budget_usd": TroubleKind.BUDGET}
_TELL_NOTHING = ("status", "task_started", "task_updated", "task_notification", "task_progress", "hook_started")


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
    model = ("--model", table.model) if table.model else ()
    role = _WRITING if task.writes else _READING
    # It tells its dollars only at its end, so it has to keep to them itself.
    most = ("--max-budget-usd", f"{task.usd:.4f}") if task.usd else ()
    hearing = _HEARING if task.hears else ()
    return (*ABOUT.call(table), *_BASE, *hearing, *role, *_ISOLATED, *most, *model, *table.args)


def environment(
    table: AgentTable,  # noqa: ARG001 - every agent is asked the same way
    task: Task,
    caller: Mapping[str, str],  # noqa: ARG001
) -> tuple[dict[str, str], tuple[str, ...]]:
    # As root it refuses to skip permissions unless it is told that it is shut in.
    sandboxed = {"IS_SANDBOX": "1"} if task.writes and os.geteuid() == 0 else {}
    names = (*ABOUT.keys, "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL")
    if task.home is None:
        return _QUIET | sandboxed, (*names, "CLAUDE_CONFIG_DIR")
    private = {"CLAUDE_CONFIG_DIR": str(task.home / "claude"), "CLAUDE_CODE_TMPDIR": str(task.home / "tmp")}
    return _QUIET | sandboxed | private, names


def prepare(table: AgentTable, task: Task, caller: Mapping[str, str]) -> None:  # noqa: ARG001
    if task.home is not None:
        (task.home / "claude").mkdir(parents=True, exist_ok=True)
        (task.home / "tmp").mkdir(exist_ok=True)


def _folder(caller: Mapping[str, str]) -> Path:
    return Path(caller.get("CLAUDE_CONFIG_DIR") or under_home(caller, ".claude"))


def configured(caller: Mapping[str, str]) -> bool:
    """Its settings can name an address, a model and a helper for keys; its login is a file, or in the system's keys."""
    beside = (_folder(caller) if caller.get("CLAUDE_CONFIG_DIR") else under_home(caller)) / ".claude.json"
    files = (_folder(caller) / "settings.json", _folder(caller) / ".credentials.json")
    return any(file.is_file() for file in files) or "oauthAccount" in read_json(beside)


def account(table: AgentTable, caller: Mapping[str, str], *, own: bool) -> Account:
    """In the order in which the program looks: the variables of its settings go before those of the caller."""
    settings = read_json(_folder(caller) / "settings.json") if own else {}
    variables = settings.get("env")
    seen = {**caller, **variables} if isinstance(variables, dict) else caller
    helper = "apiKeyHelper" if settings.get("apiKeyHelper") else ""
    paid = first_set(seen, "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY") or helper
    login = paid or first_set(seen, "CLAUDE_CODE_OAUTH_TOKEN") or "of its own"
    model = table.model or seen.get("ANTHROPIC_MODEL") or settings.get("model") or "its default"
    return Account(
        login=login,
        address=str(seen.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"),
        model=str(model),
        bill=f"the account of {paid}, by use" if paid else "the subscription of that login",
    )


def logins(caller: Mapping[str, str]) -> tuple[Path, ...]:
    """On macOS the login is in the keychain, and its configuration has to do as a sign of it."""
    own = _folder(caller)
    beside = () if caller.get("CLAUDE_CONFIG_DIR") else (under_home(caller, ".claude.json"),)
    return (own, *beside) if sys.platform == "darwin" else (own / ".credentials.json",)


def read(line: bytes) -> tuple[AgentEvent, ...]:
    event = record(line)
    if event is None:
        return (Unread(),) if line.strip() else ()
    match text(event, "type"):
        case "assistant":
            return tuple(_said(event))
        case "result":
            return tuple(_ended(event))
        case "system":
            return _system(event)
        case "rate_limit_event":
            return _limited(event)
        case "user" | "stream_event":
            return ()
        case _:
            return (Unread(),)


def usage(told: object) -> Usage:
    """Claude counts what came from the cache apart; one that does not says so by its total."""
    fresh, written = count(told, "input_tokens"), count(told, "cache_creation_input_tokens")
    cached = count(told, "cache_read_input_tokens")
    whole = fresh if count(told, "total_tokens") else fresh + written + cached
    return Usage(input_tokens=whole, output_tokens=count(told, "output_tokens"), cached_tokens=cached)


def _said(event: dict[str, Any]) -> list[AgentEvent]:
    message = at(event, "message")
    if text(message, "model") == "<synthetic>":  # the program's own words on an error; `result` has them too
        return []
    told: list[AgentEvent] = []
    main = not text(event, "parent_tool_use_id")  # else a sub-agent's, whose words and context are its own
    for part in objects(message, "content"):
        if text(part, "type") == "text" and main:
            told.append(Message(text=text(part, "text") + "\n"))
        elif text(part, "type") == "tool_use":
            told.append(tool(text(part, "name"), at(part, "input")))
    used = usage(at(message, "usage"))
    if used.input_tokens:
        told.append(Spent(usage=used, of=text(message, "id")))
        if main:
            told.append(Context(tokens=used.input_tokens))
    return told


def _system(event: dict[str, Any]) -> tuple[AgentEvent, ...]:
    match text(event, "subtype"):
        case "init":
            version = text(event, "claude_code_version")
            return (Started(session=text(event, "session_id"), model=text(event, "model"), version=version),)
        case "api_retry":
            return (Retrying(words=f"error {count(event, 'error_status')} {text(event, 'error')}"),)
        case "compact_boundary":
            return (Context(tokens=0),)
        case "model_refusal_no_fallback":
            return (Trouble(kind=TroubleKind.REFUSAL, words="the model refused"),)
        case "model_fallback":
            return (Started(model=text(event, "fallback_model")),)
        case known if known in _TELL_NOTHING:
            return ()
        case _:
            return (Unread(),)


def _limited(event: dict[str, Any]) -> tuple[AgentEvent, ...]:
    info = at(event, "rate_limit_info")
    if text(info, "status") != "rejected":
        return ()
    words = f"usage limit ({text(info, 'rateLimitType') or 'unnamed'})"
    return (Trouble(kind=TroubleKind.LIMIT, words=words, resets=float(count(info, "resetsAt")) or None),)


def _ended(event: dict[str, Any]) -> list[AgentEvent]:
    words = text(event, "result") or "; ".join(_texts(event, "errors")) or text(event, "error", "message")
    refused = text(event, "stop_reason") == "refusal"  # which it need not call an error
    failed = refused or at(event, "is_error") is not False or text(event, "subtype") != "success"
    told: list[AgentEvent] = [Started(session=text(event, "session_id")), *_totals(event)]
    told += [tool(text(each, "tool_name"), at(each, "tool_input"), denied=True) for each in _denials(event)]
    if failed:
        told.append(_trouble(event, words))
    else:
        told.append(Message(text=text(event, "result"), final=True))
    return [*told, Finished(ok=not failed, words=words if failed else "")]


def _trouble(event: dict[str, Any], words: str) -> Trouble:
    if kind := _SUBTYPES.get(text(event, "subtype")):
        return Trouble(kind=kind, words=words)
    if text(event, "stop_reason") == "refusal":
        return Trouble(kind=TroubleKind.REFUSAL, words=words)
    if text(event, "terminal_reason") == "prompt_too_long":
        return Trouble(kind=TroubleKind.CONTEXT, words=words)
    return trouble(words, status=count(event, "api_error_status"))


def _totals(event: dict[str, Any]) -> list[AgentEvent]:
    """`usage` leaves side requests out, and all of it after a budget's end; what each model used does not."""
    models, usd = at(event, "modelUsage"), Usage(usd=money(event, "total_cost_usd"))
    if not isinstance(models, dict) or not models:
        whole = usage(at(event, "usage")).plus(usd)
        return [Spent(usage=whole, total=True, least=True)] if whole != Usage() else []
    whole, window, most = usd, 0, -1
    for told in models.values():
        cached, written = count(told, "cacheReadInputTokens"), count(told, "cacheCreationInputTokens")
        sent = count(told, "inputTokens") + cached + written
        answered = count(told, "outputTokens")
        whole = whole.plus(Usage(input_tokens=sent, output_tokens=answered, cached_tokens=cached))
        if sent > most:
            window, most = count(told, "contextWindow"), sent
    return [Spent(usage=whole, total=True, least=True), Context(window=window)]


def _denials(event: dict[str, Any]) -> list[dict[str, Any]]:
    return list(objects(event, "permission_denials"))


def _texts(event: dict[str, Any], name: str) -> list[str]:
    found = at(event, name)
    return [text({"t": each}, "t") for each in found] if isinstance(found, list) else []
