"""The ways of landing: how a project is set up for one, where its target is. A further way joins by being listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.repos import Repo, init_repo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAIN = "refs/heads/main"
BY_A_PERSON = "begun\nby a person\n"
SUBJECT = "Change all.txt"


@dataclass(frozen=True)
class Way:
    """One way of landing."""

    name: str  #: the word after `start`
    set_up: Callable[[Path, Repo], None]  #: once for a template: (its directory, the repository in it)
    moved: Callable[[Path, Repo], None]  #: after the template was copied to this directory
    target: Callable[[Path], Path]  #: the repository whose main is the target
    person: Callable[[Path, Repo], None]  #: somebody else changes all.txt on the target


def _nothing(place: Path, repo: Repo) -> None:
    return


def _bare(place: Path) -> Path:
    return place / "remote.git"


def _add_remote(place: Path, repo: Repo) -> None:
    init_repo(_bare(place), "--bare")
    repo.git("remote", "add", "origin", str(_bare(place)))
    repo.git("push", "-q", "-u", "origin", "main")
    repo.git("remote", "set-head", "origin", "main")


def _follow_remote(place: Path, repo: Repo) -> None:
    config = repo.path / ".git/config"
    lines = config.read_text(encoding="utf-8").splitlines()
    put = [f"\turl = {_bare(place)}" if line.strip().startswith("url = ") else line for line in lines]
    config.write_text("\n".join(put) + "\n", encoding="utf-8")


def _commit_here(place: Path, repo: Repo) -> None:
    repo.write("all.txt", BY_A_PERSON)
    repo.git("commit", "-qm", SUBJECT, "--", "all.txt")


def _push(place: Path, repo: Repo) -> None:
    """As a push from elsewhere would: no checkout of ours is involved."""
    remote = Repo(path=_bare(place), env={**repo.env, "GIT_INDEX_FILE": str(place / "person.index")})
    blob = remote.git("hash-object", "-w", "--stdin", stdin=BY_A_PERSON)
    remote.git("read-tree", MAIN)
    remote.git("update-index", "--cacheinfo", f"100644,{blob},all.txt")
    tree = remote.git("write-tree")
    old = remote.git("rev-parse", MAIN)
    new = remote.git("commit-tree", "-p", old, "-m", SUBJECT, tree)
    remote.git("update-ref", MAIN, new, old)


WAYS = (
    Way(
        name="cherry-pick",
        set_up=_nothing,
        moved=_nothing,
        target=lambda place: place / "repo",
        person=_commit_here,
    ),
    Way(name="direct", set_up=_add_remote, moved=_follow_remote, target=_bare, person=_push),
)
BY_NAME = {way.name: way for way in WAYS}
