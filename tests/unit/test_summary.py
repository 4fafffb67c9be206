"""The summary of a plan: the state of each phase, its figures, and the command for what did not happen."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.domain.plan.model import parse_plan
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import GateAnswer, PhaseStep, Reason, Role, RunOutcome, WaitKind
from runplan.domain.run.recorded import Recorded
from runplan.domain.run.rows import RunRow, Work
from runplan.domain.standing.usage import sum_usage
from runplan.engine.report.summary import PhaseSpending, summarise_attempts, summary_of, summary_section
from tests.support.builders import waiting

LEASED = e.Leased(phase="1", branch="b", base="c", base_tree="t", worktree="w", attempt=1)
ROBOT = e.DispatchEnded(
    id="d", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, agent="robot", phase="1",
    input_tokens=900, output_tokens=100, usd=0.5, seconds=60.0,
)  # fmt: skip
BASE = e.BaselineKnown(key="k", tree="t", results=json.dumps({"passed": 10, "failed": None}))
GATE = e.GateJudged(tree="t", answer=GateAnswer.PASSED, code=0, line="12 passed, 0 failed", time=1)
LANDED = e.Landed(id="r.1", phase="1", tip="f" * 40, code="abcdef0123" * 4)
FAILED = e.PhaseFailed(phase="1", reason=Reason.TESTS_FAILED, step=PhaseStep.GATE, detail="x")


def records(*events: e.Event, run: str = "r", lane: str = "") -> list[Recorded[Any]]:
    return [
        Recorded(seq=at, run=run, at=f"2026-01-0{at}T00:00:00Z", event=replace(one, lane=lane))
        for at, one in enumerate(events, 1)
    ]


def run(state: str, **fields: Any) -> RunRow:
    given = {"id": "r", "plan": "plans/x.md", "started": "", "since": "", "attempt": 1, "landing": "cherry-pick"}
    empty = dict.fromkeys(("phase", "step", "outcome", "reason", "waiting_for"))
    return RunRow(**{**given, **empty, "state": state, **fields})


def test_a_landed_phase_has_its_commit_tests_time_tokens_and_cost() -> None:
    lint = replace(GATE, name="lint", line="passed")
    found = summarise_attempts(records(LEASED, BASE, ROBOT, GATE, lint, LANDED))["1"]
    assert (found.state, found.commit, found.attempts) == ("done", "abcdef0", 1)
    assert (found.before, found.after) == ("10 passed, 0 failed", "12 passed, 0 failed")
    assert found.spent == PhaseSpending(seconds=60.0, wall_seconds=5 * 86400.0, tokens=1000, usd=0.5)


def test_set_up_and_tests_are_no_time_of_agents() -> None:
    command = replace(ROBOT, agent="", input_tokens=0, output_tokens=0, usd=0.0)
    setup, gate = replace(command, role=Role.SETUP, seconds=20.0), replace(command, role=Role.GATE, seconds=90.0)
    spent = summarise_attempts(records(LEASED, setup, ROBOT, gate, LANDED))["1"].spent
    assert replace(spent, wall_seconds=300.0).time_and_use == (
        "5m00s (agents 1m00s = 35%, set-up 20s = 12%, tests 1m30s = 53%), 1,000 tokens, $0.50"
    )


def test_the_summary_says_how_often_the_tests_ran_and_what_shortens_the_plan() -> None:
    gates = [e.DispatchStarted(role=Role.GATE, gates=(e.TESTS,), cycle=0, tree=tree) for tree in ("a", "b", "b")]
    lint = e.DispatchStarted(role=Role.GATE, gates=("lint",), cycle=0, tree="c")
    ended = replace(ROBOT, agent="", role=Role.GATE, seconds=90.0)
    found = summarise_attempts(records(LEASED, *gates, lint, ended, ROBOT))
    text = summary_section(summary_of("plans/x.md", PLAN, run("running"), found))
    assert "Tests ran 3 times for 2 trees. Most of the time went to tests: a line `Tests:` in a phase" in text


def test_only_time_and_agents_since_the_moment_count() -> None:
    events = records(LEASED, ROBOT, ROBOT, LANDED)
    spent = summarise_attempts(events, since="2026-01-03T00:00:00Z")["1"].spent
    assert (spent.tokens, spent.wall_seconds) == (1000, 86400.0)


def test_a_repair_of_the_pull_request_is_no_attempt_at_the_last_phase() -> None:
    repair = [replace(LEASED, phase=""), replace(ROBOT, phase=""), replace(FAILED, phase="", title="Fix the checks")]
    found = summarise_attempts(records(LEASED, LANDED, *repair))
    assert (found["1"].state, found["1"].spent.tokens) == ("done", 0)
    (failed,) = (one for one in summary_of("plans/x.md", PLAN, run("failed"), found).phases if one.state == "failed")
    assert (failed.label, failed.command) == ("pull request Fix the checks", "runplan retry plans/x.md")


@pytest.mark.parametrize("last", [LANDED, ROBOT], ids=["landed", "answered without a change"])
def test_the_cost_of_a_repair_that_is_over_is_shown(last: e.Event) -> None:
    repair = [replace(LEASED, phase=""), replace(ROBOT, phase=""), replace(last, phase="")]
    found = summary_of("plans/x.md", PLAN, run("done", outcome=RunOutcome.DONE), summarise_attempts(records(*repair)))
    text = summary_section(found)
    assert "**Done:** 0 of 3 phases." in text
    assert f"{1 + (last is ROBOT)},000 tokens" in text
    assert "| pull request | done |" in text


def test_phases_side_by_side_are_kept_apart() -> None:
    other = e.Leased(phase="2", branch="b", base="c", base_tree="t", worktree="w", attempt=1)
    base = records(e.BaselineKnown(key="k", tree="t", results=""), lane="a")
    mixed = [*records(LEASED, lane="a"), *records(other, GATE, lane="b"), *base]
    found = summarise_attempts(mixed)
    assert (found["1"].after, found["2"].after) == ("", "12 passed, 0 failed")


def test_a_landing_without_an_attempt_is_an_undo() -> None:
    assert summarise_attempts([*records(LEASED, LANDED), *records(LANDED, run="undo")])["1"].state == "undone"


PLAN = parse_plan(waiting("Phases 1 and 2.", own="3", others="1 2"), path="plans/x.md")


STOPPED = replace(FAILED, reason=Reason.STOPPED, detail="stopped by runplan stop")
LANES = (Work(phase="2"), Work(phase="1", waiting_for=WaitKind.SIGN_OFF))


def waits(kind: str, about: str = "") -> RunRow:
    return run("waiting", phase="1", waiting_for=kind, about=about)


@pytest.mark.parametrize(
    ("events", "newest", "expected"),
    [
        ((), None, "todo: not started: start plans/x.md 1"),
        ((LEASED, FAILED), run("failed"), "failed: tests-failed at gate: retry plans/x.md"),
        ((LEASED, FAILED), run("failed", id="r2"), "failed: tests-failed at gate: retry plans/x.md 1"),
        ((LEASED, STOPPED), run("stopped"), "stopped: stopped by runplan stop: retry plans/x.md"),
        ((LEASED,), run("running", phase="2", lanes=LANES), "waiting: waits for sign-off: diff plans/x.md 1"),
        ((LEASED,), run("running", phase="1"), "running: running: status plans/x.md"),
        ((LEASED,), run("stopped", phase="1"), "stopped: its run has ended: retry plans/x.md"),
        ((LEASED,), waits("approval"), "waiting: waits for approval: diff plans/x.md 1"),
        ((LEASED,), waits("checkout", "a.txt"), "waiting: waits for checkout: a.txt: explain plans/x.md 1"),
        ((LEASED,), waits("limit", "claude's"), "running: waits for limit: claude's: status plans/x.md"),
    ],
)
def test_a_phase_that_is_not_done_says_why_and_names_a_command(
    events: tuple[e.Event, ...], newest: RunRow | None, expected: str
) -> None:
    first = summary_of("plans/x.md", PLAN, newest, summarise_attempts(records(*events))).phases[0]
    assert f"{first.state}: {first.why}: {first.command.removeprefix('runplan ')}" == expected


def test_a_run_that_no_process_works_on_needs_a_person() -> None:
    newest = run("running", phase="1")
    first = summary_of("plans/x.md", PLAN, newest, summarise_attempts(records(LEASED)), owned=False).phases[0]
    assert (first.state, first.why) == ("waiting", "interrupted; no process works on it")
    assert first.command == "runplan retry plans/x.md"


def test_a_phase_with_open_dependencies_names_them() -> None:
    assert summary_of("plans/x.md", PLAN, None, {}).phases[2].why == "it waits for 1, 2"


def test_without_the_plan_the_journal_is_summed_up() -> None:
    gone = summary_of("plans/x.md", None, run("failed"), summarise_attempts(records(LEASED, FAILED)))
    assert [(one.id, one.command) for one in gone.phases] == [("1", "runplan retry plans/x.md")]


def test_the_section_lists_every_phase_and_what_is_not_done() -> None:
    done = waiting("Phase 1.", own="2", others="1").replace(
        "| 1 — Phase 1 | ⬚ | |".encode(), "| 1 — Phase 1 | ✅ | abc1234 |".encode()
    )
    found = summarise_attempts(records(LEASED, BASE, ROBOT, GATE, LANDED))
    section = summary_section(summary_of("plans/x.md", parse_plan(done, path="plans/x.md"), None, found))
    assert "**Done:** 1 of 2 phases. Time: 96h00m00s (agents 1m00s), 1,000 tokens, $0.50." in section
    assert "| 1 Title 1 | done | `abc1234` | 10 passed, 0 failed → 12 passed, 0 failed | 1 | 96h00m00s |" in section
    assert "| 96h00m00s | 1m00s | 1,000 | $0.50 |" in section
    assert section.endswith("**Not done:**\n\n- Phase 2 Title 2: not started: `runplan start plans/x.md 2`\n")


@pytest.mark.parametrize(
    ("spent", "cost"),
    [
        (PhaseSpending(tokens=5, unpriced=True), "-"),
        (PhaseSpending(usd=0.07), "$0.07"),
        (PhaseSpending(usd=0.07, unpriced=True), "≥ $0.07"),
    ],
)
def test_a_cost_that_an_agent_does_not_report_is_no_zero(spent: PhaseSpending, cost: str) -> None:
    assert spent.cost == cost
    assert sum_usage(PhaseSpending, [spent, PhaseSpending()]).cost == cost
