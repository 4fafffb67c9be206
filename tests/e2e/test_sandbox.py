"""Agents that are shut in by bubblewrap: they do their work as ever, and reach nothing else."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project
from tests.support.sandboxes import obstacle

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """\
[agents]
implementer = "sh"
verifier = "judge"
sandbox = "bwrap"
[agents.sh]
kind = "command"
argv = ["sh", "{home}/agent.sh"]
[agents.judge]
kind = "script"
script = "agent.toml"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


@pytest.fixture
def shut_in(project: Project) -> Project:
    if why := obstacle():
        pytest.skip(why)
    project.commit_file("runplan.toml", SETTINGS.format(home=project.home))
    return project


def implement(project: Project, script: str) -> None:
    (project.home / "agent.sh").write_text(script)


def state(project: Project) -> dict[str, bytes]:
    """What of the repository and the home an agent must leave alone, byte by byte; landing moves main and its files."""
    git = project.path / ".git"
    kept = [project.path / "agent.toml", git / "config", git / "HEAD", git / "packed-refs"]
    kept += [*(git / "hooks").rglob("*"), *(git / "refs/heads").glob("[!m]*"), *(git / "refs/tags").glob("*")]
    kept += [path for path in project.home.rglob("*") if ".cache" not in path.parts]
    return {str(path): path.read_bytes() for path in kept if path.is_file()}


@pytest.mark.parametrize("commit", ["git add 1.txt && git commit -qm one", "true"], ids=["commits", "leaves it"])
def test_a_phase_is_implemented_verified_and_landed_from_within(shut_in: Project, commit: str) -> None:
    implement(shut_in, f"set -e\necho 1 >1.txt\n{commit}\ngit log --oneline main\necho done\n")

    ran = shut_in.start("1", "auto")

    assert ran.code == 0, ran.err
    assert shut_in.landed() == ["1"]
    assert shut_in.show("main:1.txt") == "1"
    assert shut_in.leftovers() == []


def test_commits_are_amended_reset_and_made_on_a_branch_that_is_packed(shut_in: Project) -> None:
    implement(
        shut_in,
        "set -e\necho 0 >1.txt; git add 1.txt; git commit -qm zero\n"
        "echo 1 >1.txt; git commit -qa --amend -m one\n"
        "echo 2 >2.txt; git add 2.txt; git commit -qm two; git reset -q --hard HEAD~1\n"
        "git stash list; git status; git diff main\n",
    )
    text = (shut_in.path / "runplan.toml").read_text()
    shut_in.commit_file("runplan.toml", text + '[run]\nsetup = "git pack-refs --all"\n')

    ran = shut_in.start("1", "auto")

    assert ran.code == 0, ran.err
    assert shut_in.show("main:1.txt") == "1"


#: Everything an agent must not do, each with what proves that it could not: the next command runs all the same.
TRESPASSES = {
    "write into the main checkout": "echo x >>{root}/agent.toml",
    "write a new file there": "echo x >{root}/new.txt",
    "write into the home": "echo x >{home}/x",
    "add a key for ssh": "mkdir -p {home}/.ssh; echo x >>{home}/.ssh/authorized_keys",
    "change a file of the user": "echo x >>{home}/.profile",
    "set git's configuration": "git config core.editor evil",
    "set it for the user": "git config --file {home}/.gitconfig core.editor evil",
    "add a hook": "echo 'exit 1' >{root}/.git/hooks/pre-commit",
    "move another branch": "git update-ref refs/heads/other HEAD~1",
    "move the target": "git update-ref refs/heads/main HEAD",
    "make a branch": "git branch mine",
    "tag": "git tag mine",
    "pack refs": "git pack-refs --all",
    "collect garbage": "git gc --prune=now",
    "stash": "echo y >agent.toml; git stash",
    "add a worktree": "git worktree add {home}/tree",
    "delete its .git": "rm .git",
    "point its .git elsewhere": "echo gitdir: /nowhere >.git",
    "change its record of dispatch": 'echo {{}} >"$(dirname "$RUNPLAN_RETURN")/guard.json"',
    "take it away": 'rm -rf "$(dirname "$RUNPLAN_RETURN")"',
    "write the journal": "echo x >>{root}/.git/runplan/journal.db",
    "write another's file in /tmp": "echo x >>{outside}; false",
    "lead its exit astray": 'ln -s {home}/.profile "$(dirname "$RUNPLAN_RETURN")/exit.json.new"; false',
    "stand in its way": 'mkdir "$(dirname "$RUNPLAN_RETURN")/exit.json"; false',
    "configure its worktree": 'echo x >"$(git rev-parse --absolute-git-dir)/config.worktree"',
    "do so by git": "git config --worktree core.fsmonitor evil",
    "move that file away": 'mv "$(git rev-parse --absolute-git-dir)/config.worktree" elsewhere',
    "reach the desktop": "test -e {runtime}/bus",
    "mount": "mount -o remount,rw,bind /",
    "see the processes of others": "kill -0 {pid}",
    "write into the kernel": "cat /proc/sys/kernel/core_pattern >/proc/sys/kernel/core_pattern",
}


@pytest.mark.parametrize("trespass", TRESPASSES.values(), ids=TRESPASSES.keys())
def test_an_agent_that_reaches_out_fails_to_and_its_work_still_lands(
    shut_in: Project, trespass: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine\n")
    (shut_in.home / ".profile").write_text("mine\n")
    shut_in.repo.git("branch", "other")
    shut_in.repo.git("config", "extensions.worktreeConfig", "true")
    runtime = shut_in.home / "run"
    runtime.mkdir(mode=0o700)
    (runtime / "bus").write_text("")
    places = {"root": shut_in.path, "home": shut_in.home, "outside": outside, "runtime": runtime}
    word = trespass.format(**places, pid=os.getpid())
    implement(shut_in, f"( {word} ) && echo TRESPASSED\ngit checkout -q -- . ; echo 1 >1.txt\n")
    before = state(shut_in)

    ran = shut_in.start("1", "auto", XDG_RUNTIME_DIR=str(runtime))

    assert ran.code == 0, ran.err
    log = (shut_in.path / ".git/runplan/dispatch").glob("*/out.log")
    assert not any("TRESPASSED" in path.read_text() for path in log)
    assert state(shut_in) == before
    assert outside.read_text() == "mine\n"
    assert shut_in.landed() == ["1"]


def test_what_an_agent_says_and_returns_is_known_although_it_spoils_its_records(shut_in: Project) -> None:
    implement(shut_in, 'rm -rf "$(dirname "$RUNPLAN_RETURN")"/*; echo BLOCKER: no way\n')

    ran = shut_in.start("1", "auto")

    assert ran.last == "runplan: failed: blocked", ran.err


def test_an_agent_that_removes_its_worktree_spoils_its_own_work_only(shut_in: Project) -> None:
    implement(shut_in, "git worktree remove --force .\n")
    before = state(shut_in)

    assert shut_in.start("1", "auto").code == 1
    assert state(shut_in) == before
    assert shut_in.landed() == []


def test_a_verifier_cannot_even_write_its_worktree(shut_in: Project) -> None:
    implement(shut_in, "echo 1 >1.txt\n")
    text = (shut_in.path / "runplan.toml").read_text()
    script = 'kind = "command"\nargv = ["sh", "' + str(shut_in.home / "judge.sh") + '"]\n'
    shut_in.commit_file("runplan.toml", text.replace('kind = "script"\nscript = "agent.toml"\n', script))
    (shut_in.home / "judge.sh").write_text(
        "echo x >1.txt; echo x >new; git commit --allow-empty -m x; git status >/dev/null || exit 9\n"
        'item() { printf \'{"item":"%s","result":"pass","evidence":"1.txt:1"}\' "$1"; }\n'
        'ids=$(sed -n "/^## Items/,/^## /s/^- \\(\\w*\\): .*/\\1/p" "$RUNPLAN_PROMPT")\n'
        'all=$(for id in $ids; do item "$id"; printf ,; done)\n'
        'printf \'{"status":"done","summary":"s","items":[%s]}\' "${all%,}" >"$RUNPLAN_RETURN"\n'
    )

    ran = shut_in.start("1", "auto")

    assert ran.code == 0, ran.err
    assert shut_in.show("main:1.txt") == "1"


def test_a_sandbox_that_cannot_work_is_refused_at_the_door(project: Project, tmp_path: Path) -> None:
    project.commit_file("runplan.toml", SETTINGS.format(home=project.home))
    (project.home / "agent.sh").write_text("true\n")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "sh", "true"):
        (tools / name).symlink_to(shutil.which(name) or name)

    absent = project.start("1", "auto", PATH=str(tools))
    (tools / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (tools / "bwrap").chmod(0o755)
    forbidden = project.start("1", "auto", PATH=str(tools))

    assert (absent.code, forbidden.code) == (2, 2)
    assert 'agents.sh: sandbox = "bwrap" cannot work here' in absent.last
    if sys.platform == "linux":
        assert "install the package bubblewrap" in absent.last
        assert "No permissions to create new namespace; allow user namespaces" in forbidden.last
    assert not (project.path / ".git/runplan/journal.db").exists()


def test_one_agent_can_be_shut_in_and_another_not(shut_in: Project) -> None:
    text = (shut_in.path / "runplan.toml").read_text()
    text = text.replace('sandbox = "bwrap"\n', "").replace("[agents.judge]", '[agents.judge]\nsandbox = "bwrap"')
    shut_in.commit_file("runplan.toml", text)
    implement(shut_in, f"echo 1 >1.txt; echo free >{shut_in.home}/free\n")

    assert shut_in.start("1", "auto").code == 0
    assert (shut_in.home / "free").read_text() == "free\n"


def test_further_places_can_be_made_writable(shut_in: Project) -> None:
    text = (shut_in.path / "runplan.toml").read_text()
    shut_in.commit_file("runplan.toml", text.replace("[agents.judge]", 'writable = ["~/cache/deep"]\n[agents.judge]'))
    implement(
        shut_in, f"echo 1 >1.txt; echo kept >{shut_in.home}/cache/deep/x; echo no >{shut_in.home}/cache/y; true\n"
    )

    assert shut_in.start("1", "auto").code == 0
    assert [path.name for path in (shut_in.home / "cache").rglob("*")] == ["deep", "x"]
