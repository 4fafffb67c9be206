"""Knows a place of a repository for as long as it is the same one, and makes nothing where the repository is not.

A repository can be out of reach for a moment: its disk is unmounted, somebody moves it away and back. What is not
there then tells nothing, and what would be made there would be in the way of what comes back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runplan.core.errors import Unreachable

if TYPE_CHECKING:
    from pathlib import Path


class Anchor:
    """A file or directory as it was when this was made; one that is not there yet is known from the first look on."""

    __slots__ = ("_number", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = _number(path)

    def require(self) -> None:
        """Refuse to go on where it is gone, or another has taken its place."""
        now = _number(self._path)
        self._number = self._number or now
        if now is None or now != self._number:
            raise not_there(self._path)


def make_below(anchor: Path, directory: Path) -> None:
    """Make the directory and those between it and the anchor, which has to be there."""
    try:
        directory.mkdir(exist_ok=True)
    except FileNotFoundError:
        if directory == anchor or anchor not in directory.parents:
            raise not_there(anchor) from None
        make_below(anchor, directory.parent)
        directory.mkdir(exist_ok=True)


def not_there(path: Path) -> Unreachable:
    return Unreachable(
        f"{path} is not where it was, so nothing is known of what runs there; "
        "bring it back, or go on where the repository is now: runplan retry PLAN"
    )


def _number(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked before every fact, and pathlib is dear
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
