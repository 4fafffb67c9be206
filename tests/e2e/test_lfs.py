"""Files in Git LFS: agents see the content, commits hold pointers, the checkout gets the content."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, Ran, a_project
from tests.support.sandboxes import obstacle

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")

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


def landed(project: Project) -> None:
    for name, content in (("logo.bin", "new logo\n"), ("sound.bin", "a sound\n")):
        assert (project.path / name).read_text() == content
        assert f"oid sha256:{stored(project, content).name}" in project.show(f"main:{name}")
        assert stored(project, content).read_text() == content
    assert project.repo.status() == ""
    assert project.repo.git("lfs", "fsck") == "Git LFS fsck OK"
    assert project.leftovers() == []


@pytest.mark.parametrize("script", [WORK + COMMIT], ids=["committed"])
def test_files_in_lfs_land(project: Project, script: str) -> None:
    ran = works(project, script, "auto")
    assert ran.code == 0, ran.err
    landed(project)


@pytest.mark.skipif(bool(obstacle()), reason=obstacle())
def test_files_in_lfs_land_from_a_sandbox(project: Project) -> None:
    ran = works(project, WORK + COMMIT, "auto", RUNPLAN_AGENTS_SANDBOX="bwrap")
    assert ran.code == 0, ran.err
    landed(project)


def test_content_that_was_never_downloaded_stays_a_pointer(project: Project) -> None:
    project.repo.commit("Keep a film", **{"film.bin": "a film\n"})
    pointer = project.show("main:film.bin") + "\n"
    stored(project, "a film\n").unlink()
    project.repo.write("film.bin", pointer)
    project.repo.git("add", "film.bin")
    ran = works(project, WORK + COMMIT, "auto")
    assert ran.code == 0, ran.err
    assert (project.path / "film.bin").read_text() == pointer
    assert project.repo.status() == ""
    assert project.leftovers() == []
