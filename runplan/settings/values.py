"""Values of settings: the shapes they may have and the rules they must keep."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan import names

if TYPE_CHECKING:
    from collections.abc import Callable

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Shape(Enum):
    """What a value must look like, in the words of an error message."""

    TEXT = "text in quotes"
    FLAG = "true or false"
    COUNT = "a whole number"
    MONEY = "a number"
    DURATION = 'a duration like "90s", "15m" or "1h30m"'
    LIST = 'a list of texts like ["a", "b"]'


class Unfit(Struct, frozen=True, kw_only=True):
    """A value that cannot be used, and why."""

    why: str


def shaped(shape: Shape, value: object) -> Any:
    """The typed value, or Unfit."""
    typed = _SHAPED[shape](value)
    return Unfit(why=f"must be {shape.value}, not {value!r}") if typed is None else typed


def from_text(shape: Shape, text: str) -> object:
    """What the text of a variable or a flag means; unfit text is given back, for `shaped` to refuse."""
    match shape:
        case Shape.FLAG:
            return _WORDS.get(text.strip().lower(), text)
        case Shape.COUNT | Shape.MONEY:
            try:
                return int(text) if shape is Shape.COUNT else float(text)
            except ValueError:
                return text
        case Shape.LIST:
            return [part.strip() for part in text.split(",") if part.strip()]
        case _:
            return text


def seconds(text: str) -> float | None:
    """A duration such as 90s, 15m, 2h or 1h30m; None when it is none."""
    found = _DURATION.fullmatch(text.strip().lower())
    if not found or not found.group(0):
        return None
    return float(sum(int(count) * unit for count, unit in zip(found.groups("0"), _UNITS.values(), strict=True)))


# --- shapes: the typed value, or None ------------------------------------------------------------------


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and "\0" not in value else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _money(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def _duration(value: object) -> float | None:
    return seconds(value) if isinstance(value, str) else None


def _list(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) and part for part in value):
        return None
    return tuple(value)


_SHAPED: dict[Shape, Callable[[object], Any]] = {
    Shape.TEXT: _text,
    Shape.FLAG: _flag,
    Shape.COUNT: _count,
    Shape.MONEY: _money,
    Shape.DURATION: _duration,
    Shape.LIST: _list,
}


# --- rules: what is wrong with a typed value, or "" ----------------------------------------------------


def at_least_one(value: int) -> str:
    return "" if value >= 1 else "must be 1 or more"


def not_negative(value: float) -> str:
    return "" if 0 <= value < float("inf") else f"must be 0 or more, not {value}"


def percentage(value: int) -> str:
    return "" if 0 <= value <= 100 else f"must be 0 to 100, not {value}"


def some_time(value: float) -> str:
    return "" if value > 0 else "must be longer than nothing"


def not_empty(value: str) -> str:
    return "" if value.strip() else "must not be empty"


def branch(value: str) -> str:
    return "" if names.valid_ref(value) else f"{value!r} cannot be the name of a branch"


def prefix(value: str) -> str:
    return "" if names.valid_ref(f"{value}x") else f"{value!r} cannot begin the name of a branch"


def inside(value: str) -> str:
    if not value or value.startswith("/") or ".." in value.split("/") or "\\" in value:
        return f"must be a path inside the repository, not {value!r}"
    return _plain(value)


def place(value: str) -> str:
    return not_empty(value) or _plain(value)


def _plain(value: str) -> str:
    return "" if names.is_plain(value) else f"must be a path without control characters, not {value!r}"


def all_inside(values: tuple[str, ...]) -> str:
    return next((wrong for value in values if (wrong := inside(value))), "")


def all_passed_on(values: tuple[str, ...]) -> str:
    """Names of variables that may be handed to an agent."""
    ours = next((value for value in values if value.startswith(("GIT_", "RUNPLAN_"))), "")
    return f"{ours} is never passed on: what begins with GIT_ or RUNPLAN_ is set by runplan itself" if ours else ""


def all_of(words: tuple[str, ...]) -> Callable[[tuple[str, ...]], str]:
    """Lists of these words only."""

    def rule(values: tuple[str, ...]) -> str:
        stray = next((value for value in values if value not in words), "")
        return f"may hold {', '.join(words)}, not {stray!r}" if stray else ""

    return rule


def web_address(value: str) -> str:
    if not value or re.fullmatch(r"https?://[^\s/]+(?:/\S*)?", value):
        return ""
    return "must begin with https:// or http:// and a host"


def pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        return f"is no regular expression: {error}"
    return ""
