"""Every kind of repository that git knows: a whole plan lands in it, and the checkout follows."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project, writes
from tests.support.repos import Repo, init_repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOCAL = ("-c", "protocol.file.allow=always")


def as_user(repo: Repo) -> Repo:
    repo.git("config", "user.name", "Uma")
    repo.git("config", "user.email", "uma@example.org")
    return repo


def linked(repo: Repo, place: Path) -> Repo:
    repo.git("checkout", "-q", "-b", "elsewhere")
    repo.git("worktree", "add", "-q", str(place), "main")
    return repo.at(place)


def inside_another(repo: Repo, place: Path) -> Repo:
    outer = make_repo(place, o="o")
    outer.git(*LOCAL, "submodule", "add", "-q", str(repo.path), "sub")
    return as_user(outer.at(place / "sub"))


def with_another_inside(repo: Repo, place: Path) -> Repo:
    make_repo(place, o="o")
    repo.git(*LOCAL, "submodule", "add", "-q", str(place), "sub")
    repo.commit("Add a submodule")
    return repo


def shallow(repo: Repo, place: Path) -> Repo:
    repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", str(place))
    return as_user(repo.at(place))


def borrowing(repo: Repo, place: Path) -> Repo:
    repo.git("clone", "-q", "--shared", str(repo.path), str(place))
    return as_user(repo.at(place))


def sha256(repo: Repo, place: Path) -> Repo:
    made = init_repo(place, "--object-format=sha256")
    shutil.copytree(repo.path, place, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)
    made.commit("Begin")
    return made


def sparse(repo: Repo, place: Path) -> Repo:
    repo.commit("Add what is left out", **{"out/b.txt": "b\n"})
    repo.git("sparse-checkout", "set", "plans")
    assert not (repo.path / "out").exists()
    return repo


def crlf(repo: Repo, place: Path) -> Repo:
    repo.git("config", "core.autocrlf", "true")
    repo.git("rm", "-q", "-r", "--cached", ".")
    repo.git("reset", "-q", "--hard")
    assert b"\r\n" in (repo.path / "plans/X.md").read_bytes()
    return repo


KINDS = (linked, inside_another, with_another_inside, shallow, borrowing, sha256, sparse, crlf)


@pytest.mark.parametrize("make", KINDS)
def test_a_plan_lands_in_every_kind_of_repository(tmp_path: Path, make: Callable[[Repo, Path], Repo]) -> None:
    project = a_project(tmp_path, "1")
    project.agent(writes("1") + '[[phase."1".implement]]\ngit = ["log", "--stat"]\n')
    repo = make(project.repo, tmp_path / "other")
    ran = Project(repo=repo, home=project.home).start("finish", "auto")
    assert ran.code == 0, ran.err
    assert repo.git("log", "-3", "--format=%s", "main").split("\n")[1] == "Write 1"
    end = "\r\n" if make is crlf else "\n"
    assert [(repo.path / f"{one}.txt").read_bytes().decode() for one in "1"] == [f"1{end}"]
    assert repo.status() == ""
    assert [ref for ref in repo.refs() if "runplan" in ref] == []
    repo.git("fsck", "--strict")
    common = repo.path / repo.git("rev-parse", "--git-common-dir")
    assert list(common.glob("objects/pack/*.keep")) == []
    assert list(common.glob("runplan/lanes/*")) == []
