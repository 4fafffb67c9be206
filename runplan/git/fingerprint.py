"""Fingerprints of the user's repository, and what differs between two of them."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.git.checkout import refs_snapshot
from runplan.store.files import first_line, read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from runplan.git.command import Git


MOST_LINES = 8
_SHORT = 12


class Fingerprint(Struct, frozen=True, kw_only=True):
    """One look: refs and HEADs by what they hold, files by a hash of their content."""

    refs: Mapping[str, str]
    heads: Mapping[str, str]
    files: Mapping[str, str]

    def dump(self) -> str:
        return json.dumps({"refs": dict(self.refs), "heads": dict(self.heads), "files": dict(self.files)})


def load(text: str) -> Fingerprint:
    """The inverse of `dump`."""
    stored = json.loads(text)
    return Fingerprint(refs=stored["refs"], heads=stored["heads"], files=stored["files"])


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that changed."""

    kind: str  #: ref, head, file
    name: str
    old: str  #: empty when it is new
    new: str  #: empty when it is gone
    by_agent: bool = False  #: its newest reflog entry carries the agent's identity


def differences(before: Fingerprint, now: Fingerprint) -> tuple[Difference, ...]:
    """What is new, gone or changed, by kind and name."""
    looks = (("ref", before.refs, now.refs), ("head", before.heads, now.heads), ("file", before.files, now.files))
    return tuple(one for kind, old, new in looks for one in _changed(kind, old, new))


def _changed(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*old, *new}):
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            yield Difference(kind=kind, name=name, old=was, new=now)


def foreign(found: Collection[Difference], landed: Collection[str]) -> tuple[Difference, ...]:
    """Without the refs that landings of ours moved meanwhile."""
    return tuple(one for one in found if not (one.kind == "ref" and one.new in landed))


def lines(found: Collection[Difference], process: str) -> tuple[str, ...]:
    """One sentence for the report each, the first few of them."""
    told = [_line(one, process) for one in found]
    more = [f"and {len(told) - MOST_LINES} more"] if len(told) > MOST_LINES else []
    return tuple(told[:MOST_LINES] + more)


def _line(one: Difference, process: str) -> str:
    if one.by_agent:
        return f"{process} changed {one.name} in your repository: {_values(one)}"
    return f"{one.name} changed while {process} ran: {_values(one)}"


def _values(one: Difference) -> str:
    if one.kind == "file":
        return "it is new" if not one.old else "it is gone" if not one.new else "it has other content"
    return f"{_short(one.old) or 'nothing'} → {_short(one.new) or 'nothing'}"


def _short(value: str) -> str:
    return value if value.startswith("ref: ") else value[:_SHORT]


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
