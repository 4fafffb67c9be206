"""Writes the report of a plan: a section per landed phase and per failure, newest first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.run.reasons import next_action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.run.reasons import Reason


# Colours, controls and direction marks: they hide text, or reorder it, in a file meant to be read.
_HIDDEN = re.compile(
    "\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
SPAN = re.compile(r"((?<!`)(`+)(?!`).{1,2000}?(?<!`)\2(?!`))")


def inline(text: str) -> str:
    """One line of foreign text, not at the start of a block, with its tags escaped."""
    line = flat(text)
    if "\\`" in line:  # an escaped backtick opens no code span; do not reason about the rest
        return line.replace("<", "&lt;")
    pieces = SPAN.split(line)
    # split() gives: outside, span, its fence, outside, span, its fence, … outside
    for outside in range(0, len(pieces), 3):
        pieces[outside] = pieces[outside].replace("<", "&lt;")
    return "".join(piece for number, piece in enumerate(pieces) if number % 3 != 2)


def first(text: str) -> str:
    """One line of foreign text that may start a block."""
    line = re.sub(r"^(\d+)([.)])", r"\1\\\2", inline(text))
    return f"\\{line}" if line.startswith(("#", ">", "+", "-", "*", "_", "=", "~", "|", "[", "```")) else line


def code(text: str) -> str:
    """A code span; its fence is longer than any backticks in the text."""
    line = flat(text)
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def cell(text: str) -> str:
    """Inline Markdown as a table cell, with its pipes escaped."""
    return re.sub(r"(?<!\\)(\\*)\|", lambda pipe: pipe.group(1) * 2 + r"\|", text)


def row(*cells: str) -> str:
    return f"| {' | '.join(cell(text) for text in cells)} |"


def block(text: str) -> str:
    """Many lines of foreign text as an indented block."""
    lines = (_HIDDEN.sub("", line) for line in encodable(text).strip("\r\n").splitlines())
    return "\n".join(f"    {line}".rstrip() for line in lines)


def flat(text: str) -> str:
    """The text on one line, without invisible characters."""
    return " ".join(_HIDDEN.sub("", encodable(text)).split())


def encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


LONGEST = 300  #: characters quoted of one foreign line; git or a log has the whole
LONGEST_DETAIL = 20_000
MOST = 100  #: lines of one kind
NO_TESTS = "Tests: skipped — no test infrastructure"

_LINES = re.compile(r"[^\n]*\n|[^\n]+")


class CommitLine(Struct, frozen=True, kw_only=True):
    short: str
    subject: str


class ItemLine(Struct, frozen=True, kw_only=True):
    id: str
    text: str
    passed: bool
    evidence: str


class GateLine(Struct, frozen=True, kw_only=True):
    name: str  #: "Baseline", "Gate", …
    command: str
    exit_code: int | None  #: None when it was stopped
    tree: str
    result: str  #: one line


class VerdictLine(Struct, frozen=True, kw_only=True):
    verifier: str
    tree: str  #: the tree the verifier saw
    landed_tree: str  #: the landed code tree; differs when only the base changed
    is_final: bool = False  #: of all phases of the plan together


class PhaseAccount(Struct, frozen=True, kw_only=True):
    """The section of a landed phase."""

    plan: str  #: path in the repository
    phase: str
    title: str
    run: str
    status: str  #: "Completed (verified, landed)"
    branch: str
    commits: tuple[CommitLine, ...]
    items: tuple[ItemLine, ...]
    gates: tuple[GateLine, ...]  #: empty when the project has no tests
    verdicts: tuple[VerdictLine, ...]
    warnings: tuple[str, ...] = ()


class UndoAccount(Struct, frozen=True, kw_only=True):
    """The section of a reverted phase."""

    plan: str
    phase: str
    title: str
    run: str
    landing: str  #: the reverted landing
    commits: tuple[CommitLine, ...]  #: its code commits, newest first


class FailureAccount(Struct, frozen=True, kw_only=True):
    """The section of a failed run."""

    at: str  #: UTC, "YYYY-MM-DD HH:MM"
    plan: str
    phase: str
    title: str
    run: str
    attempt: int  #: from 1; distinguishes two failures within a minute
    step: str  #: where it failed: "implement", "gate", "verify", "land", …
    reason: Reason
    detail: str  #: any text: failed items, the end of a gate's output
    state: tuple[str, ...]  #: sentences about kept work
    resume: str  #: a command


def phase_section(account: PhaseAccount) -> str:
    parts = [
        f"## Phase — {inline(f'{account.phase} {account.title}')}",
        _mark(run=account.run, phase=account.phase),
        f"**Status:** {inline(account.status)}",
        f"**Plan:** {code(account.plan)}",
        f"**Branch:** {code(account.branch)}",
        "**Commits:**",
        _commits(account.commits),
        "### Work Items",
        _items(account.items),
        "### Verification",
        "\n".join(_verification(account)),
    ]
    return "\n\n".join(parts) + "\n"


def undo_section(account: UndoAccount) -> str:
    parts = [
        f"## Phase Undone — {inline(f'{account.phase} {account.title}')}",
        _mark(run=account.run, phase=account.phase),
        "**Status:** Undone (its changes reverted, its row set back to todo)",
        f"**Plan:** {code(account.plan)}",
        f"**Landing reverted:** {code(account.landing)}",
        "**Commits reverted:**",
        _commits(account.commits),
        "The checks were not run on the result.",
    ]
    return "\n\n".join(parts) + "\n"


def failure_section(account: FailureAccount) -> str:
    parts = [
        f"## Run Failed — {flat(account.at)}",
        _mark(run=account.run, phase=account.phase, attempt=str(account.attempt)),
        f"**Plan:** {code(account.plan)}",
        f"**Phase:** {inline(f'{account.phase} {account.title}')}",
        f"**Failed at:** {inline(account.step)}",
        f"**Reason:** {code(account.reason.value)}. {next_action(account.reason, account.step)}",
        *_detail(account.detail),
        "**State:**",
        "\n".join(f"- {first(fact)}" for fact in account.state) or "Nothing is left behind.",
        f"**To resume:** {code(account.resume)}",
    ]
    return "\n\n".join(parts) + "\n"


def prepend(report: str | None, *, plan_title: str, sections: Sequence[str]) -> str:
    """The report with the sections on top, the last one first; all other bytes stay.

    A section that exists, by its heading and the mark of its run, is not added again.
    """
    text = report or ""
    if _heading(_LINES.findall(text), "# ") is None:
        text = f"# Plan Report — {inline(plan_title)}\n" + (f"\n{text}" if text else "")
    for section in sections:
        if not _holds(text, section):
            text = insert(text, section)
    return text


def _mark(**names: str) -> str:
    """An invisible line that identifies a section."""
    plain = (f"{key} {re.sub(r'[^A-Za-z0-9._]+', '-', name)}" for key, name in names.items())
    return f"<!-- runplan: {', '.join(plain)} -->"


def _commits(commits: tuple[CommitLine, ...]) -> str:
    lines = [f"- {code(commit.short)} {inline(shortened(commit.subject))}" for commit in commits[:MOST]]
    return "\n".join((*lines, *_more(len(commits)))) or "None."


def _more(count: int) -> list[str]:
    return [f"- and {count - MOST} more"] if count > MOST else []


def shortened(text: str, most: int = LONGEST) -> str:
    """The text, cut with a mark where it is longer."""
    return text if len(text) <= most else f"{text[:most]} […]"


def _items(items: tuple[ItemLine, ...]) -> str:
    rows = [row("#", "Item", "Status", "Evidence"), "|---|---|---|---|"]
    for item in items:
        status = "pass" if item.passed else "fail"
        rows.append(row(inline(item.id), inline(item.text), status, inline(item.evidence)))
    return "\n".join(rows)


def _verification(account: PhaseAccount) -> list[str]:
    lines = [_gate(gate) for gate in account.gates] or [f"- {NO_TESTS}"]
    lines += [_verdict(verdict) for verdict in account.verdicts]
    lines += [f"- Warning: {inline(shortened(warning, LONGEST_DETAIL))}" for warning in account.warnings[:MOST]]
    return [*lines, *_more(len(account.warnings))]


def _gate(gate: GateLine) -> str:
    ending = "did not finish" if gate.exit_code is None else f"exit {gate.exit_code}"
    where = f"on tree {code(gate.tree)}"
    return f"- {inline(gate.name)}: {code(gate.command)} {where}: {ending}, {inline(shortened(gate.result))}"


def _verdict(verdict: VerdictLine) -> str:
    of_all = " on all phases" if verdict.is_final else ""
    said = f"- Verdict{of_all}: pass by {code(verdict.verifier)} on tree {code(verdict.tree)}"
    if verdict.tree == verdict.landed_tree:
        return said
    return f"{said}, carried over to tree {code(verdict.landed_tree)} (the same patch)"


def _detail(detail: str) -> list[str]:
    shown = block(shortened(detail, LONGEST_DETAIL))
    if not shown:
        return []
    return ["**Detail:**", shown]


def _holds(text: str, section: str) -> bool:
    """Whether the text has the heading and the mark of the section, in this order."""
    wanted = [line for line in section.splitlines() if line.strip()][:2]
    lines = [line for line in text.splitlines() if line.strip()]
    return any(lines[at : at + len(wanted)] == wanted for at in range(len(lines)))


def insert(text: str, section: str) -> str:
    """The text with the section before its first one, in the line ends of the text."""
    lines = _LINES.findall(text)
    newline = "\r\n" if lines[0].endswith("\r\n") else "\n"
    at = _heading(lines, "## ")
    before = "".join(lines[:at])
    after = "" if at is None else newline + "".join(lines[at:])
    lead = "" if before.endswith("\n") else newline
    gap = "" if before.endswith(newline * 2) else newline
    return before + lead + gap + section.replace("\n", newline) + after


def _heading(lines: list[str], opening: str) -> int | None:
    """Index of the first line with this opening, outside fences."""
    fenced = False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        if not fenced and line.removeprefix("\ufeff").startswith(opening):
            return number
    return None
