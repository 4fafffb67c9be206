"""Test infrastructure: whether a project looks as if it had tests, and which command would run them.

The suggestion is for a person to confirm; a run never guesses a command.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Infrastructure:
    """What was found."""

    found: str  #: the file that shows that there are tests; "" for none
    command: str  #: what would probably run them; "" for no idea

    @property
    def present(self) -> bool:
        return bool(self.found)


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
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(script, str) and bool(script.strip()) and _NPM_STUB not in script
