"""An agent that takes away work that is kept, breaks git's own files, or edits the journal: named, and mended."""

from __future__ import annotations

import shlex
import sys
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


# --- git's own files ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    does: str
    says: str


BREAKS = {
    "writes nonsense into HEAD": Damage('echo garbage >"$C/HEAD"', "the agent left HEAD so that git cannot read it"),
    "empties HEAD": Damage(': >"$C/HEAD"', "the agent left HEAD so that git cannot read it"),
    "removes HEAD": Damage('rm "$C/HEAD"', "the agent took HEAD away"),
    "makes a folder of HEAD": Damage('rm "$C/HEAD"; mkdir "$C/HEAD"', "the agent took HEAD away"),
    "breaks another worktree's HEAD": Damage('echo x >"$C/worktrees/mine/HEAD"', "left worktrees/mine/HEAD so that"),
    "writes nonsense into the configuration": Damage("echo '[[[' >\"$C/config\"", "the agent left config so that"),
    "appends nonsense to the configuration": Damage("echo 'a b c' >>\"$C/config\"", "the agent left config so that"),
    "removes the configuration": Damage('rm "$C/config"', "the agent took config away"),
    "writes nonsense into the packed refs": Damage('echo zzz >"$C/packed-refs"', "the agent left packed-refs so that"),
    "removes the packed refs": Damage('rm "$C/packed-refs"', "the agent took packed-refs away"),
}


def files(project: Project) -> dict[str, bytes]:
    git = project.path / ".git"
    return {name: (git / name).read_bytes() for name in ("HEAD", "config", "worktrees/mine/HEAD")}


@pytest.mark.parametrize("name", BREAKS)
def test_what_git_cannot_read_is_put_back_before_git_is_asked_for_anything(project: Project, name: str) -> None:
    damage = BREAKS[name]
    project.repo.git("worktree", "add", "-q", str(project.home / "mine"), "mine")
    project.repo.git("pack-refs", "--all")
    let_loose(project, damage.does)
    before, refs = files(project), standing(project)

    ran = project.start("1", "auto")

    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated"), ran.err
    assert damage.says in ran.err
    assert "was put back as it was" in ran.err
    assert files(project) == before
    assert standing(project) == refs
    assert project.runplan("status", "X").code == 0
    assert project.repo.status() == ""
    again = project.start("1", "auto")
    assert again.code == 0, again.err
    assert project.landed() == ["1"]


def test_the_broken_bytes_are_kept_aside(project: Project) -> None:
    let_loose(project, 'echo garbage >"$C/HEAD"')
    project.start("1", "auto")
    (kept,) = (project.path / ".git/runplan/parked-files").glob("HEAD.*")
    assert kept.read_text() == "garbage\n"


def test_an_index_that_is_no_index_is_taken_out_of_the_way(project: Project) -> None:
    let_loose(project, 'echo garbage >"$C/index"')
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated"), ran.err
    assert "the agent left index so that git cannot read it" in ran.err
    assert "to begin it anew: git reset" in ran.err
    project.repo.git("reset", "-q")
    assert project.repo.status() == ""
    again = project.start("1", "auto")
    assert again.code == 0, again.err


def test_an_index_that_is_gone_is_named_and_nobody_accused(project: Project) -> None:
    """To remove it and begin it anew is a way that people go."""
    let_loose(project, 'rm "$C/index"')
    project.commit_file("agent.toml", '[[phase."1".verify]]\nsay = "no"\n')
    ran = project.start("1", "auto")
    assert "while the agent ran, somebody took index away" in ran.err
    assert "guard-violated" not in ran.err


# --- the journal --------------------------------------------------------------------------------------

EDITS = {
    "deletes everything": "delete from events",
    "deletes what it has used": "delete from events where type = 'DispatchStarted'",
    "rewrites what was found": "update events set body = replace(body, 'true', 'false')",
    "adds an event": "insert into events select max(seq) + 1, run, at, type, body from events",
    "deletes what another run has used": "delete from events where run = (select id from runs limit 1)",
}


@pytest.mark.parametrize("name", EDITS)
def test_a_journal_that_was_edited_is_named_and_nothing_lands(project: Project, name: str) -> None:
    let_loose(project, "exit 1")
    project.start("1", "auto")  # so that there is another run
    edit = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=5); db.execute(sys.argv[2]); db.commit()"
    once = f"test ! -e {project.home}/done || exit 0; touch {project.home}/done"
    does = shlex.join([sys.executable, "-c", edit, str(project.path / ".git/runplan/journal.db"), EDITS[name]])
    (project.home / "agent.sh").write_text(f"{BEGIN.rpartition('test ')[0]}{once}\n{does}\n")

    ran = project.start("1", "auto")

    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated"), ran.err
    assert "the agent changed the journal" in ran.err
    assert project.landed() == []
    for verb in ("status", "logs", "report", "explain"):
        assert project.runplan(verb, "X").code == 0
    again = project.start("1", "auto")
    assert again.code == 0, again.err
