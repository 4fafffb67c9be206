"""Reads, compares and writes git objects, and builds candidates from them, without a checkout (docs/adr/0007)."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import zlib
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.errors import GitFailed, HandOverRefused, RefusedEarly, Unreachable
from runplan.gitfacts import LANDING, Change, Commit, Identity, Oid, is_agent_of
from runplan.names import digest_of

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from runplan.git.command import Git, Stored

Writer: TypeAlias = Callable[[str, bytes, Oid], Oid]  #: of kind and content; an id of the repository shows its hash

NAMED = 3  #: commits of others that are named in one sentence
TREE = "040000"
SYMLINK = "120000"
SUBMODULE = "160000"
NO_MODE = "000000"
MOST_FOREIGN = 3  #: commits named in one sentence
MOST_CHANGED = 1_000_000  #: paths; a tree of a few objects can have more than memory holds


class Entry(Struct, frozen=True):
    """One name in a tree."""

    mode: str
    oid: Oid


class Signature(Struct, frozen=True, kw_only=True):
    """Author and committer of a commit. Times are in git's own form, `<seconds> <zone>`."""

    author: Identity
    committer: Identity
    when: str
    authored: str = ""  #: `when`, if empty
    sign: bool = False  #: with the key of the committer, as git is configured


def identity_env(by: Signature) -> dict[str, str]:
    """The variables that make git commit with this signature."""
    people = (("AUTHOR", by.author, by.authored or by.when), ("COMMITTER", by.committer, by.when))
    return {
        f"GIT_{role}_{field}": value
        for role, one, when in people
        for field, value in (("NAME", one.name), ("EMAIL", one.email), ("DATE", f"@{when}"))  # "@": not a year
    }


def entries(git: Git, tree: Oid) -> dict[str, Entry]:
    """The names of one tree object, not of the trees below it."""
    return read_tree(_require(git, tree))


def read_tree(stored: Stored) -> dict[str, Entry]:
    if stored.kind != "tree":
        raise GitFailed(f"{stored.oid} is not a tree")
    width = len(stored.oid) // 2
    found: dict[str, Entry] = {}
    at = 0
    while at < len(stored.content):
        end = stored.content.index(b"\0", at)
        mode, _, name = stored.content[at:end].partition(b" ")
        at = end + 1 + width
        found[os.fsdecode(name)] = Entry(mode.decode().zfill(6), stored.content[end + 1 : at].hex())
    return found


def find(git: Git, tree: Oid, path: str) -> tuple[str, Entry | None]:
    """The longest part of `path` that is in the tree, and its entry; None when it is missing."""
    here = ""
    entry: Entry | None = Entry(TREE, tree)
    for name in path.split("/"):
        if entry is None or entry.mode != TREE:
            break
        here = f"{here}/{name}" if here else name
        entry = entries(git, entry.oid).get(name)
    return here, entry


def changes(git: Git, old: Oid, new: Oid, *, most: int = MOST_CHANGED) -> tuple[Change, ...]:
    """The differences between two trees, sorted by path, without renames; `ObjectsRefused` for more than `most`."""
    nothing = Entry(NO_MODE, "0" * len(old))
    found = []
    for count, (path, *both) in enumerate(_differences(git, old, new)):
        if count >= most:
            raise HandOverRefused(f"more than {most} files and directories differ (limits.handover_entries)")
        was, now = (nothing if one is None or one.mode == TREE else one for one in both)
        if was != now:
            modes = {"old_mode": was.mode, "new_mode": now.mode}
            found.append(Change(path=path, kind=_kind(was.mode, now.mode), old=was.oid, new=now.oid, **modes))
    return tuple(sorted(found, key=lambda change: change.path))


def _kind(old: str, new: str) -> str:
    if NO_MODE in (old, new):
        return "A" if old == NO_MODE else "D"
    # Regular files share their first three digits, whether executable or not.
    return "M" if old[:3] == new[:3] else "T"


def _differences(git: Git, old: Oid, new: Oid) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """Each path that differs between two trees, with both entries; directories as well, however deep."""
    waiting: list[tuple[str, Oid | None, Oid | None]] = [("", old, new)]
    while waiting:
        prefix, *trees = waiting.pop()
        before, after = (entries(git, tree) if tree else {} for tree in trees)
        for name in before.keys() | after.keys():
            was, now = before.get(name), after.get(name)
            if was != now:
                yield f"{prefix}{name}", was, now
                old_tree, new_tree = (entry.oid if entry and entry.mode == TREE else None for entry in (was, now))
                if old_tree or new_tree:
                    waiting.append((f"{prefix}{name}/", old_tree, new_tree))


def _require(git: Git, oid: Oid, *, most: int = sys.maxsize) -> Stored:
    if (stored := git.known(oid, most=most)) is None:
        raise GitFailed(f"the object {oid} is missing")
    return stored


# --- packs ----------------------------------------------------------------------------------------------

MOST_PACKED = 100  #: objects
LARGEST_PACKED = 256 * 1024  #: bytes of an object
LARGEST_DIFFED = 16_000_000  #: bytes of a file that a patch shows
_KINDS = {"commit": 1, "tree": 2, "blob": 3}


def small_pack(git: Git, tip: Oid, *, without: Collection[Oid]) -> bytes | None:
    """The objects that `tip` adds to `without`, as a pack; None when they are many or large, or a merge is among them.

    `git pack-objects` does the same for all, and takes as long as ten of these.
    """
    found: dict[Oid, Stored] = {}
    try:
        for oid in _added(git, tip, without):
            found[oid] = _require(git, oid, most=LARGEST_PACKED)
            if len(found) > MOST_PACKED or found[oid].size > LARGEST_PACKED:
                return None
    except (GitFailed, ValueError):  # an object is missing or malformed, or a commit has no parent or several
        return None
    pack = struct.pack("!4sII", b"PACK", 2, len(found)) + b"".join(map(_packed, found.values()))
    return pack + digest_like(tip, pack).digest()


def _added(git: Git, tip: Oid, without: Collection[Oid]) -> Iterator[Oid]:
    while tip not in without:
        yield tip
        commit = git.commit(tip)
        (parent,) = commit.parents
        before = git.commit(parent).tree
        if before != commit.tree:
            yield commit.tree
        yield from (one.oid for _, _, one in _differences(git, before, commit.tree) if one and one.mode != SUBMODULE)
        tip = parent


def _packed(one: Stored) -> bytes:
    """Kind and length, seven bits of it in a byte after the first four, then the content."""
    size = len(one.content)
    head = [_KINDS[one.kind] << 4 | size & 15]
    size >>= 4
    while size:
        head[-1] |= 128
        head.append(size & 127)
        size >>= 7
    return bytes(head) + zlib.compress(one.content, 1)


def digest_like(oid: Oid, content: bytes) -> hashlib._Hash:
    """The hash of the content in the repository of the object."""
    import hashlib  # slow to import, and reading needs no hash

    return hashlib.sha1(content, usedforsecurity=False) if len(oid) == 40 else hashlib.sha256(content)


def object_id(kind: str, content: bytes, like: Oid) -> Oid:
    """The id that the object has in the repository of the object `like`."""
    return digest_like(like, _stored(kind, content)).hexdigest()


def _stored(kind: str, content: bytes) -> bytes:
    return f"{kind} {len(content)}\0".encode() + content


def tree_with(git: Git, tree: Oid | None, files: Mapping[str, Entry | None], write: Writer, like: Oid) -> Oid | None:
    """The tree with each path of `files` set to its entry, or removed; None when nothing is left."""
    found: dict[str, Entry | None] = dict(entries(git, tree)) if tree else {}
    below: dict[str, dict[str, Entry | None]] = {}
    for path, entry in files.items():
        name, _, rest = path.partition("/")
        if rest:
            below.setdefault(name, {})[rest] = entry
        else:
            found[name] = entry
    for name, inner in below.items():
        there = found.get(name)
        if there is not None and there.mode != TREE and not any(inner.values()):
            continue  # a file stands where the directory was: the paths below are gone already
        inside = there.oid if there is not None and there.mode == TREE else None
        made = tree_with(git, inside, inner, write, like)
        found[name] = Entry(TREE, made) if made else None
    kept = [(os.fsencode(name), entry) for name, entry in found.items() if entry is not None]
    kept.sort(key=lambda one: one[0] + (b"/" if one[1].mode == TREE else b""))  # as git sorts
    rows = (entry.mode.lstrip("0").encode() + b" " + name + b"\0" + bytes.fromhex(entry.oid) for name, entry in kept)
    return write("tree", b"".join(rows), like) if kept else None


def _person(identity: Identity) -> str:
    """Name and address without the characters that end them, which git's own commands drop as well."""
    clean = str.maketrans("", "", "<>\n\0")
    return f"{identity.name.translate(clean)} <{identity.email.translate(clean)}>"


def _store(directory: str, oid: Oid, whole: bytes) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)  # noqa: PTH102 - seven objects a phase, and pathlib takes as long as the disk
    # The directory follows the user's umask or core.sharedRepository; the file follows the directory.
    mode = os.stat(directory).st_mode  # noqa: PTH116
    draft = os.path.join(directory, f"tmp_obj_{os.getpid()}_{oid[-12:]}")
    with open(draft, "wb") as file:
        file.write(zlib.compress(whole, 1))
        file.flush()
        os.fchmod(file.fileno(), 0o440 | mode & 0o004 if mode & 0o060 else 0o444)
        os.fsync(file.fileno())
    os.replace(draft, f"{directory}/{oid[2:]}")


# --- candidates -----------------------------------------------------------------------------------------

#: A phase has fewer commits; a base that is no ancestor is found out after so many steps.
LONGEST = 10_000
_KEEPER = Identity(name="runplan", email="runplan@runplan.invalid")
#: Of commits that only keep uncommitted files; the same content kept twice is the same commit.
KEEPER = Signature(author=_KEEPER, committer=_KEEPER, when="0 +0000")
_RUNPLAN = Identity(name="runplan", email="runplan@localhost")
_TEMPORARY = Signature(author=_RUNPLAN, committer=_RUNPLAN, when="0 +0000")  #: of commits that hold no work


Rewrite: TypeAlias = Callable[[Commit], tuple[str, Signature]]


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
        self._place = common_dir / "objects"

    def write(self, kind: str, content: bytes, like: Oid) -> Oid:
        """Store an object and return its id; `like` is any id of the repository, and shows which hash it uses.

        An existing object is written again: that takes as long as a check, and repairs a damaged file.
        """
        oid = object_id(kind, content, like)
        try:
            _store(f"{self._place}/{oid[:2]}", oid, _stored(kind, content))
        except OSError as error:
            raise Unreachable(f"{self._place} cannot be written: {error.strerror}; nothing was landed") from error
        return oid

    def tree_with(self, tree: Oid, files: Mapping[str, Entry | None]) -> Oid:
        """The tree with each path of `files` set to its entry, or removed; missing directories are made."""
        return tree_with(self._git, tree, files, self.write, tree) or self.write("tree", b"", tree)

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

    def foreign(self, base: Oid, head: Oid, *, run: str, kept: Oid = "") -> tuple[tuple[Oid, str], ...] | None:
        """The ids and subjects of commits that neither the run made nor `kept` has; None if the base is no ancestor.

        Without `kept` it costs no process where the commits are one line.
        """
        line = self.commits(base, head)
        if line is None and not self._git.is_ancestor(base, head):
            return None
        known = {*self._git.text("rev-list", f"{base}..{kept}").split()} if kept else set()
        every, straight = line or (), {one.oid for one in line or ()}
        if line is None:
            every = tuple(map(self._git.commit, self._git.text("rev-list", "--reverse", f"{base}..{head}").split()))
            straight = {*self._git.text("rev-list", "--first-parent", f"{base}..{head}").split()}
        # A commit that the user has, or that a merge brought in, is foreign. An agent may commit under another name.
        foreign = (
            (one.oid, one.message.partition("\n")[0])
            for one in every
            if one.oid not in known
            and not is_agent_of(one.committer, run)
            and (one.oid not in straight or self._user.object(one.oid) is not None)
        )
        return tuple(islice(foreign, MOST_FOREIGN))

    def changes(self, base: Oid, head: Oid) -> tuple[Change, ...]:
        return changes(self._git, self._tree(base), self._tree(head))

    def diff(self, old: Oid, new: Oid, *, without: Sequence[str] = ()) -> str:
        """The change between two commits as a patch, whatever the user's configuration is, without these paths.

        git holds a file in memory to compare it, so a large one is only named.
        """
        plain = ("--no-color", "--no-ext-diff", "--no-textconv")
        large = self._find_large(old, new, without)
        left_out = (*without, *large)
        paths = (".", *(f":(exclude,literal,top){path}" for path in left_out)) if left_out else ()
        patch = self._git.run("diff", *plain, old, new, "--", *paths).out.decode("utf-8", "surrogateescape")
        return patch + "".join(f"{path}: {size} bytes, not shown here\n" for path, size in large.items())

    def _find_large(self, old: Oid, new: Oid, without: Sequence[str]) -> dict[str, int]:
        """The sizes of changed files that are too large for a patch."""
        sizes: dict[str, int] = {}
        for change in self.changes(old, new):
            blobs = (self._git.object(oid, most=0) for oid in (change.old, change.new) if oid.strip("0"))
            sizes[change.path] = max((blob.size for blob in blobs if blob is not None), default=0)
        return {path: size for path, size in sizes.items() if size > LARGEST_DIFFED and path not in without}

    def code_key(self, tree: Oid, without: Sequence[str]) -> str:
        """The id that the tree would have without these paths; nothing is written."""
        return tree_with(self._git, tree, dict.fromkeys(without), object_id, tree) or ""

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
            tree, tip = merged, self.commit(merged, onto=tip, message=message, by=by)
            made.append(tip)
        return self._built(made, tree, onto)

    def merge(self, ours: Oid, theirs: Oid) -> tuple[Oid, tuple[str, ...]]:
        """The tree of a merge of two commits, and the paths in which it has conflict markers."""
        ran = self._git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, ok=(0, 1))
        tree, *paths = os.fsdecode(ran.out).rstrip("\0").split("\0")
        return tree, tuple(sorted(set(paths))) if ran.code else ()

    def whole(self, tree: Oid, *, onto: Oid, message: str, by: Signature) -> Replayed:
        """The candidate of one commit with this tree."""
        return self._built([self.commit(tree, onto=onto, message=message, by=by)], tree, onto)

    def revert(
        self, commits: Sequence[Oid], *, without: Sequence[str], onto: Oid, message: str, by: Signature
    ) -> Replayed:
        """One commit on `onto` that reverts `commits`, newest first, except in the paths `without`."""
        tree = self._tree(onto)
        for oid in commits:
            reverted = self._git.commit(oid)
            kept = {path: self._entry(reverted.tree, path) for path in without}
            before = self.tree_with(self._tree(reverted.parents[0]), kept)
            merged = self._merge(oid, before, tree)
            if isinstance(merged, Conflicted):
                return merged
            tree = merged
        made = [] if tree == self._tree(onto) else [self.commit(tree, onto=onto, message=message, by=by)]
        return self._built(made, tree, onto)

    def _built(self, commits: Sequence[Oid], tree: Oid, onto: Oid) -> Replayed:
        found = changes(self._git, self._tree(onto), tree)
        return Built(commits=tuple(commits), tree=tree, patch=patch_of(found)) if found else NothingLeft()

    def entry(self, commit: Oid, path: str) -> Entry | None:
        """The entry of a path in the commit; None if there is none."""
        return self._entry(self._tree(commit), path)

    def _entry(self, tree: Oid, path: str) -> Entry | None:
        where, entry = find(self._git, tree, path)
        return entry if where == path else None

    def _merge(self, base: Oid, theirs: Oid, onto: Oid, *, commit: Oid = "") -> Oid | Conflicted:
        """Apply the change from the commit `base` to the tree `theirs` on the tree `onto`.

        `commit` is a child of `base` with that tree, if there is one.
        """
        before = self._tree(base)
        if before in (onto, theirs):
            return theirs if before == onto else onto
        # Temporary commits make `base` the merge base; `merge-tree --merge-base` came with git 2.40.
        ours = self.commit(onto, onto=base, message="temporary", by=_TEMPORARY)
        other = commit or self.commit(theirs, onto=base, message="temporary", by=_TEMPORARY)
        tree, conflicts = self.merge(ours, other)
        return Conflicted(paths=conflicts) if conflicts else tree

    def commit(self, tree: Oid, *, onto: Oid, message: str, by: Signature, merged: Oid = "") -> Oid:
        """One commit on `onto` with this tree; `merged` becomes its second parent."""
        if by.sign:
            text = message.encode("utf-8", "surrogateescape")
            parents = ("-p", onto, *(("-p", merged) if merged else ()))
            return self._git.run("commit-tree", tree, *parents, "-S", stdin=text, env=identity_env(by)).text
        lines = [f"tree {tree}", f"parent {onto}", *([f"parent {merged}"] if merged else [])]
        lines += [
            f"author {_person(by.author)} {by.authored or by.when}",
            f"committer {_person(by.committer)} {by.when}",
        ]
        return self.write("commit", "\n".join([*lines, "", message]).encode("utf-8", "surrogateescape"), tree)

    # --- bookkeeping ------------------------------------------------------------------------------------

    def bookkeep(self, *, code: Oid, files: Mapping[str, bytes], message: str, by: Signature, merged: Oid = "") -> Oid:
        """One commit on `code` that changes `files` and nothing else.

        `merged` is a commit that `code` contains, which becomes the second parent.
        """
        tree = self._tree(code)
        written = {
            path: Entry(self._mode(tree, path), self.write("blob", content, code)) for path, content in files.items()
        }
        text = message if message.endswith("\n") else f"{message}\n"
        return self.commit(self.tree_with(tree, written), onto=code, message=text, by=by, merged=merged)

    def _mode(self, tree: Oid, path: str) -> str:
        where, entry = find(self._git, tree, path)
        if entry is None:
            return "100644"
        if where == path and entry.mode.startswith("100"):
            return entry.mode
        kinds = {SYMLINK: "a symbolic link", SUBMODULE: "a submodule", TREE: "a directory"}
        raise RefusedEarly(
            f"{where} is {kinds.get(entry.mode, 'a file')} on the target, so {path} cannot be written; "
            "make it a plain file, or set [paths] to another place"
        )


def patch_of(found: Iterable[Change]) -> str:
    """A hash of paths, modes and contents before and after. A verdict is bound to it and to the tree.

    Unlike git's patch id it changes with moved lines, and it costs no process.
    """
    return digest_of(repr(tuple(found)).encode())
