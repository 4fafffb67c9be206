"""The `aider` agent: a program that edits files by its model's answer and talks in plain lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents.endings import trouble
from runplan.agents.environment import AGENT_EMAIL, AGENT_NAME
from runplan.agents.kit.about import About
from runplan.agents.kit.lines import at, count, money, record, text
from runplan.agents.kit.task import provider_keys, provider_names, under_home
from runplan.run.usage import AgentEvent, Context, Finished, Message, Retrying, Spent, Started, ToolUsed, Usage
from runplan.store.files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.agents.kit.task import Task
    from runplan.settings.schema import AgentTable

ABOUT = About(
    program="aider",
    rank=6,
    keys=provider_keys(),
    addresses=("OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"),
    closes=True,
)

_BASE = (
    *("--yes-always", "--no-pretty", "--no-stream", "--no-check-update", "--analytics-disable"),
    *("--no-show-release-notes", "--no-gitignore", "--no-detect-urls", "--no-suggest-shell-commands"),
    *("--map-tokens", "0", "--chat-history-file", "/dev/null", "--input-history-file", "/dev/null"),
    # runplan commits what is left, under its own name and without aider's.
    *("--no-auto-commits", "--no-dirty-commits"),
)
#: It breaks its lines where it believes the screen to end, and with them what its provider said.
_WIDE = {"COLUMNS": "4000"}
_HEADS = (b"Analytics have been", b"Detected dumb terminal", b"Weak model:", b"Git repo:", b"Repo-map:")
_NUMBER = rb"(\d{1,9}|\d{1,9}(?:\.\d{1,3})?[kM])"
_COST = rb"Cost: \$(\d{1,9}\.\d{1,9}) message, \$\d{1,9}\.\d{1,9} session\."
_TOKENS = re.compile(
    rb"Tokens: " + _NUMBER + rb" sent, (?:[\w. ]{1,40}, ){0,3}" + _NUMBER + rb" received\.(?: " + _COST + rb")?\s*"
)
_COST_BELOW = re.compile(_COST + rb"\s*")  #: on a line of its own where it tells much of its cache
_MOST_TOKENS = 20_000_000  #: in one answer; more than this no window holds
#: Its own record of what it does, beside its logs: what its model says, and quotes, never gets there.
BOOKS = "analytics.jsonl"
_ANSWERED = "message_send"
LARGEST_BOOKS = 16 * 1024 * 1024
_ERROR = re.compile(rb"litellm\.\w{1,60}(?:Error|Exception|Timeout)\b")
#: As its library spells nearly all of them: its own name for it, then the provider's.
_ITS_OWN = re.compile(rb"litellm\.\w{1,60}: (?:litellm\.)?\w{1,60}(?:Error|Exception|Timeout)(?: -|:)")


def keys(table: AgentTable) -> tuple[str, ...]:
    return provider_keys(table.model)


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
    model = ("--model", table.model) if table.model else ()
    role = () if task.writes else ("--dry-run",)
    files = ("--message-file", str(task.prompt), "--analytics-log", str(task.own / BOOKS))
    return (*ABOUT.call(table), *files, *_BASE, *role, *model, *table.args)


def environment(
    table: AgentTable,
    task: Task,
    caller: Mapping[str, str],  # noqa: ARG001 - every agent is asked the same way
) -> tuple[dict[str, str], tuple[str, ...]]:
    own = {"HOME": str(task.home)} if task.home is not None else {}
    return _WIDE | own, provider_names(table.model)


def prepare(table: AgentTable, task: Task, caller: Mapping[str, str]) -> None:  # noqa: ARG001
    """Where it finds no identity it would write one into the configuration of the repository."""
    if task.home is not None:
        task.home.mkdir(parents=True, exist_ok=True)
        identity = f"[user]\n\tname = {AGENT_NAME}\n\temail = {AGENT_EMAIL}\n"
        (task.home / ".gitconfig").write_text(identity, encoding="utf-8")


def configured(caller: Mapping[str, str]) -> bool:
    return under_home(caller, ".aider.conf.yml").is_file()


def logins(caller: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(under_home(caller, name) for name in (".aider.conf.yml", ".env", ".aider/oauth-keys.env"))


def read(line: bytes) -> tuple[AgentEvent, ...]:
    """Its own lines by their beginning; every other one is a piece of the message."""
    if line.startswith(_HEADS):
        return ()
    if line.startswith(b"Aider v"):
        return (Started(version=_text(line[7:])),)
    if line.startswith(b"Main model: "):
        return (Started(model=_text(line[12:].partition(b" with ")[0])),)
    if line.startswith(b"Applied edit to "):
        return (ToolUsed(tool="edit", path=_text(line[16:])[:4_096]),)
    if (found := _TOKENS.fullmatch(line)) and _count(found[1]) <= _MOST_TOKENS:
        return _spent(found)
    if found := _COST_BELOW.fullmatch(line):
        return (Spent(usage=Usage(usd=float(found[1]))),)
    if _ERROR.match(line):
        told = replace(trouble(_text(line[:4_000])), doubtful=not _ITS_OWN.match(line))
        return (Message(text=_text(line) + "\n"), told)
    if line.startswith(b"Retrying in "):
        return (Retrying(words=_text(line[:400])),)
    return (Message(text=_text(line) + "\n"),)


def finish(directory: Path) -> tuple[AgentEvent, ...]:
    """All that its answers cost, by its own books; what it prints could as well be a line of its model's."""
    told = read_text(directory / BOOKS, largest=LARGEST_BOOKS) or ""
    entries = [record(line.encode()) for line in told.splitlines() if _ANSWERED in line]
    answers = [at(entry, "properties") for entry in entries if text(entry, "event") == _ANSWERED]
    if not answers:
        return ()
    sent, received = (sum(count(each, name) for each in answers) for name in ("prompt_tokens", "completion_tokens"))
    usd = sum(money(each, "cost") for each in answers)
    return (Spent(usage=Usage(input_tokens=sent, output_tokens=received, usd=usd), total=True),)


def _spent(found: re.Match[bytes]) -> tuple[AgentEvent, ...]:
    """The line that stands below every whole answer, and below no other; which is the last it never says."""
    sent, received = _count(found[1]), _count(found[2])
    used = Usage(input_tokens=sent, output_tokens=received, usd=float(found[3]) if found[3] else 0.0)
    return (Spent(usage=used), Context(tokens=sent), Finished(ok=True, so_far=True))


def _count(told: bytes) -> int:
    unit = {b"k": 1_000, b"M": 1_000_000}.get(told[-1:], 1)
    try:
        return int(float(told.rstrip(b"kM")) * unit)
    except ValueError:
        return 0


def _text(said: bytes) -> str:
    return said.decode(errors="replace").rstrip("\r")
