"""Phases with a known truth, as data, and how each of them ends when runplan works on it."""

import json
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, convert, field

from tests.support.cli import Project
from tests.support.repos import init_repo

HERE = Path(__file__).parent
Files = dict[str, str]
Edits = dict[str, list[tuple[str, str]]]

SETTINGS = """\
[run]
max_fix_cycles = 0
[agents]
implementer = "player"
verifier = "player"
[agents.player]
kind = "command"
argv = {argv}
"""
PLAN = """\
---
title: Prices
status: active
---
# Plan: Prices

## Progress Tracker

| Phase | Status | Commit | Notes |
|---|---|---|---|
{rows}
{sections}"""


class Expected(StrEnum):
    LANDS = "lands"  #: without a question
    ASKED = "asked"  #: lands with the verifier's recorded word
    REFUSED = "refused"


class Change(Struct, kw_only=True, forbid_unknown_fields=True):
    """A change of files: `edit` replaces texts, the others whole files."""

    item: str = ""  #: the work item of the phase
    edit: Edits = {}
    add: Files = {}
    move: Files = {}
    delete: list[str] = []

    def apply(self, files: Files) -> Files:
        after = edited(files, self.edit)
        for path, new in self.move.items():
            after[new] = after.pop(path)
        for path in self.delete:
            del after[path]
        return after | self.add


class Case(Change, kw_only=True, forbid_unknown_fields=True):
    name: str
    family: str
    change: list[str] = []  #: names of the language's changes of the product
    base: Edits = {}  #: edits of the language's base
    allows: list[str] = []
    tests: dict[str, str] = {}  #: further settings of [tests]
    expect: Expected = Expected.LANDS
    reason: str = "verification-failed"  #: of a refusal; "any" for every reason
    report: str = ""  #: words that the report of the plan contains
    proofs: int | None = None  #: runs of tests beside the one of the candidate
    quiet: bool = False  #: played with the quiet command, too
    sample: bool = False  #: `make test-rest` plays it
    then: Change | None = None  #: the next phase


class Language(Struct, kw_only=True, forbid_unknown_fields=True):
    command: str = ""  #: of the tests
    quiet: str = ""  #: a command of the tests that does not name them, or hides the runner
    tool: str = ""  #: a program that has to be installed
    env: dict[str, str] = {}  #: variables of the test command
    base: Files
    changes: dict[str, Change] = field(name="change", default_factory=dict)
    cases: list[Case] = field(name="case")


class Outcome(Struct, frozen=True, kw_only=True):
    """How a case ended."""

    has_landed: bool
    reason: str  #: of the refusal
    asked: tuple[str, ...]  #: the changed promises that the verifier was asked about
    report: str
    roles: tuple[str, ...]  #: the dispatches, in order
    words: str  #: of the command, for a failed test


def edited(files: Files, edits: Mapping[str, list[tuple[str, str]]]) -> Files:
    after = dict(files)
    for path, replacements in edits.items():
        for old, new in replacements:
            assert after[path].count(old) == 1, f"{old!r} is not unique in {path}"
            after[path] = after[path].replace(old, new)
    return after


def load() -> dict[str, Language]:
    """The languages by name."""
    tables = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("*.toml"))}
    return {name: convert(table, Language) for name, table in tables.items()}


def trees(language: Language, case: Case) -> list[tuple[str, Files]]:
    """The base, then the tree after each phase, with the work item of the phase."""
    base = edited(language.base, case.base)
    changes = [language.changes[name] for name in case.change]
    after = base
    for change in changes:
        after = change.apply(after)
    after = case.apply(after)
    item = case.item or next((change.item for change in changes), "")
    then = [(case.then.item, case.then.apply(after))] if case.then else []
    return [("", base), (item, after), *then]


def play(language: Language, case: Case, place: Path, command: str) -> Outcome:
    """Let runplan work on the case in a repository of its own."""
    home = place / "home"
    home.mkdir()
    (base, *phases) = trees(language, case)
    argv = json.dumps([sys.executable, str(HERE / "agent.py"), str(home)])
    tests = {"command": command.format(python=sys.executable)} | case.tests
    settings = SETTINGS.format(argv=argv)
    if command:
        lines = [f"{key} = {json.dumps(value)}" for key, value in tests.items()]
        settings += "\n".join(["[tests]", *lines, f"env = {json.dumps(['CORPUS_STATE', *language.env])}\n"])
    repo = init_repo(place / "repo")
    for name, text in {
        **base[1],
        "runplan.toml": settings,
        "plans/X.md": plan_of([item for item, _ in phases], case.allows),
    }.items():
        repo.write(name, text)
    repo.commit("Begin")
    before = base[1]
    for number, (_, after) in enumerate(phases, 1):
        write_script(home / f"{number}.json", case, before, after)
        before = after
    env = {name: value.format(place=place.parent) for name, value in language.env.items()}
    project = Project(repo=repo, home=home, extra={"CORPUS_STATE": str(home), **env})
    return run(project, len(phases))


def plan_of(items: Sequence[str], allows: Sequence[str] = ()) -> str:
    """A plan with one phase for each work item."""
    rows, sections = "", ""
    allowed = f"Allows: {', '.join(allows)}\n\n" if allows else ""
    for number, item in enumerate(items, 1):
        rows += f"| {number} — Step {number} | ⬚ | | |\n"
        sections += f"\n## Phase {number} — Step {number}\n\n{allowed}### Work Items\n\n- [ ] {item}\n"
    return PLAN.format(rows=rows, sections=sections)


def write_script(path: Path, case: Case, before: Files, after: Files) -> None:
    write = {name: text for name, text in after.items() if before.get(name) != text}
    delete = [name for name in before if name not in after]
    script = {
        "write": write,
        "delete": delete,
        "evidence": next(iter((*filter(write.get, write), *delete)), ".gitignore"),
        "demanded": case.expect is not Expected.REFUSED,
    }
    path.write_text(json.dumps(script))


def run(project: Project, phases: int) -> Outcome:
    words = ""
    for number in range(1, phases + 1):
        ran = project.start(str(number), "auto")
        words += ran.err
        if ran.code != 0:
            break
    report = project.path / "reports/plan-x.md"
    asked = project.home / "asked"
    ids = asked.read_text().split() if asked.exists() else []
    return Outcome(
        has_landed=project.landed() == [str(number) for number in range(1, phases + 1)],
        reason=ran.last.rpartition(": ")[2] if ran.code else "",
        asked=tuple(item for item in ids if item.startswith("T")),
        report=report.read_text() if report.exists() else "",
        roles=tuple(project.dispatched()),
        words=words,
    )


def fault(case: Case, outcome: Outcome) -> str:
    """What is wrong with the outcome, in a few words; "" when it is as the truth demands."""
    if case.expect is Expected.REFUSED:
        if outcome.has_landed:
            return "landed in error"
        return "" if case.reason in ("any", outcome.reason) else "other reason"
    if not outcome.has_landed:
        return "refused in error"
    if case.expect is Expected.LANDS and outcome.asked:
        return "asked in vain"
    if case.expect is Expected.ASKED and not (outcome.asked and "T1" in outcome.report):
        return "not asked"
    if case.proofs not in (None, outcome.roles.count("prove")):
        return "other cost"
    return "" if case.report in outcome.report else "not told"


def missing_tool(language: Language) -> str:
    """Why the cases of the language cannot be played here; "" when they can."""
    return "" if not language.tool or shutil.which(language.tool) else f"{language.tool} is not installed"
