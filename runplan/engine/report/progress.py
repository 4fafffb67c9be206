"""The goal and the phases of a plan, with their proofs, as its pull request shows them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from runplan.domain.plan.marks import Status
from runplan.domain.plan.model import Phase, Plan
from runplan.domain.plan.scan import scan_lines
from runplan.domain.run.recorded import Recorded
from runplan.domain.text import bounded
from runplan.engine.landing.description import PhaseProgress, PlanProgress
from runplan.engine.report.sections import LONGEST
from runplan.engine.report.summary import PhaseRecord, summarise_attempts
from runplan.engine.report.text import escape_inline

GOALS = ("goal", "goals", "objective", "overview", "summary")  #: headings above the paragraph with the goal
LABEL = "**goal:**"
LONGEST_GOAL = 1000


def describe_plan(plan: Plan, text: bytes, records: Iterable[Recorded[Any]]) -> PlanProgress:
    """The progress from the plan's text and the journal; a phase that another clone worked on has no proof here."""
    attempts = summarise_attempts(records)
    return PlanProgress(
        path=plan.path,
        title=plan.title,
        goal=escape_inline(bounded(find_goal(text, plan), LONGEST_GOAL)),
        phases=tuple(_describe_phase(phase, attempts.get(phase.id)) for phase in plan.phases),
    )


def _describe_phase(phase: Phase, attempt: PhaseRecord | None) -> PhaseProgress:
    is_done = phase.status is Status.DONE
    seen = attempt if attempt and is_done else PhaseRecord(id=phase.id)
    facts = [
        f"tests: {seen.tests}" if seen.tests else "",
        f"cost: {seen.spent.cost}" if seen.spent.tokens or seen.spent.usd else "",
    ]
    proofs = {item: evidence for item, passed, evidence in seen.evidence if passed}
    return PhaseProgress(
        line=" · ".join(filter(None, [_shorten(f"{phase.id} {phase.title}"), *facts])),
        items=tuple(
            _shorten(item.text) + (f" — {_shorten(proofs[item.id])}" if item.id in proofs else "")
            for item in phase.items
        ),
        is_done=is_done,
    )


def _shorten(text: str) -> str:
    return escape_inline(bounded(text, LONGEST))


def find_goal(text: bytes, plan: Plan) -> str:
    """The first paragraph below a heading such as Goal, else below the title; "" for none."""
    lines = scan_lines(text, path=plan.path)
    titles = [heading for heading in lines.headings[:1] if heading.level == 1 and heading.text.endswith(plan.title)]
    named = [heading for heading in lines.headings if heading.text.lower().strip(" :") in GOALS]
    for heading in (*named[:1], *titles):
        below = next((other.at for other in lines.headings if other.at > heading.at), len(lines.texts))
        texts = ("" if lines.inert[i] else lines.texts[i].strip() for i in range(heading.at + 1, below))
        for paragraph in (" ".join(block) for has_text, block in groupby(texts, bool) if has_text):
            is_label = paragraph.lower().startswith(LABEL)
            if is_label or paragraph[0].isalnum():
                return paragraph[len(LABEL) :].strip() if is_label else paragraph
    return ""
