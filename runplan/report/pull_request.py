"""The title and the description of a plan's pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.plan.model import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.plan.model import Plan

BEGIN, END = "<!-- runplan:progress -->", "<!-- /runplan:progress -->"
_BLOCK = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)
LONGEST_TITLE = 120


def title(slug: str, plan: Plan) -> str:
    return f"[{slug}] {plan.title}"[:LONGEST_TITLE]


def body(before: str, plan: Plan, *, report: str, fixes: Sequence[int]) -> str:
    """The description with the progress of the plan; text outside of the marked block stays as it is."""
    block = f"{BEGIN}\n{_progress(plan, report)}\n{END}"
    if _BLOCK.search(before):
        return _BLOCK.sub(lambda _: block, before, count=1)
    closing = "".join(f"\n\nFixes #{number}" for number in fixes)
    return f"{before.rstrip()}\n\n{block}{closing}".lstrip()


def _progress(plan: Plan, report: str) -> str:
    rows = (f"- [{'x' if phase.status is Status.DONE else ' '}] {phase.id} {phase.title}" for phase in plan.phases)
    done = sum(phase.status is Status.DONE for phase in plan.phases)
    return "\n".join([f"**{done} of {len(plan.phases)} phases** of `{plan.path}` · report: `{report}`", "", *rows])
