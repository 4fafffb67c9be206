"""The fingerprint of a real repository: what a process changed there is named."""

from pathlib import Path

import pytest

from runplan.adapters.git.command import Git
from runplan.adapters.git.repository import MOST_LINES, Fingerprints
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
        assert prints.describe_differences(before, "the agent", agent=AGENT) == ((), False)
        repo.sh(CHANGES[name])
        (line,), is_violated = prints.describe_differences(before, "the agent", agent=AGENT)
    assert line.partition(" changed while the agent ran: ")[0].endswith(name)
    assert not is_violated


def test_a_landing_of_ours_is_no_difference(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", a="1")
    with repo.adapter() as git:
        prints = Fingerprints(git, repo.path / ".git", "runplan/")
        before = prints.take_fingerprint()
        tip = repo.commit("Landed", a="2")
        (line,), _ = prints.describe_differences(before, "the agent", agent=AGENT)
        assert line.startswith("refs/heads/main changed")
        assert prints.describe_differences(before, "the agent", agent=AGENT, list_landed=lambda: [tip])[0] == ()


def test_a_ref_moved_under_the_name_of_the_agent_is_its_change(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", a="1")
    with repo.adapter() as git:
        prints = Fingerprints(git, repo.path / ".git", "runplan/")
        before = prints.take_fingerprint()
        repo.git("branch", "mine")
        repo.git("branch", "another", env=committing_as("r2.1"))
        repo.git("branch", "theirs", env=committing_as("r1.1"))
        repo.git("branch", "runplan/x/1", env=committing_as("r1.1"))
        lines, is_violated = prints.describe_differences(before, "the agent", agent=AGENT)
        tip = repo.git("rev-parse", "HEAD")
    assert is_violated
    assert lines == (
        f"refs/heads/another changed while the agent ran: nothing → {tip[:12]}",
        f"refs/heads/mine changed while the agent ran: nothing → {tip[:12]}",
        f"the agent changed refs/heads/theirs in your repository: nothing → {tip[:12]}",
    )


def test_many_differences_are_counted(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", a="1")
    with repo.adapter() as git:
        prints = Fingerprints(git, repo.path / ".git", "runplan/")
        before = prints.take_fingerprint()
        repo.sh(f"for n in $(seq {MOST_LINES + 3}); do git tag t$n; done; git config core.editor vi")
        lines, _ = prints.describe_differences(before, "the tests", agent=AGENT)
    assert lines[0].endswith("/.git/config changed while the tests ran: it has other content")
    assert lines[-1] == "and 4 more"
