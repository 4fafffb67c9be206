"""The cards of the board: their group, their sentence, and the next action of a person."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.app.views.board import Action, Board, Card, Group, Usage, make_card, shorten_roots
from runplan.domain.run.kinds import PhaseStep, WaitKind
from runplan.domain.run.rows import FailureRow, PlanFacts, RunRow, ScheduleRow, Work
from runplan.engine.report.views import PhaseOutline, PlanOutline, by_need, status_view

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SINCE = "2026-01-01T11:50:00Z"
PLAN = "plans/x.md"
PHASES = (
    PhaseOutline("1", "Parser", "done", "abc1234", ()),
    PhaseOutline("2", "Printer", "todo", "", ("1",)),
    PhaseOutline("3", "Shop", "todo", "", ("2",), hindrance="waits for phase 2"),
)
SCHEDULE = ScheduleRow(plan=PLAN, spec="4h", zone="UTC", misfire="skip", request="{}", anchor=SINCE, made=SINCE)


def a_card(facts: PlanFacts, **outline: Any) -> Card:
    plan = PlanOutline(**{"title": "X", "phases": PHASES, **outline})
    (view,) = by_need([status_view(PLAN, plan, facts, landing="cherry-pick", now=NOW)])
    return make_card(view, "key", "shop", Usage())


def at_work(*lanes: Work, owner: str = "1:2:3", **run: Any) -> PlanFacts:
    work = {"state": "running", "phase": "2", "step": "verify", "since": SINCE, "agent": "codex", **run}
    row = RunRow(id="r1", plan=PLAN, started=SINCE, landing="cherry-pick", lanes=lanes, **work)
    return PlanFacts(run=row, owner=owner, alive=bool(owner))


def waits(kind: WaitKind, **more: Any) -> PlanFacts:
    return at_work(state="waiting", waiting_for=kind, about="something", **more)


FAILED = PlanFacts(run=at_work(state="failed").run, failures=(FailureRow("2", "tests-failed", "1 failed\nmore"),))


@pytest.mark.parametrize(
    ("facts", "group", "action"),
    [
        (PlanFacts(), Group.READY, Action("start", "Start …")),
        (at_work(), Group.RUNNING, Action("stop", "Stop")),
        (at_work(asked="stop"), Group.RUNNING, None),
        (at_work(owner=""), Group.NEEDS_YOU, Action("retry", "Continue")),
        (waits(WaitKind.APPROVAL), Group.NEEDS_YOU, Action("diff", "Review", "2")),
        (waits(WaitKind.SIGN_OFF), Group.NEEDS_YOU, Action("diff", "Review", "2")),
        (waits(WaitKind.QUESTION), Group.NEEDS_YOU, Action("answer", "Answer")),
        (waits(WaitKind.CHECKOUT), Group.NEEDS_YOU, Action("retry", "Continue")),
        (waits(WaitKind.KEY), Group.NEEDS_YOU, Action("resume", "Resume")),
        (waits(WaitKind.PAUSED), Group.SCHEDULED, Action("resume", "Resume")),
        (waits(WaitKind.LIMIT, wake="2026-01-01T13:00:00Z"), Group.RUNNING, Action("stop", "Stop")),
        (FAILED, Group.NEEDS_YOU, Action("retry", "Retry phase 2", "2")),
        (PlanFacts(schedule=SCHEDULE), Group.SCHEDULED, Action("now", "Run now")),
        (PlanFacts(queued="start"), Group.RUNNING, None),
    ],
    ids=[
        *("new", "running", "stopping", "interrupted", "change", "sign-off", "question", "checkout"),
        *("key", "paused", "limit", "failed", "schedule", "queued"),
    ],
)
def test_a_card_is_in_the_group_of_its_need_with_the_next_action(
    facts: PlanFacts, group: Group, action: Action | None
) -> None:
    card = a_card(facts)
    assert (card.group, card.action) == (group, action)


def test_a_change_of_one_lane_is_reviewed_while_another_one_works() -> None:
    busy = Work(phase="2", step=PhaseStep.IMPLEMENT, since=SINCE)
    lanes = (busy, Work(phase="3", since=SINCE, waiting_for=WaitKind.APPROVAL))
    assert a_card(at_work(*lanes)).action == Action("diff", "Review", "3")


def test_a_card_says_what_is_done_now_and_how_it_stands() -> None:
    card = a_card(at_work())
    assert (card.current, card.done, card.phases) == (
        "Phase 2 Printer: verify by codex",
        1,
        ("done", "running", "todo"),
    )
    assert card.sentence.startswith("Running: phase 2, verify for 10m")
    assert a_card(waits(WaitKind.QUESTION)).sentence == "Waits for you (question): something"
    assert a_card(FAILED).sentence == "Phase 2 failed (tests-failed): 1 failed"


@pytest.mark.parametrize(
    ("outline", "shown"),
    [
        ({"status": "complete", "complete": True}, (Group.FINISHED, "finished", "Finished")),
        ({"status": "deferred"}, (Group.FINISHED, "ready", "Deferred")),
        ({"phases": (), "error": "two phases have the id 1"}, (Group.READY, "failed", "Unreadable")),
    ],
    ids=["complete", "deferred", "unreadable"],
)
def test_a_plan_that_cannot_be_worked_says_why(outline: dict[str, Any], shown: tuple[Group, str, str]) -> None:
    card = a_card(PlanFacts(), **outline)
    assert (card.group, card.state, card.badge) == shown
    assert card.action is None


def test_what_waits_is_listed_before_what_failed() -> None:
    board = Board(cards=(a_card(FAILED), a_card(waits(WaitKind.APPROVAL))))
    assert [card.badge for card in board.list_group(Group.NEEDS_YOU)] == ["Needs you", "Failed"]


def test_finished_plans_are_listed_newest_first_and_schedules_by_their_next_time() -> None:
    ended = [at_work(state="done", since=f"2026-01-01T{hour}:00:00Z") for hour in ("08", "10", "09")]
    board = Board(cards=tuple(a_card(facts, complete=True) for facts in ended))
    assert [card.since[11:13] for card in board.list_group(Group.FINISHED)] == ["10", "09", "08"]
    rows = [("4h", None), ("1h", "a person paused it"), ("2h", None)]
    cards = tuple(a_card(PlanFacts(schedule=replace(SCHEDULE, spec=spec, paused=why))) for spec, why in rows)
    shown = [card.schedule["spec"] for card in Board(cards=cards).schedules if card.schedule]
    assert shown == ["every 2h", "every 4h", "every 1h"]


def test_repositories_have_short_names_that_differ() -> None:
    assert shorten_roots(["/home/a/shop", "/home/b/shop", "/home/b/api"]) == {
        "/home/a/shop": "/home/a/shop",
        "/home/b/shop": "/home/b/shop",
        "/home/b/api": "api",
    }
