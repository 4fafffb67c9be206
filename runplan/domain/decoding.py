"""JSON of views and of records; `convert` and `json.decode` of msgspec, for any thread.

msgspec builds a type at its first use. A thread that uses a type while another one builds it ends the process with
SIGSEGV. So types are built one after the other, and only finished ones are used.
"""

import json
from threading import Lock
from typing import Any, TypeVar

import msgspec

from runplan.domain.text import escaped

T = TypeVar("T")
_BUILDING = Lock()
_BUILT: set[Any] = set()


def convert(value: object, kind: type[T], *, strict: bool = True, from_attributes: bool = False) -> T:
    _build_type(kind)
    return msgspec.convert(value, kind, strict=strict, from_attributes=from_attributes)


def decode_json(content: bytes | str, kind: type[T]) -> T:
    _build_type(kind)
    return msgspec.json.decode(content, type=kind)


def to_json(value: object) -> str:
    """A value for a record or a message. Not by msgspec.json, which refuses file names that are not UTF-8."""
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


def parse_json(text: bytes | str, kind: type[T]) -> T:
    """The value of such a text; ValueError for another one."""
    return convert(json.loads(text), kind)


def as_json(value: object, indent: int | None = 2) -> str:
    """A view as JSON. Not by msgspec.json: a text need not be valid Unicode, and json escapes it."""
    return escaped(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent))


def _build_type(kind: object) -> None:
    if kind not in _BUILT:
        with _BUILDING:
            msgspec.json.Decoder(kind)
            _BUILT.add(kind)
