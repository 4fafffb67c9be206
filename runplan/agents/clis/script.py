"""The `script` agent: plays the steps a TOML file gives for a phase and a role (docs/agents.md).

The file is read here and the steps are handed to a small player: the player is started for every dispatch, and
reading TOML would take it three times as long as starting.
"""

from __future__ import annotations

import json
import marshal
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from runplan.agents.kit import script_player
from runplan.agents.kit.about import About
from runplan.agents.kit.lines import count, money
from runplan.errors import SettingsError
from runplan.run.dispatch import Role
from runplan.run.usage import AgentEvent, Context, Message, Spent, ToolUsed, Trouble, TroubleKind, Usage
from runplan.store.files import publish

if TYPE_CHECKING:
    from runplan.agents.kit.task import Task
    from runplan.settings.schema import AgentTable

ABOUT = About()

Step: TypeAlias = dict[str, object]

#: Keys whose value is a path; "main:" before it means the main checkout.
PATHS = ("write", "append", "delete", "mkdir", "wait_for", "once")

#: What is played for a role that the script does not mention.
DEFAULTS: dict[Role, list[Step]] = {Role.VERIFY: [{"pass_all": True}]}

#: Imported, because a program that is run by path is compiled anew each time.
_PLAY = "import sys; sys.path.append(sys.argv[1]); import script_player; script_player.main(sys.argv[2])"

_EVENT = b'{"runplan":'


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
    """The player with the steps of this dispatch, which are written beside its other files."""
    path = task.root / table.script
    steps = [_resolved(step, task.root) for step in steps_for(_parsed(path), task, origin=str(path))]
    chosen = task.directory / "steps"
    publish(chosen, marshal.dumps(steps), sync=False)
    # Neither site-packages nor the environment concern the player: -I -S saves a third of its start.
    return (sys.executable, "-I", "-S", "-c", _PLAY, str(Path(script_player.__file__).parent), str(chosen))


def check(path: Path) -> None:
    """Refuse a script that could not be played, whatever phase and role it is asked for."""
    for phase, roles in _phases(_parsed(path), str(path)).items():
        for role, steps in roles.items():
            _checked(steps, f'{path}: [[phase."{phase}".{role}]]')


def _phases(script: dict[str, object], origin: str) -> dict[str, dict[str, object]]:
    phases = script.get("phase", {})
    shaped = isinstance(phases, dict) and all(isinstance(roles, dict) for roles in phases.values())
    if not shaped or set(script) - {"phase"}:
        raise SettingsError(f'{origin}: a script holds [[phase."<id>".<role>]] tables only')
    return cast("dict[str, dict[str, object]]", phases)


def steps_for(script: dict[str, object], task: Task, *, origin: str) -> list[Step]:
    """The steps for the phase and the role: `verify2` before `verify` in cycle 2, the phase before "*"."""
    phases = _phases(script, origin)
    for phase in (task.phase, "*"):
        roles = phases.get(phase, {})
        for role in (f"{task.role}{task.cycle}", str(task.role)):
            if role in roles:
                return _checked(roles[role], f'{origin}: [[phase."{phase}".{role}]]')
    return DEFAULTS.get(task.role, [])


def read(line: bytes) -> tuple[AgentEvent, ...]:
    """The player's own events; every other line is a piece of the message."""
    if line.startswith(_EVENT):
        try:
            event = json.loads(line)
            if event["runplan"] == "tell":
                return _told(event["told"])
            return (ToolUsed(tool=str(event["tool"]), path=str(event["path"])),)
        except (ValueError, KeyError, TypeError):
            pass
    return (Message(text=line.decode(errors="replace") + "\n"),)


def _told(told: dict[str, Any]) -> tuple[AgentEvent, ...]:
    """What a `tell` step says: a trouble, the context, or what was used."""
    events: list[AgentEvent] = []
    if "trouble" in told:
        kind, words = TroubleKind(told["trouble"]), str(told.get("words", ""))
        events.append(Trouble(kind=kind, words=words, resets=float(count(told, "resets")) or None))
    if "context" in told:
        events.append(Context(tokens=count(told, "context"), window=count(told, "window")))
    if "tokens" in told or "usd" in told:
        events.append(Spent(usage=Usage(input_tokens=count(told, "tokens"), usd=money(told, "usd"))))
    return tuple(events)


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
        if len(set(step) & set(script_player.STEPS)) != 1:
            known = ", ".join(sorted(script_player.STEPS))
            raise SettingsError(f"{origin}: step {number} ({', '.join(step)}): needs exactly one of {known}")
        if unknown := set(step) - set(script_player.STEPS) - script_player.MODIFIERS:
            known = ", ".join(sorted(script_player.MODIFIERS))
            raise SettingsError(f"{origin}: step {number}: unknown {', '.join(sorted(unknown))}; there are {known}")
    return steps


def _resolved(step: Step, root: Path) -> Step:
    resolved = {key: _in_main(value, root) if key in PATHS else value for key, value in step.items()}
    return {**resolved, "in_main": str(root)} if step.get("in_main") else resolved


def _in_main(value: object, root: Path) -> object:
    if isinstance(value, str) and value.startswith("main:"):
        return str(root / value.removeprefix("main:"))
    return value
