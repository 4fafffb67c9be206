"""Plans as people write them: which phases are read, what is left out, and what only the author can settle."""

import re

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, parse_plan
from tests.support.readings import load_readings

SIGNS = {"done": "✅", "todo": "⬚", "in-progress": "🟡", "blocked": "🔴"}


def outline(plan: Plan, like: str = "") -> str:
    """The phases in the notation of the file, with titles and counts as there."""
    rows = []
    for phase in plan.phases:
        count = sum(item.id.startswith("W") for item in phase.items)
        title = f" {phase.title} " if f"{phase.id} {phase.title} " in like else ""
        waits = "".join(f" <{id_}" for id_ in phase.depends)
        counted = f" W{count}" if " W" in like and count > 1 else ""
        rows.append(f"{phase.id}{title}{SIGNS[phase.status]}{waits}{counted}")
    return " ".join(rows)


@pytest.mark.parametrize(("text", "expected"), load_readings("readings.txt"))
def test_a_plan_is_read_as_its_author_meant_it_or_asks(text: str, expected: str) -> None:
    phases, *remarks = expected.split(" | ")
    if phases.startswith("refused: "):
        with pytest.raises(PlanUnreadable, match=phases.removeprefix("refused: ")):
            parse_plan(text.encode(), path="plans/p.md")
        return
    plan = parse_plan(text.encode(), path="plans/p.md")
    assert outline(plan, phases) == phases
    assert [f"{remark.line}{'!' * remark.is_error}" for remark in plan.remarks] == [said.split()[0] for said in remarks]
    words = [said.partition(" ")[2] for said in remarks]
    assert all(said in remark.text for said, remark in zip(words, plan.remarks, strict=True)), plan.remarks


@pytest.mark.parametrize(("text", "expected"), load_readings("readings.txt", only="! "))
def test_a_line_of_the_front_matter_settles_which_sections_are_the_phases(text: str, expected: str) -> None:
    plan = parse_plan(text.encode(), path="plans/p.md")
    said = plan.refusals(strict=False)[0].text
    choice = re.search(r"write (format: [^`]+?) into", said)
    if choice is None:
        return
    assert said.endswith("runplan plan --file plans/p.md")
    settled = parse_plan(f"---\n{choice[1]}\n---\n{text}".encode(), path="plans/p.md")
    assert (outline(settled), settled.refusals(strict=False)) == (outline(plan), ())
