"""Foreign text in Markdown; the report of a plan, newest section first; and the index of all reports."""

import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta

from msgspec import Struct

from runplan.domain.run.kinds import WaitKind
from runplan.domain.text import command

# Colours, controls and direction marks: they hide text, or reorder it, in a file meant to be read.
_HIDDEN = (
    "\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_LINES = r"[^\n]*\n|[^\n]+"
BEGIN = "<!-- runplan: index -->"
END = "<!-- runplan: end of index -->"
STALE = timedelta(days=7)  #: since the last landing of an unfinished plan
_ROW = r"\| (.*) \| (done|active|stale) \| (\d{4}-\d\d-\d\d) \| \[([^\]]+)\]\(\4\) \|"


def escape_inline(text: str) -> str:
    line = flatten_text(text)
    if "\\`" in line:  # an escaped backtick opens no code span; do not reason about the rest
        return line.replace("<", "&lt;")
    pieces = re.split(r"((?<!`)(`+)(?!`).{1,2000}?(?<!`)\2(?!`))", line)
    # split() gives: outside, span, its fence, outside, span, its fence, … outside
    for outside in range(0, len(pieces), 3):
        pieces[outside] = pieces[outside].replace("<", "&lt;")
    return "".join(piece for number, piece in enumerate(pieces) if number % 3 != 2)


def escape_first_line(text: str) -> str:
    line = re.sub(r"^(\d+)([.)])", r"\1\\\2", escape_inline(text))
    return f"\\{line}" if line.startswith(("#", ">", "+", "-", "*", "_", "=", "~", "|", "[", "```")) else line


def code_span(text: str) -> str:
    line = flatten_text(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def table_cell(text: str) -> str:
    return re.sub(r"(?<!\\)(\\*)\|", lambda pipe: pipe.group(1) * 2 + r"\|", text)


def table_row(*cells: str) -> str:
    return f"| {' | '.join(table_cell(text) for text in cells)} |"


def indent_block(text: str) -> str:
    lines = (re.sub(_HIDDEN, "", line) for line in drop_surrogates(text).strip("\r\n").splitlines())
    return "\n".join(f"    {line}".rstrip() for line in lines)


def flatten_text(text: str) -> str:
    return " ".join(re.sub(_HIDDEN, "", drop_surrogates(text)).split())


def drop_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def prepend_sections(report: str | None, *, plan_title: str, sections: Sequence[str]) -> str:
    """The report with the new ones of the sections on top, the last one first; all other bytes stay."""
    text = report or ""
    if _find_heading(re.findall(_LINES, text), "# ") is None:
        text = f"# Plan Report — {escape_inline(plan_title)}\n" + (f"\n{text}" if text else "")
    for section in sections:
        if "\n".join(section.splitlines()[:3]) not in text.replace("\r\n", "\n"):
            text = insert_section(text, section)
    return text


def insert_section(text: str, section: str) -> str:
    lines = re.findall(_LINES, text)
    line = _find_heading(lines, "## ")
    before = "".join(lines[:line])
    after = "" if line is None else "\n" + "".join(lines[line:])
    return before + gap_after(before) + section + after


def name_pull_request(text: str, pull: str) -> str:
    line = f"Pull request: {pull}\n"
    return text if not pull or line in text else insert_section(text, line)


def gap_after(text: str) -> str:
    return "" if text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"


def _find_heading(lines: list[str], opening: str) -> int | None:
    fenced = False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        if not fenced and line.startswith(opening):
            return number
    return None


class PlanRow(Struct, frozen=True, kw_only=True):
    plan: str
    title: str
    report: str  #: file name
    is_done: bool


def update_index(old: str | None, landed: PlanRow, *, today: date, waiting: Iterable[tuple[str, str, str]]) -> str:
    """The index after the landing, with (plan, phase, kind) of what waits for a person; other text stays."""
    text = old or "# Plan Reports\n"
    begin = text.rfind(BEGIN)
    end = text.find(END, begin)
    before, inside, after = text, "", ""
    if -1 < begin < end:
        before, inside, after = text[:begin], text[begin:end], text[end + len(END) :]
    known_rows = (match.groups() for line in inside.splitlines() if (match := re.fullmatch(_ROW, line)))
    rows = {report: (status == "done", day, report, name) for name, status, day, report in known_rows}
    name = table_cell(f"{escape_inline(landed.title)} ({code_span(landed.plan)})")
    rows[landed.report] = (landed.is_done, today.isoformat(), landed.report, name)
    table = [table_row("Plan", "Status", "Last landing", "Report"), "|---|---|---|---|"]
    for is_done, day, report, name in sorted(rows.values()):  # unfinished first, the longest without a landing on top
        status = "done" if is_done else "stale" if day < (today - STALE).isoformat() else "active"
        table.append(f"| {name} | {status} | {day} | [{report}]({report}) |")
    open_ = []
    for plan, phase, kind in sorted(waiting):
        words = ("inbox",) if kind == WaitKind.QUESTION else ("diff", plan, *([phase] if phase else []))
        subject = f"phase {escape_inline(phase)}" if phase else "the proposed plan"
        open_.append(f"- {code_span(plan)}, {subject}, {kind}: {code_span(command('runplan', *words))}")
    waits = ["## Waits for a person", "\n".join(open_)] if open_ else []
    blocks = [BEGIN, *waits, "## Plans", "\n".join(table), END]
    return before + gap_after(before) + "\n\n".join(blocks) + (after or "\n")
