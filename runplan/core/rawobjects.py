"""Reads commits and trees as git stores them, and says what is wrong with those that no git would make.

What git would make is what `git fsck` takes without an error: names that no checkout can write or that lead into a
repository, on whatever file system, are refused, and so is a commit that does not say by whom or when.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.core.gitfacts import Commit, Identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.core.gitfacts import Oid

_ID = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_TREE = re.compile(rb"tree " + _ID)
_PARENT = re.compile(rb"parent " + _ID)
_PERSON = re.compile(rb"[^<>]* <[^<>]*>")
_MOMENT = re.compile(rb" (0|[1-9][0-9]*) [+-][0-9]{4}")
_LATEST = 2**63  #: seconds that no clock holds

#: What the file systems of Macs leave out of a name.
_INVISIBLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
#: What those of Windows take for `.git`: the short name, with dots, blanks or a stream behind it, after a backslash.
_ON_WINDOWS = re.compile(r"(?:^|\\)(?:\.git|git~1)[. ]*(?:$|[\\/:])", re.IGNORECASE)


def read_commit(oid: Oid, content: bytes) -> Commit:
    """A raw commit as a value, as far as it says anything: one that an agent made by hand may lack every line."""
    head, _, message = content.partition(b"\n\n")
    fields: list[tuple[str, str]] = []
    for line in head.decode("utf-8", "surrogateescape").split("\n"):
        name, _, value = line.partition(" ")
        if name:  # continuation lines of a signature start with a blank
            fields.append((name, value))
    values = dict(reversed(fields))
    author, when = _person(values.get("author", ""))
    committer, _ = _person(values.get("committer", ""))
    return Commit(
        oid=oid,
        tree=values.get("tree", ""),
        parents=tuple(value for key, value in fields if key == "parent"),
        author=author,
        authored=when,
        committer=committer,
        message=message.decode("utf-8", "surrogateescape"),
    )


def _person(line: str) -> tuple[Identity, str]:
    person, _, when = line.partition("> ")
    name, _, email = person.partition(" <")
    return Identity(name=name, email=email), when


def commit_flaw(content: bytes) -> str:
    """What is wrong with a raw commit, in a few words; nothing when it is as git makes them."""
    lines = content.partition(b"\n\n")[0].split(b"\n")
    if not _TREE.fullmatch(lines.pop(0)):
        return "no tree"
    while lines and _PARENT.fullmatch(lines[0]):
        del lines[0]
    for who in ("author", "committer"):
        if flaw := _person_flaw(lines.pop(0) if lines else b"", who):
            return flaw
    if any(line.startswith((b"author ", b"committer ", b"tree ", b"parent ")) for line in lines):
        return "a line too many"
    return "a zero byte" if b"\0" in content else ""


def _person_flaw(line: bytes, who: str) -> str:
    word, _, said = line.partition(b" ")
    if word != who.encode():
        return f"no {who}"
    person = _PERSON.match(said)
    if person is None:
        return f"no address of its {who}"
    moment = _MOMENT.fullmatch(said, person.end())
    return "" if moment and int(moment[1]) < _LATEST else f"no date of its {who}"


def tree_entries(content: bytes, width: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """(mode, name, id) of each entry of a raw tree whose ids are so long; `ValueError` when it is none."""
    at = 0
    while at < len(content):
        end = content.index(b"\0", at)
        mode, blank, name = content[at:end].partition(b" ")
        at = end + 1 + width
        if not blank or not mode.isdigit() or at > len(content):
            raise ValueError("this is no tree")
        yield mode, name, content[end + 1 : at]


def is_well_ordered(content: bytes, width: int) -> bool:
    """Whether a raw tree can be read, and holds each name once and where git looks for it."""
    try:
        found = list(tree_entries(content, width))
    except ValueError:
        return False
    keys = [name + b"/" if mode.lstrip(b"0") == b"40000" else name for mode, name, _ in found]
    return keys == sorted(keys) and len({name for _, name, _ in found}) == len(found)


def is_refused(name: bytes) -> bool:
    """Whether git refuses the name in a tree: it is none, leads elsewhere, or means `.git` somewhere."""
    if name in (b"", b".", b"..") or b"/" in name:
        return True
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        text = name[: error.start].decode()  # git, too, looks no further
        if _ON_WINDOWS.search(name.decode("latin-1")):
            return True
    return _INVISIBLE.sub("", text).lower() == ".git" or _ON_WINDOWS.search(text) is not None
