"""Tests and setup run what an agent wrote: what they change in the main repository is seen, and then nothing lands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, a_project, end_processes_of
from tests.support.scripts import set_up, work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project

GATE = '[tests]\ncommand = "sh run.sh"\n'
SETUP = '[run]\nsetup = "sh run.sh"\n[tests]\ncommand = "true"\n'
MAIN = 'main=$(dirname "$(git rev-parse --path-format=absolute --git-common-dir)")\n'

#: What the code that an agent wrote does when it is run; how the report tells of it.
DEEDS: dict[str, tuple[str, str]] = {
    "configures a filter": ("git config filter.x.clean 'sed s/1/2/'", "changed the config config"),
    "moves the target": ("git update-ref refs/heads/main HEAD~1", "changed the ref refs/heads/main"),
    "deletes a branch": ("git branch -qD spare", "changed the ref refs/heads/spare"),
    "moves the branch of the run": (
        "git update-ref refs/heads/runplan/x/1 HEAD~1",
        "changed the ref refs/heads/runplan",
    ),
    "makes a tag": ("git tag evil", "changed the ref refs/tags/evil"),
    "drops the stash": ("git stash drop -q", "changed the stash"),
    "stashes": ("echo x >>README.md; git stash -q", "changed the stash"),
    "moves HEAD of the checkout": ('git -C "$main" checkout -q --detach', "changed the head HEAD"),
    "writes the user's configuration": ("git config --global core.sshCommand x", ".gitconfig (core.sshcommand"),
    "names a program by hand": (
        r'printf "[filter \"x\"]\n\tclean = sed\n" >>"$main/.git/config"',
        "git obeys filter.x.clean now, so nothing is landed on it",
    ),
    "takes the record away": ('rm -f "$main"/.git/runplan/dispatch/$RUNPLAN_DISPATCH/guard.json', "took away"),
}
#: What cannot be put back, as after an agent.
STAYS = {"writes the user's configuration": {"user"}, "names a program by hand": {"config"}}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = a_project(tmp_path, "1", HOME=str(tmp_path / "home"))
    del made.repo.env["GIT_CONFIG_GLOBAL"]
    (made.home / ".gitconfig").write_text("[user]\n\tname = U\n\temail = u@example.invalid\n")
    made.repo.write("README.md", "hello\n")
    made.repo.write("run.sh", "exit 0\n")
    made.plan(a_plan("1").replace("### Work Items", "Allows: run.sh\n\n### Work Items"))
    made.repo.commit("More")
    made.repo.git("branch", "spare")
    made.repo.write("README.md", "hello, you\n")
    made.repo.git("stash", "-q")
    yield made
    end_processes_of(made.home)


def standing(project: Project) -> dict[str, str]:
    git = project.path / ".git"
    refs = dict(
        line.split(" ", 1)
        for line in project.repo.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        if "runplan" not in line
    )
    return refs | {
        "HEAD": (git / "HEAD").read_text(),
        "config": (git / "config").read_text(),
        "hooks": str(sorted(path.name for path in (git / "hooks").iterdir())),
        "stash": project.repo.git("stash", "list", "--format=%H"),
        "user": (project.home / ".gitconfig").read_text(),
    }


def runs(text: str) -> str:
    """An implementer that does its work, and makes run.sh do this."""
    return work(f'write = "run.sh"\ntext = {json.dumps(MAIN + text + chr(10))}', 'commit = "Run"')


@pytest.mark.parametrize("deed", DEEDS)
def test_what_the_checks_change_is_laid_at_their_door(project: Project, deed: str) -> None:
    does, told = DEEDS[deed]
    set_up(project, settings=GATE, agent=runs(does))
    before = standing(project)

    ran = project.start("1", "auto")

    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated"), ran.err
    assert told in ran.err + project.runplan("report", "X").out
    assert "the gate command" in ran.err
    now = standing(project)
    assert {what for what in before.keys() | now.keys() if before.get(what) != now.get(what)} == STAYS.get(deed, set())
    assert "1.txt" not in project.repo.git("ls-tree", "--name-only", "main").split()


@pytest.mark.parametrize("deed", ["configures a filter", "moves the target", "takes the record away"])
def test_what_setup_changes_on_the_work_is_laid_at_its_door(project: Project, deed: str) -> None:
    does, told = DEEDS[deed]
    set_up(project, settings=SETUP, agent=runs(does))
    before = standing(project)

    ran = project.start("1", "auto")

    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated"), ran.err
    assert told in ran.err
    assert "the setup command" in ran.err
    assert standing(project) == before


def test_what_the_users_own_code_changes_is_named_and_nobody_is_accused(project: Project) -> None:
    """Package managers set hooks up, and submodules are put into the configuration, when setup runs on the base."""
    project.repo.write("run.sh", "git config core.hooksPath .hooks\n")
    set_up(project, settings=SETUP)

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err
    assert set(project.landed()) == {"1"}
    assert "while the setup command ran, somebody changed the config config" in project.runplan("report", "X").out
    assert project.repo.git("config", "core.hooksPath") == ".hooks"


@pytest.mark.parametrize(
    "does",
    [
        pytest.param(
            "git init -q own; cd own; git config a.b c; git commit -q --allow-empty -m x; git tag v", id="own"
        ),
        pytest.param('as_user git -C "$main" branch mine', id="the user's"),
        pytest.param("git status >/dev/null; git log -1 >/dev/null; git diff --quiet", id="only looks"),
    ],
)
def test_who_changes_nothing_of_the_users_is_not_accused(project: Project, does: str) -> None:
    """Suites make repositories of their own, and the user works on meanwhile."""
    as_user = 'as_user() { env -u GIT_COMMITTER_NAME -u GIT_COMMITTER_EMAIL -u GIT_TRACE2_EVENT "$@"; }\n'
    set_up(project, settings=GATE, agent=runs(as_user + does))

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err
    assert set(project.landed()) == {"1"}
    assert "changed the" not in project.runplan("report", "X").out
