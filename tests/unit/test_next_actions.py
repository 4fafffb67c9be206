"""What a person can do next about a plan: one list for the terminal, the page and other agents."""

from typing import Any

import pytest
from msgspec.structs import replace

from runplan.domain.run.kinds import PhaseStep, WaitKind
from runplan.domain.run.rows import PlanFacts, RunRow, ScheduleRow, Work
from runplan.domain.standing.actions import NextAction, describe_actions, list_actions

SINCE = "2026-01-01T11:50:00Z"
PLAN = "plans/x.md"
SCHEDULE = ScheduleRow(plan=PLAN, spec="4h", zone="UTC", misfire="skip", request="{}", anchor=SINCE, made=SINCE)
PAUSED = replace(SCHEDULE, paused="a person paused it")


def at_work(*lanes: Work, owner: str = "1:2:3", schedule: ScheduleRow | None = None, **run: Any) -> PlanFacts:
    work = {"state": "running", "phase": "2", "step": "verify", "since": SINCE, **run}
    row = RunRow(id="r1", plan=PLAN, started=SINCE, landing="cherry-pick", lanes=lanes, **work)
    return PlanFacts(run=row, owner=owner, alive=bool(owner), schedule=schedule)


def waits(kind: str, **more: Any) -> PlanFacts:
    return at_work(state="waiting", waiting_for=WaitKind(kind), owner="", **more)


def ended(state: str, **more: Any) -> PlanFacts:
    return at_work(state=state, owner="", **more)


def actions(facts: PlanFacts, **known: Any) -> tuple[NextAction, ...]:
    given = {"failed": (), "following": None, "is_complete": False, "is_stuck": False, **known}
    return list_actions(PLAN, facts, **given)


CHANGE = ("diff 2", "approve 2", "reject 2 -m TEXT", "reject 2", "stop")
PROPOSAL = ("diff", "approve", "reject -m TEXT", "reject", "edit", "stop")
RETRY = ("retry", "retry --fresh")
BUSY = Work(phase="1", step=PhaseStep.IMPLEMENT, since=SINCE)
ASKS = Work(phase="3", since=SINCE, waiting_for=WaitKind.APPROVAL)
#: The facts, what else is known of the plan, and the verbs with their phases, the most useful first.
ACTIONS: dict[str, tuple[PlanFacts, dict[str, Any], tuple[str, ...]]] = {
    "new": (PlanFacts(), {"following": "1"}, ("start",)),
    "no phase is free": (PlanFacts(), {}, ()),
    "queued": (PlanFacts(queued="start"), {"following": "1"}, ()),
    "running": (at_work(), {}, ("stop", "pause")),
    "running with a schedule": (at_work(schedule=SCHEDULE), {}, ("stop", "pause")),
    "silent": (at_work(), {"is_stuck": True}, ("logs", "stop", "pause")),
    "stopping": (at_work(asked="stop"), {"is_stuck": True}, ()),
    "stopping, and its process is gone": (at_work(asked="stop", owner=""), {}, ("retry", "stop")),
    "pausing": (at_work(asked="pause"), {}, ("resume", "stop")),
    "paused while a change waits": (waits("approval", asked="pause"), {}, (*CHANGE[:-1], "resume", "stop")),
    "interrupted": (at_work(owner=""), {"is_stuck": True}, ("retry", "stop")),
    "interrupted while it waits": (waits("limit", wake=SINCE), {"is_stuck": True}, ("retry", "stop")),
    "its host of a fleet is dead": (replace(at_work(owner=""), in_fleet=True), {"is_stuck": True}, ("stop",)),
    "limit": (replace(waits("limit", wake=SINCE), alive=True), {}, ("stop",)),
    "approval": (waits("approval"), {}, CHANGE),
    "sign-off": (waits("sign-off"), {"is_stuck": True}, CHANGE),
    "proposal": (waits("approval", phase=None, step=PhaseStep.APPROVE), {}, PROPOSAL),
    "change with a schedule": (waits("approval", schedule=SCHEDULE), {}, (*CHANGE, "pause")),
    "change of one lane": (
        at_work(BUSY, ASKS, phase="1"),
        {},
        ("diff 3", "approve 3", "reject 3 -m TEXT", "reject 3", "stop", "pause"),
    ),
    "question": (waits("question", questions=("q1",)), {}, ("answer TEXT", "stop")),
    "questions": (waits("question", questions=("q1", "q2")), {}, ("answer q1 TEXT", "answer q2 TEXT", "stop")),
    "checkout": (waits("checkout"), {}, ("explain 2", "retry", "stop")),
    "review": (waits("review"), {}, ("explain 2", "retry", "stop")),
    "key": (waits("key"), {}, ("resume", "stop")),
    "paused": (waits("paused"), {}, ("resume", "stop")),
    "failed": (ended("failed"), {"failed": ("2",), "following": "2"}, (*RETRY, "retry 2", "report", "start")),
    "a failed phase of an earlier run": (ended("done"), {"failed": ("2",)}, ("retry 2",)),
    "stopped": (ended("stopped"), {"following": "2"}, (*RETRY, "report", "start")),
    "stopped, and completed by hand": (ended("stopped"), {"is_complete": True}, ("report",)),
    "complete": (ended("done"), {"is_complete": True}, ("report",)),
    "scheduled": (PlanFacts(schedule=SCHEDULE), {"following": "2"}, ("now", "pause", "stop")),
    "paused schedule": (PlanFacts(schedule=PAUSED), {"following": "2"}, ("resume", "now", "stop")),
    "failed, schedule paused": (ended("failed", schedule=PAUSED), {}, (*RETRY, "resume", "now", "stop", "report")),
}


@pytest.mark.parametrize(("facts", "known", "expected"), ACTIONS.values(), ids=list(ACTIONS))
def test_the_actions_of_a_plan(facts: PlanFacts, known: dict[str, Any], expected: tuple[str, ...]) -> None:
    shown = [action.command.removeprefix("runplan ") for action in actions(facts, **known)]
    assert tuple(words.replace(f" {PLAN}", "") for words in shown) == expected


def test_a_terminal_lists_what_something_calls_for_with_its_command() -> None:
    needed = [action for action in actions(ended("stopped"), following="2") if not action.is_usual]
    assert describe_actions(needed) == f"Retry: runplan retry {PLAN}; Report: runplan report {PLAN}"
    again = [action.command for action in actions(ended("failed", reason="no-progress")) if not action.is_usual]
    assert again == [f"runplan retry {PLAN}", f"runplan retry {PLAN} --fresh", f"runplan report {PLAN}"]
    assert all(action.is_usual for action in actions(PlanFacts(schedule=SCHEDULE)))
    assert [action.label for action in actions(at_work()) if action.confirm] == ["Stop"]
