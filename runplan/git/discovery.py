"""Finds the repository of a command, and refuses early one that no run could succeed in."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan import names
from runplan.errors import GitFailed, RefusedEarly
from runplan.git.checkout import refs_snapshot
from runplan.git.command import Git, failure
from runplan.gitfacts import read_person
from runplan.names import HEADS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from runplan.gitfacts import Identity

OLDEST_GIT = (2, 38)
PROBE_S = 20.0  #: a signature that takes longer waits for a passphrase
ODD_PATH = "runplan cannot work in a path with control characters or with bytes that are not UTF-8"
_ASKED = ("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-common-dir", "--git-dir")
_MOST_NAMED = 8  #: branches in one message


class Repository(Struct, frozen=True, kw_only=True):
    """A repository that has a checkout."""

    root: Path  #: the main checkout; the checkout at hand when the repository behind it is bare
    common_dir: Path  #: shared by all worktrees; refs, objects and our journal are there
    git: Git


def open_repository(start: Path, *, env: Mapping[str, str]) -> Repository:
    """The repository around `start`, from any directory of any of its worktrees; costs one process."""
    here = start if start.is_dir() else start.parent
    if not here.is_dir():
        raise RefusedEarly(f"{start} does not exist")
    _require_plain(here.absolute())
    git = Git(here, env=env)
    # --show-toplevel comes last: outside of a checkout git answers the others and then fails.
    ran = git.run(*_ASKED, "--show-toplevel", ok=(0, 128))
    answers = [os.fsdecode(line) for line in ran.out.splitlines()]
    if len(answers) < 3:
        if "not a git repository" in ran.err:
            raise RefusedEarly(f"{here} is not in a git repository; run git init, or go to one")
        raise GitFailed(failure(_ASKED, ran, here))
    if answers[0] == "true":
        raise RefusedEarly(
            f"{answers[1]} is a bare repository, without a checkout; go to a clone or to a worktree of it"
        )
    if len(answers) > 4:
        raise RefusedEarly(f"{ODD_PATH}: the repository around {here}; move it to a path of plain text")
    common, own = Path(answers[1]), Path(answers[2])
    _require_plain(common)
    top = Path(answers[3]) if len(answers) > 3 else None
    root = top if top is not None and own == common else _main_checkout(git, common, top)
    return Repository(root=root, common_dir=common, git=git.at(root if root.is_dir() else common))


def _require_plain(path: Path) -> None:
    if not names.is_plain(str(path)):
        raise RefusedEarly(f"{ODD_PATH}: {names.shown(str(path))}; move the repository to a path of plain text")


def _main_checkout(git: Git, common: Path, top: Path | None) -> Path:
    if common.name == ".git":
        return common.parent
    # A submodule or a separate git directory names its checkout; a bare one behind worktrees has none.
    named = git.run("config", "--file", str(common / "config"), "core.worktree", ok=(0, 1))
    if named.code == 0:
        return Path(os.path.normpath(common / named.text))
    return top if top is not None else common


# --- refusals before any work -------------------------------------------------------------------------


def require_workable(repository: Repository, *, target: str, prefix: str) -> Identity:
    """Refuse a repository that cannot be worked in, with the remedy; else the identity of landed commits."""
    require_git(repository.git)
    branches = _branches(require_target(repository, target))
    if blocking := blocking_branch(branches, prefix):
        from runplan.text import command  # only a refusal needs it

        rename = command("git", "branch", "-m", blocking, f"{blocking}-old")
        raise RefusedEarly(
            f"the branch {blocking} blocks branches under {prefix}; "
            f"set run.branch_prefix to another prefix, or rename it: {rename}"
        )
    return identity(repository.git)


def require_target(repository: Repository, target: str) -> list[str]:
    """Refuse a repository without a commit or without the target, a full ref name; else every ref."""
    refs = sorted(refs_snapshot(repository.common_dir, repository.git))
    if target in refs:
        return refs
    branches = _branches(refs)
    if not branches:
        raise RefusedEarly(f"{repository.root} has no commit yet; make one: git commit --allow-empty -m Start")
    name = target.removeprefix(HEADS).removeprefix("refs/remotes/")
    more = f" and {len(branches) - _MOST_NAMED} more" if len(branches) > _MOST_NAMED else ""
    some = ", ".join(branches[:_MOST_NAMED]) + more
    raise RefusedEarly(f"the target branch {name} does not exist; set run.target to one of: {some}")


def _branches(refs: Collection[str]) -> list[str]:
    return [ref.removeprefix(HEADS) for ref in refs if ref.startswith(HEADS)]


def require_git(git: Git) -> None:
    """Refuse a git without `merge-tree --write-tree`."""
    version = git.text("--version")
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        raise RefusedEarly(f"{version} is too old; install git {'.'.join(map(str, OLDEST_GIT))} or newer")


def blocking_branch(branches: Collection[str], prefix: str) -> str | None:
    """The branch that is a file where the prefix needs a directory."""
    parts = prefix.split("/")[:-1]
    needed = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((name for name in needed if name in branches), None)


def identity(git: Git) -> Identity:
    """The configured identity of the user; git's guess from the host name does not count."""
    ran = git.run("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT", ok=(0, 1, 128))
    person, when = read_person(ran.text)
    if ran.code or not when:
        raise RefusedEarly(
            "git does not know who you are; "
            'run: git config user.name "Your Name" && git config user.email you@example.org'
        )
    return person


def signing(git: Git) -> bool:
    """Whether landed commits are signed; tried now, because later no person can type a passphrase."""
    if git.run("config", "--type=bool", "commit.gpgsign", ok=(0, 1)).text != "true":
        return False
    try:
        git.run("commit-tree", "-S", "HEAD^{tree}", "-m", "Can commits be signed?", timeout_s=PROBE_S)
    except GitFailed as error:
        raise RefusedEarly(
            f"commit.gpgsign is on, but signing does not work without a person ({error}); unlock the key first, "
            "or turn it off here: git config commit.gpgsign false"
        ) from None
    return True
