"""What people read of runs and schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.cli.show.status import WATCH_S, watch
from runplan.cli.show.statustext import block, overview, short
from runplan.plan.model import parse
from runplan.report.views import Seen, status_view
from runplan.run.progress import Work
from runplan.run.rows import RunRow, ScheduleRow
from runplan.times import iso, zone
from tests.support.cli import a_plan

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MADE = iso(NOW - timedelta(minutes=105))
SCHEDULE = ScheduleRow(
    plan="plans/x.md", spec="4h", zone="Europe/Berlin", misfire="skip", request="{}", anchor=MADE, made=MADE
)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def a_run(minutes: float = 12, **more: Any) -> RunRow:
    told = {"state": "running", "phase": "1", "step": "implement", "attempt": 1, "outcome": None, "reason": None}
    facts = {**told, "waiting_for": None, "landing": "cherry-pick", "since": iso(ago(minutes)), **more}
    return RunRow(id="r1a2b3c4", plan="plans/x.md", started=iso(ago(60)), **facts)


def some_work(minutes: float = 12, retries: int = 1) -> Work:
    return Work(
        dispatch="r.1",
        agent="claude",
        version="2.1.0",
        dispatched=iso(ago(minutes)),
        retries=retries,
        tokens=120_345,
        usd=0.421,
    )


def view(seen: Seen) -> dict[str, Any]:
    plan = parse(a_plan("1", "2").encode(), path="plans/x.md")
    return status_view(plan, seen, landing="cherry-pick", now=NOW, zone=zone("Europe/Berlin"))


def lines(seen: Seen) -> list[str]:
    return block(view(seen), now=NOW, zone=zone("Europe/Berlin")).splitlines()


def at_work(**more: Any) -> Seen:
    outputs = {"r.1": more.pop("output", ago(0.5))}
    told = {"run": a_run(), "work": some_work(), "outputs": outputs, "owner": "1:2:3", "alive": True, **more}
    return Seen(**told)


def test_a_run_at_work_says_who_does_what_since_when_and_at_what_cost() -> None:
    assert lines(at_work(schedule=SCHEDULE))[3:] == [
        "  run r1a2b3c4: phase 1, implement by claude 2.1.0, since 2026-01-01T11:48:00Z",
        "  so far: 1 retry, 120.3k tokens, $0.42",
        "  every 4h  next 15:15 CET in 2h 15m",
        "  Going on: phase 1, implement for 12m, agent running 12m, last output 30s ago, 1 retry",
    ]


def test_phases_side_by_side_have_a_line_and_a_row_each_and_the_worst_of_them_is_told() -> None:
    one = replace(some_work(12), phase="1", step="implement", since=iso(ago(12)))
    two = Work(dispatch="r.2", dispatched=iso(ago(40)), phase="2", step="gate", since=iso(ago(40)))
    lost = Work(phase="3", failed="agent-failed", since=iso(ago(5)))
    seen = at_work(run=a_run(phase="1"), work=replace(one, lanes=(one, two, lost)))

    assert [phase["status"] for phase in view(seen)["phases"]] == ["in-progress", "in-progress"]
    assert lines(seen)[3:7] == [
        "  run r1a2b3c4: phases 1, 2 side by side",
        "    phase 1: implement by claude 2.1.0, since 2026-01-01T11:48:00Z",
        "    phase 2: gate, since 2026-01-01T11:20:00Z",
        "    phase 3: failed (agent-failed), so nothing new begins",
    ]
    assert view(seen)["run"]["stuck"]["sentence"].startswith("Have a look: phase 2, gate for 40m")
    (table,) = overview([view(seen)], now=NOW)
    assert [row.split()[1:3] for row in table.splitlines()] == [
        ["PHASE", "STEP"],
        ["1", "implement"],
        ["2", "gate"],
        ["3", "failed"],
    ]


def test_a_run_whose_agent_may_have_to_hand_over_says_so() -> None:
    """S8"""
    seen = at_work(work=replace(some_work(), context=52))
    assert lines(seen)[3].endswith(
        "implement by claude 2.1.0, since 2026-01-01T11:48:00Z; context 52 %, hand-over armed"
    )
    assert (view(seen)["run"]["context"], view(seen)["run"]["handover"]) == (52, "armed")
    assert (view(at_work())["run"]["context"], view(at_work())["run"]["handover"]) == (None, None)


@pytest.mark.parametrize(
    ("seen", "level"),
    [
        (at_work(), "fine"),
        (at_work(run=a_run(30), work=some_work(30)), "slow"),
        (at_work(work=some_work(retries=2)), "slow"),
        (at_work(run=a_run(31), work=some_work(31, retries=2)), "look"),
        (at_work(output=ago(16), work=some_work(20), run=a_run(20)), "look"),
        (at_work(alive=False), "look"),
        (at_work(run=a_run(state="waiting", waiting_for="approval")), "look"),
        (at_work(run=a_run(state="waiting", waiting_for="limit", wake=iso(NOW + timedelta(hours=1)))), "fine"),
        (at_work(run=a_run(state="waiting", waiting_for="limit", wake=iso(ago(10)))), "look"),
    ],
)
def test_whether_it_is_stuck_is_answered_from_what_is_known(seen: Seen, level: str) -> None:
    told = view(seen)["run"]["stuck"]
    assert told["level"] == level
    assert lines(seen)[-1] == f"  {told['sentence']}"
    assert told["sentence"].startswith({"fine": "Going on", "slow": "Slow", "look": "Have a look"}[level])


def test_a_run_that_waits_for_a_person_is_not_called_interrupted() -> None:
    seen = at_work(run=a_run(state="waiting", waiting_for="paused", about="paused by uma"), work=Work(), alive=False)
    told = "\n".join(lines(seen))
    assert "interrupted" not in told
    assert "run r1a2b3c4: paused by uma (phase 1, implement, since " in told
    assert told.endswith("  Have a look: phase 1, implement, paused for 12m by uma")
    assert "to let it go on: runplan resume plans/x.md" in told


def test_what_a_person_asked_for_is_told_before_it_has_come_to_that() -> None:
    stops, pauses = (at_work(work=replace(some_work(), asked=what)) for what in ("stop", "pause"))
    noted = at_work(wished="stop")
    for seen in (stops, noted):
        assert lines(seen)[3] == "  run r1a2b3c4: stopping (phase 1, implement, since 2026-01-01T11:48:00Z)"
        assert lines(seen)[-1].startswith("  Stopping: phase 1, implement for 12m, agent running 12m")
        assert view(seen)["run"]["asked"] == "stop"
        (table,) = overview([view(seen)], now=NOW)
        assert table.splitlines()[1].split()[:3] == ["plans/x.md", "1", "stopping"]
    assert lines(pauses)[3].endswith("claude 2.1.0, since 2026-01-01T11:48:00Z; pauses after that")
    assert lines(pauses)[-1].startswith("  Pausing: phase 1")
    assert view(replace(pauses, run=a_run(state="waiting", waiting_for="paused")))["run"]["asked"] is None
    assert view(replace(stops, run=a_run(state="stopped", outcome="stopped")))["run"]["asked"] is None


def test_nobody_is_asked_about_a_run_that_has_ended() -> None:
    told = view(Seen(run=a_run(state="done", outcome="done"), work=Work(tokens=5)))
    assert (told["run"]["stuck"], told["run"]["tokens"], told["claim"]) == (None, 5, None)
    assert overview([told], now=NOW) == []


def test_a_schedule_that_rests_says_why() -> None:
    paused = replace(SCHEDULE, paused="phase 1 failed (timeout)")
    assert view(Seen(schedule=paused))["schedule"] == {
        "spec": "every 4h",
        "next": "2026-01-01T14:15:00Z",
        "paused": "phase 1 failed (timeout)",
        "due": False,
    }
    assert lines(Seen(schedule=paused))[-1] == (
        "  every 4h  paused: phase 1 failed (timeout); else next 15:15 CET in 2h 15m"
    )
    unknown = replace(SCHEDULE, spec="full moon")
    assert lines(Seen(schedule=unknown))[-1] == "  every full moon  next when, cannot be told here"


def test_the_table_has_a_line_for_every_run_in_flight() -> None:
    limited = a_run(state="waiting", waiting_for="limit", wake=iso(NOW + timedelta(hours=1)))
    views = [
        view(at_work(schedule=SCHEDULE)),
        view(Seen()),
        view(at_work(schedule=replace(SCHEDULE, paused="phase 1 failed"))),
        view(Seen(run=limited, work=Work(), owner="1:2:3", alive=True)),
        view(Seen(run=a_run(state="queued", phase=None, step=None, waiting_for="slot"), owner="1:2:3", alive=True)),
    ]
    views.append(view(at_work(alive=False)))
    (table,) = overview(views, now=NOW)
    assert [" ".join(line.split()) for line in table.splitlines()] == [
        "PLAN PHASE STEP AGENT SINCE RUNNING OUTPUT RETRIES TOKENS COST NEXT",
        "plans/x.md 1 implement claude 2.1.0 12m 12m 30s 1 120.3k $0.42 in 2h 15m",
        "plans/x.md 1 implement claude 2.1.0 12m 12m 30s 1 120.3k $0.42 -",
        "plans/x.md 1 limit - 12m - - 0 0 $0.00 in 1h",
        "plans/x.md - slot - 12m - - 0 0 $0.00 -",
        "plans/x.md 1 interrupted claude 2.1.0 12m 12m 30s 1 120.3k $0.42 -",
    ]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (12_345, "12.3k"),
        (999_949, "999.9k"),
        (999_950, "1M"),
        (4_560_000, "4.6M"),
    ],
)
def test_large_numbers_are_short(count: int, said: str) -> None:
    assert short(count) == said


@pytest.mark.parametrize(
    ("terminal", "as_json", "shown"),
    [
        (True, False, "\x1b[H\x1b[Jfirst\n\x1b[H\x1b[Jsecond\n"),  # and nothing that was there before is erased
        (False, False, "first\n\nsecond\n\n"),
        (False, True, "first\nsecond\n"),
    ],
    ids=["in place", "block after block", "line after line"],
)
def test_watching_tells_it_again_until_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], terminal: bool, as_json: bool, shown: str
) -> None:
    texts = iter(["first", "second"])
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    assert watch(lambda: next(texts), wait, terminal=terminal, json=as_json) == 0
    assert capsys.readouterr().out == shown
    assert waits == [WATCH_S, WATCH_S]
