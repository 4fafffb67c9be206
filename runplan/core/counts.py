"""Counts that somebody told, and which of them can be believed. Cheap to import: every reading verb does."""

from __future__ import annotations

#: No honest count of tokens is larger; beyond it floats are no longer exact.
MOST = 2**53


def believable(told: object) -> int:
    """A count of tokens that somebody told or recorded; 0 when it cannot be one."""
    if not isinstance(told, (int, float)) or isinstance(told, bool):
        return 0
    return int(told) if 0 <= told < MOST else 0
