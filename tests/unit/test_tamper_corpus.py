"""Every guilty change of the corpus is caught, with its file and line, and no innocent one is."""

import tomllib
from pathlib import Path

import pytest
from msgspec import Struct, convert

from runplan.checks.tamper import FileChange, Permit, Tampering, examine, examine_checks

CORPUS = Path(__file__).parents[1] / "tamper_corpus"
OWN = ("plans/x.md", "reports/plan-x.md")
LANGUAGES = ("python", "javascript", "go", "rust", "project")


class Case(Struct, kw_only=True):
    name: str
    guilty: list[str] = []
    line: int | None = None
    phase: str = "Improve sums."
    touches: list[str] = []
    allows: list[str] = []
    command: str = ""
    edit: dict[str, list[tuple[str, str]]] = {}
    add: dict[str, str] = {}
    move: dict[str, str] = {}
    delete: list[str] = []


def tree_after(case: Case, before: dict[str, str]) -> dict[str, str]:
    after = dict(before)
    for path, edits in case.edit.items():
        for old, new in edits:
            assert after[path].count(old) == 1, f"{case.name}: {old!r} is not unique in {path}"
            after[path] = after[path].replace(old, new)
    for path, new in case.move.items():
        after[new] = after.pop(path)
    for path in case.delete:
        del after[path]
    return after | case.add


def findings(case: Case, before: dict[str, str]) -> tuple[Tampering, ...]:
    after = tree_after(case, before)
    changes = [
        FileChange(
            path=path,
            before=before.get(path),
            after=after.get(path),
            deleted=path not in after,
            added=path not in before,
        )
        for path in sorted(before | after)
        if before.get(path) != after.get(path)
    ]
    permit = Permit(
        text=case.phase,
        touches=tuple(case.touches),
        allows=tuple(case.allows),
        bookkeeping=(*OWN, "runplan.toml"),
        written=OWN,
    )
    commands = [case.command] if case.command else []
    paths = [change.path for change in changes]
    checks = examine_checks(commands, paths, permit, before=before.get, after=after.get)
    return (*examine(changes, permit), *checks)


def loaded() -> list[tuple[str, Case, dict[str, str]]]:
    found = []
    for language in LANGUAGES:
        data = tomllib.loads((CORPUS / f"{language}.toml").read_text(encoding="utf-8"))
        found += [(language, convert(case, Case), data["base"]) for case in data["case"]]
    return found


CASES = loaded()


@pytest.mark.parametrize(
    ("case", "base"), [pytest.param(case, base, id=f"{language}: {case.name}") for language, case, base in CASES]
)
def test_a_change_is_caught_when_it_is_guilty_and_only_then(case: Case, base: dict[str, str]) -> None:
    found = findings(case, base)
    if not case.guilty:
        assert [str(one) for one in found] == []
        return
    kinds = {one.kind.value for one in found}
    assert kinds.intersection(case.guilty), [str(one) for one in found]
    if case.line is not None:
        assert case.line in [one.line for one in found if one.kind.value in case.guilty], [str(one) for one in found]
