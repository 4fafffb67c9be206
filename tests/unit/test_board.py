"""The cards of the board: their group, their sentence, and the next action of a person."""

from typing import Any

import pytest
from msgspec.structs import replace

from runplan.app.views.board import Board, Card, shorten_roots
from runplan.app.views.status import PlanState, view_plan
from runplan.domain.run.kinds import WaitKind
from runplan.domain.run.rows import FailureRow, PlanFacts, RunRow, ScheduleRow, Work
from runplan.domain.standing.phases import PhaseOutline, PlanOutline
from tests.support.builders import NOW

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
    return Card(repo="key", repository="shop", view=view_plan(PLAN, plan, facts, landing="cherry-pick", now=NOW))


def at_work(*lanes: Work, owner: str = "1:2:3", **run: Any) -> PlanFacts:
    work = {"state": "running", "phase": "2", "step": "verify", "since": SINCE, "agent": "codex", **run}
    row = RunRow(id="r1", plan=PLAN, started=SINCE, landing="cherry-pick", lanes=lanes, **work)
    return PlanFacts(run=row, owner=owner, alive=bool(owner))


def waits(kind: WaitKind, **more: Any) -> PlanFacts:
    return at_work(state="waiting", waiting_for=kind, about="something", **more)


FAILED = PlanFacts(run=at_work(state="failed").run, failures=(FailureRow("2", "tests-failed", "1 failed\nmore"),))


@pytest.mark.parametrize(
    ("facts", "group"),
    [(PlanFacts(), PlanState.OPEN), (waits(WaitKind.APPROVAL), PlanState.WAITING), (FAILED, PlanState.WAITING)],
    ids=["new", "change", "failed"],
)
def test_a_card_is_in_the_group_of_its_state(facts: PlanFacts, group: PlanState) -> None:
    assert a_card(facts).group is group


def test_a_card_says_what_is_done_now_and_how_it_stands() -> None:
    card = a_card(at_work())
    assert (card.current, card.view.done) == ("Phase 2 Printer: verify by codex", 1)
    assert card.view.words.startswith("Running: phase 2, verify for 10m")
    full = a_card(at_work(context=55, tools=2))
    assert full.current == "Phase 2 Printer: verify by codex, context 55 % full, 2 tool calls"
    assert a_card(waits(WaitKind.QUESTION)).view.words == "Needs attention: phase 2, verify, waiting 10m: something"
    assert a_card(FAILED).view.words == "Phase 2 failed (tests-failed): 1 failed"
    refused = replace(FAILED, refused=("2026-01-01T11:55:00Z", "start", "it is busy"))
    assert a_card(refused).view.words == "The last start was refused: it is busy", "it is newer than the failure"


def test_the_current_step_says_it_all_only_of_a_run_that_works() -> None:
    assert a_card(at_work()).is_told
    asked = [at_work(asked=verb) for verb in ("stop", "pause")]
    lanes = at_work(Work(phase="2", since=SINCE, waiting_for=WaitKind.HOURS))
    for facts in (*asked, lanes, *map(waits, (WaitKind.PAUSED, WaitKind.LIMIT, WaitKind.APPROVAL)), PlanFacts()):
        assert not a_card(facts).is_told


@pytest.mark.parametrize(
    ("phase", "facts", "state", "words"),
    [
        ({"status": "done", "commit": "abc1234"}, PlanFacts(), "done", "done (abc1234)"),
        ({}, FAILED, "failed", "failed (tests-failed)"),
        ({}, at_work(), "running", "running: verify"),
        ({}, waits(WaitKind.LIMIT), "running", "waits for limit"),
        ({}, waits(WaitKind.APPROVAL), "waiting", "waits for approval"),
        ({"depends": ("0",), "hindrance": "waits for 0"}, PlanFacts(), "todo", "after 0"),
        ({"hindrance": "has no text"}, PlanFacts(), "blocked", "blocked"),
        ({"status": "in-progress", "hindrance": "is in progress"}, PlanFacts(), "elsewhere", "in progress elsewhere"),
        ({}, PlanFacts(), "next", "next"),
        ({}, PlanFacts(), "todo", "todo"),
    ],
)
def test_a_phase_has_a_state_and_words_for_it(phase: dict[str, Any], facts: PlanFacts, state: str, words: str) -> None:
    fields = {"id": "2", "title": "Printer", "status": "todo", "commit": None, "depends": (), **phase}
    first = [PhaseOutline("1", "Parser", "todo", None, ())] if words == "todo" else []
    shown = a_card(facts, phases=(*first, PhaseOutline(**fields))).view.phases[-1]
    assert (shown.state, shown.words) == (state, words)


@pytest.mark.parametrize(
    ("outline", "shown"),
    [
        ({"status": "complete", "complete": True}, (PlanState.DONE, "finished", "Finished")),
        ({"status": "deferred"}, (PlanState.DONE, "ready", "Deferred")),
        ({"phases": (), "error": "two phases have the id 1"}, (PlanState.OPEN, "failed", "Unreadable")),
    ],
    ids=["complete", "deferred", "unreadable"],
)
def test_a_plan_that_cannot_be_worked_says_why(outline: dict[str, Any], shown: tuple[PlanState, str, str]) -> None:
    card = a_card(PlanFacts(), **outline)
    assert (card.group, *card.look) == shown
    assert card.action is None


def test_what_waits_is_listed_before_what_failed() -> None:
    board = Board(cards=(a_card(FAILED), a_card(waits(WaitKind.APPROVAL))))
    assert [card.look[1] for card in board.list_group(PlanState.WAITING)] == ["Needs you", "Failed"]


def test_finished_plans_are_listed_newest_first_and_schedules_by_their_next_time() -> None:
    ended = [at_work(state="done", since=f"2026-01-01T{hour}:00:00Z") for hour in ("08", "10", "09")]
    board = Board(cards=tuple(a_card(facts, complete=True) for facts in ended))
    assert [card.since[11:13] for card in board.list_group(PlanState.DONE)] == ["10", "09", "08"]
    rows = [("4h", None), ("1h", "a person paused it"), ("2h", None)]
    cards = tuple(a_card(PlanFacts(schedule=replace(SCHEDULE, spec=spec, paused=why))) for spec, why in rows)
    shown = [card.view.schedule.spec for card in Board(cards=cards).schedules if card.view.schedule]
    assert shown == ["every 2h", "every 4h", "every 1h"]


def test_repositories_have_short_names_that_differ() -> None:
    shops = {"/home/a/shop": "/home/a/shop", "/home/b/shop": "/home/b/shop"}
    assert shorten_roots([*shops, "/home/b/api"]) == {**shops, "/home/b/api": "api"}
