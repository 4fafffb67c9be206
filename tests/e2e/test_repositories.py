"""A plan lands in every kind of repository: worktrees, submodules, LFS, hooks, other places and names."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.support.cli import Project, Ran, a_project, writes
from tests.support.mounts import obstacle

USER = 'git -C "$other" config user.name Uma; git -C "$other" config user.email uma@example.org'
FILLED = f'{USER}; git archive HEAD | tar -xC "$other"; git -C "$other" add -A; git -C "$other" commit -qm Begin'
#: Each makes the repository `$other` of the one in which it runs.
KINDS = {
    "with a name that git quotes": 'mv "$PWD" "$other"',
    "linked": 'git checkout -q -b elsewhere; git worktree add -q "$other" main',
    "inside another": 'git init -q "${other%/*}"; '
    f'git -C "${{other%/*}}" -c protocol.file.allow=always submodule add -q "$PWD" "${{other##*/}}"; {USER}',
    "shallow": f'git clone -q --depth=1 "file://$PWD" "$other"; {USER}',
    "borrowing": f'git clone -q --shared "$PWD" "$other"; {USER}',
    "of sha256": f'git init -q -b main --object-format=sha256 "$other"; {FILLED}',
    "of reftable": f'git init -q -b main --ref-format=reftable --object-format=sha256 "$other"; {FILLED}',
}
NEWER = {"of reftable": pytest.mark.newer_git(2, 45)}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=NEWER.get(kind, ())) for kind in KINDS])
def test_a_plan_lands_in_every_kind_of_repository(tmp_path: Path, kind: str) -> None:
    project = a_project(tmp_path, "1")
    project.agent(writes("1") + '[[phase."1".implement]]\ngit = ["log", "--stat"]\n')
    repo = project.repo.at(tmp_path / "others" / ('a"b\\c:d' if "name" in kind else "other"))
    repo.path.parent.mkdir()
    project.repo.sh(f"other='{repo.path}'; {KINDS[kind]}")
    Project(repo=repo, home=project.home).start("finish", "auto").exits(0)
    assert repo.git("log", "-3", "--format=%s", "main").split("\n")[1] == "Write 1"
    assert (repo.path / "1.txt").read_bytes() == b"1\n"
    assert repo.status() == ""
    assert [ref for ref in repo.refs() if "runplan" in ref] == []
    repo.git("fsck", "--strict")
    common = repo.path / repo.git("rev-parse", "--git-common-dir")
    assert list(common.glob("objects/pack/*.keep")) == []
    assert list(common.glob("runplan/lanes/*")) == []


#: It changes a file that LFS keeps and adds one; both must have been real content before and after a checkout.
WORK = """\
set -e
test "$(cat logo.bin)" = "old logo"
echo 1 >1.txt; echo "new logo" >logo.bin; echo "a sound" >sound.bin
"""

COMMIT = """\
git add -A; git commit -qm Work
rm logo.bin sound.bin; git checkout -q -- .
test "$(cat logo.bin sound.bin)" = "new logo
a sound"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    if shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
    project = a_project(tmp_path, "1")
    project.repo.git("lfs", "install", "--local")
    project.repo.git("lfs", "track", "*.bin")
    project.repo.commit("Keep the logo", **{"logo.bin": "old logo\n"})
    return project


def works(project: Project, script: str, *words: str, **env: str) -> Ran:
    """A shell script implements the phase, and the tests look at the content."""
    project.shell_agent(script, '[tests]\ncommand = "grep -q logo$ logo.bin"\n')
    return project.start("finish", *words, **env)


def stored(project: Project, content: str) -> Path:
    """Where the user's git-lfs keeps this content."""
    digest = hashlib.sha256(content.encode()).hexdigest()
    return project.path / ".git/lfs/objects" / digest[:2] / digest[2:4] / digest


@pytest.mark.parametrize(
    "sandbox", ["none", pytest.param("bwrap", marks=pytest.mark.skipif(bool(obstacle()), reason=obstacle()))]
)
def test_files_in_lfs_land(project: Project, sandbox: str) -> None:
    works(project, WORK + COMMIT, "auto", RUNPLAN_AGENTS_SANDBOX=sandbox).exits(0)
    for name, content in (("logo.bin", "new logo\n"), ("sound.bin", "a sound\n")):
        assert (project.path / name).read_text() == content
        assert f"oid sha256:{stored(project, content).name}" in project.show(f"main:{name}")
        assert stored(project, content).read_text() == content
    assert project.repo.status() == ""
    assert project.repo.git("lfs", "fsck") == "Git LFS fsck OK"
    assert project.leftovers() == []


def test_lfs_content_that_was_never_downloaded_stays_a_pointer(project: Project) -> None:
    project.repo.commit("Keep a film", **{"film.bin": "a film\n"})
    pointer = project.show("main:film.bin") + "\n"
    stored(project, "a film\n").unlink()
    project.repo.write("film.bin", pointer)
    project.repo.git("add", "film.bin")
    works(project, WORK + COMMIT, "auto").exits(0)
    assert (project.path / "film.bin").read_text() == pointer
    assert project.repo.status() == ""
    assert project.leftovers() == []


INSTALLS = '[run]\nsetup = "git config core.hooksPath .husky"\n'


def add_hook(hooked: Project, name: str, more: str = "") -> None:
    script = f'#!/bin/sh\necho "{name} $PWD" >>{hooked.home}/ran\n{more}\n'
    hooked.repo.write(f".husky/{name}", script).chmod(0o755)


@pytest.fixture
def hooked(tmp_path: Path) -> Project:
    """Every hook leaves a line; `commit-msg` refuses each message but those with an issue."""
    hooked = a_project(tmp_path, "1", "2")
    for name, more in (("pre-commit", ""), ("commit-msg", 'grep -q "#" "$1"'), ("post-checkout", "")):
        add_hook(hooked, name, more)
    hooked.repo.commit("Add hooks")
    return hooked


def ran(hooked: Project) -> list[str]:
    """The hooks that ran, and where."""
    file = hooked.home / "ran"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.promise
def test_hooks_of_the_project_run_for_no_agent_and_no_landing(hooked: Project) -> None:
    add_hook(hooked, "reference-transaction")
    hooked.repo.commit("Add a hook that runs for every ref")
    hooked.repo.git("config", "core.hooksPath", ".husky")
    hooked.start("finish", "auto").exits(0)
    assert hooked.landed() == ["1", "2"]
    assert hooked.runplan("undo", "X", "2").code == 0
    assert ran(hooked) == []


def test_work_whose_commit_a_hook_refused_is_committed_by_runplan(hooked: Project) -> None:
    hooked.shell_agent("echo 1 >1.txt; git add .; git commit -qm Work || true", INSTALLS)
    hooked.start("1", "auto").exits(0)
    assert hooked.landed() == ["1"]
    assert [line.partition(" ")[0] for line in ran(hooked)] == ["pre-commit", "commit-msg"]
