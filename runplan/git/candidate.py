"""Builds the candidate: a phase's commits and the bookkeeping, on the target's tip, without a checkout."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.checks.lineage import NAMED, Foreign, Lineage, is_own, own_refs
from runplan.errors import GitFailed, RefusedEarly
from runplan.git import objects as treediff, trees
from runplan.git.objects import ObjectWriter
from runplan.git.trailers import LANDING
from runplan.gitfacts import Built, Conflicted, Identity, NothingLeft
from runplan.names import candidate_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from runplan.git.command import Git
    from runplan.gitfacts import Change, Commit, Oid, Replayed

    Dress: TypeAlias = Callable[[Commit], tuple[str, Identity, str]]

#: A phase is never longer; a base that is no ancestor is found out after as many steps.
LONGEST = 10_000
_NOBODY = Identity(name="runplan", email="runplan@localhost")


class _Hand(Struct, frozen=True, kw_only=True):
    """Whose hand writes the commits, and when."""

    committer: Identity
    when: str
    sign: bool


class _Pick(Struct, frozen=True, kw_only=True):
    """One step to replay: what `tree` changes against the commit `base`."""

    base: Oid
    tree: Oid
    source: Commit  #: dressed to become the landed commit
    whole: bool  #: a net diff, where `source` is no child of `base`


class Candidates:
    """Makes commits out of objects; the only refs it moves are `refs/runplan/candidate/*`."""

    def __init__(self, git: Git, *, common_dir: Path, user: Git | None = None) -> None:
        self._git = git
        self._user = user or git
        self._writer = ObjectWriter(git, common_dir)

    # --- reading ----------------------------------------------------------------------------------------

    def commits(self, base: Oid, head: Oid) -> tuple[Commit, ...] | None:
        """What lies between, oldest first; None when it is not one line from `base`."""
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
        """Whose commits lie between; costs no process where the run made one line of them."""
        line = self.commits(base, head)
        if line is not None and all(is_own(commit.committer, run) for commit in line):
            return Lineage(on_base=True)
        if line is None and self._git.run("merge-base", "--is-ancestor", base, head, ok=(0, 1)).code:
            return Lineage(on_base=False)
        every = self._git.text("rev-list", "--reverse", f"{base}..{head}").split()
        straight = (
            set(self._git.text("rev-list", "--first-parent", f"{base}..{head}").split()) if line is None else every
        )
        others = (one for one in map(self._git.commit, every) if not is_own(one.committer, run))
        found = ((one, self._held_by(one.oid, own_refs(branch, run))) for one in others)
        # What another ref holds, or a merge brought in, is somebody else's; an agent may commit by another name.
        foreign = (
            Foreign(one.oid, one.message.partition("\n")[0], ref)
            for one, ref in found
            if ref or (one.oid not in straight and self._user.object(one.oid) is None)
        )
        return Lineage(on_base=True, foreign=tuple(islice(foreign, NAMED)))

    def _held_by(self, oid: Oid, own: Sequence[str]) -> str:
        """A ref of the user's that holds the commit, besides those that match the patterns."""
        if self._user.object(oid) is None:
            return ""
        refs = self._user.text("for-each-ref", "--format=%(refname)", "--contains", oid).splitlines()
        return next((ref for ref in refs if not any(fnmatchcase(ref, pattern) for pattern in own)), "")

    def changes(self, base: Oid, head: Oid) -> tuple[Change, ...]:
        """The net diff of two commits, without renames."""
        return treediff.changes(self._git, self._tree(base), self._tree(head))

    def code_key(self, tree: Oid, without: Sequence[str]) -> str:
        """A hash that two trees share when they differ in the paths `without` only."""
        return treediff.key_without(self._git, tree, without)

    def _tree(self, commit: Oid) -> Oid:
        return self._git.commit(commit).tree

    # --- replaying --------------------------------------------------------------------------------------

    def replay(
        self,
        *,
        base: Oid,
        head: Oid,
        onto: Oid,
        dress: Dress,
        committer: Identity,
        when: str,
        sign: bool,
        whole: bool = False,
    ) -> Replayed:
        """Replay base..head on `onto`; what is not one line, or asked for as a whole, becomes one commit."""
        hand = _Hand(committer=committer, when=when, sign=sign)
        start = tree = self._tree(onto)
        tip = onto
        made: list[Oid] = []
        for pick in self._picks(base, head, whole=whole):
            merged = self._apply(pick, tree)
            if isinstance(merged, Conflicted):
                return merged
            if merged == tree:
                continue
            tree, tip = merged, self._dressed(pick, merged, tip, dress, hand)
            made.append(tip)
        if not made or tree == start:
            return NothingLeft()
        patch = patch_of(treediff.changes(self._git, start, tree))
        return Built(commits=tuple(made), tree=tree, patch=patch)

    def marked(self, tip: Oid) -> tuple[tuple[Oid, str], ...]:
        """(id, message) of every commit below `tip` that says it was landed, newest first."""
        # Whatever the user has set for patterns, signatures, colours and encodings, these words are read alike.
        alike = ("--basic-regexp", "--regexp-ignore-case", "--no-show-signature", "--no-color", "--encoding=UTF-8")
        asked = ("log", *alike, "--topo-order", "-z", "--format=%H%n%B", f"--grep=^{LANDING}[ \t]*:")
        records = self._git.run(*asked, tip, "--").out.decode("utf-8", "surrogateescape").split("\0")
        return tuple((oid, message) for oid, _, message in (record.partition("\n") for record in records) if oid)

    def revert(
        self,
        commits: Sequence[Oid],
        *,
        without: Sequence[str],
        onto: Oid,
        message: str,
        author: Identity,
        when: str,
        sign: bool,
    ) -> Replayed:
        """One commit on `onto` that takes back what `commits`, newest first, changed, but for the paths `without`."""
        start = tree = self._tree(onto)
        for oid in commits:
            taken = self._git.commit(oid)
            before = self._git.commit(taken.parents[0])
            left = self._like(before.tree, taken.tree, without)
            merged = self._apply(_Pick(base=oid, tree=left, source=before, whole=True), tree)
            if isinstance(merged, Conflicted):
                return merged
            tree = merged
        if tree == start:
            return NothingLeft()
        made = self._commit_tree(tree, onto, (message, author, when), _Hand(committer=author, when=when, sign=sign))
        return Built(commits=(made,), tree=tree, patch=patch_of(treediff.changes(self._git, start, tree)))

    def _like(self, tree: Oid, other: Oid, paths: Sequence[str]) -> Oid:
        """The tree with the paths as the other has them."""
        theirs = {path: self._entry(other, path) for path in paths}
        changed = {path: entry for path, entry in theirs.items() if entry != self._entry(tree, path)}
        return self._writer.tree_with(tree, changed) if changed else tree

    def _entry(self, tree: Oid, path: str) -> trees.Entry | None:
        where, entry = trees.find(self._git, tree, path)
        return entry if where == path else None

    def _picks(self, base: Oid, head: Oid, *, whole: bool) -> list[_Pick]:
        line = None if whole else self.commits(base, head)
        if line is None:
            source = self._git.commit(head)
            return [_Pick(base=base, tree=source.tree, source=source, whole=True)]
        return [_Pick(base=one.parents[0], tree=one.tree, source=one, whole=False) for one in line]

    def _apply(self, pick: _Pick, onto: Oid) -> Oid | Conflicted:
        """The tree `onto` with the pick's changes."""
        before = self._tree(pick.base)
        if before == onto or before == pick.tree:
            return pick.tree if before == onto else onto
        # A commit that is thrown away, with the tree we stand on and the picked commit's parent, makes that
        # parent the merge base; `merge-tree --merge-base` would say it plainly, but came with git 2.40.
        ours = self._throw_away(onto, pick.base)
        theirs = self._throw_away(pick.tree, pick.base) if pick.whole else pick.source.oid
        ran = self._git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, ok=(0, 1))
        tree, *paths = os.fsdecode(ran.out).rstrip("\0").split("\0")
        return Conflicted(paths=tuple(sorted(set(paths)))) if ran.code else tree

    def _throw_away(self, tree: Oid, parent: Oid) -> Oid:
        hand = _Hand(committer=_NOBODY, when="0 +0000", sign=False)
        return self._commit_tree(tree, parent, ("throw-away", _NOBODY, hand.when), hand)

    def _dressed(self, pick: _Pick, tree: Oid, parent: Oid, dress: Dress, hand: _Hand) -> Oid:
        return self._commit_tree(tree, parent, dress(pick.source), hand)

    def _commit_tree(self, tree: Oid, parent: Oid, dressed: tuple[str, Identity, str], hand: _Hand) -> Oid:
        message, author, authored = dressed
        if hand.sign:
            return self._signed(tree, parent, dressed, hand)
        return self._writer.commit(
            tree, parent, author=author, authored=authored, committer=hand.committer, when=hand.when, message=message
        )

    def _signed(self, tree: Oid, parent: Oid, dressed: tuple[str, Identity, str], hand: _Hand) -> Oid:
        """Only git knows how its user signs."""
        message, author, authored = dressed
        who = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": f"@{authored}",  # without the sign git takes small numbers for years
            "GIT_COMMITTER_NAME": hand.committer.name,
            "GIT_COMMITTER_EMAIL": hand.committer.email,
            "GIT_COMMITTER_DATE": f"@{hand.when}",
        }
        text = message.encode("utf-8", "surrogateescape")
        return self._git.run("commit-tree", tree, "-p", parent, "-S", stdin=text, env=who).text

    # --- bookkeeping ------------------------------------------------------------------------------------

    def anchor(self, run: str, oid: Oid) -> None:
        """Keep the candidate from `git gc`."""
        self._git.update_refs(f"update {candidate_ref(run)} {oid}")

    def drop(self, run: str) -> None:
        """Let the candidate go; harmless when it is gone."""
        self._git.run("update-ref", "--no-deref", "-d", candidate_ref(run))

    def bookkeep(
        self,
        *,
        code: Oid,
        files: Mapping[str, bytes],
        message: str,
        author: Identity,
        committer: Identity,
        when: str,
        sign: bool,
        run: str,
    ) -> Oid:
        """One commit on `code` that changes `files` and, proven afterwards, nothing else; anchored."""
        tree = self._tree(code)
        written = {
            path: trees.Entry(self._mode(tree, path), self._writer.write("blob", content, like=code))
            for path, content in files.items()
        }
        hand = _Hand(committer=committer, when=when, sign=sign)
        told = message if message.endswith("\n") else f"{message}\n"
        kept = self._writer.tree_with(tree, written)
        made = self._commit_tree(kept, code, (told, author, when), hand)
        self._prove(tree, made, files)
        self.anchor(run, made)
        return made

    def _mode(self, tree: Oid, path: str) -> str:
        """The mode the file has; a new file is a plain one."""
        where, entry = trees.find(self._git, tree, path)
        if entry is None:
            return "100644"
        if where == path and entry.mode.startswith("100"):
            return entry.mode
        raise RefusedEarly(
            f"{where} is {_kind(entry.mode)} on the target, so {path} cannot be written; "
            "make it a plain file, or set [paths] to another place"
        )

    def _prove(self, tree: Oid, made: Oid, files: Mapping[str, bytes]) -> None:
        changed = {change.path for change in treediff.changes(self._git, tree, self._tree(made))}
        if stray := sorted(changed - files.keys()):
            raise GitFailed(f"the bookkeeping commit {made} changed {', '.join(stray)}; nothing was landed")
        for path, content in files.items():
            if self._git.blob(made, path) != content:
                raise GitFailed(f"the bookkeeping commit {made} does not hold {path} as written")


def patch_of(changes: Iterable[Change]) -> str:
    """What a verdict is bound to besides the tree: the same paths go from the same to the same content.

    Stricter than git's patch id, which forgives moved lines, and costs no process.
    """
    digest = sha256()
    for change in changes:
        digest.update(f"{change.old_mode} {change.new_mode} {change.old} {change.new} ".encode())
        digest.update(os.fsencode(change.path) + b"\0")
    return digest.hexdigest()


def _kind(mode: str) -> str:
    kinds = {trees.SYMLINK: "a symbolic link", trees.SUBMODULE: "a submodule", trees.TREE: "a directory"}
    return kinds.get(mode, "a file")
