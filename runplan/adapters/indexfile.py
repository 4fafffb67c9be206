"""Reads git's index in this process: what is staged, and where its entries lie.

The format is git's own (`gitformat-index`), versions 2 to 4. An index of which a part lies elsewhere (a split one), or
whose end does not fit its beginning, is told as such: who needs it has git write it anew.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING

from runplan.adapters.trees import Entry
from runplan.core.quickclass import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_HEAD = 12  #: signature, version, number of entries
_STAT = 40  #: times, sizes and modes of one entry, before its id
_MODE = 24
_EXTENDED, _STAGE, _LENGTH = 0x4000, 0x3000, 0x0FFF
_SKIP_WORKTREE = 0x4000 << 16  #: of the extended flags
_SPARSE = b"sdir"  #: the one extension with a small letter, which must be understood, that changes nothing here
_NO_FILE = 0o040000  #: a directory that a sparse index does not open


class _Unreadable(Exception):
    """The index is damaged, of a version we do not know, or only a part of one."""


def staged(content: bytes, paths: Iterable[str]) -> dict[str, Entry | None] | None:
    """What is staged for each of the paths, None for nothing; None where that is not to be read."""
    found: dict[str, Entry | None] = dict.fromkeys(paths)
    try:
        width = _width(content)
        for name, at, flags in _rows(content, width):
            path = os.fsdecode(name)
            if path in found and not flags & _STAGE:
                oid = content[at + _STAT : at + _STAT + width].hex()
                found[path] = Entry(f"{_mode(content, at):06o}", oid)
    except _Unreadable:
        return None
    return found


class Place(NamedTuple):
    """Where an entry lies in the index, and whether git was told to leave its file out (`skip-worktree`)."""

    at: int
    skipped: bool


def places(content: bytes, paths: Iterable[str]) -> dict[str, Place] | None:
    """The place of each path that is in the index; None where that is not to be read."""
    wanted, found, folders = set(paths), dict[str, Place](), list[str]()
    try:
        for name, at, flags in _rows(content, _width(content)):
            path = os.fsdecode(name)
            if path in wanted and not flags & _STAGE:
                found[path] = Place(at, bool(flags & _SKIP_WORKTREE))
            elif _mode(content, at) == _NO_FILE:
                folders.append(path)
    except _Unreadable:
        return None
    hidden_in = {path for path in wanted - found.keys() if folders and path.startswith(tuple(folders))}
    return found | {path: Place(0, True) for path in hidden_in}


def restamped(content: bytes, stats: Mapping[int, os.stat_result]) -> bytes:
    """The same index with the times, numbers and sizes of these files, by the place of their entries."""
    changed = bytearray(content)
    for at, stat in stats.items():
        times = (*divmod(stat.st_ctime_ns, 10**9), *divmod(stat.st_mtime_ns, 10**9), stat.st_dev, stat.st_ino)
        rest = (_mode(content, at), stat.st_uid, stat.st_gid, stat.st_size)
        struct.pack_into(">10I", changed, at, *(number & 0xFFFFFFFF for number in (*times, *rest)))
    width = _width(content)
    if content[-width:] != bytes(width):
        digest = hashlib.sha1 if width == 20 else hashlib.sha256
        changed[-width:] = digest(changed[:-width], usedforsecurity=False).digest()
    return bytes(changed)


def _mode(content: bytes, at: int) -> int:
    return int.from_bytes(content[at + _MODE : at + _MODE + 4], "big")


def _width(content: bytes) -> int:
    """How long ids are: the file ends with a hash of itself, or (`index.skipHash`) with as many zeros."""
    for width, digest in ((20, hashlib.sha1), (32, hashlib.sha256)):
        if content[-width:] == digest(content[:-width], usedforsecurity=False).digest():
            return width
    for width in (32, 20):
        if content[-width:] == bytes(width):
            return width
    raise _Unreadable


def _rows(content: bytes, width: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, place and flags of each entry; the extended flags are the higher ones.

    Asked of ten thousand entries each time somebody's work is looked at, so with nothing that takes time.
    """
    version = int.from_bytes(content[4:8], "big")
    if content[:4] != b"DIRC" or version not in (2, 3, 4):
        raise _Unreadable
    at, name, fixed = _HEAD, b"", _STAT + width + 2
    try:
        for _ in range(int.from_bytes(content[8:_HEAD], "big")):
            begin = at + fixed
            flags = content[begin - 2] << 8 | content[begin - 1]
            if flags & _EXTENDED:
                flags |= content[begin] << 24
                begin += 2
            if version == 4:
                end, name = _packed(content, begin, name)
            else:
                length = flags & _LENGTH
                end = begin + length if length < _LENGTH else content.index(b"\0", begin)
            yield (name if version == 4 else content[begin:end]), at, flags
            # Up to and with version 3 one to eight zeros make the length a multiple of eight.
            at = end + 1 if version == 4 else at + (end - at + 8 & ~7)
    except (IndexError, ValueError) as error:
        raise _Unreadable from error
    _require_whole(content, at, width)


def _packed(content: bytes, at: int, before: bytes) -> tuple[int, bytes]:
    """A name as version 4 has it: how many bytes of the last one to drop, and what follows then; and where it ends."""
    drop = content[at] & 0x7F
    while content[at] & 0x80:
        at += 1
        drop = (drop + 1 << 7) | content[at] & 0x7F
    end = content.index(b"\0", at + 1)
    if drop > len(before):
        raise _Unreadable
    return end, before[: len(before) - drop] + content[at + 1 : end]


def _require_whole(content: bytes, at: int, width: int) -> None:
    while at < len(content) - width:
        if content[at : at + 1].islower() and content[at : at + 4] != _SPARSE:
            raise _Unreadable
        at += 8 + int.from_bytes(content[at + 4 : at + 8], "big")
    if at != len(content) - width:
        raise _Unreadable
