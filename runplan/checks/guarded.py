"""Finds changes to the files that the test command runs.

The rule is textual; nothing is expanded or executed. The command mentions scripts, targets of make and scripts of
package.json. Each of them is guarded, and so is everything that its own text mentions. A guarded part may not change,
except that a list of paths or prerequisites may grow.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks import testfiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    Read: TypeAlias = Callable[[str], str | None]
    Key: TypeAlias = tuple[str, str, str]  # path, kind, name

_SEPARATORS = re.compile(r"[;&|(){}\n`]+|\$\(")
_WORD = re.compile(r"[^\s\"';&|(){}`<>]+")
_MENTION = re.compile(r"[\w.%/:@+-]+")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "source", ".")
_INTERPRETERS = (*_SHELLS, "node", "deno", "tsx", "ts-node", "ruby", "perl", "php", "lua")
_SCRIPT = re.compile(r"\.(?:sh|bash|zsh|py|[cm]?[jt]s|rb|pl|php)$")
_SHEBANG = re.compile(r"#!.*\b(?:sh|bash|dash|zsh|ksh)\b")
_PACKAGERS = ("npm", "yarn", "pnpm", "bun")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")  # in make's order
#: Names that change what every recipe does.
_SPECIAL = (
    *("SHELL", ".SHELLFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", "MAKE"),
    *(".RECIPEPREFIX", ".ONESHELL", ".IGNORE", ".PHONY", ".DEFAULT_GOAL"),
)
_DEFINITION = re.compile(r"(?:\w+ )*define (\S+)")
_VARIABLE = re.compile(r"(?:(?:export|override|private) )*([^\s:#=+?!]+) ?(?:[+?!]|:{1,3})?=")
_RULE = re.compile(r"([^:=]+?) ?::?(?!=)")
_FOLDER = re.compile(r"(?<!\S)(?:-C ?|--(?:directory|prefix|dir|cwd)[= ])(\S+)")
_MAKEFILE = re.compile(r"(?<!\S)(?:-f ?|--(?:make)?file[= ])(\S+)")
_DEEPEST = 6  #: files that lead to files
_MOST_COMMANDS, _MOST_WORDS = 2_000, 500  #: of one text, and of one command
_MOST_LINES = 1_000  #: of a script that are read for mentions


class Part(Struct, frozen=True):
    """One thing that the test command runs, or that decides how."""

    what: str  #: for people
    lines: tuple[tuple[int, str], ...]  #: number and text

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.lines)


def weakened(command: str, before: Read, after: Read) -> list[tuple[str, int, str]]:
    """The guarded parts that differ in the tree `after`: path, line, and the difference in words."""
    was, now = _Collector(before, command).parts, _Collector(after, command).parts
    mentioned = {word for part in was.values() for text in part.texts for word in _MENTION.findall(text)}
    reached = {name for _, _, name in was}
    found = [
        (key[0], *difference)
        for key, part in was.items()
        if key in now and (difference := _difference(part, now[key], reached))
    ]
    # Most additions are harmless, unless they change what an existing part does.
    found += (
        (key[0], part.lines[0][0], f"{part.what} was added")
        for key, part in now.items()
        if key not in was and was and part.lines and _decides(key, mentioned)
    )
    # The parts that a changed or removed one mentioned may be gone with it.
    gone = [(key, part) for key, part in was.items() if key not in now]
    if gone and not found:
        (path, kind, _), part = gone[0]
        line = 0 if kind == "file" or not part.lines else part.lines[0][0]
        found.append((path, line, f"{part.what}, which the test command runs, was removed"))
    return found


def _decides(key: Key, mentioned: set[str]) -> bool:
    _, kind, name = key
    if kind == "directive":
        return re.match(r"[-s]?include\b|export\b|.*\$[({]eval\b", name) is not None
    return kind == "make" and (name in mentioned or name in _SPECIAL)


def _difference(was: Part, now: Part, reached: set[str]) -> tuple[int, str] | None:
    lines = zip(was.texts, now.lines, strict=False)
    changed = [line for old, (line, new) in lines if not _may_become(old, new, reached)]
    longer = now.lines[len(was.lines) :] or was.lines[len(now.lines) :]
    changed += [line for line, _ in longer]
    return (changed[0], f"{was.what}, which the test command runs, was changed") if changed else None


def _may_become(old: str, new: str, reached: set[str]) -> bool:
    """Whether the line is the same, or a list of paths or prerequisites that only grew."""
    if old == new:
        return True
    is_rule, is_list = re.match(r"[^\t=]*:(?!=)", old), re.match(r"[\w.-]+ *[:+?]?= *\S", old)
    before, after = old.split(), new.split()
    gone = [word for word in before if word not in after]
    if old.startswith(".PHONY:"):
        return not reached.intersection(gone)
    if old.startswith("\t") or gone or not (is_rule or is_list) or before[0] != after[0]:
        return False
    added = [word for word in after if word not in before]
    plain = re.compile(r"[\w.%/+-]+") if is_rule else re.compile(r"(?!-)[\w%+-]*[./][\w.%/+-]*")
    kept = () if is_rule else before[2:] if before[1].endswith("=") else before[1:]
    return all(plain.fullmatch(word) for word in (*added, *kept))


class _Collector:
    def __init__(self, read: Read, command: str) -> None:
        self._read = read
        self.parts: dict[Key, Part] = {}
        self._made: set[tuple[str, ...]] = set()  #: Makefiles with their goals
        self._text(command, "", 0)

    def _text(self, text: str, folder: str, depth: int) -> None:
        """Follow the mentions of a command line, a recipe or a shell script."""
        if depth > _DEEPEST:
            return
        joined = text.replace("\\\n", " ").replace("$(MAKE)", "make").replace("${MAKE}", "make")
        lines = [line for line in joined.splitlines() if not line.lstrip().startswith("#")]
        for simple in _SEPARATORS.split("\n".join(lines[:_MOST_LINES]), maxsplit=_MOST_COMMANDS):
            words = _WORD.findall(simple)[:_MOST_WORDS]
            program = ""  #: the last word that is no option
            for at, word in enumerate(words):
                base = word.lstrip("@-+").rpartition("/")[2]
                rest = " ".join(words[at + 1 :])
                if word == "cd" and rest:
                    # `cd "$(dirname "$0")"` most often leads to where the command began.
                    folder = folder if "$" in words[at + 1] else _join(folder, words[at + 1])
                elif base in ("make", "gmake"):
                    self._make(rest, folder, depth)
                elif base in _PACKAGERS:
                    self._package(rest, folder, depth)
                elif program.startswith("python") and words[at - 1] == "-m":
                    module = word.replace(".", "/")
                    self._script(f"{module}.py", folder, depth)
                    self._script(f"{module}/__main__.py", folder, depth)
                elif "/" in word or program in _INTERPRETERS or _SCRIPT.search(word):
                    self._script(word, folder, depth)
                program = program if word.startswith("-") else base

    def _script(self, word: str, folder: str, depth: int) -> None:
        path = _join(folder, word.lstrip("@"))
        text = None if (path, "file", "") in self.parts or "$" in path else self._read(path)
        has_extension = "." in path.rpartition("/")[2]
        if text is None or (has_extension and not _SCRIPT.search(path)):
            return
        if testfiles.is_test(path):
            from runplan.checks import testcode  # 10 ms to import

            if testcode.parse(text, path).cases:
                return  # the rules for tests guard it
        numbered = ((number, line.rstrip()) for number, line in enumerate(text.splitlines(), 1) if line.strip())
        self.parts[path, "file", ""] = Part("the script", tuple(numbered))
        is_shell = not has_extension or path.endswith("sh")
        if "\0" not in text and (_SHEBANG.match(text) if text.startswith("#!") else is_shell):
            self._text(text, folder, depth + 1)

    def _package(self, arguments: str, folder: str, depth: int) -> None:
        folder, rest = _option(_FOLDER, arguments, folder)
        names = [word for word in _names(rest) if word not in ("run", "run-script")][:1]
        path = _join(folder, "package.json")
        text = self._read(path) or ""
        scripts = package_table(text, "scripts")
        waiting = ["test" if name in ("t", "tst") else name for name in names]
        for name in waiting:
            for one in (f"pre{name}", name, f"post{name}"):
                if one in scripts and (path, "script", one) not in self.parts:
                    place = re.search(rf"{re.escape(json.dumps(one))}\s*:", text[text.find('"scripts"') :])
                    at = text.find('"scripts"') + (place.start() if place else 0)
                    line = text.count("\n", 0, at) + 1
                    self.parts[path, "script", one] = Part(f'the script "{one}"', ((line, scripts[one]),))
                    self._text(scripts[one], folder, depth + 1)
                    waiting += (word for word in _MENTION.findall(scripts[one]) if word in scripts)

    def _make(self, arguments: str, folder: str, depth: int) -> None:
        folder, rest = _option(_FOLDER, arguments, folder)
        file, rest = _option(_MAKEFILE, rest, folder)
        names = [file] if file != folder else [_join(folder, name) for name in _MAKEFILES]
        path = next((name for name in names if self._read(name) is not None), "")
        entries: dict[str, _Entry] = {}
        self._read_makefile(path, folder, entries, 0)
        targets = [name for name, entry in entries.items() if entry.kind == "target"]
        goals = _names(rest)
        if (path, *goals) in self._made or (goals and not any(goal in targets for goal in goals)):
            return
        self._made.add((path, *goals))
        waiting = goals or [name for name in targets if name[0] != "." and "%" not in name][:1]
        waiting += (*_SPECIAL, *(name for name, entry in entries.items() if entry.kind == "directive"))
        for name in waiting:
            if (entry := entries.pop(name, None)) is None:
                continue
            kind = "directive" if entry.kind == "directive" else "make"
            self.parts[entry.path, kind, name] = Part(f"`{name}`", tuple(entry.lines))
            for _, text in entry.lines:
                waiting += (word for word in _MENTION.findall(text) if word in entries)
            self._text("\n".join(text.lstrip("\t@-+ ") for _, text in entry.lines), folder, depth + 1)

    def _read_makefile(self, path: str, folder: str, entries: dict[str, _Entry], depth: int) -> None:
        """Add the rules, variables and other lines of a Makefile and of those that it includes, by their names."""
        current: list[_Entry] = []
        is_definition = False
        for number, line in _logical_lines(self._read(path) or ""):
            plain = " ".join(re.sub(r"(?<!\\)#.*", "", line).split())
            is_definition = is_definition and plain != "endef"
            if plain and current and (line.startswith("\t") or is_definition):
                for entry in current:
                    entry.lines.append((number, f"\t{plain}"))
            elif plain:
                definition, variable = _DEFINITION.match(plain), _VARIABLE.match(plain)
                rule = None if definition or variable else _RULE.match(plain)
                named = definition or variable
                kind = "target" if rule else "variable" if named else "directive"
                names = rule[1].split() if rule else [named[1] if named else plain]
                current = [entries.setdefault(name, _Entry(path, kind, [])) for name in names]
                for entry in current:
                    entry.lines.append((number, plain))
                    entry.kind = kind if rule else entry.kind  # a variable may have the name of a target
                is_definition = definition is not None
                if included := re.match(r"[-s]?include (.+)", plain):
                    for name in included[1].split() if depth < _DEEPEST else ():
                        self._read_makefile(_join(folder, name), folder, entries, depth + 1)


class _Entry(Struct):
    """The rules of a target with their recipes, the assignments of a variable, or another line of a Makefile."""

    path: str
    kind: str  #: "target", "variable" or "directive"
    lines: list[tuple[int, str]]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; lines that a backslash continues are one."""
    whole, first = "", 1
    for number, line in enumerate((*text.splitlines(), ""), 1):
        first = first if whole else number
        if line.endswith("\\"):
            whole += line[:-1] + " "
        else:
            yield first, whole + line
            whole = ""


def _option(option: re.Pattern[str], arguments: str, folder: str) -> tuple[str, str]:
    """The path that the option names, else the folder; and the other arguments."""
    named = option.findall(arguments)
    return _join(folder, named[-1]) if named else folder, option.sub("", arguments)


def _names(arguments: str) -> list[str]:
    return [word for word in arguments.split() if word[0] != "-" and "=" not in word and not word.isdigit()]


def _join(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name)).removeprefix("./")


def package_table(text: str, name: str) -> dict[str, str]:
    """A table of a package.json, such as its scripts; empty if there is none."""
    try:
        table = json.loads(text.removeprefix("\ufeff"))[name]
        return {str(key): value for key, value in table.items() if isinstance(value, str)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
