"""Reads a plan file into lines that know their byte offsets, with its front matter, headings and list entries.

The front matter is a small part of YAML: plain and quoted values, comments, and blocks, which are never written.
A line ends at LF or CRLF. Only one that begins with three backticks or tildes opens or closes a fence: real plans nest
fences badly, and every stricter reading loses phases.
"""

import re
from bisect import bisect, bisect_left
from codecs import BOM_UTF8
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.marks import BOX_WORD, COLON, UNITS, UNNAMED, Named, Status, read_mark, read_name

MAX_MB = 5
MAX_LINES = 20_000
LABEL = 7  #: the level of a line like `**Tasks:**` that serves as a heading; an indented one belongs to a list entry
_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?=[ \t]|\Z)[ \t]*")
_VALUE = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|(?:(?![ \t]+#)[^\r])*""")
_FENCE = re.compile(r"(`{3,}|~{3,})([^`]*)\Z")
_NUMBERED_BOX = r"[0-9]{1,3}\.[0-9]{1,3}(?=[ \t]\[[ xX]\][ \t])"  #: `1.1 [ ] text`
_ENTRY = re.compile(
    rf"([ \t]*)(?:[-*+]|[0-9]{{1,4}}[.)]|{_NUMBERED_BOX})(?:[ \t]+|\Z)"
    rf"(?:\[([^\]\w]|[xX]|{BOX_WORD}|(?=\]))\](\*?)(?=[ \t]|\Z)[ \t]*)?",
    re.DOTALL,
)
#: A text that is struck through, and perhaps the reason; "~~old~~ new" is work.
_STRUCK = r"(~~?)(?:(?!\1).)+\1[ \t]*(?:\Z|[(\[<—–:.-])"
_STATUS = (
    r"(?:\[[^\[\]]{1,20}\]|[^\w\s(\[`*~]{1,3})?[ \t]*"
    rf"(?:\**(?!(?i:{'|'.join(UNITS)})\b)[A-Z][A-Z ]{{2,20}}[ \t]*[:—–-](?=[ \t]))?[ \t]+"
)
#: An outline number: `## 38.1 Phase 1: Title`, `## IV. Phase 2: Title`, `## 二、Phase 0：Title`.
_OUTLINE = (
    r"\W*(?:[0-9]{1,3}(?:\.[0-9]{1,3}){0,3}[.)]?|[IVX]{1,5}[.)]|[一二三四五六七八九十]{1,3}[、.．])[ \t]*(?![0-9])"
)
#: The text of a box that stands for no work: `- [ ] None`, `- [ ] N/A - see above`.
_NOTHING = r"(?i)[*_(]*(?:none|n/a)[*_).]*(?:\Z|[,:].*|[ \t]+[—–(-].*)|[—–-]\Z"
_LABEL = re.compile(
    rf"\*\*([^*`]{{1,60}}?){COLON}?\*\*{COLON}?[ \t]*\Z"
    r"|((?:acceptance|success|exit) criteria|(?:automated |manual )?verification|deliverables|tasks|steps)"
    rf"{COLON}[ \t]*\Z",
    re.IGNORECASE,
)
#: A line like `**Plans:** 5 plans` ends the part below the label above it.
_FIELD = re.compile(rf"\*\*[^*`]{{1,60}}(?:{COLON}\*\*|\*\*{COLON})[ \t]*\S")
_at = attrgetter("at")


class Heading(Struct, frozen=True):
    """A heading, or a line like `**Tasks:**`, outside of fences and front matter."""

    at: int
    level: int
    text: str
    name: Named  #: the id and title that it begins with
    end: int  #: the line after its section; a heading of level 1 ends only its like, as it may be a comment of a fence


class Entry(Struct, frozen=True):
    """An entry of a list, `- text`, `1. text` or the box `- [ ] text`, outside of fences and front matter."""

    at: int
    indent: int
    column: int  #: of the sign between the brackets
    sign: str  #: a character or a word, as in `[done]`; "" when it is no box
    optional: bool  #: no work: `- [ ]* text`, as Kiro writes it, `- [ ] ~~text~~` or `- ~~text~~`
    text: str  #: without the lines that continue it
    width: int = 1  #: of the sign; 0 in `- [] text`

    @property
    def ticked(self) -> bool:
        return self.sign in ("x", "X", "✅", "✔", "✓") or (self.is_word and read_mark(self.sign).status is Status.DONE)

    @property
    def is_word(self) -> bool:
        return len(self.sign) > 1


class Field(Struct, frozen=True):
    key: str
    value: str
    at: int  #: line
    begin: int  #: columns of the value as written, quotes included
    end: int
    below: int  #: the line after it and the lines that belong to it


class Lines(Struct, frozen=True, kw_only=True):
    """A plan's text by lines; indexes count from 0, the line numbers for people from 1."""

    path: str
    raw: bytes
    texts: list[str]  #: without line ends and without the byte order mark
    starts: list[int]  #: byte offset of each line's first character
    inert: list[bool]  #: front matter and fenced lines, fence marks included: never structure
    headings: list[Heading]  #: without labels
    parts: list[Heading]  #: headings and labels
    entries: list[Entry]
    boxes: list[Entry]  #: the entries that are boxes
    front: int  #: index of the line that closes the front matter; 0 when there is none
    fields: list[Field]  #: of the front matter
    open_fence: int  #: index of a fence that is never closed; -1 when there is none
    eol: bytes  #: the line end of the first line

    def error_at(self, index: int, why: str, kind: type[PlanUnreadable] = PlanUnreadable) -> PlanUnreadable:
        return kind(f"{self.path}:{index + 1}: {why}")

    def byte_offset(self, index: int, column: int) -> int:
        return self.starts[index] + len(self.texts[index][:column].encode())

    def line_start(self, index: int) -> int:
        """The byte offset of a line, or of the end of the text for the line after the last."""
        return self.starts[index] if index < len(self.starts) else len(self.raw)

    def heading_above(self, index: int) -> Heading | None:
        place = bisect(self.headings, index, key=_at)
        return self.headings[place - 1] if place else None

    def find_field(self, key: str) -> Field | None:
        return next((field for field in self.fields if field.key == key), None)

    def front_value(self, key: str) -> str:
        field = self.find_field(key)
        return field.value if field else ""

    def text_between(self, first: int, end: int) -> str:
        return self.raw[self.line_start(first) : self.line_start(end)].decode()


T = TypeVar("T", Heading, Entry)


def marks_within(marks: list[T], first: int, end: int) -> list[T]:
    """The marks of lines first to end - 1."""
    return marks[bisect_left(marks, first, key=_at) : bisect_left(marks, end, key=_at)]


@lru_cache(maxsize=2)
def scan_lines(raw: bytes, *, path: str) -> Lines:
    """The lines of a plan file. Raises PlanUnreadable when it is no text."""
    pieces = _decode_text(raw, path).split("\n")
    first = len(BOM_UTF8) if raw.startswith(BOM_UTF8) else 0
    starts = list(accumulate((len(piece.encode()) + 1 for piece in pieces), initial=first))
    last = pieces.pop()  # there is no line after the last line end
    texts = [piece.removesuffix("\r") for piece in pieces] + ([last] if last else [])
    front = 0
    if texts and texts[0] == "---":
        front = next((i for i in range(1, len(texts)) if texts[i].rstrip() == "---"), 0)
    inert, open_fence = _inert_lines(texts, front)
    parts, entries = _find_structure(texts, inert)
    keys = [(i, key) for i in range(1, front) if (key := _KEY.match(texts[i]))]
    fields = []
    for (i, key), end in zip(keys, [*(i for i, _ in keys), front][1:], strict=True):
        written = _VALUE.match(texts[i], key.end())
        value = written[0].rstrip() if written and not written[0].startswith("#") else ""
        below = [text.strip() for text in texts[i + 1 : end] if text[:1] in (" ", "\t", "-") and text.strip()]
        place = (i, key.end(), key.end() + len(value), end if below else i + 1)
        if value[:1] in ("|", ">"):
            value = (" " if value[0] == ">" else "\n").join(below)
        elif len(value) >= 2 and value[0] == value[-1] == '"':
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        elif len(value) >= 2 and value[0] == value[-1] == "'":
            value = value[1:-1].replace("''", "'")
        fields.append(Field(key[1], value, *place))
    return Lines(
        path=path,
        raw=raw,
        texts=texts,
        starts=starts[: len(texts)],
        inert=inert,
        headings=[part for part in parts if part.level < LABEL],
        parts=parts,
        entries=entries,
        boxes=[entry for entry in entries if entry.sign],
        front=front,
        fields=fields,
        open_fence=open_fence,
        eol=b"\r\n" if raw.partition(b"\n")[0].endswith(b"\r") else b"\n",
    )


def _decode_text(raw: bytes, path: str) -> str:
    size = len(raw) / 1024 / 1024
    count = raw.count(b"\n")
    if size > MAX_MB or count > MAX_LINES:
        most = f"{MAX_MB} MB and {MAX_LINES:,} lines"
        message = f"the file has {size:.1f} MB and {count:,} lines, and a plan at most {most}; is it a plan?"
        raise PlanUnreadable(f"{path}:1: {message}")
    text = raw.removeprefix(BOM_UTF8)
    try:
        wrong = text.find(b"\0")
        if wrong < 0:
            return text.decode()
    except UnicodeDecodeError as error:
        wrong = error.start
    line = text.count(b"\n", 0, wrong) + 1
    raise PlanUnreadable(f"{path}:{line}: this is no UTF-8 text; save the plan as UTF-8")


def _inert_lines(texts: list[str], front: int) -> tuple[list[bool], int]:
    """Whether each line is front matter, fenced or in a comment of several lines; and a fence that is never closed."""
    inert: list[bool] = []
    fences: list[tuple[int, str]] = []
    comment = 0  # the line after it
    for i, text in enumerate(texts):
        if text.startswith("<!--") and "-->" not in text and not fences and i >= comment:
            comment = next((end + 1 for end in range(i, len(texts)) if "-->" in texts[end]), i)
        is_front = (bool(front) and i <= front) or i < comment
        fence = _FENCE.match(text) if text[:3] in ("```", "~~~") and not is_front else None
        inert.append(is_front or fence is not None or bool(fences))
        if fence is None:
            continue
        is_like = not fences or fence[1].startswith(fences[-1][1])
        if not fences or (is_like and fence[2].strip()):  # ```` ```sh ```` opens an inner one
            fences.append((i, fence[1]))
        elif is_like:
            fences.pop()
    return inert, fences[0][0] if fences else -1


def _find_structure(texts: list[str], inert: list[bool]) -> tuple[list[Heading], list[Entry]]:
    parts: list[Heading] = []
    entries: list[Entry] = []
    border = [len(texts)] * (LABEL + 1)  # by level: where the section of a heading above ends
    for i in range(len(texts) - 1, -1, -1):
        text = texts[i]
        level = len(text) - len(text.lstrip("#"))
        if inert[i]:
            continue
        if 0 < level < LABEL and text[level : level + 1] in (" ", "\t"):
            title = re.sub(r"(?<=\S)[ \t]+#+\Z", "", text[level:].strip())  # `## Title ##`
            name = read_name(title)
            if outline := re.match(_OUTLINE, title):
                inner = read_name(title[outline.end() :])
                name = inner if inner is not None and inner.unit and inner.strong else name
            if name is None and (status := re.match(_STATUS, title)):  # `## ✅ Phase 1: Parser`
                name = read_name(title[status.end() :].replace("**", "", status[0].count("**")))
                name = name if name is not None and (name.unit or re.match("[A-Za-z]{1,2}[0-9]", name.id)) else None
            parts.append(Heading(i, level, title, name or UNNAMED, border[level]))
            border[level : 2 if level == 1 else None] = [i] * (1 if level == 1 else LABEL + 1 - level)
        elif len(text) < 80 and (label := _LABEL.match(text)):
            parts.append(Heading(i, LABEL, label[1] or label[2], UNNAMED, border[LABEL]))
            border[LABEL] = i
        elif text.startswith("**") and _FIELD.match(text):
            border[LABEL] = i
        elif entry := _ENTRY.match(text):
            indent = len(entry[1].expandtabs(4))
            content = text[entry.end() :].strip()
            is_box = entry[2] is not None and not re.match(_NOTHING, content)
            sign = entry[2] or " " if is_box else ""
            is_optional = entry[3] == "*" or (sign in ("", " ") and re.match(_STRUCK, content) is not None)
            entries.append(Entry(i, indent, entry.start(2), sign, is_optional, content, len(entry[2] or "")))
    return parts[::-1], entries[::-1]
