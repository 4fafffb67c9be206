"""Keeps work aside under refs/runplan/parked/, so that nothing has to be lost to make room."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from runplan.adapters.git import failure
from runplan.adapters.hiding import untranslated
from runplan.adapters.ownrefs import read_refs
from runplan.core.errors import GitFailed
from runplan.core.gitfacts import Identity
from runplan.core.names import PARKED, parked_under
from runplan.core.quickclass import dataclass
from runplan.core.storing import unstored

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.adapters.registry import Entry
    from runplan.core.gitfacts import Oid

#: Commits we make only to keep something; nobody wrote them.
KEEPER = Identity(name="runplan", email="runplan@runplan.invalid")
_TRIES = 50
_ADD = ("add", "--all", "--ignore-errors", "--", ":/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """One thing kept aside."""

    ref: str
    oid: Oid
    date: str  #: ISO-8601
    subject: str


class Parking:
    """The parked refs of one repository."""

    def __init__(self, git: Git, common_dir: Path) -> None:
        self._git = git
        self._common_dir = common_dir

    def park(self, oid: Oid, *, slug: str, phase: str) -> str:
        """Keep `oid` under the next free number; parking the same thing again gives the same ref."""
        home = parked_under(slug, phase)
        for _ in range(_TRIES):
            seen = read_refs(self._common_dir, self._git)
            kept = {ref: held for ref, held in seen.plain.items() if ref.startswith(home)}
            if oid in kept.values():
                return next(ref for ref, held in kept.items() if held == oid)
            numbers = [
                int(ref.removeprefix(home))
                for ref in (*kept, *seen.symbolic)
                if ref.startswith(home) and ref.removeprefix(home).isdigit()
            ]
            ref = f"{home}{max(numbers, default=0) + 1}"
            # An empty old value means "must not exist": of two that park at once, one takes the next number.
            if self._git.run("update-ref", "--no-deref", ref, oid, "", ok=(0, 128)).code == 0:
                return ref
        self._git.run("update-ref", "--no-deref", ref, oid, "")  # tells what is wrong
        return ref

    def park_ref(self, oid: Oid, ref: str) -> str:
        """Keep what a full ref name stood for under the plan and phase the name ends with."""
        slug, phase = ref.split("/")[-2:]
        return self.park(oid, slug=slug, phase=phase)

    def salvage(self, entry: Entry, *, uncommitted: bool) -> str:
        """Park what only this worktree holds: uncommitted work, or commits on no branch. The ref, or nothing."""
        where = entry.attached or f"worktree/{entry.worktree.name}"
        kept = self.snapshot(entry, reason=f"Uncommitted work found in {where}") if uncommitted else None
        if kept is None and entry.attached is None and not self._held(entry.head):
            kept = entry.head
        return self.park_ref(kept, where) if kept is not None else ""

    def _held(self, oid: Oid) -> bool:
        return self._git.text("for-each-ref", "--count=1", "--contains", oid) != ""

    def parked(self) -> list[Parked]:
        """Everything kept aside, with what a person recognises it by."""
        form = "--format=%(refname)%00%(objectname)%00%(creatordate:iso-strict)%00%(contents:subject)"
        lines = self._git.text("for-each-ref", form, PARKED).splitlines()
        fields = (line.split("\0") for line in lines)
        return [Parked(ref=ref, oid=oid, date=date, subject=subject) for ref, oid, date, subject in fields]

    def snapshot(self, entry: Entry, *, reason: str) -> Oid | None:
        """The uncommitted work of a worktree as a commit on its HEAD; nothing there is touched. None when clean.

        As with a stash, staged content that the files no longer show is a second parent. Ignored files are no work.
        """
        git = self._git.within(entry.worktree)
        draft = entry.directory / "runplan-snapshot"
        env = {"GIT_INDEX_FILE": str(draft)}
        parent = git.run("rev-parse", "--quiet", "--verify", "HEAD^{commit}", ok=(0, 1)).text
        base = git.text("rev-parse", f"{parent}^{{tree}}") if parent else ""
        try:
            if (entry.directory / "index").exists():
                # The copy keeps its time: git takes entries as young as their index for possibly changed.
                shutil.copy2(entry.directory / "index", draft)
            elif parent:
                git.run("read-tree", parent, env=env)
            staged = git.run("write-tree", env=env, ok=(0, 128)).text  # fails on unmerged paths
            if (added := git.run(*_ADD, env=env, ok=(0, 128))).code == 0:
                files = git.run("write-tree", env=env).text
            elif unstored(added.err) is None:
                raise GitFailed(failure(_ADD, added, entry.worktree))
            else:
                files = self._as_they_are(git, env, like=base)
        finally:
            draft.unlink(missing_ok=True)
            draft.with_name(f"{draft.name}.lock").unlink(missing_ok=True)
        if files == base and staged in ("", base):
            return None
        parents = [parent] if parent else []
        if staged not in ("", base, files):
            parents.append(self._commit(git, staged, parents, f"Staged: {reason}"))
        return self._commit(git, files, parents, reason)

    def _as_they_are(self, git: Git, env: Mapping[str, str], *, like: Oid) -> Oid:
        """A tree of the files byte for byte, whatever is said of them."""
        with untranslated(self._common_dir, git.cwd, like=like) as there:
            git.run(*_ADD, env={**env, **there})
            return git.run("write-tree", env={**env, **there}).text

    def _commit(self, git: Git, tree: Oid, parents: list[Oid], message: str) -> Oid:
        env = {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", KEEPER.name), ("EMAIL", KEEPER.email))
        }
        above = [word for parent in parents for word in ("-p", parent)]
        return git.run("commit-tree", "--no-gpg-sign", *above, "-m", message, tree, env=env).text
