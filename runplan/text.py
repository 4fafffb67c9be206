"""Text for people and terminals: untrusted words made plain, commands to copy, counts, spans of time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, tzinfo


LONGEST = 4_000  #: characters of one detail
_CUT = " […]"

# Neither is compiled before it is needed: that takes a millisecond, and hardly any text needs it.
#: Sequences that terminals obey, whole; what is left of broken ones are control characters.
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)
#: All but line end and tab; also what turns the direction of writing around, with which words can be faked.
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"


def plain(text: str) -> str:
    """The text without anything that a terminal would obey; line ends and tabs stay."""
    if _harmless(text):
        return text
    return re.sub(_CONTROL, "", re.sub(_SEQUENCE, "", text.replace("\r\n", "\n").replace("\r", "\n")))


def bounded(text: str, most: int = LONGEST) -> str:
    """The text, or its beginning with a mark that it goes on."""
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def escaped(text: str) -> str:
    """JSON that means the same, with the control characters that it may hold as they are written out."""
    return text if _harmless(text) else re.sub(_CONTROL, _written_out, text)


def _harmless(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


def _written_out(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def command(*words: str) -> str:
    """The line to copy into a shell."""
    if all(word and word.isascii() and word.translate(_PLAIN).isalnum() for word in words):
        return " ".join(words)
    import shlex  # dear, and most words are plain

    return shlex.join(words)


_PLAIN = str.maketrans("-_./:=+,@%", "a" * 10)


def committing(path: str, message: str) -> str:
    """The line that commits one file."""
    return f"{command('git', 'add', path)} && {command('git', 'commit', '-m', message, '--', path)}"


#: No honest count of tokens is larger; beyond it floats are no longer exact.
MOST = 2**53


def believable(told: object) -> int:
    """A count of tokens that somebody told or recorded; 0 when it cannot be one."""
    if not isinstance(told, (int, float)) or isinstance(told, bool):
        return 0
    return int(told) if 0 <= told < MOST else 0


_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # strftime would speak the locale's language


def in_words(seconds: float) -> str:
    """A time span, rounded to what is worth saying: `45s`, `12m`, `2h 15m`, `3d 4h`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    minutes = (whole + 30) // 60
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 1440:
        return _two(minutes, 60, "h", "m")
    return _two((minutes + 30) // 60, 24, "d", "h")


def _two(count: int, size: int, unit: str, lesser: str) -> str:
    return f"{count // size}{unit} {count % size}{lesser}" if count % size else f"{count // size}{unit}"


def clock(moment: datetime, zone: tzinfo, *, now: datetime) -> str:
    """What a clock in the zone shows: `20:30 CET`, with its day or date where that is not today's."""
    there = moment.astimezone(zone)
    days = (there.date() - now.astimezone(zone).date()).days
    name = there.tzname() or ""
    shown = f"{there:%H:%M} {f'UTC{name}' if name[:1] in ('+', '-') else name}"
    if days == 0:
        return shown
    # A week away the day of the week is today's: that needs the date.
    return f"{_WEEKDAYS[there.weekday()]} {shown}" if abs(days) < 7 else f"{there:%Y-%m-%d} {shown}"
