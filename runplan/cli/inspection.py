"""Looks at the user's repository with GitPython."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.clis import agent_of
from runplan.agents.environment import FETCHING
from runplan.errors import GitFailed, RefusedEarly, Unreachable
from runplan.gitfacts import Identity, read_person
from runplan.settings.load import list_agent_kinds
from runplan.settings.toolchain import Toolchain, detect, manifests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from git import Git, Repo


class Facts(Struct, frozen=True, kw_only=True):
    root: str  #: the main checkout
    default_branch: str  #: that of the remote, else main, master or the current one; "" for none
    identity: Identity | None
    remotes: tuple[str, ...]
    installed: tuple[str, ...]  #: the known agents whose program is on PATH, in the order they are suggested
    toolchain: Toolchain
    variables: tuple[str, ...] = ()  #: names of those that package managers and compilers read here


def known_agents() -> tuple[str, ...]:
    """The agents whose programs can be looked for, in the order they are suggested."""
    known = {kind: agent_of(kind) for kind in list_agent_kinds() if agent_of(kind).program}
    return tuple(sorted(known, key=lambda kind: (known[kind].rank, kind)))


def look_around(start: Path, *, env: Mapping[str, str]) -> Facts:
    """The facts of the repository around `start`; refused without a repository or without a checkout."""
    try:
        import git
    except ImportError as error:  # GitPython looks for git when it is imported
        raise Unreachable("git was not found on PATH; install git 2.38 or newer") from error
    try:
        # GitPython would expand variables in a path.
        repo = git.Repo(start, search_parent_directories=True, expand_vars=False)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError):
        raise RefusedEarly(f"{start} is not in a git repository; run git init, or go to one") from None
    with repo:
        if repo.bare:
            raise RefusedEarly(f"{repo.git_dir} is a bare repository, without a checkout; go to a clone of it")
        try:
            return _inspect_repository(repo, env)
        except git.GitCommandError as error:
            message = str(error.stderr).strip().removeprefix("stderr: ").strip("'\n ")
            raise GitFailed(f"{repo.working_dir}: git {error.command[1]} failed: {message}") from error


def _inspect_repository(repo: Repo, env: Mapping[str, str]) -> Facts:
    git = repo.git
    common = Path(os.path.normpath(repo.common_dir))
    path = env.get("PATH", os.defpath)
    # Without useConfigOnly git guesses an identity from the host name.
    person, when = read_person(_ask_git(git, "-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT"))
    places = (":(top,glob)*", ":(top)tests", ":(top)test")
    listed = git.ls_files("-z", "--full-name", "--cached", "--others", "--exclude-standard", "--", *places)
    files = [name for name in listed.split("\0") if (Path(repo.working_dir) / name).is_file()]
    texts = {name: (Path(repo.working_dir) / name).read_text("utf-8", errors="replace") for name in manifests(files)}
    return Facts(
        root=str(common.parent) if common.name == ".git" else str(repo.working_dir),
        default_branch=_default_branch(git),
        identity=person if when else None,
        remotes=tuple(git.remote().splitlines()),
        installed=tuple(kind for kind in known_agents() if shutil.which(agent_of(kind).program, path=path)),
        toolchain=detect(files, texts),
        variables=tuple(sorted(FETCHING & env.keys())),
    )


def _default_branch(git: Git) -> str:
    branches = git.for_each_ref("--format=%(refname:lstrip=2)", "refs/heads").split()
    remote = _ask_git(git, "symbolic-ref", "-q", "refs/remotes/origin/HEAD").removeprefix("refs/remotes/origin/")
    current = _ask_git(git, "symbolic-ref", "-q", "--short", "HEAD")
    if not branches:
        return current
    return next((name for name in (remote, "main", "master", current) if name in branches), branches[0])


def _ask_git(git: Git, *args: str) -> str:
    return str(git.execute(["git", *args], with_exceptions=False))
