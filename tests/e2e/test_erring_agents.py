"""Agents that err with git: whatever they do from their worktree, the user's repository stays as it was."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project, with_remote

if TYPE_CHECKING:
    from pathlib import Path

WORK = "echo 1 >1.txt; git add 1.txt; git commit -qm Work\n"
#: The script of the agent, and how the run ends: "" for landed, else the reason.
AGENTS = {
    "stash": ("echo 1 >1.txt; git add 1.txt; git stash\n", "no-commits"),
    "stash and pop": ("echo 1 >1.txt; git add 1.txt; git stash; git stash pop\n", ""),
    "checkout main": (WORK + "git checkout -q main\n", ""),
    "commit on main": ("git checkout -q main\n" + WORK, ""),
    "a branch of its own": ("git checkout -qb feature\n" + WORK, ""),
    "branch -D main": (WORK + "git branch -D main\n", ""),
    "all refs deleted": (WORK + "git for-each-ref --format='delete %(refname)' | git update-ref --stdin\n", ""),
    "detached HEAD": ("git checkout -q --detach\n" + WORK, ""),
    "config": (WORK + "git config user.name Somebody; git config core.bare true; git config alias.st status\n", ""),
    "hooks": (WORK + 'printf "#!/bin/sh\\nexit 1\\n" >"$(git rev-parse --git-path hooks)/pre-commit"\n', ""),
    "a hook that refuses": (
        'h=$(git rev-parse --git-path hooks); mkdir -p "$h"; printf "#!/bin/sh\\nexit 1\\n" >"$h/pre-commit"\n'
        'chmod +x "$h/pre-commit"\n' + WORK, ""
    ),
    "tag": (WORK + "git tag -a v2 -m v2; git tag -d v1\n", ""),
    "push": (WORK + "git push -q origin HEAD:main; git push -q --force origin main\n", ""),
    "gc": (WORK + "git gc -q --prune=now; git repack -adq; git prune\n", ""),
    "reflog expire": (WORK + "git reflog expire --expire=now --all; git gc -q --prune=now\n", ""),
    "worktree prune": (WORK + "git worktree prune; git worktree list\n", ""),
    "worktree remove": (WORK + 'git worktree remove -f -f "$PWD"\n', ""),
    "reset --hard": (WORK + "git reset -q --hard HEAD~1\n", "no-commits"),
    "clean": (WORK + "git clean -fdxq\n", ""),
    "amend the base": ("echo 1 >1.txt; git add 1.txt; git commit -q --amend -m Mine\n", "off-base"),
    "filter-branch": (WORK + "git filter-branch -f --msg-filter 'sed s/^/x/' HEAD~1..HEAD\n", ""),
    "no .git": (WORK + "rm .git\n", ""),
    "forgets to commit": ("echo 1 >1.txt\n", ""),
    "rewrites its history": (WORK + "git checkout -q --orphan new; git commit -qm All\n", ""),
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = a_project(tmp_path, "1")
    with_remote(made, tmp_path / "remote.git")
    made.repo.git("tag", "v1")
    made.repo.git("branch", "topic")
    made.repo.write("README.md", "edited\n")
    made.repo.git("stash", "-u")
    return made


def fingerprint(project: Project, *, landed: bool) -> dict[str, str]:
    """Refs, HEAD, configuration, hooks, stash and index; without the target where something landed on it."""
    git = project.path / ".git"
    kept = [git / "config", git / "HEAD", *sorted((git / "hooks").glob("*")), git / "logs/refs/stash"]
    found = {str(path): sha256(path.read_bytes()).hexdigest() for path in kept}
    ours = ("refs/heads/runplan/", "refs/runplan/") + (("refs/heads/main",) if landed else ())
    return found | {ref: oid for ref, oid in project.repo.refs().items() if not ref.startswith(ours)}


@pytest.mark.parametrize("name", AGENTS)
def test_the_users_repository_is_as_it_was_and_the_run_ends_by_name(project: Project, name: str) -> None:
    script, reason = AGENTS[name]
    (project.home / "agent.sh").write_text(f"{script}exit 0\n")
    project.settings(f'[agents.sh]\nkind = "command"\nargv = ["sh", "{project.home / "agent.sh"}"]\n')
    text = (project.path / "runplan.toml").read_text().replace('implementer = "robot"', 'implementer = "sh"')
    project.commit_file("runplan.toml", text)
    before = fingerprint(project, landed=not reason)
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, f"runplan: failed: {reason}") if reason else ran.code == 0, ran.err
    assert fingerprint(project, landed=not reason) == before
    assert project.repo.git("fsck", "--strict") == ""
    if not reason:
        assert project.show("main:1.txt") == "1"
        assert project.repo.status() == ""
