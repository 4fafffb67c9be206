"""Builders for landings: candidates without a checkout, and everything a user could miss afterwards."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runplan.landing.cherry_pick import CherryPick
from runplan.landing.recovery import BOX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from runplan.landing.lander import Landing
    from tests.support.repos import Repo

MAIN = "refs/heads/main"


def candidate(
    repo: Repo,
    files: Mapping[str, str | None],
    *,
    landing: str = "L1",
    onto: str = MAIN,
    modes: Mapping[str, str] | None = None,
) -> str:
    """A commit on `onto` that writes `files` (None deletes), with the landing's trailer; no checkout moves."""
    lines = [f"commit refs/test/{landing}\nmark :1\ncommitter Uma <uma@example.org> 1700000000 +0000\n"]
    lines += [_data(f"Land {landing}\n\nRunplan-Landing: {landing}\n"), f"from {repo.head(onto)}\n"]
    # Deletions first: a directory may become a file.
    lines += [f'D "{path}"\n' for path, text in files.items() if text is None]
    for path, text in files.items():
        mode = (modes or {}).get(path, "100644")
        if mode == "160000":
            lines.append(f'M {mode} {text} "{path}"\n')
        elif text is not None:
            lines.append(f'M {mode} inline "{path}"\n{_data(text)}')
    return repo.git("fast-import", "--quiet", "--force", stdin="".join([*lines, "\nget-mark :1\n"]))


def _data(text: str) -> str:
    return f"data {len(os.fsencode(text))}\n{text}\n"


@contextmanager
def lander(repo: Repo, point: Callable[[str], None] = lambda _: None, *, ref: str = MAIN) -> Iterator[CherryPick]:
    """The lander of a repository whose main checkout is `repo`."""
    with repo.adapter() as git:
        yield CherryPick(git, ref=ref, root=repo.path, common_dir=repo.path / ".git", point=point)


def intent(repo: Repo, new: str, *, landing: str = "L1", ref: str = MAIN) -> Landing:
    with lander(repo, ref=ref) as cherry_pick:
        return cherry_pick.prepare(id=landing, old=repo.head(ref), new=new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything of a checkout that is the user's."""

    files: dict[str, tuple[str, bytes]]  #: kind and bytes of every path outside of .git
    index: str
    refs: dict[str, str]
    head: str
    stash: str
    leftovers: tuple[str, ...]  #: lock files and files of ours in any git directory


def snapshot(repo: Repo) -> Snapshot:
    """One look at the checkout `repo` stands in, and at the refs."""
    return Snapshot(
        files=files_of(repo.path),
        index=repo.git("ls-files", "--stage", "-t"),
        refs=repo.refs(),
        head=repo.git("symbolic-ref", "-q", "HEAD", ok=False) or repo.head(),
        stash=repo.git("stash", "list"),
        leftovers=leftovers(repo),
    )


def files_of(root: Path) -> dict[str, tuple[str, bytes]]:
    found: dict[str, tuple[str, bytes]] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name == ".git" or name.startswith(".git/"):
            continue
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            found[name] = ("x" if path.stat().st_mode & 0o100 else "-", path.read_bytes())
    return found


def leftovers(repo: Repo) -> tuple[str, ...]:
    common = repo.path / repo.git("rev-parse", "--git-common-dir")
    found = [*common.rglob("*.lock"), *common.rglob("runplan.*")]
    found += [*common.rglob(BOX)]
    return tuple(sorted(str(path.relative_to(common)) for path in found))
