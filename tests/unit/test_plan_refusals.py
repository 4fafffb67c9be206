"""A plan that cannot be worked is refused with the file, the line and the remedy."""

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import parse_plan
from tests.support.builders import a_plan, tracker


def refusal(text: bytes | str) -> str:
    with pytest.raises(PlanUnreadable) as caught:
        parse_plan(text.encode() if isinstance(text, str) else text, path="plans/x.md")
    return str(caught.value)


NO_TEXT = "this is no UTF-8 text"
TWICE = "two phases are called '1', the first on line {}; rename one"
ONE_AND_TWO = tracker("| 1 | ⬚ | |", "| 2 | ⬚ | |")
CYCLE = a_plan(dict.fromkeys("1234", "⬚"), {"2": "Depends: 4", "3": "Depends: 2", "4": "Depends: 1, 3"})

#: The seven sections that plansmith demands of a plan.
PLANSMITH = (
    "# Goal\n\nA parser.\n\n## Scope\n\n- [ ] `src/parse.py`\n\n## Non-Scope\n\nSpeed.\n\n## Steps\n\n{}\n\n"
    "## Verification\n\n- [ ] `make test`\n\n## Risks\n\nNone.\n\n## Open Questions\n\nNone.\n"
)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        pytest.param(b"\0" * (50 * 1024 * 1024), 1, "the file has 50.0 MB and 0 lines, and a plan at most", id="huge"),
        pytest.param(b"# Plan\n\x7fELF\0\0", 2, NO_TEXT, id="binary"),
        pytest.param(b"\xef\xbb\xbf# Plan\n\nna\xefve\n", 3, NO_TEXT, id="not UTF-8"),
        *(
            pytest.param(text, 1, "no phases found", id=f"no phases: {text!r}")
            for text in ("", "\n", "---\n", "---\nstatus: active\n---\n", "# Title\n\nProse.\n", "\ufeff")
        ),
        ("# T\n\n```\n\n## Phase 1 — A\n", 1, "the fence opened on line 3 is never closed"),
        *(
            pytest.param(
                PLANSMITH.format(steps), 1, "or have agents write them: runplan plan --file plans/x.md", id=id_
            )
            for id_, steps in (("list", "1. Parse (S)\n2. Print (M)"), ("headings", "### Step 1: Parse\n\nDo it."))
        ),
        ("# T\n\n- Phase 1 – A\n  - a\n", 1, "no phases found (line 3 names one, but is no heading)"),
        ("## M1 — A\ntext\n## M2 — B\ntext\n", 1, "(nearest: 2 headings like 'M1 — A' on line 1); a plan has"),
        ("## Task Re-labelling\ntext\n", 1, "no phases found"),
        ("# T\n\n| Item | State |\n|--|--|\n| a | done |\n", 1, "(nearest: the table on line 3)"),
        ("## Definition of Done\n- [ ] a\n", 1, "(nearest: the boxes under 'Definition of Done')"),
        (tracker(), 3, "the tracker lists no phase"),
        (tracker("| 1 | ⬚ | |", "| 1 | ⬚ | |") + "## Phase 1\n", 6, TWICE.format(5)),
        ("## Phase 1 — A\n\n## Phase 1 — B\n", 3, TWICE.format(1)),
        ("## Phase 1 — A\n**Status:** ⬚\n\n## Phase 1 — B\n", 4, TWICE.format(1)),
        ("## Phase 1a — A\n**Status:** ⬚\n## Phase 1A — B\n", 3, "two phases are called '1A'"),
        ("- [ ] Phase 1 — a\n- [ ] Phase 1 — b\n", 2, TWICE.format(1)),
        (ONE_AND_TWO + "## Phase 1 — A\n\n## Phase 3 — C\n", 5,
         "the tracker lists the phases 1, 2; the '## Phase' headings are 1, 3; make them agree"),
        (ONE_AND_TWO, 5, "headings are none"),
        ("- [ ] Phase 1 — a\n\n## Phase 1 — A\n\n## Phase 2 — B\n", 1,
         "the checklist lists the phases 1; the '## Phase' headings are 1, 2"),
        (tracker("| 1 |") + "## Phase 1\n", 5, "the row of phase 1 has no Status cell"),
        (CYCLE, 24, "the phases wait for each other: 4 → 3 → 2 → 4;"),
        (a_plan({"1": "⬚"}, {"1": "Depends: 1"}), 9, "wait for each other: 1 → 1;"),
    ],
)  # fmt: skip
def test_a_plan_with_a_fault_is_refused_with_its_line(text: bytes | str, line: int, said: str) -> None:
    refused = refusal(text)
    assert refused.startswith(f"plans/x.md:{line}: ")
    assert said in refused


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
