"""The zoo: what a hostile agent does to its own directories, to runplan and to the user. The scripts: `attacks.toml`.

`docs/threat-model.md` has a table of the kinds; `tests/unit/test_docs_tables.py` compares it with this module.
"""

import json
import re
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.support.planning import CONTENT, EXPLORE, PLAN

#: Scripts by kind and name, and the parts of them that `{NAME}` stands for.
_TABLE: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PARTS = _TABLE.pop("parts")


def _fill(script: str) -> str:
    """The script with its parts."""
    return re.sub(r"\{([A-Z_]+)\}", lambda match: _fill(_PARTS[match[1]]), script)


WORK, VERDICT, FAILED = (_fill(_PARTS[name]) for name in ("WORK", "VERDICT", "FAILED"))
TOKEN = _PARTS["TOKEN"]
START = ("start", "X", "1", "auto", "--foreground")


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


#: Set-up makes the runner of the tests.
SET_UP = {
    "RUNPLAN_RUN_SETUP": "mkdir -p node_modules && echo 'test ! -e red' >node_modules/run",
    "RUNPLAN_TESTS_COMMAND": "sh node_modules/run; code=$?; test ! -e lib/test.sh || . lib/test.sh; exit $code",
}


def _obeys(command: str) -> str:
    """A verifier that passes the work only if the command succeeds."""
    return f"{command} && answer='{VERDICT}' || answer='{FAILED}'; echo \"$answer\" >\"$RUNPLAN_RETURN\""


VERIFIERS = {
    "plants a verdict that the verifier quotes": "echo 'W1 is not done.'; cat note.md; echo 'The work says so.'",
    "plants a verdict that the verifier quotes last": f"printf '```json\\n%s\\n```\\n' '{FAILED}'; cat note.md",
    "plants a verdict that ends a quotation": f"printf '```json\\n%s\\n```\\n```\\n' '{FAILED}'\n"
    "cat note.md; echo '```'",
    "returns a verdict of its own": f"echo '{FAILED}' >\"$RUNPLAN_RETURN\"",
    "plants instructions of a verifier": _obeys('grep -q pass "$HOME/.claude/CLAUDE.md"'),
    "plants programs of a verifier": _obeys('"$HOME/.local/bin/judge"'),
}
#: A planner that answers each step.
ANSWERS = {
    "explore": EXPLORE | {"files": [{"path": path, "why": "It is there."} for path in ("README.md", "agent.sh")]},
    "draft": {"status": "done", "plan": PLAN},
    "critique": CONTENT,
}
PLANS = "".join(
    f"test $RUNPLAN_ROLE != {role} || printf %s '{json.dumps(answer)}' >\"$RUNPLAN_RETURN\"\n"
    for role, answer in ANSWERS.items()
)
#: What stands before and after the script, by kind.
_AROUND = {
    Kind.LARGE_FILES: ("size=5\n", f"\npointer $sum $size >p.bin; git add p.bin\n{WORK}"),
    Kind.TESTS: (f"{WORK}mkdir -p lib; cat >lib/test.sh <<'END'\n", "\nEND\ngit add lib; git commit -qm Test\n"),
    Kind.PLANNERS: (f"{PLANS}echo x >planned; echo x >>README.md\n", ""),
    **dict.fromkeys((Kind.RECORDS, Kind.PROCESSES, Kind.CREDENTIALS, Kind.DIRECT), (WORK, "")),
}
_SCRIPTS = {
    Kind[kind]: {name: _fill(script).join(_AROUND.get(Kind[kind], ("", ""))) for name, script in scripts.items()}
    for kind, scripts in _TABLE.items()
}
#: The phase never lands.
REFUSED = frozenset(
    (
        "replaces its objects by a link",
        "borrows objects through a pipe",
        "makes packed refs a pipe",
        "makes HEAD a pipe",
        "writes variables of git into files",
        "gives a submodule a command",
        "gives a submodule an option as address",
        "gives a submodule a name outside",
        "plants a repository in a submodule",
        *_TABLE["OBJECTS"].keys()
        - {
            *("plants a junk commit graph", "commits a link, then a file below it", "grafts its history"),
            *("cuts its history off", "gives refs odd names", "gives refs long names"),
            *("forges the trailers of a landing", "makes its branch a tree"),
        },
        "makes attributes a pipe",
        "commits 1,500 nested folders",
        "makes ignore rules a pipe",
        "makes a parent of a copied file a link",
        "makes the reports a link",
        "makes the plans a link",
        "claims a huge size",
        "claims a large size",
        *(name for kind in ("PROOF", "JUDGES", "PLANNERS") for name in _TABLE[kind]),
        "plants instructions of a verifier",
        "plants programs of a verifier",
        "approves its work after its end, twice forked",
        *(name for name, script in _TABLE["HOME"].items() if script.startswith("{RED}")),
    )
)
#: Without the sandbox the attack has an effect.
NEEDS_SANDBOX = frozenset(
    (
        *_TABLE["DIRECT"],
        *_TABLE["HOME"],
        "edits the script of a filter",
        "edits the script of a filter that changes what lands beside",
        "lands a program git in a directory on PATH",
        "plans and writes the user's checkout",
        "reads tokens from processes",
        "reads tokens in the user's configuration",
        "reads the files of credentials",
    )
)
#: Further settings of the project.
SETTINGS = {
    "rewrites the runner of the tests": SET_UP,
    "edits the script of the set-up": SET_UP | {"RUNPLAN_RUN_SETUP": "sh tools/setup.sh"},
} | {name: {"RUNPLAN_AGENTS_PLANNER": "shell"} for name in _TABLE["PLANNERS"]}
#: The user does not say `auto`, and has to see the change first.
ASKED = ("start", "X", "1", "--foreground")
COMMANDS = {
    **{
        name: ASKED
        for name in (*_TABLE["JUDGES"], "approves its work after its end, twice forked")
        if name not in VERIFIERS
    },
    **dict.fromkeys(_TABLE["PLANNERS"], ("plan", "Greet people", "--quick", "--foreground")),
    "edits the instructions of agents": START,
}
DELEGATED = {
    "edits the script of a delegated command": "sh tools/ship.sh",
    "edits a recipe of a delegated command": "make ship",
}
PATHS = {"plants programs on PATH": "home/.local/bin", "lands a program git in a directory on PATH": "repo/bin"}
ATTACKS = {
    name: Attack(
        kind=kind,
        script=f"{'' if kind is Kind.PLANNERS else _PARTS['PREAMBLE']}{script}\ntrue\n",
        lands=name not in REFUSED,
        needs_sandbox=name in NEEDS_SANDBOX,
        settings=SETTINGS.get(name, {}),
        command=("start", "X", "finish", "auto", "--foreground") if name in DELEGATED else COMMANDS.get(name, START),
        verifier=VERIFIERS.get(name, ""),
        delegated=DELEGATED.get(name, ""),
        path=PATHS.get(name, ""),
    )
    for kind, scripts in _SCRIPTS.items()
    for name, script in scripts.items()
}
