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

from runplan.checks import testcode, testfiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
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


class Weakened(Struct, frozen=True):
    path: str
    line: int
    detail: str


def weakened(command: str, before: Read, after: Read) -> tuple[Weakened, ...]:
    """The guarded parts that differ in the tree `after`."""
    was, now = _Collector(before).collect(command), _Collector(after).collect(command)
    mentioned = {word for part in was.values() for text in part.texts for word in _MENTION.findall(text)}
    reached = {name for _, _, name in was}
    found = [
        Weakened(key[0], *difference)
        for key, part in was.items()
        if key in now and (difference := _difference(part, now[key], reached))
    ]
    # Most additions are harmless, unless they change what an existing part does.
    found += (
        Weakened(key[0], part.lines[0][0], f"{part.what} was added")
        for key, part in now.items()
        if key not in was and was and part.lines and _decides(key, mentioned)
    )
    # The parts that a changed or removed one mentioned may be gone with it.
    gone = [(key, part) for key, part in was.items() if key not in now]
    if gone and not found:
        (path, kind, _), part = gone[0]
        line = 0 if kind == "file" or not part.lines else part.lines[0][0]
        found.append(Weakened(path, line, f"{part.what}, which the test command runs, was removed"))
    return tuple(found)


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
    def __init__(self, read: Read) -> None:
        self._read = read
        self._parts: dict[Key, Part] = {}
        self._made: set[tuple[str, ...]] = set()  #: Makefiles with their goals

    def collect(self, command: str) -> dict[Key, Part]:
        self._text(command, "", 0)
        return self._parts

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
                if word == "cd" and words[at + 1 : at + 2]:
                    # `cd "$(dirname "$0")"` most often leads to where the command began.
                    folder = folder if "$" in words[at + 1] else _join(folder, words[at + 1])
                elif base in ("make", "gmake"):
                    self._make(words[at + 1 :], folder, depth)
                elif base in _PACKAGERS:
                    self._package(words[at + 1 :], folder, depth)
                elif program.startswith("python") and words[at - 1] == "-m":
                    module = word.replace(".", "/")
                    self._script(f"{module}.py", folder, depth)
                    self._script(f"{module}/__main__.py", folder, depth)
                elif "/" in word or program in _INTERPRETERS or _SCRIPT.search(word):
                    self._script(word, folder, depth)
                program = program if word.startswith("-") else base

    def _script(self, word: str, folder: str, depth: int) -> None:
        path = _join(folder, word.lstrip("@"))
        text = None if (path, "file", "") in self._parts or "$" in path else self._read(path)
        has_extension = "." in path.rpartition("/")[2]
        if text is None or (has_extension and not _SCRIPT.search(path)):
            return
        if testfiles.is_test(path) and testcode.parse(text, path).cases:
            return  # the rules for tests guard it
        numbered = ((number, line.rstrip()) for number, line in enumerate(text.splitlines(), 1) if line.strip())
        self._parts[path, "file", ""] = Part("the script", tuple(numbered))
        is_shell = not has_extension or path.endswith("sh")
        if "\0" not in text and (_SHEBANG.match(text) if text.startswith("#!") else is_shell):
            self._text(text, folder, depth + 1)

    def _package(self, arguments: Sequence[str], folder: str, depth: int) -> None:
        options, words = _options(arguments, ("-C", "--prefix", "--dir", "--cwd"))
        folder = _join(folder, options[-1]) if options else folder
        names = [word for word in words if word not in ("run", "run-script")][:1]
        path = _join(folder, "package.json")
        text = self._read(path) or ""
        scripts = package_scripts(text)
        waiting = ["test" if name in ("t", "tst") else name for name in names]
        for name in waiting:
            for one in (f"pre{name}", name, f"post{name}"):
                if one in scripts and (path, "script", one) not in self._parts:
                    line = _line_of_script(text, one)
                    self._parts[path, "script", one] = Part(f'the script "{one}"', ((line, scripts[one]),))
                    self._text(scripts[one], folder, depth + 1)
                    waiting += (word for word in _MENTION.findall(scripts[one]) if word in scripts)

    def _make(self, arguments: Sequence[str], folder: str, depth: int) -> None:
        folders, words = _options(arguments, ("-C", "--directory"))
        files, goals = _options(words, ("-f", "--file", "--makefile"))
        folder = _join(folder, folders[-1]) if folders else folder
        names = [_join(folder, name) for name in files or _MAKEFILES]
        path = next((name for name in names if self._read(name) is not None), "")
        entries = list(self._entries(path, folder, 0))
        targets = [name for entry in entries if entry.is_rule for name in entry.names]
        goals = [goal for goal in goals if "=" not in goal and not goal.isdigit()]
        if (path, *goals) in self._made or (goals and not any(goal in targets for goal in goals)):
            return
        self._made.add((path, *goals))
        waiting = goals or [name for name in targets if name[0] != "." and "%" not in name][:1]
        waiting += (*_SPECIAL, *(entry.text for entry in entries if not entry.names))
        by_name: dict[str, list[_Entry]] = {}
        for entry in entries:
            for name in entry.names or (entry.text,):
                by_name.setdefault(name, []).append(entry)
        for name in waiting:
            parts = by_name.pop(name, ())
            if not parts:
                continue
            kind = "make" if parts[0].names else "directive"
            lines = [(line, text) for entry in parts for line, text in entry.lines]
            self._parts[parts[0].path, kind, name] = Part(f"`{name}`", tuple(lines))
            for _, text in lines:
                waiting += (word for word in _MENTION.findall(text) if word in by_name)
            self._text("\n".join(text.lstrip("\t@-+ ") for _, text in lines), folder, depth + 1)

    def _entries(self, path: str, folder: str, depth: int) -> Iterator[_Entry]:
        """The rules, variables and other lines of a Makefile and of those that it includes."""
        entry: _Entry | None = None
        for number, line in _logical_lines(self._read(path) or ""):
            plain = " ".join(re.sub(r"(?<!\\)#.*", "", line).split())
            if not plain:
                continue
            if entry is not None and (line.startswith("\t") or (entry.is_definition and plain != "endef")):
                entry.lines.append((number, f"\t{plain}"))
                continue
            if entry is not None:
                yield entry
            entry = _entry(path, number, plain)
            if included := re.match(r"[-s]?include (.+)", plain):
                for name in included[1].split() if depth < _DEEPEST else ():
                    yield from self._entries(_join(folder, name), folder, depth + 1)
        if entry is not None:
            yield entry


class _Entry(Struct):
    """A rule with its recipe, an assignment, or another line of a Makefile."""

    path: str
    text: str
    names: tuple[str, ...]  #: the targets or the variable; none for another line
    is_rule: bool
    is_definition: bool
    lines: list[tuple[int, str]]


def _entry(path: str, number: int, text: str) -> _Entry:
    definition, variable = _DEFINITION.match(text), _VARIABLE.match(text)
    rule = None if definition or variable else _RULE.match(text)
    names = tuple(rule[1].split()) if rule else tuple(found[1] for found in (definition or variable,) if found)
    return _Entry(path, text, names, rule is not None, definition is not None, [(number, text)])


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


def _options(words: Iterable[str], names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The values of the options with these names, and the words that are no option."""
    values, others = [], []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in names:
            values.append(next(rest, ""))
        elif equals and name in names:
            values.append(value)
        elif word.startswith(names[0]):
            values.append(word.removeprefix(names[0]))
        elif not word.startswith("-") or word.startswith(("-f", "--file", "--makefile")):
            others.append(word)
    return values, others


def _join(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name)).removeprefix("./")


def package_scripts(text: str) -> dict[str, str]:
    try:
        scripts = json.loads(text.removeprefix("\ufeff"))["scripts"]
        return {str(name): script for name, script in scripts.items() if isinstance(script, str)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _line_of_script(text: str, name: str) -> int:
    start = max(text.find('"scripts"'), 0)
    found = re.compile(rf"{re.escape(json.dumps(name))}\s*:").search(text, start)
    return text.count("\n", 0, found.start()) + 1 if found else 1
