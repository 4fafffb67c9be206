"""Reads what an agent hands back: its structured return and the blockers in its message."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

from msgspec import Struct

from runplan.run.dispatch import ItemResult, Return, ReturnStatus, Usage
from runplan.run.usage import MOST

_OPENING = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*json[ \t]*$", re.IGNORECASE)
_BLOCKER = "BLOCKER:"
#: What stands in the return file before the agent is started; still there at the end, it was interrupted.
IN_PROGRESS = '{"status": "in_progress"}\n'
NAME = 80  #: characters of a name that are told
_STATUSES = {status.value: status for status in ReturnStatus}


class Unusable(Struct, frozen=True, kw_only=True):
    """There is no return that can be believed, and why."""

    why: str
    found: bool = False  #: there is something in its place


ReadReturn: TypeAlias = Return | Unusable


class _MalformedError(ValueError):
    """The JSON does not have the shape of a return."""


def parse_return(file_text: str | Unusable | None, message: str) -> ReadReturn:
    """The return of a dispatch: from its return file, else from the last fenced json block of its message.

    A file that was written counts even when it is broken: falling back to the message would let an example
    the agent printed earlier stand in for a half-written verdict. Of one that cannot be read we are given why.
    """
    if isinstance(file_text, Unusable):
        return file_text
    if file_text is not None and file_text.strip() and file_text != IN_PROGRESS:
        return _read(file_text, "the return file")
    block = last_json_block(message)
    if block is None:
        return Unusable(why="no return: neither a return file nor a fenced json block in the message")
    return _read(block, "the last json block of the message")


def blockers(message: str) -> tuple[str, ...]:
    """What the agent says it cannot go on without: the lines that begin with BLOCKER:"""
    lines = (line.strip() for line in message.splitlines() if line.startswith(_BLOCKER))
    return tuple(_clean(line.removeprefix(_BLOCKER).strip()) or "no reason given" for line in lines)


def last_json_block(message: str) -> str | None:
    """The inside of the last fenced json block; one that is never closed runs to the end."""
    lines = message.splitlines()
    for start in range(len(lines) - 1, -1, -1):
        opening = _OPENING.match(lines[start])
        if opening is None:
            continue
        fence = opening.group(1)
        closing = re.compile(rf"^ {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
        body = lines[start + 1 :]
        end = next((n for n, line in enumerate(body) if closing.match(line)), len(body))
        return "\n".join(body[:end])
    return None


def _read(text: str, where: str) -> ReadReturn:
    try:
        text = text.removeprefix("\ufeff")
        return _return(json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_twice))
    except RecursionError:
        return Unusable(why=f"{where} is nested too deeply", found=True)
    except _MalformedError as error:
        return Unusable(why=f"{where}: {error}", found=True)
    except ValueError as error:
        return Unusable(why=f"{where} is not JSON in UTF-8: {error}", found=True)


def _no_constant(name: str) -> object:
    raise _MalformedError(f"{name} is not a number")


def _no_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object; one that answers twice contradicts itself, and the last word is no better than the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        last = {name: number for number, (name, _) in enumerate(pairs)}
        twice = next(name for number, (name, _) in enumerate(pairs) if last[name] != number)
        raise _MalformedError(f"{_clean(twice)[:NAME]!r} is given twice in one object")
    return found


def _return(value: object) -> Return:
    fields = _mapping(value, "the return")
    status = _text(fields, "status", "status")
    if status not in _STATUSES:
        raise _MalformedError(f"status is {status!r}, not one of {', '.join(_STATUSES)}")
    return Return(
        status=_STATUSES[status],
        summary=_text(fields, "summary", "summary"),
        items=tuple(_item(entry, number) for number, entry in enumerate(_list(fields, "items"), start=1)),
        usage=_usage(fields.get("usage")),
    )


def _item(value: object, number: int) -> ItemResult:
    where = f"items[{number}]"
    fields = _mapping(value, where)
    item, result = _text(fields, "item", f"{where}.item"), _text(fields, "result", f"{where}.result")
    if not item:
        raise _MalformedError(f"{where}.item is missing")
    if result not in ("pass", "fail"):
        raise _MalformedError(f"{where}.result is {result!r}, neither 'pass' nor 'fail'")
    return ItemResult(item=item, passed=result == "pass", evidence=_text(fields, "evidence", f"{where}.evidence"))


def _usage(value: object) -> Usage:
    if value is None:
        return Usage()
    fields = _mapping(value, "usage")
    return Usage(
        input_tokens=_count(fields, "input_tokens"),
        output_tokens=_count(fields, "output_tokens"),
        usd=_amount(fields, "usd"),
    )


def _mapping(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _MalformedError(f"{where} is not an object")
    return value


def _list(fields: dict[str, object], key: str) -> list[object]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _MalformedError(f"{key} is not a list")
    return value


def _text(fields: dict[str, object], key: str, where: str) -> str:
    """A text; absent and null are the empty one."""
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _MalformedError(f"{where} is not a text")
    return _clean(value.strip())


def _count(fields: dict[str, object], key: str) -> int:
    value = fields.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST:
        raise _MalformedError(f"usage.{key} is not a whole number from 0 that anybody could use")
    return value


def _amount(fields: dict[str, object], key: str) -> float:
    value = fields.get(key)
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e12:
        raise _MalformedError(f"usage.{key} is not an amount from 0")
    return float(value)


def _clean(text: str) -> str:
    """JSON can spell half a surrogate pair, which no file and no terminal takes."""
    return text.encode("utf-8", "replace").decode("utf-8")
