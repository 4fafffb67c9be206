"""Work that git refuses ends its attempt by name; the plan can be stopped and begun anew, and the files are kept."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.support.cli import Project, a_project

if TYPE_CHECKING:
    from pathlib import Path

HERE = "dir=$(git rev-parse --git-dir); common=$(git rev-parse --git-common-dir); branch=$(git symbolic-ref HEAD)\n"
WORKS = "echo 1 >1.txt; git add 1.txt; git commit -qm Work; echo more >2.txt\n"
#: A filter of the user's that fails for content it does not like.
FILTER = 'text=$(cat); case "$text" in *bad*) exit 1;; esac; echo "$text"\n'


class Way(NamedTuple):
    """What the agent does, and how that is told."""

    script: str
    reason: str
    told: str
    attributes: str = ""


WAYS = {
    "no byte order mark": Way(
        "printf abc >1.txt\n", "tampered", "1.txt cannot be committed", "*.txt text working-tree-encoding=UTF-16\n"
    ),
    "no encoding at all": Way(
        "echo '*.txt working-tree-encoding' >.gitattributes; echo abc >1.txt\n", "tampered", "cannot be committed"
    ),
    "a filter fails": Way("echo bad >1.txt\n", "blocked", "clean filter 'f' failed", "*.txt filter=f\n"),
    "a filter fails on a file that was there": Way(
        "echo bad >old.bin\n", "blocked", "clean filter 'f' failed", "*.bin filter=f\n"
    ),
    "the tip is lost": Way(
        f'{HERE}{WORKS}echo {"1" * 40} >"$common/$branch"\n', "tampered", "git refuses the objects of 111111111111"
    ),
}
#: What an agent may do to its own repository; the files tell what it did.
DAMAGES = {
    "the branch is no ref": 'echo junk >"$common/$branch"',
    "HEAD is unreadable": 'echo junk >"$dir/HEAD"',
    "HEAD is gone": 'rm "$dir/HEAD"',
    "HEAD leads to nothing": f'echo {"1" * 40} >"$dir/HEAD"',
    "no repository": 'rm -rf "$common"',
    "no link": "rm .git",
    "an index lock": 'touch "$dir/index.lock"',
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


def play(project: Project, way: Way) -> None:
    for name, text in (("agent.sh", way.script), ("filter.sh", FILTER)):
        (project.home / name).write_text(text)
    for key, value in (("required", "true"), ("clean", f"sh {project.home / 'filter.sh'}"), ("smudge", "cat")):
        project.repo.git("config", f"filter.f.{key}", value)
    if way.attributes:
        project.repo.commit("Attributes", **{".gitattributes": way.attributes, "old.bin": "good\n"})
    project.settings(f'[agents.sh]\nkind = "command"\nargv = ["sh", "{project.home / "agent.sh"}"]\n')
    text = (project.path / "runplan.toml").read_text().replace('implementer = "robot"', 'implementer = "sh"')
    project.commit_file("runplan.toml", text)


def kept(project: Project, name: str) -> bool:
    """Whether a branch or a parked ref of the run holds the file."""
    refs = [ref for ref in project.repo.refs() if "runplan" in ref]
    return any(project.repo.git("ls-tree", "--name-only", ref, "--", name) for ref in refs)


@pytest.mark.parametrize("name", WAYS)
def test_what_git_refuses_ends_the_attempt_by_name_and_wedges_nothing(project: Project, name: str) -> None:
    way = WAYS[name]
    play(project, way)
    first = project.start("1", "auto")
    assert (first.code, first.last) == (1, f"runplan: failed: {way.reason}"), first.err
    assert way.told in first.err
    changed = "old.bin" if "bin" in way.script else "2.txt" if "2.txt" in way.script else "1.txt"
    assert kept(project, changed)
    again = project.runplan("retry", "X")
    assert (again.code, again.last) == (1, f"runplan: failed: {way.reason}"), again.err
    assert project.dispatched() == ["implement", "implement"]
    assert project.runplan("stop", "X").code == 0
    (project.home / "agent.sh").write_text("echo good >1.txt\n" if "UTF" not in way.attributes else "echo good >a\n")
    ran = project.runplan("retry", "X")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_to_the_agents_own_repository_loses_nothing(project: Project, name: str) -> None:
    play(project, Way(f"{HERE}{WORKS}{DAMAGES[name]}\n", "", ""))
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert (project.show("main:1.txt"), project.show("main:2.txt")) == ("1", "more")
    assert project.leftovers() == []


def test_a_stop_ends_a_run_whose_worktree_git_cannot_read(project: Project) -> None:
    assert project.start("1", "auto", RUNPLAN_TEST_KILL="TakeWork.begin").code == -signal.SIGKILL
    worktree = next((project.home / ".cache/runplan/worktrees").iterdir())
    (project.path / f".git/runplan/lanes/{worktree.name}.git/worktrees/{worktree.name}/HEAD").write_text("junk\n")
    stopped = project.runplan("stop", "X")
    assert stopped.code == 0, stopped.err
    assert project.runplan("status", "X", "--json").json["run"]["state"] == "stopped"


def test_a_stop_that_git_refuses_says_so_and_does_not_signal_itself(project: Project) -> None:
    """It owns the run that it ends, so the claim leads to its own process."""
    assert project.start("1", "auto", RUNPLAN_TEST_KILL="TakeWork.begin").code == -signal.SIGKILL
    lock = project.path / ".git/refs/heads/runplan/x/1.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w"):  # a git that holds the branch under which the work would be kept
        refused = project.runplan("stop", "X")
    assert refused.code == 5, refused.err
    assert "then stop it again" in refused.err
    lock.unlink()
    assert project.runplan("stop", "X").code == 0
    assert project.runplan("status", "X", "--json").json["run"]["state"] == "stopped"
