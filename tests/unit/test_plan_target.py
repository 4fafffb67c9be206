"""The next phase is chosen from what the plan says."""

from __future__ import annotations

import pytest

from runplan.plan.model import Plan, parse
from runplan.plan.tracker import (
    AllBlocked,
    AllDone,
    AlreadyComplete,
    NeedsPhases,
    Next,
    NotFound,
    Obstacle,
    PhaseDone,
    choose,
)
from tests.support.plantext import a_plan


def plan(cells: str, *, front: str = "", **bodies: str) -> Plan:
    """A plan of cells like `1✅ 2⬚`; bodies are given as p2="Depends: 1"."""
    pairs = {cell[0]: cell[1:] for cell in cells.split()}
    return parse(a_plan(pairs, {key[1:]: body for key, body in bodies.items()}, front=front), path="p.md")


def chosen(plan: Plan, wanted: str | None = None) -> str:
    choice = choose(plan, wanted=wanted)
    assert isinstance(choice, Next)
    return choice.phase.id


@pytest.mark.parametrize(
    ("cells", "target"),
    [
        pytest.param("1✅ 2⬚ 3⬚", "2", id="E1"),
        pytest.param("1✅ 2🟡 3⬚", "2", id="E2-without-a-live-claim"),
        pytest.param("1✅ 2⬜ 3⬜", "2", id="E7"),
        pytest.param("1✅ 2🔴 3⬚", "3", id="blocked-is-passed-over"),
        pytest.param("3⬚ 1⬚", "3", id="tracker-order"),
    ],
)
def test_the_first_phase_that_can_be_worked_is_next(cells: str, target: str) -> None:
    assert chosen(plan(cells)) == target


def test_a_phase_that_waits_is_passed_over() -> None:
    assert chosen(plan("1⬚ 2⬚ 3⬚", p1="Depends: 3")) == "2"


def test_a_wish_holds_nobody_back() -> None:
    assert chosen(plan("1⬚ 2⬚", p1="### Dependencies\n\nPhase 2 should be complete.")) == "1"


def test_when_every_phase_is_done_the_plan_goes_to_completion() -> None:
    """E4, D20"""
    assert choose(plan("1✅ 2✅", front="---\nstatus: active\n---\n"), wanted=None) == AllDone()


def test_a_complete_plan_is_complete_whatever_its_rows_say() -> None:
    done = plan("1✅ 2⬚", front="---\nstatus: complete\n---\n")
    assert choose(done, wanted=None) == AlreadyComplete()
    assert choose(done, wanted="2") == AlreadyComplete()


def test_the_phase_asked_for_waits_for_what_it_depends_on() -> None:
    """E5"""
    waiting = plan("1✅ 2⬚ 3⬚", p3="Depends: 1, 2")
    choice = choose(waiting, wanted="3")
    assert choice == NeedsPhases(phase=waiting.phases[2], missing=("2",))


def test_a_blocked_row_is_left_and_said() -> None:
    """E8"""
    choice = choose(plan("1✅ 2🔴 3⬚ 4🟡", p3="Depends: 2", p4="Depends: 3"), wanted=None)
    assert choice == AllBlocked(
        why=(
            Obstacle(phase="2", missing=()),
            Obstacle(phase="3", missing=("2",)),
            Obstacle(phase="4", missing=("3",)),
        )
    )


def test_a_person_may_ask_for_a_blocked_phase() -> None:
    assert chosen(plan("1✅ 2🔴"), "2") == "2"


def test_a_phase_that_is_not_there_lists_those_that_are() -> None:
    """D37"""
    assert choose(plan("1✅ 2⬚"), wanted="9") == NotFound(ids=("1", "2"))


def test_a_phase_that_is_done_is_said_to_be() -> None:
    done = plan("1✅ 2⬚")
    assert choose(done, wanted="1") == PhaseDone(phase=done.phases[0])


def test_a_phase_is_found_in_any_case() -> None:
    assert chosen(plan("A⬚ B⬚"), "b") == "B"
