"""Reads Makefiles without make: the rules and variables that decide what a target runs."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: The names make looks for, in its order.
NAMES = ("GNUmakefile", "makefile", "Makefile")
#: Variables and targets that change what every recipe does.
SPECIAL = ("SHELL", ".SHELLFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", "MAKE", ".RECIPEPREFIX", ".ONESHELL", ".IGNORE")
_DEEPEST = 8  #: includes within includes, and variables within variables
_CONDITION = re.compile(r"(ifeq|ifneq|ifdef|ifndef|else|endif)\b[ \t]*(.*)")
_INCLUDE = re.compile(r"(?:-|s)?include[ \t]+(.+)")
_DEFINE = re.compile(r"(?:override[ \t]+|export[ \t]+)*define[ \t]+(\S+)")
_ASSIGNED = re.compile(
    r"(?:(?:export|override|private|unexport)[ \t]+)*(?P<name>[^\s:#=+?!]+)[ \t]*"
    r"(?P<how>\+|\?|!|:{1,3})?=[ \t]*(?P<value>.*)",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$(?:\((?P<round>[\w.-]+)\)|\{(?P<curly>[\w.-]+)\}|(?P<one>\w))")
_COMMENT = re.compile(r"(?<!\\)#.*", re.DOTALL)


class Assignment(Struct, frozen=True):
    """One line that sets a variable."""

    name: str
    how: str  #: the sign before `=`
    value: str
    path: str
    line: int
    when: str  #: the conditions around it
    target: str = ""  #: the target that it is for alone


class Rule(Struct, frozen=True):
    """One rule."""

    targets: tuple[str, ...]
    prerequisites: tuple[str, ...]
    recipe: tuple[str, ...]  #: without comments, blanks made equal
    path: str
    line: int  #: of its first recipe line; of the rule where there is none
    when: str
    double: bool  #: `::`, which adds to the rules before it


class Makefile:
    """A Makefile with what it includes."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.assignments: list[Assignment] = []
        self.evaluated: list[tuple[str, str, int]] = []  #: text, path and line of what only make could read

    def value(self, name: str, depth: int = 0) -> str | None:
        """What a variable holds; what stands under a condition is marked as such. None when it is not set."""
        held: str | None = None
        for one in self.assignments:
            if one.name != name or one.target:
                continue
            if one.when:
                held = f"{held or ''} <{one.when}: {one.how}= {one.value}>"
            elif one.how == "+":
                held = f"{held or ''} {one.value}"
            elif one.how != "?" or held is None:
                held = one.value
        return None if held is None else self.expanded(held, depth + 1)

    def expanded(self, text: str, depth: int = 0) -> str:
        """The text with the values of plain variables; functions and automatic variables stay as they are."""
        if depth > _DEEPEST:
            return text

        def filled(found: re.Match[str]) -> str:
            held = self.value(found["round"] or found["curly"] or found["one"], depth)
            return found[0] if held is None else held

        return _VARIABLE.sub(filled, text)

    def rules_of(self, target: str) -> tuple[Rule, ...]:
        """The rules that make reads for a target, the pattern rule where no other has a recipe."""
        named = [rule for rule in self.rules if target in rule.targets]
        if any(rule.recipe for rule in named):
            return tuple(named)
        patterns = (rule for rule in self.rules if rule.recipe and any(_fits(one, target) for one in rule.targets))
        return (*named, *list(patterns)[:1])

    def default_goal(self) -> str:
        """The target of a plain `make`."""
        goals = (target for rule in self.rules for target in rule.targets if target[0] != "." and "%" not in target)
        return self.value(".DEFAULT_GOAL") or next(goals, "")


def parse(path: str, read: Callable[[str], str | None], *, folder: str = "") -> Makefile:
    """The Makefile at `path`; what it includes is looked for from `folder`, where make runs."""
    made = Makefile()
    _Parser(made, read, folder).file(path, 0)
    return made


class _Parser:
    """Goes through the lines of one Makefile and of those it includes."""

    def __init__(self, made: Makefile, read: Callable[[str], str | None], folder: str) -> None:
        self._made = made
        self._read = read
        self._folder = folder
        self._path = ""
        self._open: Rule | None = None  #: the rule that recipe lines belong to
        self._when: list[str] = []

    def file(self, path: str, depth: int) -> None:
        text = self._read(path)
        if text is None or depth > _DEEPEST:
            return
        outer, self._path = self._path, path
        lines = _logical(text)
        for number, line in lines:
            if line.startswith("\t") and self._open is not None:
                self._recipe(line, number)
                continue
            plain = _COMMENT.sub("", line).strip()
            if not plain or self._condition(plain):
                continue
            if found := _DEFINE.fullmatch(plain):
                body = [inner for _, inner in _until_endef(lines)]
                self._assign(_ASSIGNED.fullmatch(f"{found[1]}={' '.join(body)}"), number, "")
            elif found := _INCLUDE.fullmatch(plain):
                for name in self._made.expanded(found[1]).split():
                    self.file(posixpath.normpath(posixpath.join(self._folder, name)), depth + 1)
            else:
                self._plain(plain, number)
        self._close()
        self._path = outer

    def _plain(self, line: str, number: int) -> None:
        if found := _ASSIGNED.fullmatch(line):
            self._close()
            self._assign(found, number, "")
            return
        targets, sign, rest = _at_colon(line)
        if not sign:
            self._made.evaluated += [(line, self._path, number)] if "eval" in line else []
            return
        self._close()
        names = tuple(self._made.expanded(targets).split())
        if found := _ASSIGNED.fullmatch(rest.strip()):
            for name in names:
                self._assign(found, number, name)
            return
        wanted, _, inline = rest.partition(";")
        _, static, last = _at_colon(wanted)
        words = self._made.expanded(last if static else wanted).split()
        self._open = Rule(
            targets=names,
            prerequisites=tuple(word for word in words if word != "|"),
            recipe=(_even(inline),) if inline.strip() else (),
            path=self._path,
            line=number,
            when=" ".join(self._when),
            double=sign == "::",
        )

    def _recipe(self, line: str, number: int) -> None:
        assert self._open is not None
        text = _even(line)
        if text and not text.startswith("#"):
            where = self._open.line if self._open.recipe else number
            when = " ".join(self._when)
            told = f"<{when}> {text}" if when != self._open.when else text
            self._open = replace(self._open, recipe=(*self._open.recipe, told), line=where)

    def _assign(self, found: re.Match[str] | None, number: int, target: str) -> None:
        assert found is not None
        name, how, value = found["name"], found["how"] or "", _even(found["value"])
        when = " ".join(self._when)
        self._made.assignments.append(Assignment(name, how, value, self._path, number, when, target))

    def _condition(self, line: str) -> bool:
        found = _CONDITION.fullmatch(line)
        if found is None:
            return False
        if found[1] == "endif":
            del self._when[-1:]
        elif found[1] == "else":
            self._when[-1:] = [f"{self._when[-1] if self._when else ''} {_even(line)}"]
        else:
            self._when.append(_even(line))
        return True

    def _close(self) -> None:
        if self._open is not None:
            self._made.rules.append(self._open)
        self._open = None


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, those that a backslash continues as one."""
    whole, first = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        first = number if not whole else first
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        yield first, whole + line
        whole = ""
    if whole:
        yield first, whole


def _until_endef(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if line.strip() == "endef":
            return
        yield number, line


def _at_colon(line: str) -> tuple[str, str, str]:
    """What stands before and after the first colon that is in no brackets, and the colon."""
    depth = 0
    for at, sign in enumerate(line):
        depth += (sign in "({") - (sign in ")}")
        if sign == ":" and not depth:
            colon = "::" if line[at + 1 : at + 2] == ":" else ":"
            return line[:at], colon, line[at + len(colon) :]
    return line, "", ""


def _even(text: str) -> str:
    return " ".join(text.split())


def _fits(pattern: str, target: str) -> bool:
    before, wild, after = pattern.partition("%")
    long_enough = len(target) > len(before) + len(after)
    return bool(wild and before + after) and long_enough and target.startswith(before) and target.endswith(after)


def reached(made: Makefile, goals: Sequence[str]) -> tuple[str, ...]:
    """The targets that make visits for these goals."""
    found: list[str] = []
    waiting = list(goals)
    while waiting:
        target = waiting.pop(0)
        if target not in found:
            found.append(target)
            waiting += [name for rule in made.rules_of(target) for name in rule.prerequisites]
    return tuple(found)
