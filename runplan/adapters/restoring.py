"""Puts back one thing an agent changed in the main repository, if that loses nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.adapters.anchored import make_below
from runplan.adapters.ownrefs import read_refs
from runplan.adapters.parking import Parking
from runplan.adapters.plainfiles import read_file
from runplan.core.guard import REMOTES, SYMBOLIC, FileStamp, read_log, unspelled
from runplan.core.movedrefs import KEPT

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Finding, Oid

PARKED_FILES = "runplan/parked-files"
_NOTE = ("-m", "runplan: put back what an agent changed")


class Restorer:
    """Every step checks that the value is still the one that was judged; a second time changes nothing."""

    def __init__(self, git: Git, common_dir: Path) -> None:
        self._git = git
        self._common_dir = common_dir
        self._parking = Parking(git, common_dir)

    def restore(self, finding: Finding) -> Finding:
        """The finding, with what came of it."""
        if finding.kind == KEPT:
            return self._ref(finding)
        if not finding.by_agent or not finding.safe:
            return self._kept(finding)
        match finding.kind:
            case "ref" if finding.name.startswith(REMOTES):
                return finding  # it tells where the remote is now; putting it back would hide a push
            case "ref":
                return self._ref(finding)
            case "symref":
                return self._symref(finding)
            case "stash":
                return self._stash(finding)
            case "head":
                return self._head(finding)
            case "config" if finding.name.startswith("/"):
                return finding  # a file of the user's own, of which nothing was written down
            case "config" | "hook":
                return self._file(finding)
            case _:
                return finding  # files of the checkout are the user's: named, never repaired

    def _kept(self, finding: Finding) -> Finding:
        """Nobody is accused, but what is on no ref any more is kept."""
        if finding.kind not in ("ref", "symref", "stash") or not finding.old or self._git.object(finding.old) is None:
            return finding
        new = finding.name if finding.kind == "symref" else finding.new
        if new and self._git.run("merge-base", "--is-ancestor", finding.old, new, ok=(0, 1, 128)).code == 0:
            return finding  # the ref went on from it
        return replace(finding, parked=self._park(finding.old, finding.name))

    def _park(self, oid: Oid, ref: str) -> str:
        return self._parking.park(oid, slug="guard", phase=ref.removeprefix("refs/"))

    def _ref(self, finding: Finding) -> Finding:
        parked = self._park(finding.new, finding.name) if finding.new else ""
        # An empty old value means "must not exist".
        words = [finding.name, finding.old, finding.new] if finding.old else ["-d", finding.name, finding.new]
        done = self._git.run("update-ref", "--no-deref", *_NOTE, *words, ok=(0, 1, 128))
        return replace(finding, restored=done.code == 0, parked=parked)

    def _symref(self, finding: Finding) -> Finding:
        """The ref itself, never what it stands for. Whatever a symbolic ref led to is where it always was."""
        name, old = finding.name, finding.old
        if self._stored(name) != finding.new:
            return finding  # somebody has changed it again
        if old.startswith(SYMBOLIC):
            parked = self._park(finding.new, name) if finding.new and not finding.new.startswith(SYMBOLIC) else ""
            self._git.run("symbolic-ref", *_NOTE, name, old.removeprefix(SYMBOLIC))
            return replace(finding, restored=True, parked=parked)
        known = bool(old) and self._git.tip(old) is not None
        words = [name, old] if known else ["-d", name]
        done = self._git.run("update-ref", "--no-deref", *_NOTE, *words, ok=(0, 1, 128))
        return replace(finding, restored=done.code == 0)

    def _stored(self, ref: str) -> str:
        refs = read_refs(self._common_dir, self._git)
        return f"{SYMBOLIC}{refs.symbolic[ref]}" if ref in refs.symbolic else refs.resolved.get(ref, "")

    def _stash(self, finding: Finding) -> Finding:
        """Drop the agent's entry, and no other, from the stack; or put back the one it dropped."""
        if not finding.new:
            self._git.run("stash", "store", "-q", "-m", "put back: an agent dropped it", finding.old)
            return replace(finding, restored=True)
        parked = self._park(finding.new, finding.name)
        stack = [entry.new for entry in reversed(read_log(self._log(finding.name)))]
        if finding.new not in stack:
            return replace(finding, parked=parked)
        if len(stack) == 1:
            self._git.run("update-ref", "--no-deref", "-d", finding.name, finding.new)
        else:
            entry = f"{finding.name}@{{{stack.index(finding.new)}}}"
            self._git.run("reflog", "delete", "--updateref", "--rewrite", entry)
        return replace(finding, restored=True, parked=parked)

    def _log(self, ref: str) -> str:
        return os.fsdecode(read_file(self._common_dir / "logs" / ref, follow=True) or b"")

    def _head(self, finding: Finding) -> Finding:
        """Only the name of the branch: commit, index and files are the same on both."""
        now = head_text(self._common_dir / finding.name)
        if now != finding.new:
            return finding
        if finding.old.startswith(SYMBOLIC):
            self._git.run("symbolic-ref", *_NOTE, finding.name, finding.old.removeprefix(SYMBOLIC))
            return replace(finding, restored=True)
        if not now.startswith(SYMBOLIC) or not finding.old.strip("0"):
            return finding
        done = self._git.run("update-ref", "--no-deref", *_NOTE, finding.name, finding.old, ok=(0, 1, 128))
        return replace(finding, restored=done.code == 0)

    # --- configuration and hooks ---------------------------------------------------------------------

    def _file(self, finding: Finding) -> Finding:
        path = self._common_dir / finding.name
        old, new = unspelled(finding.old), unspelled(finding.new)
        if _content(path) != new:
            return finding  # somebody has changed it again
        parked = str(self._put_aside(finding.name, new)) if new else ""
        if old is None:
            path.unlink()
            return replace(finding, restored=True, parked=parked)
        # Git's own way to write its configuration: whoever else wants to must wait for this lock.
        lock = path.with_name(f"{path.name}.lock")
        try:
            draft = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, old.mode)
        except FileExistsError:
            return replace(finding, parked=parked)
        with os.fdopen(draft, "wb") as file:
            file.write(os.fsencode(old.text))
        lock.chmod(old.mode)
        lock.replace(path)
        return replace(finding, restored=True, parked=parked)

    def _put_aside(self, name: str, kept: FileStamp) -> Path:
        home = self._common_dir / PARKED_FILES
        make_below(self._common_dir, home)
        stem = name.replace("/", "-")
        number = 1 + sum(1 for _ in home.glob(f"{stem}.*"))
        aside = home / f"{stem}.{number}"
        aside.write_bytes(os.fsencode(kept.text))
        return aside


def head_text(path: Path) -> str:
    """What a HEAD says; git's oldest symbolic refs are links."""
    if path.is_symlink() and (target := str(path.readlink())).startswith("refs/"):
        return f"{SYMBOLIC}{target}"
    return os.fsdecode(read_file(path, follow=True) or b"").strip()


def _content(path: Path) -> FileStamp | None:
    content = read_file(path, follow=True)
    return None if content is None else FileStamp(text=os.fsdecode(content), mode=path.stat().st_mode & 0o7777)
