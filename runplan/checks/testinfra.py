"""Test infrastructure: whether a project looks as if it had tests, and which command would run them.

The suggestion is for a person to confirm; a run never guesses a command.
"""

from __future__ import annotations

import json
import re
import shlex
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_TARGETS = re.compile(r"^([\w. -]+):(?!:?=)", re.MULTILINE)
_NPM_STUB = "no test specified"

#: Files that mean tests, with the command that usually runs them ("" for none worth suggesting).
_BY_FILE: tuple[tuple[str, str], ...] = (
    ("vitest.config.*", "npx vitest run"),
    ("jest.config.*", "npx jest"),
    (".mocharc.*", "npx mocha"),
    ("pytest.ini", "python3 -m pytest"),
    ("tests/*.py", "python3 -m pytest"),
    ("tests/*.js", "node --test tests/"),
    ("tests/*.sh", ""),
)

#: Files of build tools that bring their own tests: worth a suggestion, no proof that there are any.
_BUILD_TOOLS = (("Cargo.toml", "cargo test"), ("go.mod", "go test ./..."))

#: Programs that read a file at the top of the project, and the names it may have.
_READS = {
    **dict.fromkeys(("make", "gmake"), ("Makefile", "makefile", "GNUmakefile")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), ("package.json",)),
}
#: With these words they read another one.
_ELSEWHERE = ("-C", "-f", "--directory", "--file", "--makefile", "--prefix", "--cwd", "--dir")
#: First words that a shell does itself.
_SHELL = frozenset(
    (
        *("!", "(", ":", "[", "{", ".", "cd", "command", "echo", "eval", "exec", "exit", "export", "for", "if"),
        *("set", "source", "test", "true", "false", "while"),
    )
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_INSTALLERS = (
    ("package-lock.json", "npm ci"),
    ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
    ("yarn.lock", "yarn install --frozen-lockfile"),
)
_IN_VENV = re.compile(r"(?<![\w/.])(?:\./)?(\.?venv)/bin/")
_MAKES_VENV = re.compile(r"-m venv|virtualenv|uv (?:sync|venv)|poetry install")


class Infrastructure(Struct, frozen=True, kw_only=True):
    """What was found."""

    found: str  #: the file that shows that there are tests; "" for none
    command: str  #: what would probably run them; "" for no idea

    @property
    def present(self) -> bool:
        return bool(self.found)


class Prerequisites(Struct, frozen=True, kw_only=True):
    """What the test command lacks in a fresh worktree; "" and None for nothing."""

    missing_file: str = ""
    missing_program: str = ""
    setup: tuple[str, str] | None = None  #: what only run.setup makes, and a command for it


def find(files: Sequence[str], *, package_json: str = "", makefile: str = "") -> Infrastructure:
    """Look at the paths at the top and under tests/, and at the text of the two files that name commands."""
    if target := _make_target(makefile):
        return Infrastructure(found="Makefile", command=f"make {target}")
    if _npm_test(package_json):
        return Infrastructure(found="package.json", command="npm test")
    for pattern, command in _BY_FILE:
        if found := next((path for path in files if fnmatchcase(path, pattern)), ""):
            return Infrastructure(found=found, command=command or f"sh {found}")
    command = next((command for name, command in _BUILD_TOOLS if name in files), "")
    return Infrastructure(found="", command=command)


def _make_target(makefile: str) -> str:
    targets = {target for named in _TARGETS.findall(makefile) for target in named.split()}
    return next((target for target in ("test", "check") if target in targets), "")


def _npm_test(package_json: str) -> bool:
    try:
        scripts = json.loads(package_json or "{}")["scripts"]
        script = scripts["test"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(script, str) and bool(script.strip()) and _NPM_STUB not in script


def program_of(command: str) -> str:
    """The program that a command begins with; "" where only a shell could tell."""
    words = _words(command)
    return words[0] if words and words[0] not in _SHELL and not re.search(r"[$`*?~]", words[0]) else ""


def missing_file(command: str, files: Collection[str]) -> str:
    """The file that the command's program reads and that is not among those at the top; "" for none."""
    words = _words(command)
    names = _READS.get(words[0], ()) if words else ()
    elsewhere = any(word.startswith(_ELSEWHERE) for word in words)
    return names[0] if names and not elsewhere and not any(name in files for name in names) else ""


def _words(command: str) -> list[str]:
    """The words of a command without the variables that are set before it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    return words


def needed_setup(
    files: Collection[str], texts: Mapping[str, str], *, command: str, present: Collection[str]
) -> tuple[str, str] | None:
    """What a fresh worktree lacks, and the command that usually makes it.

    `files` stand at the top of the target, `texts` are those of package.json and Makefile, and `present` are the
    directories of the checkout that git does not track.
    """
    if ".gitmodules" in files:
        return "submodules", "git submodule update --init --recursive"
    installs = "node_modules" in present or _has_dependencies(texts.get("package.json", ""))
    if installs and "package.json" in files and "node_modules" not in files:
        return "node_modules", next((line for lock, line in _INSTALLERS if lock in files), "npm install")
    run = f"{command}\n{texts.get('Makefile', '') if program_of(command) in ('make', 'gmake') else ''}"
    used = _IN_VENV.search(run)
    if used is None or used[1] in files or _MAKES_VENV.search(run):
        return None
    what = "-r requirements.txt" if "requirements.txt" in files else "-e ."
    return "a virtual environment", f"python3 -m venv {used[1]} && {used[1]}/bin/pip install {what}"


def _has_dependencies(package_json: str) -> bool:
    try:
        told = json.loads(package_json or "{}")
    except ValueError:
        return False
    return isinstance(told, dict) and any(told.get(name) for name in ("dependencies", "devDependencies"))
