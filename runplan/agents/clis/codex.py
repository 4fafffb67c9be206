"""The `codex` agent: `codex exec --json`."""

from __future__ import annotations

import json
import signal
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from runplan.agents.endings import trouble
from runplan.agents.kit.about import About
from runplan.agents.kit.lines import at, count, estimate, objects, record, text
from runplan.agents.kit.module import Account
from runplan.agents.kit.task import first_set, read_json, under_home
from runplan.run.usage import AgentEvent, Finished, Message, Retrying, Spent, Started, ToolUsed, Unread, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runplan.agents.kit.task import Task
    from runplan.settings.schema import AgentTable

ABOUT = About(
    program="codex",
    rank=2,
    keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
    closes=True,
    tells_usd=False,
    asked=signal.SIGINT,
)

_BASE = ("exec", "--json", "--skip-git-repo-check", "-c", "check_for_update_on_startup=false")
_WRITING = ("--dangerously-bypass-approvals-and-sandbox",)
_READING = ("-s", "read-only")
_OPENAI = "https://api.openai.com/v1"
_RETRY = "Reconnecting..."
#: What in its configuration says where to ask, or where its login is.
_CHOICES = ("model_provider", "openai_base_url", "cli_auth_credentials_store")


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
    model = ("-m", table.model) if table.model else ()
    # Its own sandbox cannot be made inside of another one by root, and has nothing to add there.
    role = _WRITING if task.writes or task.sandboxed else _READING
    return (*ABOUT.call(table), *_BASE, *role, *model, *table.args, "-")


def environment(
    table: AgentTable,  # noqa: ARG001 - every agent is asked the same way
    task: Task,
    caller: Mapping[str, str],
) -> tuple[dict[str, str], tuple[str, ...]]:
    names = (*ABOUT.keys, "OPENAI_BASE_URL")
    if task.home is None:
        key = _provider(_config(caller)).get("env_key")
        return {}, (*names, "CODEX_HOME", *((str(key),) if key else ()))
    return {"CODEX_HOME": str(task.home / "codex")}, names


def prepare(table: AgentTable, task: Task, caller: Mapping[str, str]) -> None:
    """It takes a key from the environment only by way of a provider that names the variable."""
    if task.home is None:
        return
    (task.home / "codex").mkdir(parents=True, exist_ok=True)
    url = caller.get("OPENAI_BASE_URL") or _OPENAI
    key = first_set(caller, *ABOUT.keys) or ABOUT.keys[0]
    # The key is the environment's; the model is still the user's, unless nothing of theirs is wanted.
    own = _config(caller).get("model") if table.private is None else ""
    model = f"model = {json.dumps(str(own))}\n" if own else ""
    (task.home / "codex" / "config.toml").write_text(
        f'{model}model_provider = "runplan"\n\n[model_providers.runplan]\nname = "OpenAI"\n'
        f'base_url = {json.dumps(url)}\nwire_api = "responses"\nenv_key = "{key}"\n',
        encoding="utf-8",
    )


def _folder(caller: Mapping[str, str]) -> Path:
    return Path(caller.get("CODEX_HOME") or under_home(caller, ".codex"))


def _config(caller: Mapping[str, str]) -> dict[str, Any]:
    """The user's configuration, with the profile it chooses; an empty one when it cannot be read."""
    try:
        told = tomllib.loads((_folder(caller) / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    chosen = at(told, "profiles", str(told.get("profile", "")))
    return {**told, **chosen} if isinstance(chosen, dict) else told


def _broken(path: Path, parse: Callable[[str], object]) -> str:
    """What is wrong with a file of its configuration; "" when it can be read, or there is none."""
    try:
        return "" if isinstance(parse(path.read_text(encoding="utf-8")), dict) else f"cannot read {path}"
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return f"cannot read {path}"


def _provider(config: dict[str, Any]) -> dict[str, Any]:
    """The provider of the user's own that the configuration chooses."""
    found = at(config, "model_providers", str(config.get("model_provider", "")))
    return found if isinstance(found, dict) else {}


def configured(caller: Mapping[str, str]) -> bool:
    """Whether there is a login, or a configuration that says where to ask; a model alone is neither."""
    return (_folder(caller) / "auth.json").is_file() or any(name in _config(caller) for name in _CHOICES)


def account(table: AgentTable, caller: Mapping[str, str], *, own: bool) -> Account:
    """In the order in which the program looks: its provider, CODEX_API_KEY, its login."""
    config = _config(caller) if table.private is not True else {}
    model = table.model or str(config.get("model") or "its default")
    if table.private is not True and (broken := _broken(_folder(caller) / "config.toml", tomllib.loads)):
        return Account(login="", address="", model=model, bill="", lacks=broken, remedy="correct that file")
    if not own:
        key, address = first_set(caller, *ABOUT.keys) or ABOUT.keys[0], caller.get("OPENAI_BASE_URL") or _OPENAI
        return Account(login=key, address=address, model=model, bill=f"the account of {key}, by use")
    if provider := _provider(config):
        return _at_provider(provider, str(config["model_provider"]), model, caller)
    address = str(config.get("openai_base_url") or _OPENAI)
    if caller.get("CODEX_API_KEY"):
        return Account(login="CODEX_API_KEY", address=address, model=model, bill="the account of CODEX_API_KEY, by use")
    if broken := _broken(_folder(caller) / "auth.json", json.loads):
        helps = "correct that file, or run codex login"
        return Account(login="", address=address, model=model, bill="", lacks=broken, remedy=helps)
    stored = read_json(_folder(caller) / "auth.json")
    if stored.get("OPENAI_API_KEY") and not stored.get("tokens"):
        return Account(
            login="the key in auth.json", address=address, model=model, bill="the account of that key, by use"
        )
    plan = "the ChatGPT plan of that login"
    return Account(login="of its own (codex login)", address="that of the login", model=model, bill=plan)


def _at_provider(provider: dict[str, Any], name: str, model: str, caller: Mapping[str, str]) -> Account:
    key = str(provider.get("env_key") or "")
    address = str(provider.get("base_url") or "its default")
    told = Account(login=key or "none", address=address, model=model, bill=f"the account at {name}")
    if not key or caller.get(key):
        return told
    lacks = f"needs {key}, which its config.toml names for {name} and which is not set"
    return replace(told, lacks=lacks, remedy=f"set {key} in this terminal")


def logins(caller: Mapping[str, str]) -> tuple[Path, ...]:
    """Its login, or a configuration that names a provider of its own."""
    home = _folder(caller)
    own = home / "config.toml"
    provided = own.is_file() and "model_provider" in own.read_text(encoding="utf-8", errors="replace")
    return (home / "auth.json", *((own,) if provided else ()))


def read(line: bytes) -> tuple[AgentEvent, ...]:
    event = record(line)
    if event is None:
        return (Unread(),) if line.strip() else ()
    match text(event, "type"):
        case "thread.started":
            return (Started(session=text(event, "thread_id")),)
        case "turn.started" | "item.started" | "item.updated":
            return ()
        case "item.completed":
            return tuple(_item(at(event, "item")))
        case "turn.completed":
            return (Spent(usage=_usage(at(event, "usage")), total=True), Finished(ok=True))
        case "turn.failed":
            words = text(event, "error", "message")
            return (trouble(words), Finished(ok=False, words=words))
        case "error":
            words = text(event, "message")
            return (Retrying(words=words),) if words.startswith(_RETRY) else (trouble(words),)
        case _:
            return (Unread(),)


def _item(item: Any) -> list[AgentEvent]:
    match text(item, "type"):
        case "agent_message":
            said = text(item, "text")
            return [Message(text=said, final=True), estimate(said)]
        case "command_execution":
            return [ToolUsed(tool="command"), estimate(text(item, "command"), text(item, "aggregated_output"))]
        case "file_change":
            changes = list(objects(item, "changes"))
            failed = text(item, "status") == "declined"
            return [ToolUsed(tool="file_change", path=text(each, "path")[:4_096], denied=failed) for each in changes]
        case "reasoning":
            return [estimate(text(item, "text"))]
        case "mcp_tool_call" | "web_search" | "todo_list":
            return [ToolUsed(tool=text(item, "type"))]
        case "error":  # a warning, such as a model name it does not know
            return []
        case _:
            return [Unread()]


def _usage(told: object) -> Usage:
    return Usage(
        input_tokens=count(told, "input_tokens"),
        output_tokens=count(told, "output_tokens"),
        cached_tokens=count(told, "cached_input_tokens"),
    )
