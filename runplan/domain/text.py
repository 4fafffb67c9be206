"""Text for people and terminals: safe output, commands to copy, spans and times."""

import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from itertools import accumulate

LONGEST = 4_000  #: characters of one detail
_CUT = " […]"
# Patterns are compiled on first use: that takes a millisecond, and most texts are harmless.
#: Whole sequences that terminals obey; broken ones leave control characters.
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)
#: All but line end and tab, and the marks that reverse the direction of writing.
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
#: Printable for Python, and yet not seen: fillers, variation selectors, an empty pattern of dots.
_UNSEEN = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
_EMOJI = "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27ff\u2900-\u2bff\u3030-\u303d\u3297\u3299\U0001f000-\U0001faff"
#: What joins the parts of one emoji, and chooses its picture.
_JOINER = f"(?<=[{_EMOJI}])\ufe0f|(?<=[0-9#*])\ufe0f(?=\u20e3)|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
_REPOSITORY: list[str] = []  #: words that each command of ours needs, as the person is in no clone
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # strftime uses the locale's language


def plain(text: str) -> str:
    """The text without terminal sequences and control characters; line ends and tabs stay."""
    if _harmless(text):
        return text
    return re.sub(_CONTROL, "", re.sub(_SEQUENCE, "", text.replace("\r\n", "\n").replace("\r", "\n")))


def visible(text: str, *, is_prose: bool = False) -> str:
    """The text with each character that a reader would not see written out, as `\\x1b`, `\\xff` or `<U+202E>`.

    Line ends and tabs stay. In prose the spaces of typography stay as well, and the joiners within an emoji.
    """

    def write(match: re.Match[str]) -> str:
        char = match[0]
        code = ord(char)
        is_space = is_prose and char.isspace() and code > 0x85 and char not in "\u2028\u2029"
        if match["joiner"] or is_space or (char.isprintable() and not match["unseen"]):
            return char
        if code > 0x7F and not 0xDC80 <= code <= 0xDCFF:
            return f"<U+{code:04X}>"
        return "\\r" if char == "\r" else f"\\x{code & 0xFF:02x}"  # a byte that is not UTF-8 is a surrogate

    joiner = _JOINER if is_prose else "(?!)"
    return re.sub(f"(?P<joiner>{joiner})|(?P<unseen>{_UNSEEN})|[^\n\t -~]", write, text)


def bounded(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def escaped(text: str) -> str:
    """The same JSON with control characters as \\u escapes."""
    return text if _harmless(text) else re.sub(_CONTROL, lambda match: f"\\u{ord(match[0]):04x}", text)


def _harmless(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


def inert(text: str) -> str:
    """The message of an agent without effect on terminals and forges: it mentions no account, and closes no issue.

    A zero-width space follows each mark of a mention, of a reference (`#1`, `~label`, `GH-1`, `[issue:1]`, `…/issues`)
    and of a quick action of GitLab. Lines with `Signed-off-by:` go: only a person signs off.
    """
    mark = (
        r"(?<!\w)[@%~](?=[\w\"])|[#!](?=\d)|(?<!\w)&(?=\d)|\bG[HL]-(?=\d)|^[ \t]*/(?=[a-z])|\[(?=[a-z_]+:[\w/])"
        r"|/(?=(?:issues|pull|discussions|merge_requests|work_items|epics)/\d)"
    )
    signed = re.sub(r"^[ \t]*Signed-off-by[ \t]*:.*\n?", "", plain(text), flags=re.IGNORECASE | re.MULTILINE)
    return re.sub(mark, lambda match: f"{match[0]}\u200b", signed, flags=re.IGNORECASE | re.MULTILINE)


def name_repository(url: str) -> None:
    """Have each command to copy name this repository of the fleet."""
    _REPOSITORY[:] = ["--repository", url]


def command(*words: str) -> str:
    """The line to copy into a shell."""
    return shlex.join([*words, *_REPOSITORY] if words[0] == "runplan" else words)


def command_in(repository: str, line: str, *, is_fleet: bool) -> str:
    line = line.removesuffix(f" {shlex.join(_REPOSITORY)}")
    return f"{line} --repository {shlex.quote(repository)}" if is_fleet else f"{command('cd', repository)} && {line}"


def counted(number: int, word: str, plural: str = "") -> str:
    return f"{number} {word if number == 1 else plural or f'{word}s'}"


def name_some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def committing(path: str, message: str) -> str:
    return f"{command('git', 'add', path)} && {command('git', 'commit', '-m', message, '--', path)}"


def nearest_word(word: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """The known word that begins with this one, or is most like it; "" for none."""
    from difflib import get_close_matches  # only an error needs it

    known = list(known)
    near = [name for name in known if name.startswith(word)] or get_close_matches(word, known, n=1, cutoff=cutoff)
    return near[0] if near else ""


def one_line(text: str) -> str:
    return " ".join(text.split())


def plain_line(text: str) -> str:
    return "".join(filter(str.isprintable, one_line(plain(text))))


def _measure(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def count_cells(text: str) -> int:
    return sum(map(_measure, text))


def cut_cells(text: str, width: int) -> str:
    if count_cells(text) <= width:
        return text
    kept = sum(cells < width for cells in accumulate(map(_measure, text)))  # one cell is for the mark
    return f"{text[:kept]}…" if width > 0 else ""


def fit_cells(text: str, width: int) -> str:
    cut = cut_cells(text, width)
    return cut + " " * (width - count_cells(cut))


def in_words(seconds: float) -> str:
    """A rounded time span: `45s`, `12m`, `2h 15m`, `3d 4h`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    minutes = (whole + 30) // 60
    if minutes < 60:
        return f"{minutes}m"
    count, size, unit, lesser = (minutes, 60, "h", "m") if minutes < 1440 else ((minutes + 30) // 60, 24, "d", "h")
    return f"{count // size}{unit} {count % size}{lesser}" if count % size else f"{count // size}{unit}"


def elapsed(seconds: float) -> str:
    """A time span to the second: `45s`, `4m12s`, `1h05m12s`."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60:02}m{rest:02}s"


def clock(moment: datetime, zone: tzinfo | None, *, now: datetime) -> str:
    """The time in the zone, or in local time (None): `20:30 CET`; with the day or date where that is not today."""
    there = moment.astimezone(zone)
    days = (there.date() - now.astimezone(zone).date()).days
    shown = f"{there:%H:%M} {zone_name(there)}".rstrip()
    if days == 0:
        return shown
    # A week from now has the same weekday as today, so it needs the date.
    return f"{_WEEKDAYS[there.weekday()]} {shown}" if abs(days) < 7 else f"{there:%Y-%m-%d} {shown}"


def dated(moment: datetime) -> str:
    """The date and the time in the moment's own zone: `2026-11-20 02:30 CET`."""
    return f"{moment:%Y-%m-%d %H:%M} {zone_name(moment)}".rstrip()


def zone_name(moment: datetime) -> str:
    name = moment.tzname() or ""
    return f"UTC{name}" if name[:1] in ("+", "-") else name


def localized(text: str, *, now: datetime) -> str:
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    return re.sub(moment, lambda match: clock(datetime.fromisoformat(match[0]), None, now=now), text)


def toml_value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(part) for part in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml_value(part)}" for name, part in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # a JSON string is a TOML basic string
