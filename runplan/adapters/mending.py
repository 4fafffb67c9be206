"""Puts a worktree right that a crash or a person left half there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.adapters.ownrefs import leads
from runplan.adapters.plainplaces import PlainPlaces
from runplan.adapters.registry import (
    Entry,
    calm,
    directories_of,
    entry_of,
    join,
    linked_to,
    stand,
    write_entry,
)
from runplan.core.errors import RefusedEarly

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.adapters.trash import Trash


class Mender:
    """Knows what to do with each way a directory and its entry can disagree."""

    def __init__(self, git: Git, common_dir: Path, trash: Trash) -> None:
        self._git = git
        self._common_dir = common_dir
        self._trash = trash
        self._places = PlainPlaces(common_dir)

    def mended(self, path: Path, *, head: str) -> Entry | None:
        """The entry of our worktree at `path`, put right where needed; None when there is nothing to go on with.

        `head` (a full ref name or a commit) is what a directory without an entry is taken to stand on.
        """
        self._cleared(path, head)
        entry = entry_of(self._common_dir, path) or self._rejoined(path)
        if entry is not None and (entry.half_made or not path.is_dir()):
            self.forget(path)
            return None
        if entry is None:
            return self._adopted(path, head) if path.exists() or path.is_symlink() else None
        if linked_to(path) != entry.directory and (path / ".git").is_dir():
            raise _foreign(path)
        calm(join(entry.directory, path))
        if not leads(self._common_dir, self._git, entry):
            stand(entry.directory, head)
        return entry

    def _cleared(self, path: Path, head: str) -> None:
        """Take away what is no plain file or folder, before anybody reads or writes there."""
        ours = directories_of(self._common_dir, path)
        for odd in self._places.worktree(path):
            if not ours and odd.path == str(path):
                continue  # somebody else's, and refused for what it is
            self._places.take(odd)
            stood = next((entry for entry in ours if odd.path == str(entry / "HEAD")), None)
            if stood is not None:
                stand(stood, head)

    def _rejoined(self, path: Path) -> Entry | None:
        """The entry that lost the name of its worktree, named again."""
        found = directories_of(self._common_dir, path)
        linked = linked_to(path)
        ours = [one for one in found if one == linked] or found
        if len(ours) != 1 or (linked is not None and linked not in ours):
            return None
        half_made = Entry(directory=ours[0], worktree=path).half_made
        return None if half_made else join(ours[0], path)

    def forget(self, path: Path) -> None:
        """Take the directory and the entry away; the caller knows that nothing is lost."""
        if path.is_dir():
            self._trash.take(path)
        self._git.run("worktree", "remove", "--force", "--force", str(path))

    def _adopted(self, path: Path, head: str) -> Entry | None:
        """A directory whose entry is gone, on record again; its files stay as they are."""
        if path.is_symlink() or not path.is_dir():
            raise _foreign(path)
        directory = linked_to(path)
        if directory is None or directory.parent != self._common_dir / "worktrees" or directory.exists():
            if any(path.iterdir()):
                raise _foreign(path)
            return None
        entry = write_entry(directory, path, head=head)
        self._git.within(path).run("read-tree", "HEAD")
        return entry


def _foreign(path: Path) -> RefusedEarly:
    return RefusedEarly(f"{path} is not a worktree of this repository; move it away, or set run.worktrees")
