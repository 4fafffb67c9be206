"""Real git repositories for tests, in an environment that knows nothing of the machine's own git settings."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runplan.git.command import Git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

USER_NAME = "Uma User"
USER_EMAIL = "uma@example.org"
AGENT_ENV = {
    "GIT_AUTHOR_NAME": "runplan agent",
    "GIT_AUTHOR_EMAIL": "agent@runplan.invalid",
    "GIT_COMMITTER_NAME": "runplan agent",
    "GIT_COMMITTER_EMAIL": "agent@runplan.invalid",
}


def isolated_env(**extra: str) -> dict[str, str]:
    """An environment in which git reads no configuration but the repository's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"} | extra


@dataclass(kw_only=True)
class Repo:
    """One checkout, driven as a person would drive it."""

    path: Path
    env: dict[str, str] = field(default_factory=isolated_env)

    def git(self, *args: str, env: Mapping[str, str] | None = None, stdin: str = "", ok: bool = True) -> str:
        """The output of one git command; `env` goes on top, `ok=False` lets it fail."""
        done = subprocess.run(
            ["git", *args],
            cwd=self.path,
            env=self.env | dict(env or {}),
            input=os.fsencode(stdin),
            capture_output=True,
            check=False,
        )
        if ok and done.returncode:
            raise AssertionError(f"git {' '.join(args)}: {os.fsdecode(done.stderr)}")
        return os.fsdecode(done.stdout).rstrip("\n")

    def write(self, name: str, text: str) -> Path:
        """Write one file of the checkout, making its directories."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    def commit(self, message: str, env: Mapping[str, str] | None = None, /, **files: str) -> str:
        """Write `files`, commit everything there is (also nothing), and return the new commit."""
        for name, text in files.items():
            self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, env=env)
        return self.head()

    def head(self, ref: str = "HEAD") -> str:
        return self.git("rev-parse", "--verify", f"{ref}^{{commit}}")

    def tree(self, ref: str = "HEAD") -> str:
        return self.git("rev-parse", "--verify", f"{ref}^{{tree}}")

    def refs(self) -> dict[str, str]:
        """Every ref and what it points to."""
        lines = self.git("for-each-ref", "--format=%(objectname) %(refname)").splitlines()
        return {name: oid for oid, _, name in (line.partition(" ") for line in lines)}

    def show(self, name: str) -> str:
        return self.git("show", name)

    def status(self) -> str:
        return self.git("status", "--porcelain", "--untracked-files=all")

    def at(self, path: Path) -> Repo:
        """The same repository, seen from another worktree."""
        return Repo(path=path, env=self.env)

    def adapter(self) -> Git:
        """The product's git in this checkout; close it, or use it in a `with`."""
        return Git(self.path, env=self.env)


def init_repo(path: Path, *args: str) -> Repo:
    """An empty repository on branch main with an identity."""
    path.mkdir(parents=True, exist_ok=True)
    repo = Repo(path=path)
    repo.git("-c", "init.defaultBranch=main", "init", "-q", *args)
    with (path / ("config" if "--bare" in args else ".git/config")).open("a", encoding="utf-8") as config:
        config.write(f"[user]\n\tname = {USER_NAME}\n\temail = {USER_EMAIL}\n")
    return repo


def make_repo(path: Path, **files: str) -> Repo:
    """A repository on branch main with one commit that holds `files` (a README when none are named)."""
    repo = init_repo(path)
    repo.commit("Start", **(files or {"README.md": "hello\n"}))
    return repo
