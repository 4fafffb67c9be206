"""The script of a model as plain data, and its translation to the tools that a program offers."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

KEY = "sk-scripted-0123456789abcdef"  #: the key the server asks for; no provider's

#: The prompt names the place of work; programs want absolute paths.
_WORKTREE = re.compile(r"^- Worktree: (.+?)\s*$|\*\*read-only\*\*\sin\s(/.+?): ", re.MULTILINE)
#: A program whose model ends its work by a command, and nothing else, says so with these words.
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

TREE = "TREE"
#: In structured content, which a program may quote, and in text.
_TREE = re.compile(r"""tree\\*"?: *\\*"?([0-9a-f]{40,64})""")


@dataclass(frozen=True, slots=True)
class Say:
    """Words, and nothing to do: the turn ends."""

    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """A command for the shell."""

    command: str


@dataclass(frozen=True, slots=True)
class Write:
    """A new file, its path seen from the place of work."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Read:
    """A file to be read, its path seen from the place of work."""

    path: str


@dataclass(frozen=True, slots=True)
class Use:
    """A tool by its name; of the arguments it gets those that it knows."""

    name: str
    given: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Serve:
    """A tool of the MCP server `runplan`, whatever name the program gives it; TREE is the newest one it has shown."""

    tool: str
    given: Mapping[str, Any]

    def arguments(self, asked: "Asked") -> dict[str, Any]:
        trees = [match[1] for text in asked.results if (match := _TREE.search(text))]
        return {name: trees[-1] if value is TREE and trees else value for name, value in self.given.items()}


@dataclass(frozen=True, slots=True)
class Judge:
    """Words that depend on what was heard so far: `found` if it holds the fault, else `missed`."""

    fault: str
    found: str
    missed: str

    def words(self, asked: "Asked") -> Say:
        return Say(self.found if any(self.fault in each.text for each in asked.heard) else self.missed)


Turn: TypeAlias = Say | Run | Write | Read | Use | Serve | Judge


class FaultKind(StrEnum):
    """A fault of the provider, instead of its answer or with it."""

    LIMIT = "limit"  #: 429, the quota is used up, with the time it resets
    OVERLOAD = "overload"  #: 529 or 503
    AUTH = "auth"  #: 401 although the key is right
    HANG = "hang"  #: takes the request and never answers
    STALL = "stall"  #: begins an answer and falls silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of trouble, at a turn, or everywhere."""

    kind: FaultKind
    turn: int | None = None  #: from 0; None for any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Turns by the words a prompt begins with, and what goes wrong."""

    parts: Mapping[str, tuple[Turn, ...]]
    faults: tuple[Fault, ...] = ()
    tokens: tuple[int, int] = (1_000, 20)  #: in and out, reported with every answer
    small: str = ""  #: the part whose answers report a tenth of that
    resets_in: int = 3_600  #: seconds until a limit ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool to be used; `given` is text for a tool that takes no arguments by name."""

    id: str
    name: str
    given: dict[str, Any] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One turn of the model, in no provider's form yet."""

    text: str
    call: Call | None = None
    tokens: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One piece of a conversation."""

    role: str  #: system, user, model or tool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request to the model, in no provider's form any more."""

    model: str
    stream: bool
    heard: tuple[Heard, ...]
    tools: Mapping[str, dict[str, Any]] = field(default_factory=dict)  #: schema of the arguments by name
    form: dict[str, Any] | None = None  #: the schema the answer has to keep to

    @property
    def results(self) -> tuple[str, ...]:
        """The output of the tools so far."""
        return tuple(each.text for each in self.heard if each.role == "tool")

    def place(self, parts: Mapping[str, tuple[Turn, ...]]) -> tuple[str, int]:
        """The part whose words the prompt holds, and which turn of it is due; ("", 0) for another request."""
        for at in range(len(self.heard) - 1, -1, -1):
            found = next((part for part in parts if part in self.heard[at].text), "")
            if found and self.heard[at].role in ("user", "system"):
                return found, _turns(self.heard[at + 1 :])
        return "", 0

    @property
    def worktree(self) -> str:
        """Where the prompt sends the agent."""
        found = [match[1] or match[2] for each in self.heard for match in _WORKTREE.finditer(each.text)]
        return found[-1].strip("`") if found else ""


def _turns(heard: tuple[Heard, ...]) -> int:
    """How often the model has had its turn: what it said in one go counts once."""
    roles = [each.role for each in heard]
    return sum(role == "model" and (not at or roles[at - 1] != "model") for at, role in enumerate(roles))


#: Where each known tool takes what it is given.
_SHELLS = {
    "Bash": "command",
    "bash": "command",
    "run_shell_command": "command",
    "exec_command": "cmd",
    "shell_command": "command",
}
_WRITERS = {"Write": ("file_path", "content"), "write_file": ("file_path", "content"), "write": ("filePath", "content")}
_READERS = ("Read", "read_file", "read")
_FILE = ("file_path", "filePath", "absolute_path", "path")
_PATCH = "apply_patch"
_BLANKS: dict[str, Any] = {"string": "scripted", "boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}


def answer(turn: Turn, asked: Asked, known: Mapping[str, dict[str, Any]], *, id: str) -> Answer:
    """The turn with a tool the program offers, or, when it offers none for it, one that it has offered before."""
    turn = turn.words(asked) if isinstance(turn, Judge) else turn
    match turn:
        case Say(text=text) if any(SUBMIT in each.text for each in asked.heard):
            command = f"echo {SUBMIT} && echo {shlex.quote(text)}"
            return Answer(text=text, call=_shell(command, asked, known, id))
        case Say(text=text):
            return Answer(text=text)
        case Run(command=command):
            call = _shell(command, asked, known, id)
        case Write(path=path, text=text):
            call = _write(path, text, asked, known, id)
        case Read(path=path):
            call = _read(path, asked, known, id)
        case Use(name=name, given=given):
            schema = known.get(name, {})
            known_given = {key: value for key, value in given.items() if key in schema.get("properties", given)}
            call = Call(id=id, name=name, given=_filled(schema, known_given))
        case Serve(tool=tool):
            name = next((name for name in asked.tools if name.endswith((f"runplan__{tool}", f"runplan_{tool}"))), tool)
            call = Call(id=id, name=name, given=turn.arguments(asked))
    return Answer(text="Working on it.", call=call)


def prose(turns: tuple[Turn, ...], asked: "Asked") -> Answer:
    """All turns in one answer, for a program that gives its model no tools and reads files out of its words."""
    said = []
    for turn in turns:
        match turn.words(asked) if isinstance(turn, Judge) else turn:
            case Say(text=text):
                said.append(text)
            case Write(path=path, text=text):
                said.append(f"{path}\n```\n<<<<<<< SEARCH\n=======\n{text}>>>>>>> REPLACE\n```")
            case Run() | Read() | Use() | Serve():
                pass
    return Answer(text="\n\n".join(said))


def _shell(command: str, asked: Asked, known: Mapping[str, dict[str, Any]], id: str) -> Call:
    for tools in (asked.tools, known):
        for name, argument in _SHELLS.items():
            if name in tools:
                return Call(id=id, name=name, given=_filled(tools[name], {argument: command}))
    return Call(id=id, name="run_shell_command", given={"command": command})  # not offered: it is refused


def _write(path: str, text: str, asked: Asked, known: Mapping[str, dict[str, Any]], id: str) -> Call:
    place = f"{asked.worktree}/{path}"
    for tools in (asked.tools, known):
        for name, (where, what) in _WRITERS.items():
            if name in tools:
                return Call(id=id, name=name, given=_filled(tools[name], {where: place, what: text}))
        if _PATCH in tools:
            lines = "".join(f"+{line}\n" for line in text.splitlines())
            patch = f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"
            return Call(id=id, name=_PATCH, given={"input": patch} if tools[_PATCH] else patch)
    return _shell(f"printf %s {shlex.quote(text)} > {shlex.quote(place)}", asked, known, id)


def _read(path: str, asked: Asked, known: Mapping[str, dict[str, Any]], id: str) -> Call:
    """By the tool that reads files, else by the shell: only of tools that are offered now."""
    place = f"{asked.worktree}/{path}"
    for name in _READERS:
        if name in asked.tools:
            argument = next(each for each in _FILE if each in asked.tools[name].get("properties", {}))
            return Call(id=id, name=name, given=_filled(asked.tools[name], {argument: place}))
    return _shell(f"cat {shlex.quote(place)}", asked, known, id)


def _filled(schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """With something harmless for everything else the tool insists on."""
    properties = schema.get("properties", {})
    needed = [name for name in schema.get("required", []) if name not in given]
    return given | {name: _BLANKS.get(str(properties.get(name, {}).get("type", "")).lower(), "x") for name in needed}


def filled_form(schema: dict[str, Any]) -> dict[str, Any]:
    """An answer that keeps to a schema: its first choices, and something harmless for the rest."""
    made: dict[str, Any] = {}
    for name, field_schema in schema.get("properties", {}).items():
        made[name] = (
            field_schema["enum"][0]
            if field_schema.get("enum")
            else _BLANKS.get(str(field_schema.get("type", "")).lower(), "x")
        )
    return made
