"""Front matter: the `key: value` lines between two `---` lines, read and set without touching other bytes.

It is a small part of YAML: plain and quoted values, comments, and block scalars, which are read but never written.
Indented keys belong to the key above them and are not read.
"""

from __future__ import annotations

import re

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan.scan import Lines, scan

_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?=[ \t]|\Z)[ \t]*")
_VALUE = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|(?:(?![ \t]+#)[^\r])*""")


class Entry(Struct, frozen=True, kw_only=True):
    key: str
    value: str
    at: int  #: line
    span: tuple[int, int]  #: columns of the value as written, quotes included
    end: int  #: line after the key and the lines below it


class FrontMatter(Struct, frozen=True):
    entries: tuple[Entry, ...] = ()

    def entry(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)

    def get(self, key: str) -> str:
        """The value; "" for none."""
        entry = self.entry(key)
        return entry.value if entry else ""


def read(lines: Lines) -> FrontMatter:
    """The front matter of a text; without entries when there is none or it is never closed."""
    keys = [(i, found) for i in range(1, lines.front) if (found := _KEY.match(lines.texts[i]))]
    ends = [*(i for i, _ in keys), lines.front][1:]
    return FrontMatter(tuple(_entry(lines, i, found, end) for (i, found), end in zip(keys, ends, strict=True)))


def _entry(lines: Lines, i: int, found: re.Match[str], end: int) -> Entry:
    written = _VALUE.match(lines.texts[i], found.end())
    assert written is not None
    value = "" if written.group().startswith("#") else written.group().rstrip()
    below = [text.strip() for text in lines.texts[i + 1 : end] if text[:1] in (" ", "\t", "-") and text.strip()]
    span = (found.end(), found.end() + len(value))
    if value[:1] in ("|", ">"):
        value = (" " if value[0] == ">" else "\n").join(below)
    elif len(value) >= 2 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    elif len(value) >= 2 and value[0] == value[-1] == "'":
        value = value[1:-1].replace("''", "'")
    return Entry(key=found[1], value=value, at=i, span=span, end=i + 1 if not below else end)


def put(raw: bytes, *, path: str, key: str, value: str | None, after: str = "") -> bytes:
    """The text with one key set to a plain value, or without it; a new key goes below the entry `after`."""
    lines = scan(raw, path=path)
    front = read(lines)
    if not lines.front:
        raise PlanUnreadable(f"{path}:1: there is no front matter to set {key} in; begin the file with ---")
    entry, above = front.entry(key), front.entry(after)
    if value is None:
        return raw if entry is None else raw[: lines.start(entry.at)] + raw[lines.start(entry.end) :]
    if entry is None:
        at = lines.start(above.end if above else lines.front)
        return raw[:at] + f"{key}: {value}".encode() + lines.eol + raw[at:]
    require_settable(front, key, path=path)
    begin, end = (lines.offset(entry.at, column) for column in entry.span)
    gap = b"" if lines.texts[entry.at][entry.span[0] - 1] in " \t" else b" "
    return raw[:begin] + gap + value.encode() + raw[end:]


def require_settable(front: FrontMatter, key: str, *, path: str) -> None:
    """Refuse a key that `put` could not set: its value is a block, or has lines below it."""
    entry = front.entry(key)
    if entry is not None and entry.end > entry.at + 1:
        raise PlanUnreadable(
            f"{path}:{entry.at + 1}: {key} has a block as its value, which runplan cannot change; "
            f"write {key} and its value on one line"
        )
