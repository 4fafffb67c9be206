"""The fingerprint of a real repository: what a process changed there is named."""

from pathlib import Path

import pytest

from runplan.adapters.git.command import Git
from runplan.adapters.git.repository import MOST_LINES, Difference, Fingerprints, describe_differences
from runplan.domain.gitfacts import committing_as, signing
from tests.support.repos import make_repo

AGENT = signing("r1.1").email

#: The end of the name of each change, and the command that makes it.
CHANGES = {
    "refs/heads/new": "git branch new",
    "refs/tags/v1": "git tag v1",
    "HEAD": "git checkout -q --detach",
    "config": "git config core.editor vi",
    "info/attributes": "mkdir -p .git/info; echo '* text' >.git/info/attributes",
    "info/exclude": "mkdir -p .git/info; echo '*.o' >>.git/info/exclude",
    "info/alternates": "echo /nowhere >.git/objects/info/alternates",
    "pre-commit": "mkdir -p .git/hooks; echo '#!/bin/sh' >.git/hooks/pre-commit",
    ".gitconfig": "echo '[core]' >../.gitconfig",
    "refs/stash": "echo 2 >a; git stash",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_and_nothing_else(tmp_path: Path, name: str) -> None:
    repo = make_repo(tmp_path / "repo", a="1")
    env = {key: value for key, value in repo.env.items() if key != "GIT_CONFIG_GLOBAL"} | {"HOME": str(tmp_path)}
    with Git(repo.path, env=env) as git:
        prints = Fingerprints(git, repo.path / ".git", "runplan/")
        before = prints.take_fingerprint()
        assert prints.list_differences(before, agent=AGENT) == ()
        repo.sh(CHANGES[name])
        (found,) = prints.list_differences(before, agent=AGENT)
    assert found.name.endswith(name)
    assert not found.by_agent


def test_a_landing_of_ours_is_no_difference(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", a="1")
    with repo.adapter() as git:
        prints = Fingerprints(git, repo.path / ".git", "runplan/")
        before = prints.take_fingerprint()
        tip = repo.commit("Landed", a="2")
        assert [one.name for one in prints.list_differences(before, agent=AGENT)] == ["refs/heads/main"]
        assert prints.list_differences(before, agent=AGENT, list_landed=lambda: [tip]) == ()


def test_a_ref_moved_under_the_name_of_the_agent_is_its_change(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", a="1")
    with repo.adapter() as git:
        prints = Fingerprints(git, repo.path / ".git", "runplan/")
        before = prints.take_fingerprint()
        repo.git("branch", "mine")
        repo.git("branch", "another", env=committing_as("r2.1"))
        repo.git("branch", "theirs", env=committing_as("r1.1"))
        repo.git("branch", "runplan/x/1", env=committing_as("r1.1"))
        found = prints.list_differences(before, agent=AGENT)
    assert {one.name: one.by_agent for one in found} == {
        **dict.fromkeys(("refs/heads/mine", "refs/heads/another"), False),
        "refs/heads/theirs": True,
    }


def test_the_report_says_who_where_it_is_known() -> None:
    own = Difference(name="refs/heads/x", old="", new="a" * 40, by_agent=True)
    other = Difference(name="/r/.git/config", old="1", new="2")
    assert describe_differences([own, other], "the agent") == (
        "the agent changed refs/heads/x in your repository: nothing → aaaaaaaaaaaa",
        "/r/.git/config changed while the agent ran: it has other content",
    )


def test_many_differences_are_counted() -> None:
    many = [Difference(name=f"refs/tags/{number}", old="", new="1") for number in range(MOST_LINES + 3)]
    assert describe_differences(many, "the agent")[-1] == "and 3 more"
