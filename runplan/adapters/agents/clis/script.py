"""The `script` agent: plays the steps that a TOML file has for a phase and a role (docs/agents.md).

The steps become a shell script when the agent is started: a shell starts in a millisecond.
"""

import contextlib
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from shlex import join, quote
from typing import Any, TypeAlias

from msgspec import Struct, ValidationError

from runplan.adapters.agents.adapter import Agent, JsonObject, Task, get_count, get_number
from runplan.adapters.store.files import publish, read_text
from runplan.domain.decoding import convert
from runplan.domain.errors import SettingsError
from runplan.domain.run.dispatch import AgentEvent, Context, EndingKind, Message, Quota, Spent, ToolUsed, Trouble, Usage
from runplan.domain.run.kinds import Role

Step: TypeAlias = dict[str, Any]
FAILED = 70  #: exit code of a step that cannot be played
BOUND_S = 60.0  #: how long `wait_for` waits
LOOK_S = 0.02  #: how often it looks
_LOOK = f"n=$((n + 1)); test $n -lt {int(BOUND_S / LOOK_S)} || break; sleep {LOOK_S}"
#: Keys whose value is a path; "main:" before it means the main checkout.
PATHS = ("write", "append", "delete", "hear", "wait_for", "once")
#: Keys that a step may have besides the one that names it.
MODIFIERS = frozenset(("text", "date", "all", "summary", "evidence", "demanded_by", "once"))
#: A file of a diff, also an empty one, and whether it is gone.
_CHANGED = re.compile(r"^diff --git a/.+ b/(.+)\n(deleted)?", re.MULTILINE)
_LISTED = re.compile(r"^- (.+): \+\d+ -\d+, lines \d+ to \d+$", re.MULTILINE)  #: a file of a diff that is too large
_TOOL = b"runplan:tool "
#: Waits for the next message, and prints it as JSON.
_HEAR = 'test "$prompt" || IFS= read -r prompt <&3; IFS= read -r heard <&3 && printf "%s\\n" "$heard"'
_TELL = b"runplan:tell "


class Script(Agent):
    reports_quota = True

    def build_argv(self, task: Task) -> tuple[str, ...]:
        """A shell with the steps of this dispatch. A step fails as a whole; one with `once` is played by one agent."""
        script = task.directory / "steps.sh"
        # Steps read the prompt; the messages of a person, of which the first one is the prompt, are for `hear`.
        lines = [
            'exec 3<&0 <"$RUNPLAN_PROMPT"',
            f"main={quote(str(task.root))}",
            'tool() { printf \'runplan:tool %s %s\\n\' "$1" "$2"; }',
        ]
        played = load_script(task.root / task.table.script).phase
        # `verify2` before `verify` in cycle 2, the phase before "*"; a verifier without any passes all.
        roles = product((task.phase, "*"), (f"{task.role}{task.cycle}", str(task.role)))
        given = (played[phase][role] for phase, role in roles if role in played.get(phase, {}))
        passing: list[Step] = [{"pass_all": True}] if task.role is Role.VERIFY else []
        for step in next(given, passing):
            in_main = [key for key in PATHS if str(step.get(key, "")).startswith("main:")]
            step |= {key: str(task.root / step[key].removeprefix("main:")) for key in in_main}
            name = next(key for key in step if key in STEPS)
            label = quote(f"script: {name} = {str(step[name])[:200]!r} failed")
            command = f"{{ {STEPS[name](step[name], step, task)}\n}} || {{ echo {label} >&2; exit {FAILED}; }}"
            once = f"if (set -C; : >{quote(step['once'])}) 2>/dev/null; then {command}; fi" if "once" in step else ""
            lines.append(once or command)
        publish(script, "\n".join([*lines, ""]).encode(errors="surrogateescape"), sync=False)
        return ("/bin/sh", str(script))

    def encode_message(self, text: str) -> bytes:
        return json.dumps(text).encode() + b"\n"

    def read_line(self, line: bytes) -> tuple[AgentEvent, ...]:
        """The events of the steps; every other line is a part of the message."""
        if line.startswith(_TOOL):
            tool, _, about = line.removeprefix(_TOOL).decode(errors="replace").partition(" ")
            is_command = tool in ("git", "run")
            return (ToolUsed(tool=tool, path="" if is_command else about, detail=about if is_command else ""),)
        if line.startswith(_TELL):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return tuple(_read_report(json.loads(line.removeprefix(_TELL))))
        return (Message(text=line.decode(errors="replace") + "\n"),)


AGENT = Script()


def _file_command(tool: str, path: str, command: str) -> str:
    """A command on a file. It is reported, and `$@` keeps it for the next commit."""
    if path.startswith("/"):
        return f"tool {tool} {quote(path)}; {command}"
    return f'tool {tool} "$PWD"/{quote(path)}; set -- "$@" {quote(path)}; {command}'


def _save_file(path: str, step: Step, *, redirect: str = ">") -> str:
    folder = quote(posixpath.dirname(path) or ".")
    return f"mkdir -p {folder} && {_print_text(step.get('text', ''))} {redirect}{quote(path)}"


def _print_text(text: str) -> str:
    return f"printf %s {quote(text)}"


def _write_return(value: object) -> str:
    return f'{_print_text(json.dumps(value))} >"$RUNPLAN_RETURN"'


def _commit_files(message: str, step: Step) -> str:
    """Commit the files that the script touched, or everything; without changes nothing happens."""
    date = quote(step.get("date", ""))
    dated = f"GIT_AUTHOR_DATE={date} GIT_COMMITTER_DATE={date} " if "date" in step else ""
    paths, condition = ("", ":") if step.get("all") else (' -- "$@"', "test $# -gt 0")
    commit = f"git add -A{paths} && {{ {dated}git commit -q -m {quote(message)} >/dev/null || test $? -eq 1; }}"
    return f"if {condition}; then {commit} && set --; fi"


def _write_verdict(failed: list[str], step: Step, task: Task) -> str:
    """Answer for every line `- W1: text` under the heading `## Items` of the prompt; the evidence is its diff."""
    prompt = "\n" + (read_text(task.prompt) or "")
    section = prompt.partition("\n## Items")[2].partition("\n## ")[0]
    entries = [line[2:].partition(":") for line in section.splitlines() if line.startswith("- ")]
    seen = [{"kind": "file", "ref": path, "gone": bool(gone)} for path, gone in _CHANGED.findall(prompt)]
    seen += [{"kind": "file", "ref": path} for path in _LISTED.findall(prompt)]
    items = []
    for name in (item.strip() for item, colon, _ in entries if colon):
        result, evidence = ("fail", "played by `script`") if name in failed else ("pass", seen)
        answer = {"item": name, "result": result, "evidence": step.get("evidence", evidence)}
        items.append(answer | {key: step[key] for key in ("demanded_by",) if key in step})
    summary = step.get("summary", "Looked at every item.")
    return _write_return({"status": "done", "summary": summary, "items": items})


STEPS: dict[str, Callable[[Any, Step, Task], str]] = {
    "write": lambda path, step, _: _file_command("write", path, _save_file(path, step)),
    "append": lambda path, step, _: _file_command("append", path, _save_file(path, step, redirect=">>")),
    "delete": lambda path, _, __: _file_command("delete", path, f"rm -- {quote(path)}"),
    "commit": lambda message, step, _: _commit_files(message, step),
    "git": lambda arguments, _, __: f"tool git {quote(' '.join(join(arguments).split()))}; git {join(arguments)}",
    "run": lambda command, _, __: f"tool run {quote(' '.join(command.split()))}; {command}",
    "say": lambda text, _, __: _print_text(f"{text}\n"),
    "tell": lambda event, _, __: _print_text(f"{_TELL.decode()}{json.dumps(event)}\n"),
    "return": lambda value, _, __: _write_return(value),
    "pass_all": lambda _, step, task: _write_verdict([], step, task),
    "fail": _write_verdict,
    "hear": lambda path, _, __: f"{_HEAR} >>{quote(path)}",
    "sleep": lambda seconds, _, __: f"sleep {seconds}",
    "wait_for": lambda path, _, __: f"n=0; until test -e {quote(path)}; do {_LOOK}; done; test -e {quote(path)}",
    "exit": lambda code, _, __: f"exit {code}",
}


class ScriptFile(Struct, forbid_unknown_fields=True):
    phase: dict[str, dict[str, list[Step]]] = {}  #: steps by phase and role


def load_script(path: Path) -> ScriptFile:
    """The script; refused when it cannot be played for some phase and role."""
    try:
        script = convert(tomllib.loads(path.read_text(encoding="utf-8")), ScriptFile)
    except ValidationError as error:
        raise SettingsError(f'{path}: a script has only [[phase."<id>".<role>]] tables: {error}') from None
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: {error}; see [agents] in runplan.toml") from None
    for phase, roles in script.phase.items():
        for role, steps in roles.items():
            origin = f'{path}: [[phase."{phase}".{role}]]'
            for number, step in enumerate(steps, 1):
                if step.keys() - STEPS.keys() - MODIFIERS or len(step.keys() & STEPS.keys()) != 1:
                    known = f"exactly one of {', '.join(sorted(STEPS))}, and of {', '.join(sorted(MODIFIERS))}"
                    raise SettingsError(f"{origin}: step {number} ({', '.join(step)}): needs {known}")
    return script


def _read_report(event: JsonObject) -> Iterator[AgentEvent]:
    """The events of a `tell` step: a trouble, the context, or usage."""
    if "trouble" in event:
        kind = EndingKind(str(event["trouble"]))
        yield Trouble(kind=kind, words=str(event.get("words", "")), resets=float(get_count(event, "resets")) or None)
    if "quota" in event:
        yield Quota(percent=get_count(event, "quota"), resets=float(get_count(event, "resets")) or None)
    if "context" in event:
        yield Context(tokens=get_count(event, "context"), window=get_count(event, "window"))
    if "tokens" in event or "usd" in event:
        yield Spent(usage=Usage(input_tokens=get_count(event, "tokens"), usd=get_number(event, "usd")))
