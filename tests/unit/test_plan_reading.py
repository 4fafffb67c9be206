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


def offered_choice(text: str) -> str:
    """The line of the front matter that the first refusal offers, if it offers one."""
    try:
        refusals = parse_plan(text.encode(), path="plans/p.md").refusals(strict=False)
    except PlanUnreadable:
        return ""
    choice = re.search(r"write (format: [^`]+?) into .*runplan plan --file plans/p.md$", refusals[0].text)
    return choice[1] if choice else ""


AMBIGUOUS = [case for case in load_readings("readings.txt", only="! ") if offered_choice(case.values[0])]


@pytest.mark.parametrize(("text", "expected"), AMBIGUOUS)
def test_a_line_of_the_front_matter_settles_which_sections_are_the_phases(text: str, expected: str) -> None:
    plan = parse_plan(f"---\n{offered_choice(text)}\n---\n{text}".encode(), path="plans/p.md")
    phases = expected.partition(" | ")[0]
    assert (outline(plan, phases), plan.refusals(strict=False)) == (phases, ())


def test_most_ambiguous_plans_offer_such_a_line() -> None:
    assert len(AMBIGUOUS) > 15
