"""Front matter: the `key: value` block between two `---` lines, read and set without touching other bytes.

It supports a small part of YAML: scalars plain or quoted, comments, nested blocks (`metadata.version`) and block
scalars, which are read but never written.
"""

from __future__ import annotations

import re

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan.scan import Lines, scan

_KEY = re.compile(r"([ \t]*)([A-Za-z_][\w-]*)[ \t]*:(?=[ \t]|\Z)[ \t]*")
#: Few values need these; compiled when one may.
_COMMENT = r"(?:\A|[ \t]+)#.*\Z"
_QUOTED = r'"(?:[^"\\]|\\.)*"|' r"'(?:[^']|'')*'"
_BLOCK = r"[|>][+-]?[0-9]?\Z"


class Entry(Struct, frozen=True, kw_only=True):
    key: str  #: dotted for nested keys
    value: str
    at: int  #: line
    indent: int
    span: tuple[int, int]  #: columns of the value as written, quotes included
    block: bool  #: a block scalar
    end: int  #: index of the first line after the key, its block or its children


class FrontMatter(Struct, frozen=True, kw_only=True):
    entries: tuple[Entry, ...] = ()

    def entry(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)

    def get(self, key: str) -> str | None:
        entry = self.entry(key)
        return entry.value if entry else None

    def every(self, key: str) -> tuple[str, ...]:
        """The values of a key that may be repeated."""
        return tuple(entry.value for entry in self.entries if entry.key == key)


def read(lines: Lines) -> FrontMatter | None:
    """The front matter of a text; None when there is none or it is never closed."""
    if not lines.front:
        return None
    entries: list[Entry] = []
    parents: list[tuple[int, str]] = []
    i = 1
    while i < lines.front:
        found = _KEY.match(lines.texts[i])
        if found is None:
            i += 1
            continue
        parents = [parent for parent in parents if parent[0] < len(found[1])]
        parents.append((len(found[1]), found[2]))
        entry = _entry(lines, i, found, ".".join(name for _, name in parents))
        entries.append(entry)
        i = entry.end if entry.block else i + 1
    return FrontMatter(entries=tuple(entries))


def _entry(lines: Lines, i: int, found: re.Match[str], name: str) -> Entry:
    written, begin, indent = lines.texts[i][found.end() :], found.end(), len(found[1])
    if written.startswith(('"', "'")) and (quoted := re.match(_QUOTED, written)):
        written = quoted.group()
    else:
        written = (re.sub(_COMMENT, "", written) if "#" in written else written).rstrip()
    end = _end(lines, i, indent)
    is_block = written.startswith(("|", ">")) and re.match(_BLOCK, written) is not None
    below = (text.strip() for text in lines.texts[i + 1 : end] if text.strip())
    value = (" " if written[:1] == ">" else "\n").join(below) if is_block else _unquoted(written)
    span = (begin, begin + len(written))
    return Entry(key=name, value=value, at=i, indent=indent, span=span, block=is_block, end=end)


def _end(lines: Lines, i: int, indent: int) -> int:
    end = i + 1
    for j in range(i + 1, lines.front):
        text = lines.texts[j]
        if text.strip() and len(text) - len(text.lstrip()) <= indent:
            break
        if text.strip():
            end = j + 1
    return end


def _unquoted(written: str) -> str:
    if len(written) >= 2 and written[0] == written[-1] == '"':
        return re.sub(r"\\(.)", r"\1", written[1:-1])
    if len(written) >= 2 and written[0] == written[-1] == "'":
        return written[1:-1].replace("''", "'")
    return written


def _quoted(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_./+][\w./+:-]*", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def put(raw: bytes, *, path: str, key: str, value: str, after: str = "") -> bytes:
    """The text with one key set; a new key goes below the entry `after`, else to the end of its block."""
    lines = scan(raw, path=path)
    front = read(lines)
    if front is None:
        raise PlanUnreadable(f"{path}:1: there is no front matter to set {key} in; begin the file with ---")
    entry = front.entry(key)
    if entry is None:
        return _insert(lines, front, path=path, key=key, value=value, after=after)
    require_settable(front, key, path=path)
    begin, end = (lines.offset(entry.at, column) for column in entry.span)
    gap = b"" if lines.texts[entry.at][entry.span[0] - 1] in " \t" else b" "
    return raw[:begin] + gap + _quoted(value).encode() + raw[end:]


def require_settable(front: FrontMatter, key: str, *, path: str) -> None:
    """Refuse a key that `put` could not set: its value is a block, or has lines below it."""
    entry = front.entry(key)
    if entry is not None and (entry.block or entry.end > entry.at + 1):
        raise PlanUnreadable(
            f"{path}:{entry.at + 1}: {key} has a block as its value, which runplan cannot change; "
            f"write {key} and its value on one line"
        )


def drop(raw: bytes, *, path: str, key: str) -> bytes:
    """The text without one key and the lines below it; unchanged when the key is absent."""
    lines = scan(raw, path=path)
    front = read(lines)
    entry = front.entry(key) if front else None
    return raw if entry is None else raw[: lines.start(entry.at)] + raw[lines.start(entry.end) :]


def _insert(lines: Lines, front: FrontMatter, *, path: str, key: str, value: str, after: str) -> bytes:
    parts = key.split(".")
    depth = len(parts) - 1
    while depth and front.entry(".".join(parts[:depth])) is None:
        depth -= 1
    owner = front.entry(".".join(parts[:depth]))
    if owner is not None and owner.value:
        raise PlanUnreadable(f"{path}:{owner.at + 1}: {owner.key} has a value, so {key} cannot be below it")
    sibling = owner or front.entry(after)
    children = [entry.indent for entry in front.entries if owner and entry.key.startswith(f"{owner.key}.")]
    indent = (children[0] if children else owner.indent + 2) if owner else 0
    added = [f"{' ' * (indent + 2 * i)}{part}:" for i, part in enumerate(parts[depth:])]
    added[-1] += f" {_quoted(value)}"
    offset = lines.start(sibling.end if sibling else lines.front)
    return lines.raw[:offset] + b"".join(line.encode() + lines.eol for line in added) + lines.raw[offset:]
