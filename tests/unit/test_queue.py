"""The order of the queue, and which of its plans are ready."""

from typing import Any

import pytest

from runplan.domain.plan.model import NO_PRIORITY, parse_plan
from runplan.domain.run.kinds import RunStatus, WaitKind
from runplan.domain.run.rows import PlanFacts, RunRow, ScheduleRow
from runplan.domain.standing.phases import PhaseOutline, PlanOutline
from runplan.domain.standing.queue import PINNED, holds_up, move_plan, order_queue
from tests.support.cli import a_plan

LATER = "2026-11-18T02:00:00Z"
OPEN = (PhaseOutline("1", "", "todo", None, ()),)


def outline(**fields: Any) -> PlanOutline:
    return PlanOutline(**{"phases": OPEN, "status": "active", "priority": NO_PRIORITY, **fields})


def a_run(state: RunStatus, **fields: Any) -> RunRow:
    return RunRow(id="r1", plan="a", started="2026-11-18T00:00:00Z", landing="pr", state=state, **fields)


def waits(kind: str, **more: Any) -> PlanFacts:
    return PlanFacts(run=a_run(RunStatus.WAITING, waiting_for=WaitKind(kind), **more))


def test_plans_are_in_the_order_of_their_priority_then_age_then_name() -> None:
    plans = {
        "d": outline(),
        "c": outline(created="2026-11-02"),
        "b": outline(priority=2),
        "a": outline(priority=2, created="2026-11-01"),
        "x": outline(complete=True),
        "y": outline(status="draft"),
        "z": outline(error="no phases"),
    }
    assert [entry.plan for entry in order_queue(plans, {}, {})] == ["a", "b", "c", "d"]
    assert [entry.plan for entry in order_queue(plans, {}, {"d": 2})] == ["a", "d", "b", "c"]
    assert [entry.plan for entry in order_queue(plans, {}, {"d": 1, "c": PINNED})] == ["c", "d", "a", "b"]


def test_a_moved_plan_is_at_its_number_and_those_moved_before_follow() -> None:
    plans = {name: outline() for name in "abcd"}
    places: dict[str, int] = {}
    for plan, to in (("d", 1), ("c", 1), ("a", 4)):
        places = move_plan([entry.plan for entry in order_queue(plans, {}, places)], places, plan, to)
    assert [entry.plan for entry in order_queue(plans, {}, places)] == ["c", "d", "b", "a"]


def test_the_front_matter_of_a_plan_says_its_place_in_the_queue() -> None:
    front = "priority: high\ncreated: 2026-11-01\nafter: [plans/a.md, b]"
    plan = parse_plan(a_plan("1", front=front).encode(), path="x.md")
    assert (plan.priority, plan.created, plan.after) == (1, "2026-11-01", ("plans/a.md", "b"))
    odd = parse_plan(a_plan("1", front="priority: soon").encode(), path="x.md")
    assert [remark.text for remark in odd.remarks] == [
        "the queue cannot read priority: soon; write a number, 1 before 2, or critical, high, medium, low"
    ]


SCHEDULE = ScheduleRow(plan="a", spec="4h", zone="UTC", misfire="skip", request="{}", anchor="", made="")


@pytest.mark.parametrize(
    ("own", "facts", "why"),
    [
        ({}, PlanFacts(), ""),
        ({}, PlanFacts(run=a_run(RunStatus.DONE)), ""),
        ({"after": ("b",)}, PlanFacts(), "after plans/b.md"),
        ({"after": ("plans/done.md",)}, PlanFacts(), ""),
        ({"after": ("gone",)}, PlanFacts(), "after gone, which names 0 plans on the target"),
        ({}, PlanFacts(run=a_run(RunStatus.RUNNING)), "is worked on"),
        ({}, waits("approval"), "waits for you: approval"),
        ({}, waits("review", about="review of #1", wake=LATER), f"waits for you: review of #1, looks again {LATER}"),
        ({}, waits("limit", about="claude usage limit", wake=LATER), f"waits: claude usage limit, resets {LATER}"),
        ({}, PlanFacts(run=a_run(RunStatus.FAILED)), "its last run failed"),
        ({}, PlanFacts(queued="start"), "queued: start"),
        ({}, PlanFacts(refused=("2026-11-18T01:00:00Z", "start", "no")), "its last start was refused: no"),
        ({"phases": (PhaseOutline("1", "", "blocked", None, (), "is blocked"),)}, PlanFacts(), "phase 1 is blocked"),
    ],
)
def test_a_plan_is_ready_or_says_why_not(own: dict[str, Any], facts: PlanFacts, why: str) -> None:
    plans = {"a": outline(**own), "plans/b.md": outline(), "plans/done.md": outline(complete=True)}
    assert {entry.plan: entry.why for entry in order_queue(plans, {"a": facts}, {})}["a"] == why


def test_plans_with_a_schedule_and_sub_plans_are_not_in_the_queue() -> None:
    plans = {"a": outline(), "b": outline(subplans=("c",)), "c": outline()}
    assert [entry.plan for entry in order_queue(plans, {"a": PlanFacts(schedule=SCHEDULE)}, {})] == ["b"]


@pytest.mark.parametrize(
    ("run", "holds"),
    [
        (a_run(RunStatus.RUNNING), True),
        (a_run(RunStatus.WAITING, waiting_for=WaitKind.LIMIT, wake=LATER), True),
        (a_run(RunStatus.WAITING, waiting_for=WaitKind.KEY), True),
        (a_run(RunStatus.WAITING, waiting_for=WaitKind.CHECKS, wake=LATER), True),
        (a_run(RunStatus.WAITING, waiting_for=WaitKind.APPROVAL), False),
        (a_run(RunStatus.WAITING, waiting_for=WaitKind.REVIEW, wake=LATER), False),
        (a_run(RunStatus.FAILED), False),
    ],
)
def test_the_queue_waits_for_work_and_not_for_a_person(run: RunRow, *, holds: bool) -> None:
    assert holds_up(run) is holds
