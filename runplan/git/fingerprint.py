"""Names what changed in the user's repository while a process of ours ran.

Agents work in a repository of their own, so a difference is rare: a push to an explicit path, `git config --global`,
or the user's own work. It is reported, never repaired. Only a ref whose newest reflog entry carries the identity of
the agent counts against it.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import first_line, read_file
from runplan.adapters.repository import refs_snapshot
from runplan.core.fingerprint import Difference, Fingerprint, differences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.adapters.git import Git

_FILES = ("config", "config.worktree", "info/attributes", "info/exclude", "objects/info/alternates", "shallow")
_TAIL = 4096  #: bytes at the end of a reflog that hold its newest entry


class Fingerprints:
    """The user's refs, HEADs, configuration and hooks."""

    def __init__(self, git: Git, *, common_dir: Path, prefix: str) -> None:
        self._git = git
        self._common_dir = common_dir
        self._own = ("refs/runplan/", *([f"refs/heads/{prefix}"] if prefix else []))

    def take(self) -> Fingerprint:
        """How everything looks now; runs no process where refs are files."""
        refs = refs_snapshot(self._common_dir, self._git)
        return Fingerprint(
            refs={name: oid for name, oid in refs.items() if not name.startswith(self._own)},
            heads=dict(self._heads()),
            files=dict(self._files()),
        )

    def compare(self, before: Fingerprint, *, agent: str) -> tuple[Difference, ...]:
        """What changed since; `agent` is the address that the process signs with."""
        return tuple(
            Difference(kind=one.kind, name=one.name, old=one.old, new=one.new, by_agent=self._moved_by(one, agent))
            for one in differences(before, self.take())
        )

    def _moved_by(self, one: Difference, agent: str) -> bool:
        if one.kind != "ref":
            return False
        log = read_file(self._common_dir / "logs" / one.name) or b""
        newest = log[-_TAIL:].rstrip(b"\n").rpartition(b"\n")[2].partition(b"\t")[0]
        return f"<{agent}>".encode() in newest

    def _heads(self) -> Iterator[tuple[str, str]]:
        for place in (self._common_dir, *sorted(self._common_dir.glob("worktrees/*"))):
            name = "HEAD" if place == self._common_dir else f"worktrees/{place.name}/HEAD"
            yield name, first_line(place / "HEAD") or ""

    def _files(self) -> Iterator[tuple[str, str]]:
        hooks = sorted(path for path in (self._common_dir / "hooks").glob("*") if path.suffix != ".sample")
        for path in (*(self._common_dir / name for name in _FILES), *hooks, *_global_files(self._git.env)):
            content = read_file(path)
            if content is not None:
                yield os.fspath(path), sha256(content).hexdigest()


def _global_files(env: Mapping[str, str]) -> Iterator[Path]:
    """The user's own configuration of git, which holds for every repository."""
    home = Path(env.get("HOME") or "/")
    yield Path(env["GIT_CONFIG_GLOBAL"]) if env.get("GIT_CONFIG_GLOBAL") else home / ".gitconfig"
    yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config"
