"""Builds the candidate: a phase's commits and the bookkeeping, on the target's tip, without a checkout."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.checks.lineage import NAMED, Foreign, Lineage, is_own, own_refs
from runplan.errors import RefusedEarly
from runplan.git import objects
from runplan.git.objects import SUBMODULE, SYMLINK, TREE, Entry, ObjectWriter, Signature, identity_env
from runplan.gitfacts import LANDING, Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from runplan.git.command import Git
    from runplan.gitfacts import Change, Commit, Oid

    Rewrite: TypeAlias = Callable[[Commit], tuple[str, Signature]]

#: A phase has fewer commits; a base that is no ancestor is found out after so many steps.
LONGEST = 10_000
_RUNPLAN = Identity(name="runplan", email="runplan@localhost")
_TEMPORARY = Signature(author=_RUNPLAN, committer=_RUNPLAN, when="0 +0000")


class Built(Struct, frozen=True, kw_only=True):
    """The phase's commits, replayed on the target tip."""

    commits: tuple[Oid, ...]  #: oldest first; the last one's tree is the code tree
    tree: Oid
    patch: str  #: hash of the net diff; equal hashes keep a verdict valid


class Conflicted(Struct, frozen=True, kw_only=True):
    """The commits do not apply on the target tip."""

    paths: tuple[str, ...]


class NothingLeft(Struct, frozen=True, kw_only=True):
    """Every commit became empty: the target already holds the work."""


Replayed: TypeAlias = Built | Conflicted | NothingLeft


class Candidates:
    """Makes commits out of objects. No ref names a candidate: nothing is ever pruned in `tool.git`."""

    def __init__(self, git: Git, *, common_dir: Path, user: Git | None = None) -> None:
        self._git = git
        self._user = user or git
        self._writer = ObjectWriter(git, common_dir)

    # --- reading ----------------------------------------------------------------------------------------

    def commits(self, base: Oid, head: Oid) -> tuple[Commit, ...] | None:
        """The commits from `base` to `head`, oldest first; None when they are not one line."""
        line: list[Commit] = []
        at = head
        while at != base:
            commit = self._git.commit(at)
            if len(commit.parents) != 1 or len(line) == LONGEST:
                return None
            line.append(commit)
            at = commit.parents[0]
        return tuple(reversed(line))

    def lineage(self, base: Oid, head: Oid, *, branch: str, run: str) -> Lineage:
        """Which of the commits are foreign; costs no process where the run made all of them in one line."""
        line = self.commits(base, head)
        if line is not None and all(is_own(commit.committer, run) for commit in line):
            return Lineage(on_base=True)
        if line is None and not self._git.is_ancestor(base, head):
            return Lineage(on_base=False)
        every = self._git.text("rev-list", "--reverse", f"{base}..{head}").split()
        straight = every
        if line is None:
            straight = self._git.text("rev-list", "--first-parent", f"{base}..{head}").split()
        others = (one for one in map(self._git.commit, every) if not is_own(one.committer, run))
        found = ((one, self._held_by(one.oid, own_refs(branch))) for one in others)
        # A commit on another ref, or brought in by a merge, is foreign. An agent may commit under another name.
        foreign = (
            Foreign(one.oid, one.message.partition("\n")[0], ref)
            for one, ref in found
            if ref or (one.oid not in straight and self._user.object(one.oid) is None)
        )
        return Lineage(on_base=True, foreign=tuple(islice(foreign, NAMED)))

    def _held_by(self, oid: Oid, own: Sequence[str]) -> str:
        if self._user.object(oid) is None:
            return ""
        refs = self._user.text("for-each-ref", "--format=%(refname)", "--contains", oid).splitlines()
        return next((ref for ref in refs if not any(fnmatchcase(ref, pattern) for pattern in own)), "")

    def changes(self, base: Oid, head: Oid) -> tuple[Change, ...]:
        return objects.changes(self._git, self._tree(base), self._tree(head))

    def diff(self, old: Oid, new: Oid) -> str:
        """The change between two commits as a patch, whatever the user's configuration is."""
        plain = ("--no-color", "--no-ext-diff", "--no-textconv")
        return self._git.run("diff", *plain, old, new).out.decode("utf-8", "surrogateescape")

    def code_key(self, tree: Oid, without: Sequence[str]) -> str:
        """The id that the tree would have without these paths; nothing is written."""
        return ObjectWriter(self._git, None).tree_with(tree, dict.fromkeys(without))

    def landed_commits(self, tip: Oid) -> tuple[tuple[Oid, str], ...]:
        """(id, message) of every commit below `tip` with a landing trailer, newest first."""
        # The user's settings for patterns, signatures, colours and encodings do not apply here.
        alike = ("--basic-regexp", "--regexp-ignore-case", "--no-show-signature", "--no-color", "--encoding=UTF-8")
        asked = ("log", *alike, "--topo-order", "-z", "--format=%H%n%B", f"--grep=^{LANDING}[ \t]*:")
        records = self._git.run(*asked, tip, "--").out.decode("utf-8", "surrogateescape").split("\0")
        return tuple((oid, message) for oid, _, message in (record.partition("\n") for record in records) if oid)

    def _tree(self, commit: Oid) -> Oid:
        return self._git.commit(commit).tree

    # --- replaying --------------------------------------------------------------------------------------

    def replay(self, *, base: Oid, head: Oid, onto: Oid, rewrite: Rewrite, whole: bool = False) -> Replayed:
        """Replay base..head on `onto`; as one commit when `whole`, or when they are not one line.

        `rewrite` gives the message and the signature of the new commit.
        """
        line = None if whole else self.commits(base, head)
        tree, tip = self._tree(onto), onto
        made: list[Oid] = []
        for source in (self._git.commit(head),) if line is None else line:
            parent, picked = (base, "") if line is None else (source.parents[0], source.oid)
            merged = self._merge(parent, source.tree, tree, commit=picked)
            if isinstance(merged, Conflicted):
                return merged
            if merged == tree:
                continue
            message, by = rewrite(source)
            tree, tip = merged, self._commit_tree(merged, tip, by, message)
            made.append(tip)
        return self._built(made, tree, onto)

    def merge(self, ours: Oid, theirs: Oid) -> tuple[Oid, tuple[str, ...]]:
        """The tree of a merge of two commits, and the paths in which it has conflict markers."""
        ran = self._git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, ok=(0, 1))
        tree, *paths = os.fsdecode(ran.out).rstrip("\0").split("\0")
        return tree, tuple(sorted(set(paths))) if ran.code else ()

    def commit(self, tree: Oid, *, onto: Oid, message: str, by: Signature) -> Oid:
        """One commit on `onto` with this tree."""
        return self._commit_tree(tree, onto, by, message)

    def whole(self, tree: Oid, *, onto: Oid, message: str, by: Signature) -> Replayed:
        """The candidate of one commit with this tree."""
        return self._built([self._commit_tree(tree, onto, by, message)], tree, onto)

    def revert(
        self, commits: Sequence[Oid], *, without: Sequence[str], onto: Oid, message: str, by: Signature
    ) -> Replayed:
        """One commit on `onto` that reverts `commits`, newest first, except in the paths `without`."""
        tree = self._tree(onto)
        for oid in commits:
            reverted = self._git.commit(oid)
            before = self._tree(reverted.parents[0])
            merged = self._merge(oid, self._with_paths_of(before, reverted.tree, without), tree)
            if isinstance(merged, Conflicted):
                return merged
            tree = merged
        made = [] if tree == self._tree(onto) else [self._commit_tree(tree, onto, by, message)]
        return self._built(made, tree, onto)

    def _built(self, commits: Sequence[Oid], tree: Oid, onto: Oid) -> Replayed:
        changes = objects.changes(self._git, self._tree(onto), tree)
        return Built(commits=tuple(commits), tree=tree, patch=patch_of(changes)) if changes else NothingLeft()

    def _with_paths_of(self, tree: Oid, other: Oid, paths: Sequence[str]) -> Oid:
        """The tree with these paths as in the other one."""
        theirs = {path: self._entry(other, path) for path in paths}
        changed = {path: entry for path, entry in theirs.items() if entry != self._entry(tree, path)}
        return self._writer.tree_with(tree, changed) if changed else tree

    def _entry(self, tree: Oid, path: str) -> Entry | None:
        where, entry = objects.find(self._git, tree, path)
        return entry if where == path else None

    def _merge(self, base: Oid, theirs: Oid, onto: Oid, *, commit: Oid = "") -> Oid | Conflicted:
        """Apply the change from the commit `base` to the tree `theirs` on the tree `onto`.

        `commit` is a child of `base` with that tree, if there is one.
        """
        before = self._tree(base)
        if before in (onto, theirs):
            return theirs if before == onto else onto
        # Temporary commits make `base` the merge base; `merge-tree --merge-base` came with git 2.40.
        ours = self._writer.commit(onto, base, _TEMPORARY, "temporary")
        other = commit or self._writer.commit(theirs, base, _TEMPORARY, "temporary")
        ran = self._git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, other, ok=(0, 1))
        tree, *paths = os.fsdecode(ran.out).rstrip("\0").split("\0")
        return Conflicted(paths=tuple(sorted(set(paths)))) if ran.code else tree

    def _commit_tree(self, tree: Oid, parent: Oid, by: Signature, message: str, *, merged: Oid = "") -> Oid:
        if not by.sign and not merged:
            return self._writer.commit(tree, parent, by, message)
        text = message.encode("utf-8", "surrogateescape")
        options = [*(("-p", merged) if merged else ()), *(("-S",) if by.sign else ())]
        return self._git.run("commit-tree", tree, "-p", parent, *options, stdin=text, env=identity_env(by)).text

    # --- bookkeeping ------------------------------------------------------------------------------------

    def bookkeep(self, *, code: Oid, files: Mapping[str, bytes], message: str, by: Signature, merged: Oid = "") -> Oid:
        """One commit on `code` that changes `files` and nothing else.

        `merged` is a commit that `code` contains, which becomes the second parent.
        """
        tree = self._tree(code)
        written = {
            path: Entry(self._mode(tree, path), self._writer.write("blob", content, like=code))
            for path, content in files.items()
        }
        text = message if message.endswith("\n") else f"{message}\n"
        return self._commit_tree(self._writer.tree_with(tree, written), code, by, text, merged=merged)

    def _mode(self, tree: Oid, path: str) -> str:
        where, entry = objects.find(self._git, tree, path)
        if entry is None:
            return "100644"
        if where == path and entry.mode.startswith("100"):
            return entry.mode
        kinds = {SYMLINK: "a symbolic link", SUBMODULE: "a submodule", TREE: "a directory"}
        raise RefusedEarly(
            f"{where} is {kinds.get(entry.mode, 'a file')} on the target, so {path} cannot be written; "
            "make it a plain file, or set [paths] to another place"
        )


def patch_of(changes: Iterable[Change]) -> str:
    """A hash of paths, modes and contents before and after. A verdict is bound to it and to the tree.

    Unlike git's patch id it changes with moved lines, and it costs no process.
    """
    digest = sha256()
    for change in changes:
        digest.update(f"{change.old_mode} {change.new_mode} {change.old} {change.new} ".encode())
        digest.update(os.fsencode(change.path) + b"\0")
    return digest.hexdigest()
