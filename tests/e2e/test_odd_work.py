"""Work as nobody makes it by accident: it lands whole, or ends by a name that says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project, with_remote

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_an_edit_that_git_was_told_to_overlook_lands_like_any_other(project: Project, flag: str) -> None:
    project.commit_file("README.md", "hello\n")
    project.shell_agent(f"echo 1 >1.txt; git update-index {flag} README.md; echo more >>README.md\n")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert project.show("main:README.md") == "hello\nmore"
    assert project.leftovers() == []


# --- work that is not the attempt's -----------------------------------------------------------------------

THEM = {f"GIT_{who}_{what}": "them" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
WORKS = "echo 1 >1.txt; git add 1.txt; git commit -qm Work\n"
NOT_ITS_OWN = {
    "reset to the remote": ("git reset -q --hard origin/main\n" + WORKS, "no longer stands on"),
    "merged": (WORKS + "git merge -q --no-edit origin/main\n", "Theirs (on origin/main)"),
    "pulled from an address": (WORKS + "git pull -q --no-rebase --no-edit {remote} side\n", "Side"),
}


@pytest.mark.parametrize("way", NOT_ITS_OWN)
def test_commits_that_the_attempt_did_not_make_do_not_land(project: Project, tmp_path: Path, way: str) -> None:
    """The user has an unpushed file, and a colleague has pushed a commit."""
    script, told = NOT_ITS_OWN[way]
    with_remote(project, tmp_path / "remote.git")
    theirs = project.repo.git("commit-tree", "-p", "main", "-m", "Theirs", "main^{tree}")
    project.repo.git("push", "-q", "origin", f"{theirs}:refs/heads/main")
    remote = project.repo.at(tmp_path / "remote.git")
    side = remote.git("commit-tree", "-p", "main~1", "-m", "Side", "main^{tree}", env=THEM)
    remote.git("update-ref", "refs/heads/side", side)
    project.shell_agent(script.format(remote=remote.path))
    project.repo.commit("Unpushed", **{"mine.txt": "x\n"})
    main = project.repo.head("main")
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: off-base"), ran.err
    assert told in ran.err
    assert project.dispatched() == ["implement"]
    assert project.repo.head("main") == main
    assert project.leftovers() == ["refs/heads/runplan/x/1"]


# --- what no git would make -----------------------------------------------------------------------------

#: A tree with one file in a directory, as a commit on the branch; the work itself may follow.
HOLDS = """
blob=$(echo x | git hash-object -w --stdin); inner=$(printf "100644 blob $blob\\t{file}\\n" | git mktree)
whole=$( (git ls-tree HEAD; printf "040000 tree $inner\\t{folder}\\n") | git mktree)
git update-ref HEAD $(git commit-tree -p HEAD -m Odd $whole)
"""
#: And taken back by the next commit.
TAKES_BACK = "git read-tree HEAD~1; echo 1 >1.txt; git add 1.txt; git commit -qm Work\n"
#: A commit of these lines, in the place of a sound one.
WRITES = """
echo 1 >1.txt; git add 1.txt
made=$(printf "tree $(git write-tree)\\nparent $(git rev-parse HEAD)\\n{lines}\\nmessage\\n" |
  git hash-object -t commit -w --literally --stdin)
echo $made >"$(git rev-parse --git-path $(git symbolic-ref HEAD))"
"""
NO_GIT_MAKES = {
    "a repository": (HOLDS.format(file="post", folder=".git"), "contains '.git'"),
    "one elsewhere": (HOLDS.format(file="config", folder=".GIT"), "contains '.git'"),
    "a way out": (HOLDS.format(file="pwn", folder=".."), "contains '..'"),
    "a way out in between": (HOLDS.format(file="pwn", folder="..") + TAKES_BACK, "contains '..'"),
    "a hole": (
        f"git update-ref HEAD $(git commit-tree -p HEAD -m x $(printf '100644 blob {'1' * 40}\\tx\\n' |"
        " git mktree --missing))",
        "git refuses the objects",
    ),
    "nobody": (WRITES.format(lines=""), "missingAuthor"),
    "no date": (WRITES.format(lines="author A <a@b>\\ncommitter A <a@b>\\n"), "missingSpaceBeforeDate"),
}


@pytest.mark.parametrize("way", NO_GIT_MAKES)
def test_what_no_git_would_make_ends_the_attempt_by_name(project: Project, way: str) -> None:
    script, told = NO_GIT_MAKES[way]
    project.shell_agent(script)
    project.commit_file("runplan.toml", (project.path / "runplan.toml").read_text() + '[run]\nauthor = "agent"\n')
    main = project.repo.head("main")
    for _ in range(2):  # and the next attempt is no worse for it
        ran = project.start("1", "auto")
        assert (ran.code, ran.last) == (1, "runplan: failed: tampered"), ran.err
        assert told in ran.err
    assert told in project.runplan("report", "X").out
    assert project.runplan("status", "X", "--json").json["run"]["reason"] == "tampered"
    assert project.runplan("gc", "--dry-run").code == 0
    assert project.runplan("gc").code == 0
    assert project.repo.head("main") == main


def test_an_index_in_the_middle_of_a_merge_lands_what_is_there(project: Project) -> None:
    stages = "printf '100644 %s 1\\tz\\n100644 %s 2\\tz\\n' $blob $blob | git update-index --index-info"
    project.shell_agent(f"echo 1 >1.txt; blob=$(echo x | git hash-object -w --stdin); {stages}\n")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert project.show("main:1.txt") == "1"
    assert "z" not in project.repo.git("ls-tree", "--name-only", "main").split()


# --- much of anything -----------------------------------------------------------------------------------


def test_a_message_of_any_length_leaves_a_report_of_some_length(project: Project) -> None:
    project.shell_agent("echo 1 >1.txt; git add .; head -c 2000000 /dev/zero | tr '\\0' m | git commit -q -F -\n")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert len(project.show("main:reports/plan-x.md")) < 10_000
    undone = project.runplan("undo", "X", "1")
    assert undone.code == 0, undone.err
    assert len(project.repo.git("log", "-2", "--format=%B", "main")) < 10_000


@pytest.mark.parametrize("way", ["echo x >reports", "ln -s elsewhere reports"], ids=["file", "link"])
@pytest.mark.parametrize("done", ["", "; git add reports; git commit -qm Reports"], ids=["left", "committed"])
def test_what_stands_where_the_report_goes_is_told_before_anybody_verifies(
    project: Project, way: str, done: str
) -> None:
    project.shell_agent(f"echo 1 >1.txt; {way}{done}\n")
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: tampered"), ran.err
    assert "reports: is in the way of reports/plan-x.md" in ran.err
    assert project.dispatched() == ["implement"]
