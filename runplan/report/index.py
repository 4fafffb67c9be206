"""Writes the index of the reports, `reports/README.md`: changes that wait for a person, and a table of all plans.

The rows of other plans are taken from the index itself, so a landing reads no further plan.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.report.text import cell, code, gap_after, inline, row
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BEGIN, END = "<!-- runplan: index -->", "<!-- runplan: end of index -->"
STALE = timedelta(days=7)  #: since the last landing of an unfinished plan
_ROW = re.compile(r"\| (.*) \| (done|active|stale) \| (\d{4}-\d\d-\d\d) \| \[([^\]]+)\]\(\4\) \|")


class PlanRow(Struct, frozen=True, kw_only=True):
    """A plan that lands now."""

    plan: str
    title: str
    report: str  #: file name
    is_done: bool


class SignOff(Struct, frozen=True, order=True):
    """A phase that waits for a person."""

    plan: str
    phase: str


class _Line(Struct, frozen=True):
    name: str  #: the first cell, with its pipes escaped
    is_done: bool
    day: str  #: of the last landing
    report: str


def updated(old: str | None, landed: PlanRow, *, today: date, waiting: Iterable[SignOff]) -> str:
    """The index after the landing. Text outside of the marks stays."""
    before, inside, after = _parts(old or "# Plan Reports\n")
    lines = {line.report: line for line in _lines(inside)}
    name = cell(f"{inline(landed.title)} ({code(landed.plan)})")
    lines[landed.report] = _Line(name, landed.is_done, today.isoformat(), landed.report)
    blocks = [BEGIN, *_waiting_block(waiting), "## Plans", "\n".join(_table(lines, today)), END]
    return before + gap_after(before) + "\n\n".join(blocks) + (after or "\n")


def _parts(text: str) -> tuple[str, str, str]:
    """The text before, between and after the marks."""
    begin = text.rfind(BEGIN)
    end = text.find(END, begin)
    if begin < 0 or end < 0:
        return text, "", ""
    return text[:begin], text[begin:end], text[end + len(END) :]


def _lines(text: str) -> Iterator[_Line]:
    for line in text.splitlines():
        if found := _ROW.fullmatch(line):
            name, status, day, report = found.groups()
            yield _Line(name, status == "done", day, report)


def _waiting_block(waiting: Iterable[SignOff]) -> list[str]:
    found = [
        f"- {code(one.plan)}, phase {inline(one.phase)}: {code(command('runplan', 'diff', one.plan, one.phase))}"
        for one in sorted(waiting)
    ]
    return ["## Needs sign-off", "\n".join(found)] if found else []


def _table(lines: dict[str, _Line], today: date) -> Iterator[str]:
    """Unfinished plans first, the longest without a landing on top."""
    yield row("Plan", "Status", "Last landing", "Report")
    yield "|---|---|---|---|"
    for line in sorted(lines.values(), key=lambda one: (one.is_done, one.day, one.report)):
        status = "done" if line.is_done else "stale" if today - _day(line.day) > STALE else "active"
        yield f"| {line.name} | {status} | {line.day} | [{line.report}]({line.report}) |"


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return date.min
