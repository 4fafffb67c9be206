"""The `script` agent: plays the steps that a TOML file has for a phase and a role (docs/agents.md).

The file is read here and the steps are passed to a small player. The player starts for every dispatch, and reading
TOML would take it three times as long as starting.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from runplan.agents.adapter import Agent, count, money
from runplan.agents.clis import _script_player as player
from runplan.errors import SettingsError
from runplan.run.dispatch import Role
from runplan.run.usage import Context, Message, Spent, ToolUsed, Trouble, TroubleKind, Usage
from runplan.store.files import publish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runplan.agents.adapter import Task
    from runplan.run.usage import AgentEvent

Step: TypeAlias = dict[str, object]

#: Keys whose value is a path; "main:" before it means the main checkout.
PATHS = ("write", "append", "delete", "wait_for", "once")

#: Steps that the player takes in another form.
_TRANSLATED: dict[str, Callable[[Any], tuple[str, object]]] = {
    "say": lambda text: ("print", f"{text}\n"),
    "tell": lambda event: ("print", f"runplan:tell {json.dumps(event)}\n"),
    "return": lambda value: ("return_text", json.dumps(value)),
    "pass_all": lambda _: ("fail", []),
    "config": lambda entry: ("git", ["config", entry["key"], entry["value"]]),
    "move_ref": lambda move: (
        "git",
        ["update-ref", move["ref"], move["to"]] if move["to"] else ["update-ref", "-d", move["ref"]],
    ),
}

STEPS = frozenset((*player.STEPS, *_TRANSLATED))

#: Played for a role that the script does not mention.
DEFAULTS: dict[Role, list[Step]] = {Role.VERIFY: [{"pass_all": True}]}

#: Imported, because a program that is run by its path is compiled each time.
_PLAY = "import sys; sys.path.append(sys.argv[1]); import _script_player; _script_player.main(sys.argv[2])"

_TOOL, _TELL = b"runplan:tool ", b"runplan:tell "


class Script(Agent):
    def argv(self, task: Task) -> tuple[str, ...]:
        """The player with the steps of this dispatch, which are written to its directory."""
        path = task.root / task.table.script
        steps = [_resolved(step, task.root) for step in steps_for(_parsed(path), task, origin=str(path))]
        publish(task.directory / "steps", marshal.dumps(steps), sync=False)
        # Without site-packages and environment (-I -S) the player starts a third faster.
        code = (_PLAY, str(Path(player.__file__).parent), str(task.directory / "steps"))
        return (sys.executable, "-I", "-S", "-c", *code)

    def read(self, line: bytes) -> tuple[AgentEvent, ...]:
        """The player's own events; every other line is a part of the message."""
        if line.startswith(_TOOL):
            tool, _, path = line.removeprefix(_TOOL).decode(errors="replace").partition(" ")
            return (ToolUsed(tool=tool, path=path),)
        if line.startswith(_TELL):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return tuple(_reported(json.loads(line.removeprefix(_TELL))))
        return (Message(text=line.decode(errors="replace") + "\n"),)


AGENT = Script()


def check(path: Path) -> None:
    """Refuse a script that cannot be played for some phase and role."""
    for phase, roles in _phases(_parsed(path), str(path)).items():
        for role, steps in roles.items():
            _checked(steps, f'{path}: [[phase."{phase}".{role}]]')


def steps_for(script: dict[str, object], task: Task, *, origin: str) -> list[Step]:
    """The steps for the phase and the role: `verify2` before `verify` in cycle 2, the phase before "*"."""
    phases = _phases(script, origin)
    for phase in (task.phase, "*"):
        roles = phases.get(phase, {})
        for role in (f"{task.role}{task.cycle}", str(task.role)):
            if role in roles:
                return _checked(roles[role], f'{origin}: [[phase."{phase}".{role}]]')
    return DEFAULTS.get(task.role, [])


def _phases(script: dict[str, object], origin: str) -> dict[str, dict[str, object]]:
    phases = script.get("phase", {})
    is_valid = isinstance(phases, dict) and all(isinstance(roles, dict) for roles in phases.values())
    if not is_valid or set(script) - {"phase"}:
        raise SettingsError(f'{origin}: a script has only [[phase."<id>".<role>]] tables')
    return cast("dict[str, dict[str, object]]", phases)


def _parsed(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such script; see [agents] in runplan.toml") from None
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: {error}") from None


def _checked(steps: object, origin: str) -> list[Step]:
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise SettingsError(f"{origin}: steps are written as [[double brackets]]")
    for number, step in enumerate(steps, 1):
        if len(set(step) & STEPS) != 1:
            known = ", ".join(sorted(STEPS))
            raise SettingsError(f"{origin}: step {number} ({', '.join(step)}): needs exactly one of {known}")
        if unknown := set(step) - STEPS - player.MODIFIERS:
            known = ", ".join(sorted(player.MODIFIERS))
            raise SettingsError(f"{origin}: step {number}: unknown {', '.join(sorted(unknown))}; known are {known}")
    return steps


def _resolved(step: Step, root: Path) -> Step:
    """The step as the player takes it: with absolute paths, and with JSON as text."""
    translated = (_TRANSLATED[key](value) if key in _TRANSLATED else (key, value) for key, value in step.items())
    resolved = {key: _in_main(value, root) if key in PATHS else value for key, value in translated}
    resolved["evidence"] = json.dumps(step.get("evidence", "played by the script"))
    resolved["summary"] = json.dumps(step.get("summary", "Looked at every item."))
    return {**resolved, "in_main": str(root)} if step.get("in_main") else resolved


def _in_main(value: object, root: Path) -> object:
    is_there = isinstance(value, str) and value.startswith("main:")
    return str(root / str(value).removeprefix("main:")) if is_there else value


def _reported(event: dict[str, Any]) -> Iterator[AgentEvent]:
    """The events of a `tell` step: a trouble, the context, or usage."""
    if "trouble" in event:
        kind, words = TroubleKind(event["trouble"]), str(event.get("words", ""))
        yield Trouble(kind=kind, words=words, resets=float(count(event, "resets")) or None)
    if "context" in event:
        yield Context(tokens=count(event, "context"), window=count(event, "window"))
    if "tokens" in event or "usd" in event:
        yield Spent(usage=Usage(input_tokens=count(event, "tokens"), usd=money(event, "usd")))
