"""The test command: which one fits a project, and what it lacks in a worktree."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks.guarded import package_table

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
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
    script = package_table(package_json, "scripts").get("test", "")
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
    package = texts.get("package.json", "")
    has_dependencies = any(package_table(package, name) for name in ("dependencies", "devDependencies"))
    if ("node_modules" in present or has_dependencies) and "package.json" in files and "node_modules" not in files:
        return "node_modules", next((line for lock, line in _INSTALLERS if lock in files), "npm install")
    run = f"{command}\n{texts.get('Makefile', '') if program_of(command) in ('make', 'gmake') else ''}"
    used = _IN_VENV.search(run)
    if used is None or used[1] in files or _MAKES_VENV.search(run):
        return None
    what = "-r requirements.txt" if "requirements.txt" in files else "-e ."
    return "a virtual environment", f"python3 -m venv {used[1]} && {used[1]}/bin/pip install {what}"
