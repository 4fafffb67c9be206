"""The facts that `init` and `doctor` need: the repository (GitPython), programs of agents, worktree directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.clis import agent_of
from runplan.checks import testcommand
from runplan.errors import GitFailed, RefusedEarly, Unreachable
from runplan.gitfacts import read_person
from runplan.settings.load import kinds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from git import Git, Repo

    from runplan.gitfacts import Identity


class Facts(Struct, frozen=True, kw_only=True):
    root: str  #: the main checkout
    git_version: tuple[int, ...]
    branches: tuple[str, ...]  #: short names; none while there is no commit
    default_branch: str  #: that of the remote, else main, master or the current one; "" for none
    identity: Identity | None
    signs: bool  #: commit.gpgsign
    remotes: tuple[str, ...]
    known: tuple[str, ...]  #: the agents whose programs can be looked for, in the order they are suggested
    installed: tuple[str, ...]  #: of these, those whose program is on PATH
    tests: testcommand.Infrastructure


def is_writable(path: Path) -> bool:
    """Whether the directory `path` could be created and written; it need not exist."""
    nearest = next(each for each in (path, *path.parents) if each.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def known_agents() -> tuple[str, ...]:
    """The agents whose programs can be looked for, in the order they are suggested."""
    known = {kind: agent_of(kind) for kind in kinds() if agent_of(kind).program}
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
            return _facts(repo, env)
        except git.GitCommandError as error:
            message = str(error.stderr).strip().removeprefix("stderr: ").strip("'\n ")
            raise GitFailed(f"{repo.working_dir}: git {error.command[1]} failed: {message}") from error


def _facts(repo: Repo, env: Mapping[str, str]) -> Facts:
    branches = tuple(_lines(repo.git.for_each_ref("--format=%(refname:lstrip=2)", "refs/heads")))
    root = _main_checkout(repo)
    known, path = known_agents(), env.get("PATH", os.defpath)
    return Facts(
        root=str(root),
        git_version=tuple(repo.git.version_info),
        branches=branches,
        default_branch=_default_branch(repo.git, branches),
        identity=_identity(repo.git),
        signs=_ask(repo.git, "config", "--type=bool", "--get", "commit.gpgsign") == "true",
        remotes=tuple(_lines(repo.git.remote())),
        known=known,
        installed=tuple(kind for kind in known if shutil.which(agent_of(kind).program, path=path)),
        tests=_tests(repo),
    )


def _main_checkout(repo: Repo) -> Path:
    common = Path(os.path.normpath(repo.common_dir))
    return common.parent if common.name == ".git" else Path(repo.working_dir)


def _default_branch(git: Git, branches: tuple[str, ...]) -> str:
    remote = _ask(git, "symbolic-ref", "-q", "refs/remotes/origin/HEAD").removeprefix("refs/remotes/origin/")
    current = _ask(git, "symbolic-ref", "-q", "--short", "HEAD")
    if not branches:
        return current
    return next((name for name in (remote, "main", "master", current) if name in branches), branches[0])


def _identity(git: Git) -> Identity | None:
    # Without useConfigOnly git guesses an identity from the host name.
    person, when = read_person(_ask(git, "-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT"))
    return person if when else None


def _tests(repo: Repo) -> testcommand.Infrastructure:
    listed = repo.git.ls_files("-z", "--cached", "--others", "--exclude-standard", "--", ":(top,glob)*", ":(top)tests")
    files = [path for path in listed.split("\0") if path]
    root = Path(repo.working_dir)
    return testcommand.find(files, package_json=_read(root / "package.json"), makefile=_read(root / "Makefile"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _ask(git: Git, *args: str) -> str:
    return str(git.execute(["git", *args], with_exceptions=False))


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]
