"""The next phase is chosen from what the plan says."""

import pytest

from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.plan.model import Plan, parse_plan
from runplan.domain.plan.tracker import NoPhase, choose_phase
from runplan.domain.run.rules.lanes import list_ahead, list_startable
from tests.support.builders import a_plan, tracker


def plan(cells: str, *, front: str = "", **bodies: str) -> Plan:
    """A plan of cells like `1✅ 2⬚`; bodies are given as p2="Depends: 1"."""
    pairs = {cell[0]: cell[1:] for cell in cells.split()}
    return parse_plan(a_plan(pairs, {key[1:]: body for key, body in bodies.items()}, front=front), path="p.md")


def chosen(plan: Plan, wanted: str | None = None) -> str:
    choice = choose_phase(plan, wanted=wanted)
    assert not isinstance(choice, NoPhase), choice
    return choice.id


@pytest.mark.parametrize(
    ("found", "target"),
    [
        pytest.param(plan("1✅ 2⬚ 3⬚"), "2", id="E1"),
        pytest.param(plan("1✅ 2🟡 3⬚"), "3", id="E2-in-progress-is-passed-over"),
        pytest.param(plan("1✅ 2⬜ 3⬜"), "2", id="E7"),
        pytest.param(plan("1✅ 2🔴 3⬚"), "3", id="blocked-is-passed-over"),
        pytest.param(plan("3⬚ 1⬚"), "3", id="tracker-order"),
        pytest.param(plan("1⬚ 2⬚ 3⬚", p1="Depends: 3"), "2", id="one that waits is passed over"),
        pytest.param(plan("1⬚ 2⬚ 3⬚", p1="Execution: on the moon", p2="Depends: 1"), "3", id="unknown execution"),
        pytest.param(plan("1⬚ 2⬚", p1="### Dependencies\n\nPhase 2 should be complete."), "1", id="soft dependency"),
        *(
            pytest.param(plan("1✅ 2⬚", front=f"---\nstatus: {said}\n---\n"), "2", id=f"status: {said}")
            for said in ("", "Active", "'active'", "ready", "in progress", "in-progress")
        ),
    ],
)
def test_the_first_phase_that_can_be_worked_is_next(found: Plan, target: str) -> None:
    assert chosen(found) == target


COMPLETE = "---\nstatus: complete\n---\n"
ACTIVE = "---\nstatus: active\n---\n"
KNOWN = "which runplan does not know; it knows: worktree, direct, plan plans/SUB.md, delegate COMMAND"


@pytest.mark.parametrize(
    ("found", "wanted", "choice", "detail"),
    [
        pytest.param(plan("1✅ 2✅", front=ACTIVE), None, "all-done", "", id="E4, D20"),
        pytest.param(plan("1✅ 2⬚", front=COMPLETE), None, "complete", "the plan is already complete", id="complete"),
        pytest.param(plan("1✅ 2⬚", front=COMPLETE), "2", "complete", "the plan is already complete", id="asked for"),
        pytest.param(
            plan("1✅ 2⬚ 3⬚", p3="Depends: 1, 2"),
            *("3", "needs", "phase 3 depends on 2 (todo); first run: runplan start p.md 2"),
            id="E5",
        ),
        pytest.param(
            plan("1✅ 2🔴 3⬚ 4🟡", p3="Depends: 2", p4="Depends: 3"),
            *(None, "blocked"),
            "phase 2 is marked blocked; clear its status in the plan to allow work on it; phase 3 waits for 2; "
            "phase 4 waits for 3",
            id="E8",
        ),
        pytest.param(
            plan("1✅ 2🟡(Anna) 3⬚", p3="Depends: 2"),
            *(None, "elsewhere"),
            "phase 2 is marked in progress: Anna; to have it worked: runplan start p.md 2; phase 3 waits for 2",
            id="in progress, and what waits for it",
        ),
        pytest.param(
            plan("1✅ 2🟡 3🔴no-key"),
            *(None, "blocked"),
            "phase 2 is marked in progress; to have it worked: runplan start p.md 2; "
            "phase 3 is marked blocked: no-key; clear its status in the plan to allow work on it",
            id="in progress and blocked",
        ),
        pytest.param(
            plan("1✅ 2⬚", p2="Execution: on the moon"),
            *("2", "blocked", f"phase 2 asks for `Execution: on the moon`, {KNOWN}"),
            id="unknown execution, asked for",
        ),
        pytest.param(
            plan("1✅ 2⬚ 3⬚", p2="Execution: plan", p3="Depends: 2"),
            *(None, "blocked", f"phase 2 asks for `Execution: plan`, {KNOWN}; phase 3 waits for 2"),
            id="unknown execution",
        ),
        pytest.param(plan("1✅ 2⬚"), "9", "blocked", "there is no phase 9; there are: 1, 2", id="D37"),
        pytest.param(plan("1✅ 2⬚"), "1", "phase-done", "phase 1 is already done", id="done"),
    ],
)
def test_without_a_phase_to_work_the_reason_is_given(found: Plan, wanted: str | None, choice: str, detail: str) -> None:
    assert choose_phase(found, wanted=wanted) == NoPhase(NoWorkKind(choice), detail)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        *((word, word) for word in ("proposed", "draft", "deferred", "abandoned")),
        ("Draft  # later", "draft"),
        ("proposal", "proposed"),
    ],
)
@pytest.mark.parametrize("wanted", [None, "2"])
def test_a_plan_that_is_not_active_has_no_phase_to_work(said: str, status: str, wanted: str | None) -> None:
    found = plan("1✅ 2⬚", front=f"---\nstatus: {said}\n---\n")
    remedy = "to have it worked, write status: active in its front matter, and commit it"
    said_so = NoPhase(NoWorkKind.INACTIVE, f"the plan says status: {status}; {remedy}")
    assert choose_phase(found, wanted=wanted) == said_so
    assert list_startable(found, {}, limit=2) == []


@pytest.mark.parametrize("mark", ["🔴", "🟡"])
def test_a_person_may_ask_for_a_phase_that_is_passed_over(mark: str) -> None:
    found = plan(f"1✅ 2{mark}")
    assert chosen(found, "2") == "2"
    assert list_startable(found, {}, limit=2) == []
    assert list_ahead(found, {"1": ("a",)}, ["1"], {}, limit=2) == []


@pytest.mark.parametrize(
    ("header", "cells", "note"),
    [
        ("Phase | Status | Commit | Notes", "🔴 Blocked | | needs a licence", "needs a licence"),
        ("Phase | Status | Owner | Reason", "🟡 In Progress | Anna | on leave", "Anna; on leave"),
        ("Phase | Status | Commit | Notes", "⚙️ in_progress — by `ANNA_B` | | ", "by `ANNA_B`"),
        ("Phase | Status | Commit | Notes", "⬚ | | later", ""),
    ],
)
def test_the_row_of_a_phase_that_is_passed_over_says_why(header: str, cells: str, note: str) -> None:
    rows = tracker(f"| 1 | {cells} |", header=f"| {header} |")
    assert parse_plan(f"{rows}## Phase 1 — One\n".encode(), path="p.md").phases[0].note == note


def test_a_phase_is_found_in_any_case() -> None:
    assert chosen(plan("A⬚ B⬚"), "b") == "B"
