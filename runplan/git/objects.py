"""Reads and compares trees, and writes loose objects, without a new process (docs/adr/0007)."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import GitFailed, Unreachable
from runplan.git.command import Stored
from runplan.gitfacts import Change, Commit, Identity

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from runplan.git.command import Git
    from runplan.gitfacts import Oid


TREE = "040000"
SYMLINK = "120000"
SUBMODULE = "160000"
NO_MODE = "000000"


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
    stored = git.known(tree)
    if stored is None or stored.kind != "tree":
        raise GitFailed(f"{tree} is not a tree in {git.cwd}")
    return read_tree(stored)


def read_tree(stored: Stored) -> dict[str, Entry]:
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


def changes(git: Git, old: Oid, new: Oid) -> tuple[Change, ...]:
    """The differences between two trees, sorted by path, without renames."""
    return tuple(sorted(_differences(git, old, new, ""), key=lambda change: change.path))


def _differences(git: Git, old: Oid | None, new: Oid | None, prefix: str) -> Iterator[Change]:
    before = entries(git, old) if old else {}
    after = entries(git, new) if new else {}
    for name in before.keys() | after.keys():
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        below_was = was.oid if was and was.mode == TREE else None
        below_now = now.oid if now and now.mode == TREE else None
        if below_was or below_now:
            yield from _differences(git, below_was, below_now, f"{prefix}{name}/")
        was = None if below_was else was
        now = None if below_now else now
        if was or now:
            yield _change(f"{prefix}{name}", was, now)


def _change(path: str, was: Entry | None, now: Entry | None) -> Change:
    nothing = Entry(NO_MODE, "0" * len((was or now or Entry("", "")).oid))
    old, new = was or nothing, now or nothing
    return Change(path=path, kind=_kind(old, new), old_mode=old.mode, new_mode=new.mode, old=old.oid, new=new.oid)


def _kind(old: Entry, new: Entry) -> str:
    if old.mode == NO_MODE:
        return "A"
    if new.mode == NO_MODE:
        return "D"
    # Regular files share their first three digits, whether executable or not.
    return "M" if old.mode[:3] == new.mode[:3] else "T"


# --- packs ----------------------------------------------------------------------------------------------

MOST_PACKED = 100  #: objects
LARGEST_PACKED = 256 * 1024  #: bytes of an object
_KINDS = {"commit": 1, "tree": 2, "blob": 3}


def read_loose(objects: Path, oid: Oid) -> Stored | None:
    """A small loose object; None when there is none."""
    try:
        with open(objects / oid[:2] / oid[2:], "rb") as file:
            head, _, content = zlib.decompress(file.read(LARGEST_PACKED)).partition(b"\0")
    except (OSError, zlib.error):
        return None
    return Stored(oid, head.partition(b" ")[0].decode(), content)


def small_pack(read: Callable[[Oid], Stored | None], tip: Oid, *, without: Collection[Oid]) -> bytes | None:
    """The objects that `tip` adds to `without`, as a pack; None when they are many or large, or a merge is among them.

    `git pack-objects` does the same for all, and takes as long as ten of these.
    """
    found: dict[Oid, Stored] = {}
    try:
        for one in _added(read, tip, without):
            found[one.oid] = one
            if len(found) > MOST_PACKED or len(one.content) > LARGEST_PACKED:
                return None
    except (LookupError, ValueError):  # an object is missing or malformed, or a commit has no parent or several
        return None
    pack = struct.pack("!4sII", b"PACK", 2, len(found)) + b"".join(map(_packed, found.values()))
    return pack + digest_like(tip, pack).digest()


def _added(read: Callable[[Oid], Stored | None], tip: Oid, without: Collection[Oid]) -> Iterator[Stored]:
    while tip not in without:
        stored = _require(read, tip)
        commit = Commit.parse(tip, stored.content)
        (parent,) = commit.parents
        yield stored
        yield from _added_below(read, Commit.parse(parent, _require(read, parent).content).tree, commit.tree)
        tip = parent


def _added_below(read: Callable[[Oid], Stored | None], old: Oid, new: Oid) -> Iterator[Stored]:
    if old == new:
        return
    stored = _require(read, new)
    yield stored
    before = read_tree(_require(read, old)) if old else {}
    for name, entry in read_tree(stored).items():
        was = before.get(name)
        if entry in (was, Entry(SUBMODULE, entry.oid)):
            continue
        if entry.mode == TREE:
            yield from _added_below(read, was.oid if was and was.mode == TREE else "", entry.oid)
        else:
            yield _require(read, entry.oid)


def _require(read: Callable[[Oid], Stored | None], oid: Oid) -> Stored:
    if (found := read(oid)) is None:
        raise LookupError(oid)
    return found


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
    import hashlib

    return hashlib.sha1(content, usedforsecurity=False) if len(oid) == 40 else hashlib.sha256(content)


class ObjectWriter:
    """Writes objects into a repository; without one it only computes their ids. `git` reads existing trees."""

    def __init__(self, git: Git, common_dir: Path | None) -> None:
        self._git = git
        self._place = common_dir / "objects" if common_dir else None

    def write(self, kind: str, content: bytes, *, like: Oid) -> Oid:
        """Store an object and return its id; `like` is any id of the repository, and shows which hash it uses.

        An existing object is written again: that takes as long as a check, and repairs a damaged file.
        """
        header = f"{kind} {len(content)}\0".encode()
        oid = digest_like(like, header + content).hexdigest()
        if self._place is not None:
            try:
                _store(f"{self._place}/{oid[:2]}", oid, header + content)
            except OSError as error:
                raise Unreachable(f"{self._place} cannot be written: {error.strerror}; nothing was landed") from error
        return oid

    def tree_with(self, tree: Oid, files: Mapping[str, Entry | None]) -> Oid:
        """The tree with each path of `files` set to its entry, or removed; missing directories are made."""
        return self._write_tree(self._entries_with(tree, files, like=tree), like=tree)

    def _entries_with(self, tree: Oid | None, files: Mapping[str, Entry | None], *, like: Oid) -> dict[str, Entry]:
        found: dict[str, Entry | None] = dict(entries(self._git, tree)) if tree else {}
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
            made = self._entries_with(inside, inner, like=like)
            found[name] = Entry(TREE, self._write_tree(made, like=like)) if made else None
        return {name: entry for name, entry in found.items() if entry is not None}

    def _write_tree(self, found: Mapping[str, Entry], *, like: Oid) -> Oid:
        """Sorted as git sorts: a directory as if its name ended in a slash."""
        order = sorted(found.items(), key=lambda one: os.fsencode(one[0]) + (b"/" if one[1].mode == TREE else b""))
        content = b"".join(
            f"{entry.mode.lstrip('0')} ".encode() + os.fsencode(name) + b"\0" + bytes.fromhex(entry.oid)
            for name, entry in order
        )
        return self.write("tree", content, like=like)

    def commit(self, tree: Oid, parent: Oid, by: Signature, message: str) -> Oid:
        head = f"tree {tree}\nparent {parent}\nauthor {_person(by.author)} {by.authored or by.when}\n"
        head += f"committer {_person(by.committer)} {by.when}\n"
        return self.write("commit", f"{head}\n{message}".encode("utf-8", "surrogateescape"), like=tree)


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
