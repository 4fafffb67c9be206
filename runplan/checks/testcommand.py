"""Reads shell command lines, and finds changes that weaken the test command's own files."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks import makefiles, testfiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    Read: TypeAlias = Callable[[str], str | None]


_OPERATORS = frozenset("();|&")  #: a word of these characters alone ends a simple command
_KEYWORDS = frozenset(("if", "then", "elif", "else", "while", "until", "do", "!", "{"))
#: Programs that run the program after them, and those that do so after a word of their own.
_BEFORE = frozenset(("env", "time", "timeout", "nice", "exec", "command", "nohup", "stdbuf", "sudo", "xvfb-run"))
_RUNS = frozenset(("poetry", "uv", "pipenv", "hatch", "pdm", "rye", "bundle", "coverage"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_INLINE = re.compile(r"-[A-Za-z]*c[A-Za-z]*")


def simple_commands(text: str) -> Iterator[list[str]]:
    """The commands of a command line, each as its words."""
    for line in text.splitlines():
        lexer = shlex.shlex(
            line.replace("$(MAKE)", "make").replace("${MAKE}", "make"), posix=True, punctuation_chars=True
        )
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quote that is never closed
            words = line.split()
        simple: list[str] = []
        for word in (*words, ";"):
            if word and _OPERATORS.issuperset(word):
                if simple:
                    yield simple
                simple = []
            else:
                simple.append(word)


def program(words: Sequence[str]) -> list[str]:
    """The words from the program on that does the work."""
    left = list(words)
    while left:
        if left[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(left[0]):
            del left[0]
        elif left[0] in _BEFORE:
            del left[0]
            while left and (left[0].startswith("-") or re.fullmatch(r"[\d.]+[smhd]?", left[0])):
                del left[0]
        elif left[0] in _RUNS and left[1:2] in (["run"], ["exec"]):
            del left[:2]
            while left and left[0].startswith("-") and left[0] != "-m":
                del left[0]
        else:
            break
    return left


def inline_command(arguments: Sequence[str]) -> str:
    """The command line in the arguments of a shell, as of `bash -lc "make test"`; "" when it runs a file."""
    rest = iter(arguments)
    for word in rest:
        if _INLINE.fullmatch(word):
            return next(rest, "")
        if not word.startswith(("-", "+")):
            return ""
        if word.endswith("o") and not word.startswith("--"):  # -o pipefail
            next(rest, "")
    return ""


def option_value(word: str, rest: Iterator[str], short: str, *long: str) -> str | None:
    """The value of the option that `word` begins: the next word, or joined to it; None for any other word."""
    if word == short or word in long:
        return next(rest, "")
    name, equals, value = word.partition("=")
    if equals and name in long:
        return value
    return word.removeprefix(short) if word.startswith(short) else None


_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
_SOURCES = frozenset((".", "source"))
_SHEBANG = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-S\s+)?)?(?:\S*/)?(?:sh|bash|dash|zsh|ksh)(?:\s|$)")
_INTERPRETERS = frozenset(("node", "deno", "tsx", "ts-node", "ruby", "perl", "php", "lua", "Rscript"))
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_MAKES = frozenset(("make", "gmake", "$(MAKE)", "${MAKE}"))
_PACKAGERS = frozenset(("npm", "yarn", "pnpm", "bun"))
_SCRIPT_WORDS = {"t": "test", "tst": "test"}
_COMPILERS = re.compile(r"(?:.*-)?(?:cc|gcc|clang|c\+\+|g\+\+|clang\+\+|ld|ar)")
_HARMLESS = re.compile(r"[\w@%+,./:=-]+")  #: a word that is no option and no shell syntax, unless it begins with -
_DEEPEST = 6  #: commands within commands
_MOST_LINES = 1_000  #: of a shell script that are read for commands


class Part(Struct, frozen=True):
    """One thing that the test command runs, or that decides how."""

    told: str  #: for people
    value: tuple[str, ...]
    path: str
    line: int  #: 0 for the whole file
    shown: tuple[str, ...] = ()  #: a recipe with the values of its variables


class Weakened(Struct, frozen=True):
    """One part that is not what it was."""

    path: str
    line: int
    detail: str


def weakened(command: str, before: Read, after: Read) -> tuple[Weakened, ...]:
    """What the command no longer runs, or runs otherwise, in the tree `after`."""
    was = _Parts(before)
    was.command(command, "", 0)
    if not was.found:
        return ()
    now = _Parts(after)
    now.command(command, "", 0)
    both = ((key, part, now.found[key]) for key, part in was.found.items() if key in now.found)
    found = [_changed(key, part, other) for key, part, other in both]
    found += [_added(key, part) for key, part in now.found.items() if key not in was.found]
    told = tuple(one for one in found if one is not None)
    return told or tuple(_gone(was, now))


def _changed(key: tuple[str, ...], was: Part, now: Part) -> Weakened | None:
    if key[0] == "prerequisites":
        gone = [word for word in was.value if word not in now.value]
        return Weakened(now.path, now.line, f"{was.told} removed: {', '.join(gone)}") if gone else None
    if was.value == now.value and _only_adds(was.shown, now.shown):
        return None
    line = now.line or _first_difference(was.value, now.value)
    return Weakened(now.path, line, f"{was.told}, which the test command runs, was changed")


def _added(key: tuple[str, ...], part: Part) -> Weakened | None:
    """Most additions are harmless; these decide how everything else runs."""
    return Weakened(part.path, part.line, f"{part.told} was added") if key[0] == "decides" else None


def _gone(was: _Parts, now: _Parts) -> Iterator[Weakened]:
    """The outermost part that is not there any more; what it ran is gone with it."""
    for key, part in was.found.items():
        belongs_to_recipe = (
            key[0] in ("prerequisites", "phony") and ("recipe", *key[1:]) in was.found.keys() - now.found.keys()
        )
        if key not in now.found and not belongs_to_recipe:
            yield Weakened(part.path, part.line, f"{part.told}, which the test command runs, was removed")
            return


def _first_difference(was: Sequence[str], now: Sequence[str]) -> int:
    pairs = zip(was, now, strict=False)
    return next((at for at, (old, new) in enumerate(pairs, 1) if old != new), min(len(was), len(now)) + 1)


def _only_adds(was: Sequence[str], now: Sequence[str]) -> bool:
    """Whether the same recipe, filled in with its variables, differs by further plain arguments only."""
    return len(was) == len(now) and all(map(_line_only_adds, was, now))


def _line_only_adds(was: str, now: str) -> bool:
    old, new = was.split(), now.split()
    if old[:1] != new[:1]:
        return old == new
    compiles = bool(old) and _COMPILERS.fullmatch(old[0].lstrip("@-+").rpartition("/")[2]) is not None
    rest = iter(new)
    for word in old:
        for other in rest:
            if other == word:
                break
            if not _is_harmless(other, compiles):
                return False
        else:
            return False
    return all(_is_harmless(word, compiles) for word in rest)


def _is_harmless(word: str, compiles: bool) -> bool:
    return _HARMLESS.fullmatch(word) is not None and (compiles or not word.startswith("-"))


class _Parts:
    """Collects what a command runs in one tree."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.found: dict[tuple[str, ...], Part] = {}

    def command(self, text: str, folder: str, depth: int) -> None:
        if depth > _DEEPEST:
            return
        for words in map(program, simple_commands(text)):
            if words[:1] == ["cd"] and len(words) == 2:
                # `cd "$(dirname "$0")"` and its like lead most often to where the command began.
                folder = folder if "$" in words[1] else _join(folder, words[1])
            else:
                self._simple(words, folder, depth)

    def _simple(self, words: Sequence[str], folder: str, depth: int) -> None:
        if not words:
            return
        name, arguments = words[0], words[1:]
        base = name.rpartition("/")[2]
        if base in _MAKES:
            self._make(arguments, folder, depth)
        elif base in _PACKAGERS:
            self._package(base, arguments, folder, depth)
        elif base in _SHELLS and (line := inline_command(arguments)):
            self.command(line, folder, depth + 1)
        elif base in _SHELLS | _SOURCES:
            self._shell_script(self._script(arguments, folder), folder, depth)
        elif _PYTHON.fullmatch(base) and "-m" in arguments[:-1]:
            module = arguments[arguments.index("-m") + 1].replace(".", "/")
            self._script([f"{module}.py", f"{module}/__main__.py"], folder)
        elif base in _INTERPRETERS or _PYTHON.fullmatch(base):
            self._script(arguments, folder)
        elif "/" in name:
            text = self._script([name], folder)
            if _SHEBANG.match(text) or not text.startswith("#!"):
                self._shell_script(text, folder, depth)

    def _shell_script(self, text: str, folder: str, depth: int) -> None:
        """What the script runs in turn; a file that is no text runs nothing that could be read."""
        if "\0" not in text:
            lines = text.replace("\\\n", " ").splitlines()[:_MOST_LINES]
            self.command("\n".join(lines), folder, depth + 1)

    def _script(self, words: Sequence[str], folder: str) -> str:
        """The text of the first word that is a file, "" if it is known already; tests in it are judged as tests."""
        for path in (_join(folder, word) for word in words if not word.startswith("-")):
            text = self._read(path)
            if text is not None:
                if ("file", path) in self.found or (testfiles.is_test(path) and testfiles.test_names(text)):
                    return ""
                lines = tuple(line.rstrip() for line in text.splitlines())
                self.found["file", path] = Part("the script", lines, path, 0)
                return text
        return ""

    # --- package.json -----------------------------------------------------------------------------------

    def _package(self, packager: str, arguments: Sequence[str], folder: str, depth: int) -> None:
        words: list[str] = []
        rest = iter(arguments)
        for word in rest:
            if (value := option_value(word, rest, "-C", "--prefix", "--dir", "--cwd")) is not None:
                folder = _join(folder, value)
            elif word == "--":
                break
            elif not word.startswith("-"):
                words.append(word)
        runs = words[:1] in (["run"], ["run-script"])
        name = (words[1:2] if runs else words[:1] or [""])[0] if words else ""
        name = _SCRIPT_WORDS.get(name, name) if packager in ("npm", "pnpm") and not runs else name
        path = _join(folder, "package.json")
        text = self._read(path) or ""
        scripts = _scripts(text)
        for one in (f"pre{name}", name, f"post{name}"):
            script = scripts.get(one)
            key = ("script", path, one)
            if script is not None and key not in self.found:
                told = f'the script "{one}"'
                self.found[key] = Part(told, (" ".join(script.split()),), path, _line_of(text, one))
                self.command(script, folder, depth + 1)

    # --- make -------------------------------------------------------------------------------------------

    def _make(self, arguments: Sequence[str], folder: str, depth: int) -> None:
        goals: list[str] = []
        file = ""
        rest = iter(arguments)
        for word in rest:
            if (value := option_value(word, rest, "-C", "--directory")) is not None:
                folder = _join(folder, value)
            elif (value := option_value(word, rest, "-f", "--file", "--makefile")) is not None:
                file = value
            elif word in ("-j", "-l", "-o", "-W", "-I") or word.startswith("-") or "=" in word:
                continue
            elif not word.isdigit():
                goals.append(word)
        names = (file,) if file else makefiles.NAMES
        path = next((path for path in (_join(folder, name) for name in names) if self._read(path) is not None), "")
        if path:
            self._rules(makefiles.parse(path, self._read, folder=folder), path, folder, goals, depth)

    def _rules(self, made: makefiles.Makefile, path: str, folder: str, goals: Sequence[str], depth: int) -> None:
        if not goals and (goal := made.default_goal()):
            self.found[("goal", folder)] = Part("the default goal", (goal,), path, 1)
            goals = [goal]
        for name in makefiles.SPECIAL:
            self._deciding(made, name, folder)
        for text, place, line in made.evaluated:
            self.found[("decides", folder, text)] = Part(f"`{text}`", (text,), place, line)
        phony = {name for rule in made.rules if ".PHONY" in rule.targets for name in rule.prerequisites}
        for target in makefiles.reached(made, goals):
            if ("prerequisites", folder, target) not in self.found and (rules := made.rules_of(target)):
                self._target(made, target, rules, folder, depth)
                where = rules[0]
                if target in phony:
                    told = f"the .PHONY mark of `{target}`"
                    self.found[("phony", folder, target)] = Part(told, (target,), where.path, where.line)

    def _deciding(self, made: makefiles.Makefile, name: str, folder: str) -> None:
        set_by = [(one.path, one.line) for one in made.assignments if one.name == name and not one.target]
        rules = [rule for rule in made.rules if name in rule.targets]
        if set_by or rules:
            path, line = set_by[-1] if set_by else (rules[-1].path, rules[-1].line)
            value = (made.value(name) or "", *(word for rule in rules for word in rule.prerequisites))
            self.found[("decides", folder, name)] = Part(f"`{name}`", value, path, line)

    def _target(
        self, made: makefiles.Makefile, target: str, rules: Sequence[makefiles.Rule], folder: str, depth: int
    ) -> None:
        wanted = tuple(name for rule in rules for name in rule.prerequisites)
        told = f"prerequisites of `{target}`"
        self.found[("prerequisites", folder, target)] = Part(told, wanted, rules[0].path, rules[0].line)
        for one in made.assignments:
            if one.target == target:
                value = (f"{one.name} {one.how}= {one.value} {one.when}",)
                told = f"`{one.name}` for the target `{target}`"
                self.found[("decides", folder, target, one.name)] = Part(told, value, one.path, one.line)
        made_by = [rule for rule in rules if rule.recipe]
        last = made_by if made_by and made_by[-1].double else made_by[-1:]
        if not last:
            return
        lines = tuple(line for rule in last for line in (*rule.recipe, *([f"<{rule.when}>"] if rule.when else ())))
        shown = tuple(made.expanded(line) for line in lines)
        told = f"the recipe of `{target}`"
        self.found[("recipe", folder, target)] = Part(told, lines, last[-1].path, last[-1].line, shown)
        for line in shown:
            self.command(line.lstrip("@-+ "), folder, depth + 1)


def _join(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name)).removeprefix("./")


def _scripts(text: str) -> dict[str, str]:
    try:
        scripts = json.loads(text.removeprefix("\ufeff"))["scripts"]
        return {str(name): script for name, script in scripts.items() if isinstance(script, str)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _line_of(text: str, name: str) -> int:
    """The line on which a script of package.json stands."""
    start = max(text.find('"scripts"'), 0)
    found = re.compile(rf"{re.escape(json.dumps(name))}\s*:").search(text, start)
    return text.count("\n", 0, found.start()) + 1 if found else 1
