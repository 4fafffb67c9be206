"""The `qwen` agent: Qwen Code, whose events are Claude's in shape and whose errors look like answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.agents.clis import claude
from runplan.agents.endings import EndingKind, trouble
from runplan.agents.kit.about import About
from runplan.agents.kit.lines import at, count, record, text
from runplan.agents.kit.task import read_json, under_home
from runplan.run.usage import AgentEvent, Finished, Message, Retrying, Started
from runplan.store.files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.agents.kit.task import Task
    from runplan.settings.schema import AgentTable

ABOUT = About(
    program="qwen",
    rank=5,
    keys=("OPENAI_API_KEY",),
    addresses=("OPENAI_BASE_URL",),
    models=("OPENAI_MODEL",),
    closes=True,
    codes=((53, EndingKind.MAX_TURNS),),
    tells_usd=False,
)

LARGEST_SESSION = 32 * 1024 * 1024

_ERROR = "[API Error: "
_ABORTED = "Request was aborted."  #: by us, when it was ended
_ASKED = ("qwen-code.api_error", "qwen-code.api_response")
#: It signs commits with its own name unless told not to.
_SETTINGS = {"general": {"gitCoAuthor": False, "disableAutoUpdate": True}}


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
    model = ("-m", table.model) if table.model else ()
    mode = "yolo" if task.writes else "plan"
    # With a key in hand it is told to use it; else it goes by the login it knows.
    auth = ("--auth-type", "openai") if task.keyed else ()
    return (*ABOUT.call(table), *auth, "-o", "stream-json", "--approval-mode", mode, *model, *table.args)


def environment(
    table: AgentTable,  # noqa: ARG001 - every agent is asked the same way
    task: Task,
    caller: Mapping[str, str],  # noqa: ARG001
) -> tuple[dict[str, str], tuple[str, ...]]:
    names = (*ABOUT.keys, "OPENAI_BASE_URL", "OPENAI_MODEL")
    quiet = {"QWEN_CODE_NO_RELAUNCH": "true"}
    if task.home is None:
        return quiet | {"QWEN_CODE_SYSTEM_SETTINGS_PATH": str(task.directory / "qwen.json")}, names
    return quiet | {"HOME": str(task.home)}, names


def prepare(table: AgentTable, task: Task, caller: Mapping[str, str]) -> None:  # noqa: ARG001
    file = task.directory / "qwen.json"
    if task.home is not None:
        (task.home / ".qwen").mkdir(parents=True, exist_ok=True)
        file = task.home / ".qwen" / "settings.json"
    file.write_text(json.dumps(_SETTINGS), encoding="utf-8")


def configured(caller: Mapping[str, str]) -> bool:
    """Whether its user has chosen how it logs in."""
    settings = read_json(under_home(caller, ".qwen", "settings.json"))
    return bool(text(settings, "security", "auth", "selectedType"))


def logins(caller: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(under_home(caller, ".qwen", name) for name in ("oauth_creds.json", "settings.json", ".env"))


def read(line: bytes) -> tuple[AgentEvent, ...]:
    """As Claude's, but an answer that is an error is one."""
    told = tuple(_named(each, line) for each in claude.read(line))
    error = next((each.text for each in told if isinstance(each, Message) and each.final), "")
    if not error.startswith(_ERROR):
        return told
    kept = [each for each in told if not isinstance(each, (Finished, Message))]
    return (*kept, trouble(error), Finished(ok=False, words=error))


def _named(told: AgentEvent, line: bytes) -> AgentEvent:
    """Where it says who is at work it tells its version under a name of its own."""
    if not isinstance(told, Started) or not told.model:
        return told
    return Started(session=told.session, model=told.model, version=text(record(line), "qwen_code_version"))


def finish(directory: Path) -> tuple[AgentEvent, ...]:
    """It retries without a word: only the records of its sessions tell what its provider last answered."""
    sessions = (directory / "home" / ".qwen" / "projects").glob("*/chats/*.jsonl")
    told = (read_text(session, largest=LARGEST_SESSION) or "" for session in sorted(sessions))
    return tuple(each for session in told for each in read_session(session.encode()))


def read_session(told: bytes) -> tuple[AgentEvent, ...]:
    """The wait it was in when the record ends."""
    for line in reversed(told.splitlines()):
        event = at(record(line), "systemPayload", "uiEvent")
        words = text(event, "error_message")
        if text(event, "event.name") in _ASKED and words != _ABORTED:
            return (Retrying(words=f"error {count(event, 'status_code')} {words}"),) if words else ()
    return ()
