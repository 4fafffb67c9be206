"""Writes the stream by which one `git fast-import` makes one commit and moves one ref."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.core.gitfacts import Identity, Oid


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as the commit is to hold it."""

    mode: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommit:
    """A commit that differs from its parent in some files."""

    ref: str
    parent: Oid
    message: str
    author: Identity
    committer: Identity
    when: str  #: git's own form: "<seconds> <zone>", for both
    files: Mapping[str, File]


def stream(commit: NewCommit) -> bytes:
    """The whole stream; the new commit's id comes back on standard output."""
    parts = [
        b"feature done\n",
        b"commit %b\nmark :1\n" % os.fsencode(commit.ref),
        b"author %b %b\n" % (_person(commit.author), commit.when.encode()),
        b"committer %b %b\n" % (_person(commit.committer), commit.when.encode()),
        _data(commit.message.encode("utf-8", "surrogateescape")),
        b"from %b\n" % commit.parent.encode(),
    ]
    for path, file in sorted(commit.files.items()):
        parts += [b"M %b inline %b\n" % (file.mode.encode(), _quoted(path)), _data(file.content)]
    return b"".join([*parts, b"\nget-mark :1\ndone\n"])


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _person(identity: Identity) -> bytes:
    """Name and address without the signs that end them; git's other commands drop those silently, too."""
    clean = str.maketrans("", "", "<>\n\0")
    return f"{identity.name.translate(clean)} <{identity.email.translate(clean)}>".encode("utf-8", "surrogateescape")


def _quoted(path: str) -> bytes:
    escaped = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'
