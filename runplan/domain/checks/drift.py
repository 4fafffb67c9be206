"""Compares the numbers that a plan states with the numbers that agents measured, and corrects small differences.

An agent reports a difference with a line in its last message:
`PLAN-TEXT-DRIFT: phase=<id> bullet=<k> field=<name> plan=<stated> actual=<number>`. Bullet k is the k-th acceptance
criterion of the phase with a digit in its first line.
"""

import re
from collections.abc import Collection
from itertools import islice

from msgspec import Struct

from runplan.domain.plan.marks import id_key, read_name
from runplan.domain.plan.scan import Entry, Heading, Lines, marks_within, scan_lines
from runplan.domain.run.events import DriftFound

MARK = "PLAN-TEXT-DRIFT:"
MISSED = 999  #: per cent, for an exact number that was missed
_MOST_TOKENS = 200  #: of one message
_DIGITS = r"\d{1,1000}"  # int() refuses more than 4,300
_TOKEN = (
    r"[ \t]*phase=(\S{1,40})[ \t]+bullet=([1-9]\d{0,8})[ \t]+field=([^\s:=]{1,200})[ \t]+plan=(.{1,200}?)[ \t]+"
    rf"actual=([+-]?{_DIGITS})(?!\d).*"
)
_FORMS = (
    ("band", rf"({_DIGITS})[-–]({_DIGITS})"),
    ("most", rf"(?:<=|≤|at most )({_DIGITS})"),
    ("least", rf"(?:>=|≥|at least )({_DIGITS})"),
    ("about", rf"(?:~|approximately |expected )?({_DIGITS})"),
    ("exactly", rf"exactly ([+-]?{_DIGITS})"),
)
#: A sum with blanks around its operators, and the noun that it counts, such as `417 - 94 + 15 lines`.
_SUM = r"(?<![\w.,-])(\d{1,9}(?: [+-] \d{1,9}){1,30})(?: = (\d{1,9}))?(?: ([a-z]{3,30}))?(?![\w-]|[.,]\d)"
_SPAN = r"\blines (\d{1,9})[-–](\d{1,9}) (?:= |\()(\d{1,9})\b"
_STALE = (
    r"(?i)\bdrafted before\b|\bmay need (?:a )?refresh\w*"
    r"|\bbased on [^\n]{0,200}?design, not (?:the )?(?:actual )?code\b"
)


class Drift(Struct, frozen=True):
    phase: str
    bullet: int
    field: str
    stated: str
    actual: int


class Tokens(Struct, frozen=True):
    drifts: tuple[Drift, ...]
    malformed: tuple[str, ...] = ()  #: lines with the mark that do not follow the grammar


def read_tokens(message: str) -> Tokens:
    drifts: list[Drift] = []
    malformed: list[str] = []
    for rest in islice((line.partition(MARK)[2] for line in message.splitlines() if MARK in line[:200]), _MOST_TOKENS):
        token = re.fullmatch(_TOKEN, rest)
        if token and (named := read_name(token[1])) and named.id == token[1]:
            drifts.append(Drift(token[1], int(token[2]), token[3], token[4].strip(), int(token[5])))
        else:
            malformed.append(rest.strip()[:200])
    return Tokens(tuple(dict.fromkeys(drifts)), tuple(malformed))


def drift_percent(stated: str, actual: int) -> int | None:
    """How far the actual number is from the stated one, rounded up; None if that is no number."""
    kind, numbers = _read_stated(stated)
    if kind == "exactly":
        return 0 if actual == numbers[0] else MISSED
    if not kind or numbers[-1] <= 0 or numbers[0] > numbers[-1]:
        return None
    if (kind == "most" and actual <= numbers[0]) or (kind == "least" and actual >= numbers[0]):
        return 0
    middle = sum(numbers) // len(numbers)
    return -(-100 * abs(actual - middle) // middle)


def judge_drifts(implementer: Tokens, verifier: Tokens, corrected: Collection[tuple[str, int]] = ()) -> DriftFound:
    """Up to 10 % is corrected, up to 20 % also noted; more fails the phase, and so does a second correction."""
    drifts = (*implementer.drifts, *verifier.drifts)  # where both measured a number, the verifier's counts
    places = {(id_key(drift.phase), drift.bullet, drift.field): drift for drift in drifts}
    before = {(id_key(phase), bullet) for phase, bullet in corrected}
    corrections: list[tuple[str, int, str, int]] = []
    aborts: list[str] = []
    lines: list[str] = []
    far = 0
    for (phase, bullet, _), drift in places.items():
        off = drift_percent(drift.stated, drift.actual)
        where = f"phase {drift.phase}, criterion {bullet}, {drift.field}"
        if off is None:
            lines.append(f"{where}: {drift.stated!r} is no number that can be compared")
        if not off:
            continue
        far += off > 10
        apart = "another number" if off == MISSED else f"{off} % apart"
        why = f"{where}: the plan states {drift.stated}, measured are {drift.actual} ({apart})"
        if off > 20:
            aborts.append(why)
        elif (phase, bullet) in before:
            aborts.append(f"{why}; it was corrected before in this run")
        else:
            before.add((phase, bullet))
            corrections.append((drift.phase, bullet, drift.stated, drift.actual))
            lines += [why] if off > 10 else []
    lines += ["several numbers are off by more than 10 %; revise the plan"] if far > 1 else []
    lines += (f"not understood: {MARK} {line}" for line in (*implementer.malformed, *verifier.malformed))
    written = () if aborts else tuple(corrections)
    return DriftFound(corrections=written, abort=aborts[0] if aborts else "", lines=tuple(lines))


def _read_stated(stated: str) -> tuple[str, tuple[int, ...]]:
    plain = stated.strip()
    for kind, form in _FORMS:
        if match := re.fullmatch(form, plain):
            return kind, tuple(map(int, match.groups()))
    return "", ()


def corrected_text(stated: str, actual: int) -> str:
    """The text for the stated number: a band becomes 5 % around the actual number, a bound keeps its words."""
    kind, _ = _read_stated(stated)
    if kind == "band":
        return f"{actual * 95 // 100}-{-(-actual * 105 // 100)}"
    return re.sub(_DIGITS, str(actual), stated.strip()) if kind in ("most", "least") else str(actual)


def correct_section(section: str, drift: Drift, *, date: str) -> tuple[str, str]:
    """The section with the actual number and a comment that says so, else why it is unchanged; `date` is YYYY-MM-DD."""
    lines = scan_lines(section.encode(), path="")
    places = list_numbered_criteria(lines)
    if drift.bullet > len(places):
        return section, f"phase {drift.phase} has {len(places)} criteria with a number, not {drift.bullet}"
    place = places[drift.bullet - 1]
    line = lines.texts[place].rstrip()
    literal = drift.stated.strip()
    number = re.search(rf"(?<![\w.,-]){re.escape(literal)}(?![\w-]|[.,]\d)", line)
    if number is None:
        return section, f"phase {drift.phase}, criterion {drift.bullet} does not contain {literal!r}"
    new = f"{line[: number.start()]}{corrected_text(drift.stated, drift.actual)}{line[number.end() :]}"
    comment = f"<!-- Auto-corrected {date}: was {literal}, arithmetic says {drift.actual} -->"
    rest = lines.text_between(place, len(lines.texts)).removeprefix(line)
    return f"{lines.text_between(0, place)}{new} {comment}{rest}", ""


def list_numbered_criteria(lines: Lines) -> list[int]:
    return [entry.at for entry in _list_criteria(lines) if any(sign.isdigit() for sign in entry.text)]


def _list_criteria(lines: Lines) -> list[Entry]:
    part = _find_part(lines, "acceptance criteria")
    return marks_within(lines.entries, part.at, part.end) if part else []


def _text_under(lines: Lines, title: str) -> str:
    part = _find_part(lines, title)
    own = range(part.at + 1, part.end) if part else ()
    return "\n".join(lines.texts[line] for line in own if not lines.inert[line])


def _find_part(lines: Lines, title: str) -> Heading | None:
    return next((heading for heading in lines.headings if heading.text.lower().startswith(title)), None)


def find_contradictions(section: str) -> tuple[list[tuple[int, str]], str]:
    """What differs, and the phrase by which the section says of its Dependencies that it may be stale.

    The first are the per cent and words of each sum that differs from its stated result, or from the criterion with its
    noun.
    """
    lines = scan_lines(section.encode(), path="")
    design = _text_under(lines, "design")
    sums = [
        (text, sum(map(int, re.sub("(?<=[+-]) ", "", text).split())), stated, noun)
        for text, stated, noun in re.findall(_SUM, design)
    ]
    compared = [(text, value, stated) for text, value, stated, _ in sums if stated]
    for first, last, stated in re.findall(_SPAN, design):
        compared.append((f"lines {first}-{last}", int(last) - int(first) + 1, stated))
    criteria = [entry.text for entry in _list_criteria(lines)]
    for noun in dict.fromkeys(noun for *_, noun in sums if noun):
        derived = [(text, value) for text, value, _, counted in sums if counted == noun]
        form = r"(?:<=|≤|>=|≥|~|\b(?:at most|at least|approximately|exactly|expected) )?"
        numbers = rf"(?<![\w.,+-])({form}\d{{1,9}}(?:[-–]\d{{1,9}})?) {noun}\b"
        stated_for = [number for line in criteria for number in re.findall(numbers, line)]
        if len(derived) == len(stated_for) == 1:  # else they may count different things
            compared.append((*derived[0], stated_for[0]))
    shares = ((drift_percent(stated, value), value, text, stated) for text, value, stated in compared)
    apart = [(off, f"{text} is {value}, and the phase states {stated}") for off, value, text, stated in shares if off]
    phrase = re.search(_STALE, _text_under(lines, "dependencies"))
    return apart, phrase.group() if phrase else ""
