"""A plan that cannot be worked is refused with the file, the line and the remedy."""

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import parse_plan
from tests.support.builders import a_plan
from tests.support.readings import load_readings


def refusal(text: bytes | str) -> str:
    with pytest.raises(PlanUnreadable) as caught:
        parse_plan(text.encode() if isinstance(text, str) else text, path="plans/x.md")
    return str(caught.value)


NO_TEXT = "this is no UTF-8 text"
#: What has no place in a file of texts.
BYTES: list[tuple[bytes, str]] = [
    (b"\0" * (50 * 1024 * 1024), "1: the file has 50.0 MB and 0 lines, and a plan at most"),
    (b"# Plan\n\x7fELF\0\0", f"2: {NO_TEXT}"),
    (b"\xef\xbb\xbf# Plan\n\nna\xefve\n", f"3: {NO_TEXT}"),
    *((text, "1: no phases found") for text in (b"", b"\n", b"\xef\xbb\xbf")),
]


@pytest.mark.parametrize(("text", "said"), [*BYTES, *load_readings("refusals.txt")], ids=lambda value: str(value)[:40])
def test_a_plan_with_a_fault_is_refused_with_its_line(text: bytes | str, said: str) -> None:
    line, _, words = said.partition(": ")
    refused = refusal(text)
    assert refused.startswith(f"plans/x.md:{line}: ")
    assert words in refused


def test_a_cycle_through_a_done_phase_is_accepted() -> None:
    plan = parse_plan(a_plan({"1": "✅", "2": "⬚"}, {"1": "Depends: 2", "2": "Depends: 1"}), path="p.md")
    assert [phase.depends for phase in plan.phases] == [("2",), ("1",)]


@pytest.mark.parametrize("body", ["Depends: 1, 8", "Depends on: phase 8", "### Dependencies\n\nPhase 8."])
def test_a_dependency_on_an_unknown_phase_is_refused(body: str) -> None:
    said = refusal(a_plan({"1": "⬚", "2": "⬚"}, {"2": body}))
    assert "phase 2 depends on phase 8, which is not among 1, 2;" in said


def test_an_unknown_dependency_of_a_done_phase_is_a_remark() -> None:
    plan = parse_plan(a_plan({"1": "✅"}, {"1": "Depends: 8"}), path="p.md")
    assert [remark.text for remark in plan.remarks] == ["phase 1 depends on phase 8, which the plan does not have"]


def test_executable_false_is_refused() -> None:
    with pytest.raises(PlanUnreadable, match=r"X\.md:2: the plan says executable: false"):
        parse_plan(a_plan({"1": "⬚"}, front="---\nexecutable: false\n---\n"), path="X.md")


@pytest.mark.parametrize(
    "entry", ["status: |\n  active", "status: >-\n  active", "status:\n  - active", "completed:\n  at: noon"]
)
def test_front_matter_that_could_not_be_set_at_the_end_is_refused_at_the_beginning(entry: str) -> None:
    said = refusal(a_plan({"1": "⬚"}, front=f"---\n{entry}\n---\n"))
    key = entry.partition(":")[0]
    assert said.startswith(f"plans/x.md:2: {key} has a block as its value, which runplan cannot change")
