"""Reads Makefiles without make: the rules and variables that decide what a target runs."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: The names make looks for, in its order.
NAMES = ("GNUmakefile", "makefile", "Makefile")
#: Variables and targets that change what every recipe does.
SPECIAL = ("SHELL", ".SHELLFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", "MAKE", ".RECIPEPREFIX", ".ONESHELL", ".IGNORE")
_DEEPEST = 8  #: includes within includes, and variables within variables
_CONDITION = re.compile(r"(?:ifeq|ifneq|ifdef|ifndef|else|endif)\b")
_INCLUDE = re.compile(r"[-s]?include[ \t]+(.+)")
_DEFINE = re.compile(r"(?:override[ \t]+|export[ \t]+)*define[ \t]+(\S+)")
_ASSIGNMENT = re.compile(
    r"(?:(?:export|override|private|unexport)[ \t]+)*([^\s:#=+?!]+)[ \t]*(\+|\?|!|:{1,3})?=[ \t]*(.*)", re.DOTALL
)
_VARIABLE = re.compile(r"\$(?:\(([\w.-]+)\)|\{([\w.-]+)\}|(\w))")
_COMMENT = re.compile(r"(?<!\\)#.*", re.DOTALL)


class Assignment(Struct):
    name: str
    sign: str  #: the sign before `=`
    value: str
    path: str
    line: int
    target: str  #: the only target it is for; "" for all


class Rule(Struct):
    targets: list[str]
    prerequisites: list[str]
    recipe: list[str]  #: without comments, with single blanks
    path: str
    line: int  #: of its first recipe line; of the rule if it has none
    is_double: bool  #: `::`, which adds to the rules before it


class Makefile:
    """A Makefile and the files it includes, which are looked for from `folder`, where make runs."""

    def __init__(self, path: str, read: Callable[[str], str | None], folder: str) -> None:
        self.rules: list[Rule] = []
        self.assignments: list[Assignment] = []
        self.evaluated: list[tuple[str, str, int]] = []  #: text, path and line of `$(eval …)`
        self._read = read
        self._folder = folder
        self._load(path, 0)

    def value(self, name: str, depth: int = 0) -> str | None:
        """The value of a variable, with every later assignment marked as such; None when it is not set."""
        value: str | None = None
        for one in self.assignments:
            if one.name == name and not one.target:
                added = one.value if one.sign == "+" else f"<{one.sign}= {one.value}>"
                value = one.value if value is None else f"{value} {added}"
        return None if value is None else self.expanded(value, depth + 1)

    def expanded(self, text: str, depth: int = 0) -> str:
        """The text with the values of plain variables; functions and automatic variables stay as they are."""
        if depth > _DEEPEST:
            return text

        def filled(found: re.Match[str]) -> str:
            value = self.value(found[1] or found[2] or found[3], depth)
            return found[0] if value is None else value

        return _VARIABLE.sub(filled, text)

    def rules_of(self, target: str) -> list[Rule]:
        """The rules of a target, with a pattern rule if none of them has a recipe."""
        named = [rule for rule in self.rules if target in rule.targets]
        if any(rule.recipe for rule in named):
            return named
        patterns = [rule for rule in self.rules if rule.recipe and any(_matches(one, target) for one in rule.targets)]
        return named + patterns[:1]

    def default_goal(self) -> str:
        goals = (target for rule in self.rules for target in rule.targets if target[0] != "." and "%" not in target)
        return self.value(".DEFAULT_GOAL") or next(goals, "")

    def reached(self, goals: Sequence[str]) -> list[str]:
        found: dict[str, None] = {}
        waiting = list(goals)
        while waiting:
            target = waiting.pop(0)
            if target not in found:
                found[target] = None
                waiting += [name for rule in self.rules_of(target) for name in rule.prerequisites]
        return list(found)

    def _load(self, path: str, depth: int) -> None:
        text = self._read(path)
        if text is None or depth > _DEEPEST:
            return
        rule: Rule | None = None  #: the rule that recipe lines belong to
        conditions: list[str] = []  #: since its last recipe line
        lines = _logical_lines(text)
        for number, line in lines:
            plain = _COMMENT.sub("", line).strip()
            if line.startswith("\t") and rule is not None:
                command = _single_blanks(line)
                if command and not command.startswith("#"):
                    rule.line = rule.line if rule.recipe else number
                    rule.recipe += (*conditions, command)
                    conditions = []
            elif _CONDITION.match(plain):
                conditions.append(f"<{_single_blanks(plain)}>")
            elif found := _DEFINE.fullmatch(plain):
                self._assign(found[1], "", " ".join(_until_endef(lines)), path, number)
            elif found := _INCLUDE.fullmatch(plain):
                for name in self.expanded(found[1]).split():
                    self._load(posixpath.normpath(posixpath.join(self._folder, name)), depth + 1)
            elif found := _ASSIGNMENT.fullmatch(plain):
                self._assign(found[1], found[2] or "", found[3], path, number)
                rule = None
            elif plain:
                conditions = []
                rule = self._rule(plain, path, number)

    def _rule(self, line: str, path: str, number: int) -> Rule | None:
        """Add the rule, or the variable of a target, that the line begins."""
        targets, colon, rest = _split_at_colon(line)
        if not colon:
            self.evaluated += [(line, path, number)] if "eval" in line else []
            return None
        names = self.expanded(targets).split()
        if found := _ASSIGNMENT.fullmatch(rest.strip()):
            for name in names:
                self._assign(found[1], found[2] or "", found[3], path, number, name)
            return None
        wanted, _, inline = rest.partition(";")
        _, static, last = _split_at_colon(wanted)
        prerequisites = [word for word in self.expanded(last if static else wanted).split() if word != "|"]
        recipe = [_single_blanks(inline)] if inline.strip() else []
        self.rules.append(Rule(names, prerequisites, recipe, path, number, colon == "::"))
        return self.rules[-1]

    def _assign(self, name: str, sign: str, value: str, path: str, line: int, target: str = "") -> None:
        self.assignments.append(Assignment(name, sign, _single_blanks(value), path, line, target))


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


def _until_endef(lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == "endef":
            return
        yield line


def _split_at_colon(line: str) -> tuple[str, str, str]:
    """The text before and after the first colon outside of brackets, and the colon."""
    depth = 0
    for at, sign in enumerate(line):
        depth += (sign in "({") - (sign in ")}")
        if sign == ":" and not depth:
            colon = "::" if line[at + 1 : at + 2] == ":" else ":"
            return line[:at], colon, line[at + len(colon) :]
    return line, "", ""


def _single_blanks(text: str) -> str:
    return " ".join(text.split())


def _matches(pattern: str, target: str) -> bool:
    before, wild, after = pattern.partition("%")
    is_long_enough = len(target) > len(before) + len(after)
    return bool(wild and before + after) and is_long_enough and target.startswith(before) and target.endswith(after)
