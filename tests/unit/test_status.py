"""The text of `status` about runs and schedules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.app.views.status import (
    PhaseFailure,
    PlanState,
    PlanView,
    RunView,
    count_plans,
    describe_schedule,
    view_plan,
    view_schedule,
    view_work,
)
from runplan.domain.run.kinds import Mode, PhaseStep, WaitKind
from runplan.domain.run.rows import FailureRow, PlanFacts, RunRow, ScheduleRow, Work, WorkProgress
from runplan.domain.standing.phases import PhaseOutline, PlanOutline
from runplan.domain.times import iso
from runplan.engine.loop.context import parse_outline
from runplan.interfaces.cli.show.status import Page
from runplan.interfaces.cli.terminal import Style
from tests.support.cli import a_plan

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MADE = iso(NOW - timedelta(minutes=105))
SCHEDULE = ScheduleRow(
    plan="plans/x.md", spec="4h", zone="Europe/Berlin", misfire="skip", request="{}", anchor=MADE, made=MADE
)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def a_run(minutes: float = 12, **more: Any) -> RunRow:
    facts = {"state": "running", "phase": "1", "step": "implement", "since": iso(ago(minutes)), **more}
    return RunRow(id="r1a2b3c4", plan="plans/x.md", started=iso(ago(60)), landing="cherry-pick", **facts)


def busy(minutes: float = 12, *, quiet: float = 0.5, **more: Any) -> RunRow:
    """A run with an agent at work."""
    facts = {"retries": 1, "tokens": 120_345, "usd": 0.421, "output": iso(ago(quiet)), **more}
    return a_run(minutes, dispatch="r.1", agent="claude", dispatched=iso(ago(minutes)), **facts)


def view(facts: PlanFacts) -> PlanView:
    outline = parse_outline(a_plan("1", "2").encode(), "plans/x.md")
    return view_plan("plans/x.md", outline, facts, landing="cherry-pick", now=NOW)


def run_of(facts: PlanFacts) -> RunView:
    run = view(facts).run
    assert run is not None
    return run


def lines(facts: PlanFacts, style: Style | None = None) -> list[str]:
    return Page(style or Style(), NOW).render_plan(view(facts)).splitlines()


def at_work(run: RunRow | None = None, **more: Any) -> PlanFacts:
    return PlanFacts(**{"run": run or busy(), "owner": "1:2:3", "alive": True, **more})


def test_a_run_at_work_says_who_does_what_since_when_and_at_what_cost() -> None:
    assert lines(at_work()) == [
        "X  (plans/x.md, active, 0 of 2 done)",
        "  1  Running: implement  Step 1",
        "  2  Todo                Step 2",
        "  Running: phase 1, implement for 12m, agent running 12m, last output 30s ago, 1 retry",
        "  Run r1a2b3c4: claude, 120,345 tokens, $0.42",
    ]


def test_a_run_in_a_fleet_names_its_host_and_needs_no_command_when_that_dies() -> None:
    kept = "only the host alpha has the newest work: a.txt: looks like a secret"
    owned: dict[str, Any] = {"run": busy(kept=kept), "owner": "alpha/1:2:3", "in_fleet": True}
    assert f"  Not pushed: {kept}" in lines(at_work(**owned))
    assert lines(at_work(**owned))[-1] == "  Run r1a2b3c4 on alpha: claude, 120,345 tokens, $0.42"
    assert lines(at_work(**owned, alive=False))[-1] == "  Run r1a2b3c4: claude, 120,345 tokens, $0.42"


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"usd": 0.421}, "120,345 tokens, $0.42"),
        ({"usd": 0.421, "unpriced": True}, "120,345 tokens, ≥ $0.42"),
        ({"usd": 0.0, "unpriced": True}, "120,345 tokens, cost -"),
        ({"tokens": 900, "usd": 0.02, "estimated": True}, "≈ 900 tokens, ≈ $0.02"),
    ],
    ids=["all reported", "one left out", "none reported", "an estimate"],
)
def test_a_sum_of_costs_says_what_it_leaves_out(fields: dict[str, Any], shown: str) -> None:
    assert lines(at_work(busy(**fields)))[-1].endswith(f" {shown}")


def test_colours_and_width_are_those_of_the_terminal() -> None:
    shown = lines(at_work(), Style(colour=True, width=60))
    assert shown[1] == "  1  \x1b[36;1mRunning: implement\x1b[0m  Step 1"
    assert shown[3:5] == [
        "\x1b[32m  Running\x1b[0m: phase 1, implement for 12m, agent running 12m,",
        "    last output 30s ago, 1 retry",
    ]


def test_no_line_is_wider_than_the_terminal() -> None:
    schedule = replace(SCHEDULE, spec="weekday at 9:30")
    wide = replace(view(at_work(schedule=schedule)), title="A title that is too long for it")
    shown = Page(Style(width=30), NOW).render_plan(wide).splitlines()
    assert shown[:3] == ["A title that is too long for", "    it  (plans/x.md, active, 0", "    of 2 done)"]
    unreadable = replace(wide, phases=(), error="plans/x.md:3: the phases 1, 2 have no tracker")
    shown += Page(Style(width=30), NOW).render_plan(unreadable).splitlines()
    assert max(map(len, shown)) <= 30, shown


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Paused. Resume with: runplan resume X", ["Paused.", "  Resume with: runplan resume X"]),
        ("See: runplan diff X; Do: runplan approve X", ["See: runplan diff X;", "  Do: runplan approve X"]),
        ("a long sentence without any command", ["a long sentence without", "  any command"]),
    ],
)
def test_lines_break_between_words_and_never_within_a_command(text: str, lines: list[str]) -> None:
    assert Style(width=24).wrap(text, "  ").splitlines() == lines


def test_parallel_phases_have_a_line_each_and_the_worst_is_reported() -> None:
    one = Work(phase="1", step=PhaseStep.IMPLEMENT, agent="claude", dispatched=iso(ago(12)), since=iso(ago(12)))
    two = Work(dispatch="r.2", dispatched=iso(ago(40)), since=iso(ago(40)), phase="2", step=PhaseStep.GATE)
    lost = Work(phase="3", failed="agent-failed")
    seen = at_work(busy(lanes=(one, two, lost)))
    assert [phase.status for phase in view(seen).phases] == ["in-progress", "in-progress"]
    assert lines(seen)[3].startswith("  Needs attention: phase 2, gate for 40m")
    assert lines(seen)[4:7] == [
        "    phase 1: implement by claude for 12m",
        "    phase 2: gate for 40m",
        "    phase 3: failed (agent-failed), so no further phase starts",
    ]


def test_a_paused_lane_beside_a_running_one_names_the_command_that_resumes_it() -> None:
    works = Work(phase="1", step=PhaseStep.IMPLEMENT, agent="claude", dispatched=iso(ago(12)), since=iso(ago(12)))
    rests = Work(phase="2", step=PhaseStep.GATE, since=iso(ago(12)), waiting_for=WaitKind.PAUSED, about="paused by uma")
    shown = lines(at_work(busy(asked="pause", lanes=(works, rests))))
    assert shown[5] == "    phase 2: waiting (paused by uma)"
    assert shown[-1] == "  Resume: runplan resume plans/x.md"


def test_a_run_that_waits_for_a_person_is_not_called_interrupted() -> None:
    seen = at_work(a_run(state="waiting", waiting_for="paused", about="paused by uma"), alive=False)
    assert lines(seen)[3:] == [
        "  Paused: phase 1, implement, for 12m by uma",
        "  Run r1a2b3c4",
        "  Resume: runplan resume plans/x.md",
    ]


def test_an_interrupted_run_says_how_to_continue() -> None:
    shown = lines(at_work(a_run(), alive=False))
    assert "interrupted; no process is working on it" in shown[3]
    assert shown[-1] == "  Continue: runplan retry plans/x.md"
    limited = a_run(state="waiting", waiting_for="limit", wake=iso(NOW + timedelta(hours=1)))
    assert lines(at_work(limited, alive=False))[-1] == shown[-1]


def test_a_pending_request_is_shown() -> None:
    stops, pauses = (at_work(busy(asked=what)) for what in ("stop", "pause"))
    for seen in (stops, at_work(queued="stop")):
        assert lines(seen)[3].startswith("  Stopping: phase 1, implement for 12m, agent running 12m")
        assert run_of(seen).asked == "stop"
    assert lines(pauses)[3].startswith("  Pausing: phase 1")
    assert run_of(at_work(busy(asked="pause", state="waiting", waiting_for="paused"))).asked is None
    assert run_of(at_work(busy(asked="stop", state="stopped", outcome="stopped"))).asked is None


def test_a_failed_phase_says_why_and_how_to_retry_it() -> None:
    output = "collecting\na\nb\n\nNo module named pytest"
    failure = FailureRow("1", "tests-failed", "2 tests failed\nin tests/test_x.py", output)
    seen = PlanFacts(run=a_run(state="failed", outcome="failed", reason="tests-failed"), failures=(failure,))
    retry = "Retry: runplan retry plans/x.md; Retry phase 1: runplan retry plans/x.md 1"
    assert lines(seen)[1:] == [
        *("  1  Failed (tests-failed)  Step 1", "     2 tests failed"),
        *("     a", "     b", "     No module named pytest", "  2  Todo                   Step 2"),
        "  Last run r1a2b3c4: failed (tests-failed) 12m ago",
        f"  {retry}; Report: runplan report plans/x.md",
    ]
    first, second = view(seen).phases
    command = "runplan retry plans/x.md 1"
    assert (first.status, second.failed) == ("todo", None)
    assert first.failed == PhaseFailure(reason="tests-failed", why="2 tests failed", output=output, command=command)
    assert view(at_work(failures=(failure,))).phases[0].failed is None, "it is worked on again"


LONG = ["one two three four five six seven"] * 2


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        (
            "No space is left; to use another, set run.worktrees",
            ["No space is left; to use another,", "set run.worktrees"],
        ),
        ("one two three four five six seven " * 5, [*LONG, "one two three four five six seven …"]),
    ],
    ids=["whole", "cut"],
)
def test_the_reason_of_a_failure_has_at_most_three_lines(why: str, shown: list[str]) -> None:
    seen = PlanFacts(run=a_run(state="failed"), failures=(FailureRow("1", "setup-failed", why),))
    printed = lines(seen, Style(width=40))
    end = next(number for number, line in enumerate(printed) if line.startswith("  2  "))
    assert printed[2:end] == [f"     {line}" for line in shown]


FAILURE = (FailureRow("1", "timeout", "claude was stopped"),)
ENDED = a_run(state="done", outcome="done")
PAUSED = a_run(state="waiting", waiting_for="paused", about="paused by uma")
#: The need of a plan with these facts, the most urgent first.
NEEDS = {
    "approval": (at_work(a_run(state="waiting", waiting_for="approval")), "waiting"),
    "interrupted": (at_work(a_run(), alive=False), "waiting"),
    "silent": (at_work(busy(60, quiet=60)), "waiting"),
    "failed run": (PlanFacts(run=a_run(state="failed", outcome="failed")), "failed"),
    "failed phase, another one landed": (PlanFacts(run=ENDED, failures=FAILURE), "failed"),
    "failed phase with a schedule": (PlanFacts(run=ENDED, failures=FAILURE, schedule=SCHEDULE), "failed"),
    "at work": (at_work(), "running"),
    "at work again, its phase is not chosen yet": (replace(at_work(a_run(phase=None)), failures=FAILURE), "running"),
    "failed run, its retry is queued": (PlanFacts(run=a_run(state="failed"), queued="retry"), "running"),
    "limit": (at_work(a_run(state="waiting", waiting_for="limit", wake=iso(NOW))), "running"),
    "queued": (PlanFacts(queued="start"), "running"),
    "schedule": (PlanFacts(run=ENDED, schedule=SCHEDULE), "scheduled"),
    "paused": (at_work(PAUSED, alive=False), "scheduled"),
    "stopped": (PlanFacts(run=a_run(state="stopped", outcome="stopped")), "open"),
    "never run": (PlanFacts(), "open"),
}


@pytest.mark.parametrize(("facts", "need"), NEEDS.values(), ids=list(NEEDS))
def test_the_need_of_a_plan(facts: PlanFacts, need: str) -> None:
    assert view(facts).state == need


def test_a_failed_run_of_a_plan_that_is_gone_offers_no_retry() -> None:
    outline = PlanOutline(error="x is gone", is_gone=True)
    for schedule in (None, SCHEDULE):
        facts = PlanFacts(run=a_run(state="failed"), schedule=schedule)
        shown = view_plan("plans/x.md", outline, facts, landing="direct", now=NOW)
        assert [action.verb for action in shown.actions] == [*(["stop"] if schedule else []), "report"]


def test_a_failed_run_of_a_plan_that_was_put_off_offers_no_retry_unless_it_has_planned() -> None:
    for status in ("deferred", "abandoned", "draft", "proposed"):
        outline = PlanOutline(status=status, phases=(PhaseOutline("1", "", "todo", "", ()),))
        for mode, verbs in (("finish", ["report"]), ("plan", ["retry", "retry", "report"])):
            facts = PlanFacts(run=a_run(state="failed", mode=Mode(mode)))
            shown = view_plan("plans/x.md", outline, facts, landing="direct", now=NOW)
            assert [action.verb for action in shown.actions] == verbs
        paused = view_plan("plans/x.md", outline, at_work(PAUSED, alive=False), landing="direct", now=NOW)
        assert [action.verb for action in paused.actions] == ["stop"]


def test_a_run_that_plans_is_not_between_phases_while_its_plan_lands() -> None:
    held = a_run(mode=Mode.PLAN, phase=None, step="land", state="waiting", waiting_for="checkout", about="it is dirty")
    assert view(at_work(held)).words == "Needs attention: planning, land, waiting 12m: it is dirty"


def test_plans_are_listed_by_need_and_name() -> None:
    outlines = {"a": PlanOutline(complete=True), "b": PlanOutline(error="b:1: no phases found", is_page=True)}
    facts = {"a": PlanFacts(), "b": PlanFacts(), **{name: facts for name, (facts, _) in NEEDS.items()}}
    phases = (PhaseOutline("1", "", "todo", None, ()),)
    views = [
        view_plan(name, outlines.get(name, PlanOutline(phases=phases)), known, landing="direct", now=NOW)
        for name, known in sorted(facts.items())
    ]
    watch = replace(views[0], plan="queue:1", answered=None)
    counts = count_plans([*views, watch])
    assert counts == "3 waiting for you, 3 failed, 5 running, 2 scheduled, 2 open, 1 done"
    needs = sorted((shown.state for shown in views), key=list(PlanState).index)
    assert needs == [*(need for _, need in NEEDS.values()), "done", "page"]


LACKS_KEY = a_run(state="waiting", waiting_for="key", about="KEY is missing")
AT_LIMIT = a_run(state="waiting", waiting_for="limit", about="claude usage limit", wake=iso(ago(-60)))


@pytest.mark.parametrize(
    ("work", "run", "need", "words", "verbs"),
    [
        ({}, None, "running", "Running: it begins the next plan", ["pause", "stop"]),
        ({}, busy(), "running", "Running: plans/x.md, phase 1, implement for 12m, agent", ["pause", "stop"]),
        ({}, AT_LIMIT, "running", "Waiting: plans/x.md, phase 1, implement, waiting 12m: claude", ["pause", "stop"]),
        ({}, LACKS_KEY, "waiting", "Needs attention: plans/x.md, phase 1, ", ["resume", "pause", "stop"]),
        ({"paused": "uma"}, busy(), "scheduled", "Paused: by uma; it begins no further plan", ["resume", "stop"]),
        ({"trouble": "[a] is unknown"}, None, "waiting", "Needs attention: it cannot begin the next plan: [a] is", []),
    ],
)
def test_a_work_on_the_queue_stands_as_the_plan_that_it_waits_for(
    work: dict[str, str], run: RunRow | None, need: str, words: str, verbs: list[str]
) -> None:
    plan = view(at_work(run)) if run is not None else None
    queue = view_plan("queue:2", PlanOutline(), PlanFacts(), landing="pr", now=NOW, answered=None)
    seen = view_work(queue, WorkProgress(begun=("plans/x.md",), **work), iso(ago(-1)), plan, now=NOW)
    assert (seen.state, seen.words[: len(words)]) == (need, words)
    assert seen.words.endswith("; begun: plans/x.md")
    assert [action.verb for action in seen.actions] == (verbs or ["pause", "stop"])
    assert f"  {seen.words}" in Page(Style(), NOW).render_plan(seen).splitlines()


def test_a_run_that_has_ended_is_one_line() -> None:
    seen = PlanFacts(run=a_run(state="failed", outcome="failed", reason="timeout", tokens=5))
    assert (run_of(seen).stuck, run_of(seen).tokens, view(seen).claim) == (None, 5, None)
    assert lines(seen)[3:] == [
        "  Last run r1a2b3c4: failed (timeout) 12m ago, 5 tokens, cost -",
        "  Retry: runplan retry plans/x.md; Report: runplan report plans/x.md",
    ]


def test_a_schedule_says_when_it_fires_or_why_not() -> None:
    paused = replace(SCHEDULE, paused="phase 1 failed (timeout)")
    seen = view(PlanFacts(schedule=paused)).schedule
    assert seen is not None
    assert (seen.spec, seen.next, seen.due, seen.zone) == ("every 4h", "2026-01-01T14:15:00Z", False, "Europe/Berlin")
    commands = "Resume: runplan resume plans/x.md; Run now: runplan now plans/x.md"
    assert lines(PlanFacts(schedule=paused))[-1] == f"  {commands}"
    unknown = replace(SCHEDULE, spec="full moon")
    delayed = replace(SCHEDULE, spec="day at 14:30", next=None)
    views = (view_schedule(schedule, NOW) for schedule in (SCHEDULE, paused, unknown, delayed))
    shown = [describe_schedule(schedule, now=NOW) for schedule in views]
    assert shown == [
        "every 4h, next 15:15 CET (in 2h 15m)",
        "every 4h, paused: phase 1 failed (timeout); otherwise next 15:15 CET (in 2h 15m)",
        "every full moon, next time unknown on this machine",
        "every day at 14:30, next 14:33 CET (in 1h 34m; 3 min after the full or half hour, when providers are busy)",
    ]
