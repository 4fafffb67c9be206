"""Examines a plan whose phases are done: phrases that admit a gap, rows without a mark, and a parent's verification."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.marks import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.plan.model import Plan

#: Words that admit unfinished work. They do not count after a negation ("no TODO", "nothing deferred").
_ADMITTED = re.compile(
    r"(?i:\bnoted as (?:a )?gap\b|\bgaps? noted\b|\bdeferred\b|\bout[ -]of[ -]scope\b|\bfuture work\b"
    r"|\bleft for later\b|\bnot (?:yet )?(?:implemented|done|verified)\b|\b(?:could|can) ?not (?:be )?verif\w*"
    r"|\bunable to verify\b)|\bTODO\b"
)
#: The words in a file name or in the pattern of a search admit nothing: `grep -rn TODO src`, `TODO.md`.
_QUOTED = re.compile(r"`(?:git )?(?:grep|rg|ag) [^`\n]*+`|(?<![\w/-])[\w/-]++\.[a-z]{1,5}\b")
_NEGATED = re.compile(r"\b(?:no|not|nothing|none|never|without|zero|any) (?:\w+ )?$", re.IGNORECASE)
_SKIPPED = re.compile(r"(?<!\d )\bskipped\b", re.IGNORECASE)  # not the count of a test runner
_OWN = "- Tests: skipped"  #: runplan's own line of a repository without tests
_MOST_FOUND = 50

#: Minutes until a plan that waits for its parent's verification asks again, by the attempt; the last one repeats.
PARENT_WAITS = (10, 20, 40, 60)


class Remark(Struct, frozen=True):
    """A line that a person should read before the plan counts as complete; advice only."""

    where: str  #: "phase 2", or the path of the report with a line
    text: str


class ParentGate(Struct, frozen=True):
    """The state of the verification that a parent pipeline asked for."""

    attempt: int = 0  #: 0 when nothing is awaited
    wait_minutes: int = 0


def admits_gap(text: str) -> str:
    """The words that admit that something is not done; "" for none."""
    text = _QUOTED.sub("it", text)
    for found in _ADMITTED.finditer(text):
        if not _NEGATED.search(text[max(0, found.start() - 40) : found.start()]):
            return found.group()
    return ""


def audit(plan: Plan, report: str, *, report_path: str) -> tuple[Remark, ...]:
    """The phases without a completion mark, and the lines of the report that admit a gap."""
    unmarked = (
        Remark(f"phase {phase.id}", "no completion mark") for phase in plan.phases if phase.status is not Status.DONE
    )
    admitted = (Remark(f"{report_path}:{number}", line) for number, line in _admissions(report.splitlines()))
    return tuple(islice((*unmarked, *admitted), _MOST_FOUND))


def _admissions(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if admits_gap(line) or (_SKIPPED.search(line) and not line.startswith(_OWN)):
            yield number, line.strip()[:200]


def parent_gate(*, is_complete: bool, is_required: bool, is_fulfilled: bool, attempts: int) -> ParentGate:
    """Whether the plan waits for its parent's verification, and for how long; `attempts` were made before."""
    if is_complete or not is_required or is_fulfilled:
        return ParentGate()
    wait = PARENT_WAITS[min(attempts, len(PARENT_WAITS) - 1)]
    return ParentGate(attempt=attempts + 1, wait_minutes=wait)
