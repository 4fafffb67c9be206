"""An agent that takes away work that is kept, breaks git's own files, or edits the journal: named, and mended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_project, copied, end_processes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project

SETTINGS = """\
[agents]
implementer = "sh"
verifier = "judge"
[agents.sh]
kind = "command"
argv = ["sh", "{home}/agent.sh"]
[agents.judge]
kind = "script"
script = "agent.toml"
[tests]
command = "true"
"""
#: C is the repository; only the first attempt is a beast.
BEGIN = """\
C=$(cd "$(git rev-parse --git-common-dir)" && pwd)
echo 1 >1.txt; git add 1.txt; git commit -qm 'Write 1'
test "$RUNPLAN_ATTEMPT" = 1 || exit 0
"""
PARKED, KEPT = "refs/runplan/parked/old/1/1", "refs/heads/runplan/y/1"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = a_project(tmp_path_factory.mktemp("model"), "1")
    repo = project.repo
    repo.git("branch", "mine")
    for ref in (PARKED, KEPT):
        kept = repo.git("commit-tree", "-p", "HEAD", "-m", f"Kept at {ref}", "HEAD^{tree}")
        repo.git("update-ref", "--create-reflog", ref, kept)
    return project


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    made = copied(model, tmp_path)
    yield made
    end_processes_of(made.home)


def let_loose(project: Project, does: str) -> None:
    (project.home / "agent.sh").write_text(f"{BEGIN}{does}\n")
    project.commit_file("runplan.toml", SETTINGS.format(home=project.home))


def standing(project: Project) -> dict[str, str]:
    return {name: oid for name, oid in project.repo.refs().items() if "runplan/x/" not in name and "/x/" not in name}


# --- what is kept -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Theft:
    does: str
    accused: bool = False
    names: tuple[str, ...] = (PARKED,)


THEFTS = {
    "deletes by command": Theft(f"git update-ref -d {PARKED}; git branch -qD runplan/y/1", True, (PARKED, KEPT)),
    "deletes without a name": Theft(
        "git for-each-ref --format='delete %(refname)' refs/runplan/parked | git update-ref --stdin", True
    ),
    "moves by command": Theft(f"git update-ref {PARKED} HEAD", True),
    "removes the files": Theft('rm -rf "$C/refs/runplan" "$C/refs/heads/runplan/y"', names=(PARKED, KEPT)),
    "removes the logs as well": Theft(
        'rm -rf "$C/refs/runplan" "$C/logs/refs/runplan" "$C/refs/heads/runplan/y" "$C/logs/refs/heads/runplan/y"',
        names=(PARKED, KEPT),
    ),
}


@pytest.mark.parametrize("name", THEFTS)
def test_work_that_is_kept_and_vanishes_while_an_agent_runs_is_put_back(project: Project, name: str) -> None:
    theft = THEFTS[name]
    let_loose(project, theft.does)
    before = standing(project)

    ran = project.start("1", "auto")

    assert (ran.code, ran.last == "runplan: failed: guard-violated") == ((1, True) if theft.accused else (0, False))
    for ref in theft.names:
        who = "the agent changed" if theft.accused else "while the agent ran, somebody changed"
        assert f"{who} the kept ref {ref}" in ran.err
        assert f"the kept ref {ref}: it was put back as it was" in project.runplan("report", "X").out
    now = standing(project)
    assert {ref: now.get(ref) for ref in (PARKED, KEPT)} == {ref: before[ref] for ref in (PARKED, KEPT)}
