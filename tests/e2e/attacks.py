"""The zoo: what a hostile agent does to its own directories, to runplan and to the user. The attacks: `attacks.toml`.

`docs/threat-model.md` has a table of the kinds; `tests/unit/test_docs_tables.py` compares it with this module.
"""

import json
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.support.planning import CONTENT, EXPLORE, PLAN

#: The attacks by kind and name, and the parts of them that `{NAME}` stands for.
_TABLE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PARTS, _KINDS = _TABLE.pop("parts"), _TABLE.pop("kinds")
#: A planner that answers each step.
ANSWERS = {
    "explore": EXPLORE | {"files": [{"path": path, "why": "It is there."} for path in ("README.md", "agent.sh")]},
    "draft": {"status": "done", "plan": PLAN},
    "critique": CONTENT,
}
_PARTS["PLANS"] = "".join(
    f"test $RUNPLAN_ROLE != {role} || printf %s '{json.dumps(answer)}' >\"$RUNPLAN_RETURN\"\n"
    for role, answer in ANSWERS.items()
)


def _fill(text: str) -> str:
    """The text with its parts."""
    return re.sub(r"\{([A-Z_]+)\}", lambda match: _fill(_PARTS[match[1]]), text)


WORK, TOKEN = _fill(_PARTS["WORK"]), _PARTS["TOKEN"]
START, ASKED = (tuple(_PARTS[name].split()) for name in ("START", "ASKED"))


class Kind(StrEnum):
    """A row of the threat model."""

    REPOSITORY = "links, pipes and damage in its repository"
    PROGRAMS = "configuration, hooks and filters that name a program"
    OBJECTS = "forged, huge or malformed objects, refs and streams"
    FILES = "links, pipes, odd modes and names among its files"
    LARGE_FILES = "forged files of git-lfs"
    PROOF = "work that passes only where it was prepared"
    TESTS = "code that the tests run"
    JUDGES = "verdicts, instructions and hidden text for the verifier and for you"
    RECORDS = "links, pipes and floods in place of return, notes and logs"
    PROCESSES = "processes that stay, and commands of runplan"
    PLANNERS = "files and commits of a planner"
    HOME = "files in your home, in parents of its worktree, in `/tmp` and caches"
    CREDENTIALS = "passwords and tokens"
    DIRECT = "writes to your repository, checkout, journal or another lane, by path"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """The actions of an agent, before or after its work."""

    kind: Kind
    script: str
    lands: bool = True  #: whether the phase may land
    needs_sandbox: bool = False  #: without it the attack has an effect
    settings: dict[str, str] = field(default_factory=dict)  #: variables of the environment
    command: tuple[str, ...] = START  #: of the user
    verifier: str = ""  #: its script, where it does not pass the work
    delegated: str = ""  #: the command of phase 2
    path: str = ""  #: the first directory of PATH, from the parent of the user's home and checkout


def _make_attack(
    kind: Kind,
    *,
    script: str,
    before: str = "{PREAMBLE}",
    after: str = "",
    command: str = "{START}",
    verifier: str = "",
    settings: dict[str, str] | None = None,
    **fields: Any,
) -> Attack:
    """The attack of a row, with `before` and `after` its script."""
    return Attack(
        kind=kind,
        script=_fill(f"{before}{script}{after}\ntrue\n"),
        command=tuple(shlex.split(_fill(command))),
        verifier=_fill(verifier),
        settings={name: _fill(value) for name, value in (settings or {}).items()},
        **fields,
    )


ATTACKS = {
    name: _make_attack(Kind[kind], **_KINDS.get(kind, {}) | (row if isinstance(row, dict) else {"script": row}))
    for kind, rows in _TABLE.items()
    for name, row in rows.items()
}
