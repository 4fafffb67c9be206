"""Fingerprints of the user's repository, and the differences between two of them."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.git.repository import refs_snapshot
from runplan.store.files import first_line, read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from runplan.git.command import Git

MOST_LINES = 8
_SHORT = 12
_FILES = ("config", "config.worktree", "info/attributes", "info/exclude", "objects/info/alternates", "shallow")
_TAIL = 4096  #: bytes at the end of a reflog that hold its newest entry


class Difference(Struct, frozen=True, kw_only=True):
    """A ref, a HEAD or a file that changed."""

    name: str  #: of a file its absolute path
    old: str  #: a commit, the content of HEAD, or the hash of a file; empty when it is new
    new: str  #: empty when it is gone
    by_agent: bool = False  #: its newest reflog entry has the agent's identity


class Fingerprints:
    """The user's refs, HEADs, configuration and hooks."""

    def __init__(self, git: Git, *, common_dir: Path, prefix: str) -> None:
        self._git = git
        self._common_dir = common_dir
        self._files = (*(f"{common_dir}/{name}" for name in _FILES), *_global_files(git.env))
        self._own = ("refs/runplan/", *([f"refs/heads/{prefix}"] if prefix else []))

    def take(self) -> str:
        """The fingerprint of now; runs no process where refs are files."""
        return json.dumps(dict(self._values()))

    def compare(self, before: str, *, agent: str) -> tuple[Difference, ...]:
        """The differences since; `agent` is the address that the process commits with."""
        old, new = json.loads(before), dict(self._values())
        return tuple(
            Difference(
                name=name, old=old.get(name, ""), new=new.get(name, ""), by_agent=self._was_moved_by(name, agent)
            )
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        )

    def _was_moved_by(self, name: str, agent: str) -> bool:
        log = read_file(self._common_dir / "logs" / name) or b"" if name.startswith("refs/") else b""
        newest = log[-_TAIL:].rstrip(b"\n").rpartition(b"\n")[2].partition(b"\t")[0]
        return f"<{agent}>".encode() in newest

    def _values(self) -> Iterator[tuple[str, str]]:
        refs = refs_snapshot(self._common_dir, self._git)
        yield from ((name, oid) for name, oid in refs.items() if not name.startswith(self._own))
        common = str(self._common_dir)
        for head in ("HEAD", *(f"worktrees/{name}/HEAD" for name in _names(f"{common}/worktrees"))):
            yield head, first_line(f"{common}/{head}") or ""
        hooks = [f"{common}/hooks/{name}" for name in _names(f"{common}/hooks") if not name.endswith(".sample")]
        for path in (*self._files, *hooks):
            content = read_file(path)
            if content is not None:
                yield path, sha256(content).hexdigest()


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - two agents a phase, and pathlib takes as long as the disk
    except FileNotFoundError:
        return []


def _global_files(env: Mapping[str, str]) -> Iterator[str]:
    """The user's own configuration of git, which applies to every repository."""
    home = env.get("HOME") or "/"
    yield env.get("GIT_CONFIG_GLOBAL") or f"{home}/.gitconfig"
    yield f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config"


def foreign(found: Collection[Difference], landed: Collection[str]) -> tuple[Difference, ...]:
    """The differences without the refs that landings of ours moved meanwhile."""
    return tuple(one for one in found if not (one.name.startswith("refs/") and one.new in landed))


def lines(found: Collection[Difference], process: str) -> tuple[str, ...]:
    """One sentence for the report each, the first few of them."""
    sentences = [_line(one, process) for one in found]
    more = [f"and {len(sentences) - MOST_LINES} more"] if len(sentences) > MOST_LINES else []
    return tuple(sentences[:MOST_LINES] + more)


def _line(one: Difference, process: str) -> str:
    if one.by_agent:
        return f"{process} changed {one.name} in your repository: {_values(one)}"
    return f"{one.name} changed while {process} ran: {_values(one)}"


def _values(one: Difference) -> str:
    if one.name.startswith("/"):
        return "it is new" if not one.old else "it is gone" if not one.new else "it has other content"
    old, new = (value if value.startswith("ref: ") else value[:_SHORT] for value in (one.old, one.new))
    return f"{old or 'nothing'} → {new or 'nothing'}"
