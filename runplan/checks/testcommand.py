"""The test command: which one fits a project, what it lacks in a worktree, and changes to the files that it runs."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks import makefiles, testfiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import TypeAlias

    Read: TypeAlias = Callable[[str], str | None]

_OPERATORS = frozenset("();|&")  #: a word of these characters alone ends a simple command
_KEYWORDS = frozenset(("if", "then", "elif", "else", "while", "until", "do", "!", "{"))
#: Programs that run the program after them, and those that do so after `run` or `exec`.
_WRAPPERS = frozenset(("env", "time", "timeout", "nice", "exec", "command", "nohup", "stdbuf", "sudo", "xvfb-run"))
_ENVIRONMENTS = frozenset(("poetry", "uv", "pipenv", "hatch", "pdm", "rye", "bundle", "coverage"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_INLINE = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
_SOURCES = frozenset((".", "source"))
_SHEBANG = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-S\s+)?)?(?:\S*/)?(?:sh|bash|dash|zsh|ksh)(?:\s|$)")
_INTERPRETERS = frozenset(("node", "deno", "tsx", "ts-node", "ruby", "perl", "php", "lua", "Rscript"))
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_MAKES = frozenset(("make", "gmake"))
_PACKAGERS = frozenset(("npm", "yarn", "pnpm", "bun"))
_COMPILERS = re.compile(r"(?:.*-)?(?:cc|gcc|clang|c\+\+|g\+\+|clang\+\+|ld|ar)")
_HARMLESS = re.compile(r"[\w@%+,./:=-]+")  #: a word that is no option and no shell syntax, unless it begins with -
_DEEPEST = 6  #: commands within commands
_MOST_LINES = 1_000  #: of a shell script that are read for commands


# --- a project's test command -------------------------------------------------------------------------------

_TARGETS = re.compile(r"^([\w. -]+):(?!:?=)", re.MULTILINE)
_NPM_STUB = "no test specified"

#: Files that show that there are tests, with the command that usually runs them; "" to run the file.
_BY_FILE: tuple[tuple[str, str], ...] = (
    ("vitest.config.*", "npx vitest run"),
    ("jest.config.*", "npx jest"),
    (".mocharc.*", "npx mocha"),
    ("pytest.ini", "python3 -m pytest"),
    ("tests/*.py", "python3 -m pytest"),
    ("tests/*.js", "node --test tests/"),
    ("tests/*.sh", ""),
)

#: Build tools with a test command: a suggestion, but no sign of tests.
_BUILD_TOOLS = (("Cargo.toml", "cargo test"), ("go.mod", "go test ./..."))

#: Programs that read a file at the top of the project, and the names it may have.
_READS = {
    **dict.fromkeys(("make", "gmake"), ("Makefile", "makefile", "GNUmakefile")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), ("package.json",)),
}
#: With these options they read another one.
_ELSEWHERE = ("-C", "-f", "--directory", "--file", "--makefile", "--prefix", "--cwd", "--dir")
#: Commands of the shell itself.
_SHELL_WORDS = frozenset(
    (
        *("!", "(", ":", "[", "{", ".", "cd", "command", "echo", "eval", "exec", "exit", "export", "for", "if"),
        *("set", "source", "test", "true", "false", "while"),
    )
)
_INSTALLERS = (
    ("package-lock.json", "npm ci"),
    ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
    ("yarn.lock", "yarn install --frozen-lockfile"),
)
_IN_VENV = re.compile(r"(?<![\w/.])(?:\./)?(\.?venv)/bin/")
_MAKES_VENV = re.compile(r"-m venv|virtualenv|uv (?:sync|venv)|poetry install")


class Infrastructure(Struct, frozen=True, kw_only=True):
    found: str  #: a file that shows that there are tests; "" for none
    command: str  #: the command that probably runs them; "" if unknown

    @property
    def present(self) -> bool:
        return bool(self.found)


class Prerequisites(Struct, frozen=True, kw_only=True):
    """The needs of the test command that a fresh worktree lacks; "" and None for none."""

    missing_file: str = ""
    missing_program: str = ""
    setup: tuple[str, str] | None = None  #: something that only run.setup makes, and a command for it


def find(files: Sequence[str], *, package_json: str = "", makefile: str = "") -> Infrastructure:
    """Examine the paths at the top and under tests/, and the two files that name commands.

    The command is a suggestion for a person; a run never guesses one.
    """
    targets = {target for named in _TARGETS.findall(makefile) for target in named.split()}
    if target := next((target for target in ("test", "check") if target in targets), ""):
        return Infrastructure(found="Makefile", command=f"make {target}")
    script = _scripts(package_json).get("test", "")
    if script.strip() and _NPM_STUB not in script:
        return Infrastructure(found="package.json", command="npm test")
    for pattern, command in _BY_FILE:
        if found := next((path for path in files if fnmatchcase(path, pattern)), ""):
            return Infrastructure(found=found, command=command or f"sh {found}")
    command = next((command for name, command in _BUILD_TOOLS if name in files), "")
    return Infrastructure(found="", command=command)


def program_of(command: str) -> str:
    """The program that a command begins with; "" if only a shell knows it."""
    words = _words(command)
    return words[0] if words and words[0] not in _SHELL_WORDS and not re.search(r"[$`*?~]", words[0]) else ""


def missing_file(command: str, files: Collection[str]) -> str:
    """The file that the command's program reads and that is not among those at the top; "" for none."""
    words = _words(command)
    names = _READS.get(words[0], ()) if words else ()
    reads_another = any(word.startswith(_ELSEWHERE) for word in words)
    return names[0] if names and not reads_another and not any(name in files for name in names) else ""


def _words(command: str) -> list[str]:
    """The words of a command without the variables that are set before it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return words


def needed_setup(
    files: Collection[str], texts: Mapping[str, str], *, command: str, present: Collection[str]
) -> tuple[str, str] | None:
    """A need that a fresh worktree lacks, and the command that usually provides it.

    `files` are at the top of the target, `texts` are those of package.json and Makefile, and `present` are the
    directories of the checkout that git does not track.
    """
    if ".gitmodules" in files:
        return "submodules", "git submodule update --init --recursive"
    installs = "node_modules" in present or _has_dependencies(texts.get("package.json", ""))
    if installs and "package.json" in files and "node_modules" not in files:
        return "node_modules", next((line for lock, line in _INSTALLERS if lock in files), "npm install")
    run = f"{command}\n{texts.get('Makefile', '') if program_of(command) in _MAKES else ''}"
    used = _IN_VENV.search(run)
    if used is None or used[1] in files or _MAKES_VENV.search(run):
        return None
    what = "-r requirements.txt" if "requirements.txt" in files else "-e ."
    return "a virtual environment", f"python3 -m venv {used[1]} && {used[1]}/bin/pip install {what}"


def _has_dependencies(package_json: str) -> bool:
    try:
        found = json.loads(package_json or "{}")
    except ValueError:
        return False
    return isinstance(found, dict) and any(found.get(name) for name in ("dependencies", "devDependencies"))


# --- the files that it runs ----------------------------------------------------------------------------------


class Part(Struct, frozen=True):
    """One thing that the test command runs, or that decides how."""

    name: str  #: for people
    value: tuple[str, ...]
    path: str
    line: int  #: 0 for the whole file
    expanded: tuple[str, ...] = ()  #: a recipe with the values of its variables


class Weakened(Struct, frozen=True):
    path: str
    line: int
    detail: str


def weakened(command: str, before: Read, after: Read) -> tuple[Weakened, ...]:
    """The parts that the command no longer runs, or runs otherwise, in the tree `after`."""
    was, now = _Collector(before).collect(command), _Collector(after).collect(command)
    found = [_changed(key, part, now[key]) for key, part in was.items() if key in now]
    # Most additions are harmless; those that decide how everything else runs are not.
    added = [(key, part) for key, part in now.items() if key not in was and key[0] == "decides"]
    found += [Weakened(part.path, part.line, f"{part.name} was added") for _, part in added if was]
    return tuple(one for one in found if one is not None) or _removed(was, now)


def _changed(key: tuple[str, ...], was: Part, now: Part) -> Weakened | None:
    if key[0] == "prerequisites":
        gone = [word for word in was.value if word not in now.value]
        return Weakened(now.path, now.line, f"{was.name} removed: {', '.join(gone)}") if gone else None
    only_adds = len(was.expanded) == len(now.expanded) and all(map(_only_adds_words, was.expanded, now.expanded))
    if was.value == now.value and only_adds:
        return None
    line = now.line or _first_difference(was.value, now.value)
    return Weakened(now.path, line, f"{was.name}, which the test command runs, was changed")


def _removed(was: dict[tuple[str, ...], Part], now: dict[tuple[str, ...], Part]) -> tuple[Weakened, ...]:
    """The outermost part that is gone; the parts that it ran are gone with it."""
    for key, part in was.items():
        has_lost_recipe = ("recipe", *key[1:]) in was.keys() - now.keys()
        if key not in now and not (key[0] in ("prerequisites", "phony") and has_lost_recipe):
            return (Weakened(part.path, part.line, f"{part.name}, which the test command runs, was removed"),)
    return ()


def _first_difference(was: Sequence[str], now: Sequence[str]) -> int:
    pairs = zip(was, now, strict=False)
    return next((at for at, (old, new) in enumerate(pairs, 1) if old != new), min(len(was), len(now)) + 1)


def _only_adds_words(was: str, now: str) -> bool:
    """Whether a line of a recipe differs by further plain arguments only."""
    old, new = was.split(), now.split()
    if old[:1] != new[:1]:
        return old == new
    is_compiler = bool(old) and _COMPILERS.fullmatch(old[0].lstrip("@-+").rpartition("/")[2]) is not None
    rest = iter(new)
    for word in (*old, ""):
        for other in rest:
            if other == word:
                break
            if _HARMLESS.fullmatch(other) is None or (other.startswith("-") and not is_compiler):
                return False
        else:
            return not word
    return True


class _Collector:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._found: dict[tuple[str, ...], Part] = {}

    def collect(self, command: str) -> dict[tuple[str, ...], Part]:
        self._command(command, "", 0)
        return self._found

    def _command(self, text: str, folder: str, depth: int) -> None:
        if depth > _DEEPEST:
            return
        for words in map(program, simple_commands(text)):
            if words[:1] == ["cd"] and len(words) == 2:
                # `cd "$(dirname "$0")"` most often leads to where the command began.
                folder = folder if "$" in words[1] else _join(folder, words[1])
            elif words:
                self._simple(words, folder, depth)

    def _simple(self, words: Sequence[str], folder: str, depth: int) -> None:
        name, arguments = words[0], words[1:]
        base = name.rpartition("/")[2]
        if base in _MAKES:
            self._make(arguments, folder, depth)
        elif base in _PACKAGERS:
            self._package(base, arguments, folder, depth)
        elif base in _SHELLS and (line := inline_command(arguments)):
            self._command(line, folder, depth + 1)
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
        if "\0" not in text:
            lines = text.replace("\\\n", " ").splitlines()[:_MOST_LINES]
            self._command("\n".join(lines), folder, depth + 1)

    def _script(self, words: Sequence[str], folder: str) -> str:
        """The text of the first word that is a file; "" if it was collected before, or is a file of tests."""
        for path in (_join(folder, word) for word in words if not word.startswith("-")):
            text = self._read(path)
            if text is not None:
                if ("file", path) in self._found or (testfiles.is_test(path) and testfiles.test_names(text)):
                    return ""
                self._found["file", path] = Part("the script", tuple(map(str.rstrip, text.splitlines())), path, 0)
                return text
        return ""

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
        is_run = words[:1] in (["run"], ["run-script"])
        name = next(iter(words[1:] if is_run else words), "")
        name = "test" if name in ("t", "tst") and packager in ("npm", "pnpm") and not is_run else name
        path = _join(folder, "package.json")
        text = self._read(path) or ""
        scripts = _scripts(text)
        for one in (f"pre{name}", name, f"post{name}"):
            key = ("script", path, one)
            if one in scripts and key not in self._found:
                script = (" ".join(scripts[one].split()),)
                self._found[key] = Part(f'the script "{one}"', script, path, _line_of_script(text, one))
                self._command(scripts[one], folder, depth + 1)

    def _make(self, arguments: Sequence[str], folder: str, depth: int) -> None:
        goals: list[str] = []
        names: tuple[str, ...] = makefiles.NAMES
        rest = iter(arguments)
        for word in rest:
            if (value := option_value(word, rest, "-C", "--directory")) is not None:
                folder = _join(folder, value)
            elif (value := option_value(word, rest, "-f", "--file", "--makefile")) is not None:
                names = (value,)
            elif not word.startswith("-") and "=" not in word and not word.isdigit():
                goals.append(word)
        path = next((path for path in (_join(folder, name) for name in names) if self._read(path) is not None), "")
        if not path:
            return
        made = makefiles.Makefile(path, self._read, folder)
        if not goals and (goal := made.default_goal()):
            self._found["goal", folder] = Part("the default goal", (goal,), path, 1)
            goals = [goal]
        self._special(made, folder)
        phony = {name for rule in made.rules if ".PHONY" in rule.targets for name in rule.prerequisites}
        for target in made.reached(goals):
            rules = made.rules_of(target)
            if rules and ("prerequisites", folder, target) not in self._found:
                self._target(made, target, rules, folder, depth)
                if target in phony:
                    name = f"the .PHONY mark of `{target}`"
                    self._found["phony", folder, target] = Part(name, (target,), rules[0].path, rules[0].line)

    def _special(self, made: makefiles.Makefile, folder: str) -> None:
        """The lines that change how every recipe runs."""
        for text, path, line in made.evaluated:
            self._found["decides", folder, text] = Part(f"`{text}`", (text,), path, line)
        for name in makefiles.SPECIAL:
            rules = [rule for rule in made.rules if name in rule.targets]
            places = [(rule.path, rule.line) for rule in rules]
            places += [(one.path, one.line) for one in made.assignments if one.name == name and not one.target]
            if places:
                value = (made.value(name) or "", *(word for rule in rules for word in rule.prerequisites))
                self._found["decides", folder, name] = Part(f"`{name}`", value, *places[-1])

    def _target(
        self, made: makefiles.Makefile, target: str, rules: Sequence[makefiles.Rule], folder: str, depth: int
    ) -> None:
        wanted = tuple(name for rule in rules for name in rule.prerequisites)
        name = f"prerequisites of `{target}`"
        self._found["prerequisites", folder, target] = Part(name, wanted, rules[0].path, rules[0].line)
        for one in (one for one in made.assignments if one.target == target):
            name, line = f"`{one.name}` for the target `{target}`", f"{one.name} {one.sign}= {one.value}"
            self._found["decides", folder, target, one.name] = Part(name, (line,), one.path, one.line)
        with_recipe = [rule for rule in rules if rule.recipe]
        if not with_recipe:
            return
        last = with_recipe[-1]
        lines = tuple(line for rule in (with_recipe if last.is_double else [last]) for line in rule.recipe)
        expanded = tuple(made.expanded(line) for line in lines)
        name = f"the recipe of `{target}`"
        self._found["recipe", folder, target] = Part(name, lines, last.path, last.line, expanded)
        for line in expanded:
            self._command(line.lstrip("@-+ "), folder, depth + 1)


def _join(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name)).removeprefix("./")


def _scripts(text: str) -> dict[str, str]:
    try:
        scripts = json.loads(text.removeprefix("\ufeff"))["scripts"]
        return {str(name): script for name, script in scripts.items() if isinstance(script, str)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _line_of_script(text: str, name: str) -> int:
    start = max(text.find('"scripts"'), 0)
    found = re.compile(rf"{re.escape(json.dumps(name))}\s*:").search(text, start)
    return text.count("\n", 0, found.start()) + 1 if found else 1


# --- command lines -----------------------------------------------------------------------------------------


def simple_commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell text, each as its words."""
    for line in text.splitlines():
        made = line.replace("$(MAKE)", "make").replace("${MAKE}", "make")
        lexer = shlex.shlex(made, posix=True, punctuation_chars=True)
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
        elif left[0] in _WRAPPERS:
            del left[0]
            while left and (left[0].startswith("-") or re.fullmatch(r"[\d.]+[smhd]?", left[0])):
                del left[0]
        elif left[0] in _ENVIRONMENTS and left[1:2] in (["run"], ["exec"]):
            del left[:2]
            while left and left[0].startswith("-") and left[0] != "-m":
                del left[0]
        else:
            break
    return left


def inline_command(arguments: Sequence[str]) -> str:
    """The command line in the arguments of a shell, as in `bash -lc "make test"`; "" when it runs a file."""
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
    """The value of the option that `word` begins, from the same word or the next; None for any other word."""
    if word == short or word in long:
        return next(rest, "")
    name, equals, value = word.partition("=")
    if equals and name in long:
        return value
    return word.removeprefix(short) if word.startswith(short) else None
