"""Plans as people write them: which phases are read, what is left out, and what only the author can settle."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, parse_plan

READINGS = Path(__file__).parents[1] / "plans/readings.txt"  #: it begins with the notation
SIGNS = {"done": "✅", "todo": "⬚", "in-progress": "🟡", "blocked": "🔴"}


def load_readings() -> Iterator[tuple[str, str, str]]:
    """Each plan of the file, with what is read of it and the sentence that it stands for."""
    for section in READINGS.read_text(encoding="utf-8").split("\n=== ")[1:]:
        sentence, *lines = section.rstrip("\n").split("\n")
        plan: list[str] = []
        for line in lines:
            if line.startswith("=> "):
                yield "\n".join([*plan, ""]), line.removeprefix("=> "), sentence
                plan = []
            else:
                plan.append(line)


ROWS = [(f"{number} {row[2]}", *row[:2]) for number, row in enumerate(load_readings(), 1)]


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


@pytest.mark.parametrize(("text", "expected"), [pytest.param(*row, id=id_) for id_, *row in ROWS])
def test_a_plan_is_read_as_its_author_meant_it_or_asks(text: str, expected: str) -> None:
    phases, *remarks = expected.split(" | ")
    if phases.startswith("refused: "):
        with pytest.raises(PlanUnreadable, match=phases.removeprefix("refused: ")):
            parse_plan(text.encode(), path="plans/p.md")
        return
    plan = parse_plan(text.encode(), path="plans/p.md")
    found = [(f"{remark.line}{'!' * remark.is_error}", remark.text) for remark in plan.remarks]
    assert outline(plan, phases) == phases
    assert [line for line, _ in found if "!" in line] == [line for line in map(first_word, remarks) if "!" in line]
    for remark in remarks:
        line, _, words = remark.partition(" ")
        assert any(line == place and words in text for place, text in found), plan.remarks


@pytest.mark.parametrize("text", [pytest.param(text, id=id_) for id_, text, expected in ROWS if "! " in expected])
def test_a_line_of_the_front_matter_settles_which_sections_are_the_phases(text: str) -> None:
    plan = parse_plan(text.encode(), path="plans/p.md")
    said = plan.refusals(strict=False)[0].text
    choice = re.search(r"write (format: [^`]+?) into", said)
    if choice is None:
        return
    assert said.endswith("runplan plan --file plans/p.md")
    settled = parse_plan(f"---\n{choice[1]}\n---\n{text}".encode(), path="plans/p.md")
    assert (outline(settled), settled.refusals(strict=False)) == (outline(plan), ())


def first_word(text: str) -> str:
    return text.partition(" ")[0]
