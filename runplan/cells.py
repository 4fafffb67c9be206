"""The width of text where each narrow character takes one cell: on terminals, and in drawings."""

from __future__ import annotations

import unicodedata

from runplan.text import plain


def plain_line(text: str) -> str:
    """The text in one line that has no effect on a terminal."""
    return "".join(filter(str.isprintable, " ".join(plain(text).split())))


def _measure(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def count_cells(text: str) -> int:
    return sum(map(_measure, text))


def cut_cells(text: str, width: int) -> str:
    """The text in at most this many cells, with a mark where it is cut."""
    if count_cells(text) <= width:
        return text
    cells = 0
    for number, character in enumerate(text):
        cells += _measure(character)
        if cells > width - 1:
            return f"{text[:number]}…" if width > 0 else ""
    return text


def fit_cells(text: str, width: int) -> str:
    """The text in exactly this many cells."""
    cut = cut_cells(text, width)
    return cut + " " * (width - count_cells(cut))
