"""The `mini` agent: mini-swe-agent, which tells what it did in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents.endings import trouble
from runplan.agents.kit.about import About
from runplan.agents.kit.lines import at, count, money, objects, record, text
from runplan.agents.kit.module import by_variables
from runplan.agents.kit.task import provider_keys, provider_names, under_home
from runplan.run.usage import AgentEvent, Context, Finished, Message, Spent, Started, Usage
from runplan.store.files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.agents.kit.module import Account
    from runplan.agents.kit.task import Task
    from runplan.settings.schema import AgentTable

ABOUT = About(
    program="mini",
    rank=7,
    keys=provider_keys(),
    addresses=("OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"),
    models=("MSWEA_MODEL_NAME",),
    closes=True,
    version=(),
)

TRAJECTORY = "trajectory.json"
#: Linux takes 128 KiB for one argument; beyond this the prompt is named instead of given.
LONGEST_ARGUMENT = 120 * 1024
#: Arguments by which a user chooses the model, or a file that does.
_CHOOSES = ("-m", "--model", "-c", "--config")
LARGEST_TRAJECTORY = 32 * 1024 * 1024

_QUIET = {
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


def keys(table: AgentTable) -> tuple[str, ...]:
    return provider_keys(table.model)


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
    model = ("-m", table.model) if table.model else ()
    trajectory = str(task.own / TRAJECTORY)
    # It tells its dollars only at its end, so it has to keep to them itself.
    most = ("--cost-limit", f"{task.usd:.4f}") if task.usd else ()
    base = ("-y", "--exit-immediately", "-o", trajectory)
    return (*ABOUT.call(table), *base, *most, *model, *table.args, "-t", _prompt(task))


def _prompt(task: Task) -> str:
    said = task.prompt.read_bytes().replace(b"\0", b"")
    if len(said) <= LONGEST_ARGUMENT:
        return os.fsdecode(said)
    return f"Your task is in the file {task.prompt}. Read all of it, in pieces if need be, and do what it says."


def environment(
    table: AgentTable,
    task: Task,
    caller: Mapping[str, str],  # noqa: ARG001 - every agent is asked the same way
) -> tuple[dict[str, str], tuple[str, ...]]:
    names = provider_names(table.model)
    if task.home is None:
        return _QUIET, (*names, "MSWEA_GLOBAL_CONFIG_DIR", "MSWEA_MODEL_NAME")
    return _QUIET | {"MSWEA_GLOBAL_CONFIG_DIR": str(task.home / "mini")}, (*names, "MSWEA_MODEL_NAME")


def prepare(table: AgentTable, task: Task, caller: Mapping[str, str]) -> None:  # noqa: ARG001
    if task.home is not None:
        (task.home / "mini").mkdir(parents=True, exist_ok=True)


def _folder(caller: Mapping[str, str]) -> Path:
    return Path(caller.get("MSWEA_GLOBAL_CONFIG_DIR") or under_home(caller, ".config", "mini-swe-agent"))


def _settings(caller: Mapping[str, str]) -> dict[str, str]:
    """What its user has set up: lines such as MSWEA_MODEL_NAME='openai/gpt-5'."""
    try:
        told = (_folder(caller) / ".env").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {}
    pairs = (line.partition("=") for line in told.splitlines() if "=" in line)
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


def configured(caller: Mapping[str, str]) -> bool:
    return bool(_settings(caller).get("MSWEA_MODEL_NAME"))


def account(table: AgentTable, caller: Mapping[str, str], *, own: bool) -> Account:
    """Its configuration holds variables: those of the caller go before them. Without a model it cannot work."""
    seen = {**_settings(caller), **caller} if own else caller
    told = by_variables(ABOUT, keys(table), table, seen, own=False)
    named = table.model or seen.get("MSWEA_MODEL_NAME") or any(arg.startswith(_CHOOSES) for arg in table.args)
    return told if named else replace(told, lacks="has no model, and does not work without one")


def logins(caller: Mapping[str, str]) -> tuple[Path, ...]:
    return (_folder(caller) / ".env",)


def read(line: bytes) -> tuple[AgentEvent, ...]:  # noqa: ARG001
    """What it prints is for a person: the prompt, commands and their output among it."""
    return ()


def finish(directory: Path) -> tuple[AgentEvent, ...]:
    """What its trajectory tells; it is written at every step."""
    told = read_text(directory / TRAJECTORY, largest=LARGEST_TRAJECTORY)
    return read_trajectory(told.encode()) if told else ()


def read_trajectory(told: bytes) -> tuple[AgentEvent, ...]:
    trajectory = record(told)
    if trajectory is None:
        return ()
    info = at(trajectory, "info")
    used, full, model, last = Usage(usd=money(info, "model_stats", "instance_cost")), 0, "", ""
    for message in objects(trajectory, "messages"):
        if answer := at(message, "extra", "response"):
            full = count(answer, "usage", "prompt_tokens")
            cached = count(answer, "usage", "prompt_tokens_details", "cached_tokens")
            answered = count(answer, "usage", "completion_tokens")
            used = used.plus(Usage(input_tokens=full, output_tokens=answered, cached_tokens=cached))
            model = text(answer, "model") or model
        last = text(message, "extra", "exception_str") or last
    told_events: tuple[AgentEvent, ...] = (
        Started(model=model, version=text(info, "mini_version")),
        Spent(usage=used, total=True),
        Context(tokens=full),
    )
    return (*told_events, *_ended(text(info, "exit_status"), text(info, "submission"), last))


def _ended(status: str, submission: str, error: str) -> tuple[AgentEvent, ...]:
    if not status:  # it was stopped between two steps
        return ()
    if status == "Submitted":
        return (Message(text=submission, final=True), Finished(ok=True))
    words = f"{status}: {error}" if error else status
    return (trouble(words), Finished(ok=False, words=words))
