"""Tells whether git could read one of its own files: nobody means to leave one that it cannot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.core.gitconfig import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.core.gitfacts import Oid

HEAD, CONFIG, PACKED, INDEX = "HEAD", "config", "packed-refs", "index"
GONE = "gone"  #: what a file is that is not there
UNREADABLE = "unreadable"  #: what a file is of which git can make nothing
_INDEX_BEGINS = b"DIRC"
_HEAD = re.compile(r"ref:\s*refs/\S.*|[0-9a-f]{40}(?:[0-9a-f]{24})?", re.DOTALL)
_PACKED = re.compile(r"# pack-refs with:.*|\^[0-9a-f]{40}(?:[0-9a-f]{24})?|([0-9a-f]{40}(?:[0-9a-f]{24})?) (refs/\S+)")


def is_head(text: str) -> bool:
    """Whether git knows a repository by this HEAD."""
    return _HEAD.fullmatch(text.strip()) is not None


def is_index(beginning: bytes) -> bool:
    return beginning.startswith(_INDEX_BEGINS)


def is_config(text: str) -> bool:
    return readable(text)


def is_packed(text: str) -> bool:
    """Whether it is a file of packed refs, to the end of its last line."""
    return (not text or text.endswith("\n")) and all(_PACKED.fullmatch(line) for line in text.split("\n")[:-1])


def packed(text: str, known: Mapping[str, Oid]) -> str:
    """A file of packed refs with all that are known, and with what can be read of one that is broken."""
    found = (_PACKED.fullmatch(line) for line in text.split("\n")[:-1])
    refs = {**known, **{line[2]: line[1] for line in found if line is not None and line[2]}}
    return "".join(f"{oid} {name}\n" for name, oid in sorted(refs.items()))
