"""Agents that misbehave: every run ends with a named outcome, and the user's repository stays as it was."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import Project, copied, end_processes_of, processes_of, until, with_remote
from tests.support.hostile import a_hostile_project, differences, landed_since, play, standing

WORK = "echo 1 >1.txt; git add 1.txt; git commit -qm 'Write 1'\n"
TOKEN = "ghp_" + 36 * "a"
TERMINAL_CODES = ("\033", "\007", "\0")


@dataclass(frozen=True)
class Agent:
    """The actions of an agent, and how its run ends."""

    script: str
    reason: str = ""  #: "" when the phase lands
    says: str = ""  #: part of the messages or the report


AGENTS = {
    "starts a new history": Agent(WORK + "git checkout -q --orphan new; git commit -qm All\n"),
    "stashes its work": Agent("echo 1 >1.txt; git add 1.txt; git stash\n", "no-commits"),
    "merges what others pushed": Agent(WORK + "git merge -q --no-edit origin/main\n", "off-base", "Theirs"),
    "prints terminal codes": Agent(
        r"""printf '{"status":"failed","summary":"\\u001b]0;own\\u0007\\u001b[31mred \\u0000nul"}' >$RUNPLAN_RETURN"""
        + f"\n{WORK}",
        "agent-failed",
        "reported a failure: red nul",
    ),
    "deletes its own records": Agent(WORK + 'rm -rf "$(dirname "$RUNPLAN_PROMPT")"\n', "crashed"),
    "commits a token and removes it again": Agent(
        f"echo {TOKEN} >conf.txt; git add .; git commit -qm conf; git rm -q conf.txt; git commit -qm out\n" + WORK,
        says="one commit lands instead of single ones, in which conf.txt: seems to contain a GitHub token",
    ),
    "writes content that a filter refuses": Agent(
        "echo '*.txt filter=f' >.gitattributes; echo bad >1.txt\n", "agent-failed", "clean filter 'f' failed"
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One phase; the user has a stash, a filter and a remote with a foreign commit."""
    place = tmp_path_factory.mktemp("model")
    made = a_hostile_project(place, '[tests]\ncommand = "true"\n', **{".gitignore": "*.log\n"})
    repo = made.repo
    repo.write("README.md", "edited\n")
    repo.git("stash")
    for key, value in (("required", "true"), ("clean", "sh -c '! grep bad'"), ("smudge", "cat")):
        repo.git("config", f"filter.f.{key}", value)
    with_remote(made, place / "origin.git")
    theirs = repo.git("commit-tree", "-p", "main", "-m", "Theirs", "main^{tree}")
    repo.git("push", "-q", "origin", f"{theirs}:refs/heads/main")
    return made


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    made = copied(model, tmp_path)
    yield made
    end_processes_of(made.home)


@pytest.mark.matrix
@pytest.mark.parametrize("name", AGENTS)
def test_a_misbehaving_agent_has_a_named_outcome_and_changes_no_repository(project: Project, name: str) -> None:
    agent = AGENTS[name]
    play(project, agent.script)
    before, tip = standing(project), project.repo.head("main")
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, f"runplan: failed: {agent.reason}") if agent.reason else ran.code == 0, ran.err
    assert ("1.txt" in project.repo.git("ls-tree", "--name-only", "main").split()) is (not agent.reason)
    shown = ran.err + project.runplan("report", "X").out
    assert agent.says in shown
    assert TOKEN not in shown
    assert len(shown) < 100_000
    if "prints" in name:
        shown += project.runplan("logs", "X").out + project.runplan("explain", "X").out
    assert not any(code in shown for code in TERMINAL_CODES)
    until(lambda: processes_of(project.home) == [])
    assert differences(before, standing(project)) == landed_since(project, tip), shown
    kept = ("refs/heads/runplan/", "refs/runplan/parked/")
    assert [one for one in project.leftovers() if not one.startswith(kept)] == []
    project.repo.git("fsck", "--strict")


def test_a_stop_that_git_refuses_says_so_and_can_be_repeated(project: Project) -> None:
    play(project, WORK)
    assert project.start("1", "auto", TEST_KILL="before WorkTaken").code == -9
    in_the_way = "refs/heads/runplan/x/1/mine"
    project.repo.git("update-ref", in_the_way, "HEAD")
    project.runplan("stop", "X").exits(5, "then stop it again")
    project.repo.git("update-ref", "-d", in_the_way)
    assert project.runplan("stop", "X").code == 0
    assert project.runplan("status", "X", "--json").json["run"]["state"] == "stopped"


@pytest.mark.promise
def test_a_change_whose_commits_are_gone_is_not_approved(project: Project) -> None:
    play(project, WORK)
    assert project.start("1").code == 4
    for ref in project.leftovers():
        if ref.startswith("refs/"):
            project.repo.git("update-ref", "-d", ref)
    project.repo.git("gc", "-q", "--prune=now")
    for place in ("tool.git", "lanes"):
        shutil.rmtree(project.path / ".git/runplan" / place)
    ran = project.runplan("approve", "X")
    assert ran.last == "runplan: failed: no-commits", ran.err
