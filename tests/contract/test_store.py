"""What every store promises: one owner of a plan, no event of an old owner, one answer to a command and to a slot."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.adapters.processes import identity
from runplan.adapters.store.protocol import Store, open_store
from runplan.adapters.store.sql import KEPT, Append
from runplan.domain.decoding import to_json
from runplan.domain.errors import Fenced
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Mode, PhaseStep, Reason, Role, RunStatus, WaitKind
from runplan.domain.run.rows import (
    Acquired,
    Answer,
    ClaimRow,
    Command,
    DispatchTotal,
    FailureRow,
    FiringRow,
    HeldByOther,
    OwnerState,
    PlanFacts,
    Reentered,
    RunRow,
    ScheduleRow,
    UsageTotal,
    WaitRow,
)
from runplan.domain.times import parse_iso

PLAN = "plans/X.md"
OTHER = "plans/Y.md"
NOW = "2026-03-01T12:00:00Z"
LATER = "2026-03-01T13:30:00Z"
ALIVE = identity(os.getppid()) or ""
GONE = "1:1:long-gone"
ME = "2:2:long-gone"
SCHEDULE = ScheduleRow(plan=PLAN, spec="4h", zone="UTC", misfire="run-once", request="{}", anchor=NOW, made=NOW)
LEASED = e.Leased(phase="1", branch="refs/heads/b", base="0", base_tree="0", worktree="w", attempt=1)
LANDED = e.Landed(id="l", phase="1", tip="0", code="0")
FAILED = e.PhaseFailed(phase="1", reason=Reason.TIMEOUT, step=PhaseStep.IMPLEMENT, detail="too slow", output="…")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    is_sqlite = request.param == "sqlite"
    with closing(open_store(tmp_path) if is_sqlite else request.getfixturevalue("postgres")(alive=ALIVE)) as store:
        yield store


def row(run: str = "r1", *, plan: str = PLAN, state: str = "running", **fields: Any) -> RunRow:
    return RunRow(id=run, plan=plan, started=NOW, state=RunStatus(state), since=NOW, landing="cherry-pick", **fields)


def begin(store: Store, run: str = "r1", *, plan: str = PLAN, owner: str = ME) -> int:
    """Claim the plan; the fence."""
    claim = store.claim_plan(plan, run=run, owner=owner)
    assert not isinstance(claim, HeldByOther)
    return claim.fence


def append(store: Store, fence: int, after: RunRow, *events: e.Event, at: str = NOW, **how: Any) -> None:
    rows = [(at, type(event).__name__, to_json(event)) for event in events]
    waits = how.pop("waits", False)
    store.append(Append(rows, after, fence, **how), waits=waits)


def kinds(store: Store, run: str = "r1") -> list[str]:
    return [event.type for event in store.list_events(run)]


# --- runs and events --------------------------------------------------------------------------------------


def test_events_and_the_row_of_the_run_are_recorded_together(store: Store) -> None:
    fence = begin(store)
    append(store, fence, row(), e.Queued(), e.Admitted())
    append(store, fence, row(state="waiting"), e.Queued(), at=LATER)
    assert kinds(store) == ["Queued", "Admitted", "Queued"]
    assert [event.type for event in store.list_events("r1", after=2)] == ["Queued"]
    assert (store.get_newest_run(PLAN), store.get_newest_event()) == (row(state="waiting"), 3)
    assert store.get_newest_landing() == ""
    append(store, fence, row(), LANDED, at=LATER)
    assert store.get_newest_landing() == LATER
    assert [record.at for record in store.list_facts(e.Queued, plan=PLAN)] == [NOW, LATER]
    assert [record.seq for record in store.list_facts(e.Queued, since=LATER)] == [3]
    assert store.list_facts(e.Queued, plan=OTHER) == []


def test_waiting_events_come_before_the_next_and_are_seen_at_once(store: Store) -> None:
    fence = begin(store)
    append(store, fence, row(), e.Queued(), waits=True)
    assert [record.event for record in store.list_facts(e.Queued, plan=PLAN)] == [e.Queued()]
    append(store, fence, row(state="waiting"), e.Admitted(), waits=True)
    append(store, fence, row(), e.Queued())
    assert kinds(store) == ["Queued", "Admitted", "Queued"]


def test_an_owner_whose_plan_was_taken_over_or_released_records_nothing_any_more(store: Store) -> None:
    fence = begin(store, owner=GONE)
    append(store, fence, row(), e.Queued())
    begin(store, "r2", owner=ALIVE)
    append(store, fence, row(), e.Admitted(), waits=True)
    with pytest.raises(Fenced, match="another process has taken over plans/X"):
        append(store, fence, row(state="failed", outcome="failed"), e.Queued())
    for run, owner in (("r1", GONE), ("r2", GONE), ("r1", ALIVE)):
        store.release_plan(PLAN, run=run, owner=owner)
    store.flush()
    assert kinds(store) == ["Queued"]
    assert store.get_claim("plan", PLAN) == ClaimRow(run="r2", owner=ALIVE, fence=2)
    store.release_plan(PLAN, run="r2", owner=ALIVE)
    with pytest.raises(Fenced):
        append(store, 2, row("r2"), e.Queued())
    assert kinds(store, "r2") == []


def test_runs_are_found_by_plan_and_state(store: Store) -> None:
    for run, plan, state in (("r1", PLAN, "done"), ("r2", PLAN, "waiting"), ("r3", OTHER, "failed")):
        waits = {"waiting_for": "approval", "phase": "1"} if state == "waiting" else {}
        append(store, begin(store, run, plan=plan), row(run, plan=plan, state=state, **waits), e.Queued())
    assert [run.id for run in store.list_runs()] == ["r3", "r2", "r1"]
    assert [run.id for run in store.list_runs(PLAN, limit=1)] == ["r2"]
    assert [run.id for run in store.list_unfinished_runs()] == ["r2"]
    assert (store.get_interrupted_run(PLAN), store.get_interrupted_run(OTHER)) == (store.get_run("r2"), None)
    assert (store.get_run("r4"), store.list_plans()) == (None, [PLAN, OTHER])
    assert store.list_waiting() == [(PLAN, "1", "approval")]
    store.put_schedule(replace(SCHEDULE, plan="plans/S.md"))
    store.add_command(command(plan="plans/Q.md"))
    assert sorted(store.list_active_plans()) == ["plans/S.md", PLAN]
    assert sorted(store.list_active_plans(queued=True)) == ["plans/Q.md", "plans/S.md", PLAN]


def test_failures_last_until_their_phase_lands(store: Store) -> None:
    fence = begin(store)
    second = replace(FAILED, phase="2", reason=Reason.CONFLICT, detail="a.txt", output="")
    append(store, fence, row(), LEASED, FAILED, replace(FAILED, detail="again"), second)
    append(store, fence, row(), replace(FAILED, phase="3", reason=Reason.STOPPED), at=LATER)
    failed = {FailureRow("1", "timeout", "again", "…"), FailureRow("2", "conflict", "a.txt")}
    assert set(store.list_failures(PLAN)) == failed
    append(store, fence, row(), LEASED, LANDED)
    assert {failure.phase for failure in store.list_failures(PLAN)} == {"2"}
    assert (store.count_leases(PLAN, LEASED.branch), store.count_leases(PLAN, "refs/heads/c")) == (2, 0)


def test_figures_count_runs_phases_dispatches_and_slots(store: Store) -> None:
    fence = begin(store)
    end = e.DispatchEnded(id="d", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, agent="a", usd=0.5, input_tokens=2)
    append(store, fence, row(), FAILED, LANDED, replace(LANDED, phase=""), end, end)
    append(store, fence, row(), e.ClaimTaken(owner="alpha/1"), e.ClaimTaken(owner="alpha/1", took_over="beta/1"))
    append(store, fence, row(state="waiting", waiting_for="approval"), e.Queued())
    store.put_schedule(SCHEDULE)
    store.answer_slot(FiringRow(plan=PLAN, slot="s", at=NOW, answer="fired"))
    figures = store.compute_figures(now=parse_iso(LATER).timestamp())
    assert (figures.runs, figures.waiting_s) == ({(PLAN, "waiting"): 1}, {(PLAN, "approval"): 5400})
    assert figures.takeovers == {(PLAN,): 1}
    assert (figures.landed, figures.failed) == ({(PLAN,): 1}, {(PLAN, "timeout"): 1})
    assert (figures.schedules, figures.slots) == ({(PLAN, "active"): 1}, {(PLAN, "fired"): 1})
    assert figures.dispatches == (DispatchTotal("implement", "a", "exited", 2, 0, 1, 4, 0, 0),)


def test_the_usage_of_agents_is_summed_by_day_plan_agent_and_role(store: Store) -> None:
    def ended(agent: str = "a", role: Role = Role.IMPLEMENT, **usage: Any) -> e.DispatchEnded:
        return e.DispatchEnded(id="d", role=role, ending=Ending.EXITED, code=0, agent=agent, **usage)

    fence = begin(store)
    append(store, fence, row(), ended(usd=9.0), at="2026-02-27T00:00:00Z")
    priced = ended(usd=0.5, input_tokens=2, output_tokens=3)
    append(store, fence, row(), priced, priced, ended(agent="", role=Role.GATE))
    append(store, begin(store, "r2", plan=OTHER), row("r2", plan=OTHER), ended("b", Role.VERIFY, input_tokens=7))
    append(store, fence, row(), ended(usd=1.0, output_tokens=1, estimated=True), at="2026-03-02T00:00:00Z")
    today = UsageTotal("2026-03-01", PLAN, "a", "implement", 2, 10, 1.0, False, False)
    other = UsageTotal("2026-03-01", OTHER, "b", "verify", 1, 7, 0.0, True, False)
    tomorrow = UsageTotal("2026-03-02", PLAN, "a", "implement", 1, 1, 1.0, False, True)
    assert store.sum_usage("2026-03-01") == [today, other, tomorrow]


# --- claims -----------------------------------------------------------------------------------------------


def test_a_plan_has_one_owner_and_a_dead_one_is_replaced(store: Store) -> None:
    """The fence grows at each take-over, also after a release."""
    assert store.claim_plan(PLAN, run="r1", owner=GONE) == Acquired(fence=1)
    assert store.claim_plan(PLAN, run="r1", owner=GONE) == Reentered(fence=1)
    assert store.claim_plan(PLAN, run="r2", owner=GONE) == Reentered(fence=1)
    assert store.get_claim("plan", PLAN) == ClaimRow(run="r2", owner=GONE, fence=1), "it belongs to the newer run"
    assert (store.list_owners(), store.get_living_owner(PLAN)) == ({PLAN: GONE}, "")
    assert store.claim_plan(PLAN, run="r2", owner=ALIVE) == Acquired(fence=2, took_over=GONE)
    assert store.claim_plan(PLAN, run="r3", owner=ME) == HeldByOther(owner=ALIVE)
    assert (store.get_owner_state(ALIVE), store.get_owner_state(GONE)) == (OwnerState.RUNNING, OwnerState.GONE)
    assert (store.get_living_owner(PLAN), store.get_living_owner(OTHER)) == (ALIVE, "")
    store.release_plan(PLAN, run="r1", owner=ALIVE)
    assert store.claim_plan(OTHER, run="r3", owner=ME) == Acquired(fence=1)
    store.release_plan(PLAN, run="r2", owner=ALIVE)
    assert store.claim_plan(PLAN, run="r3", owner=ME) == Acquired(fence=3)


def test_an_issue_belongs_to_the_run_until_that_has_ended(store: Store) -> None:
    fence = begin(store)
    append(store, fence, row(), e.Queued())
    assert store.claim_issue(7, run="r1", owner=ME) is None
    assert store.claim_issue(7, run="r1", owner=ME) is None
    assert store.claim_issue(7, run="r2", owner=ME) == row(), "although the owner is the same"
    store.release_plan(PLAN, run="r1", owner=ME)
    assert store.get_claim("issue", "7") == ClaimRow(run="r1", owner=ME, fence=1), "it ends with its run"
    append(store, begin(store), row(state="done", outcome="done"), e.Admitted())
    assert (store.get_claim("plan", PLAN), store.get_claim("issue", "7")) == (None, None)
    assert store.claim_issue(7, run="r2", owner=ME) is None


# --- limits -----------------------------------------------------------------------------------------------


def limited(account: str, until: str) -> e.AgentLimited:
    return e.AgentLimited(agent="robot", account=account, until=until, words="used up")


def test_the_newest_usage_limit_of_each_account_is_known(store: Store) -> None:
    fence = begin(store)
    since, later = "2040-01-01T00:00:00Z", "2040-01-02T00:00:00Z"  # a fleet knows those of other repositories, too
    append(store, fence, row(), limited("old", LATER))
    append(store, fence, row(), limited("team", since), limited("other", since), at=since)
    append(store, fence, row(), limited("team", later), at=later, waits=True)
    facts = store.list_shared_facts(e.AgentLimited, since=since)
    limits = {fact.event.account: (fact.event.until, fact.at) for fact in facts}
    assert limits == {"other": (since, since), "team": (later, later)}


# --- commands ---------------------------------------------------------------------------------------------


def command(plan: str = PLAN, verb: str = "stop") -> Command:
    return Command(plan=plan, verb=verb, arguments={"n": [1, "\udcff"]}, by="a person", at=NOW)


def test_a_command_is_answered_once_and_leaves_the_queue(store: Store) -> None:
    first, second = store.add_command(command()), store.add_command(command())
    assert store.get_answer(first) is None
    store.answer_command(first, Answer(lines=("it ends",)))
    store.answer_command(first, Answer(error="too late", exit=2))
    assert store.get_answer(first) == Answer(lines=("it ends",))
    assert store.list_queued_commands() == [replace(command(), seq=second)]


def test_old_answers_are_forgotten_and_a_queued_command_never_is(store: Store) -> None:
    waits, old = store.add_command(command()), store.add_command(command())
    store.answer_command(old, Answer(run="r1"))
    for _ in range(KEPT - 1):
        store.answer_command(store.add_command(command()), Answer())
    assert store.get_answer(old) == Answer(run="r1")
    newest = store.add_command(command())
    assert store.get_answer(old) is None
    assert [queued.seq for queued in store.list_queued_commands()] == [waits, newest]


def test_the_run_that_a_command_began_is_found(store: Store) -> None:
    begun = e.RunStarted(
        plan=PLAN, title="", mode=Mode.NEXT, wanted="", auto=True, landing="pr", target="main", slug="x", command=7
    )
    append(store, begin(store), row(), begun)
    assert (store.get_run_of_command(7), store.get_run_of_command(8)) == ("r1", "")


# --- schedules and waits ----------------------------------------------------------------------------------


def test_a_plan_has_one_schedule_that_can_be_paused_and_dropped(store: Store) -> None:
    store.put_schedule(SCHEDULE)
    store.put_schedule(replace(SCHEDULE, spec="day at 9am"))
    assert [schedule.spec for schedule in store.list_schedules()] == ["day at 9am"]
    assert store.pause_schedule(PLAN, "phase 2 failed")
    assert store.get_schedule(PLAN) == replace(SCHEDULE, spec="day at 9am", paused="phase 2 failed")
    assert store.pause_schedule(PLAN, None)
    append(store, begin(store), row(), e.Queued(), pauses="it failed")
    assert [schedule.paused for schedule in store.list_schedules()] == ["it failed"]
    assert (store.drop_schedule(PLAN), store.drop_schedule(PLAN)) == (True, False)
    assert not store.pause_schedule(PLAN, "x")


def test_a_slot_is_answered_once(store: Store) -> None:
    store.put_schedule(SCHEDULE)
    fired = FiringRow(plan=PLAN, slot="2026-03-01T16:00", at=NOW, answer="fired")
    assert store.answer_slot(fired)
    assert not store.answer_slot(replace(fired, at=LATER, answer="skipped", why="too late"))
    assert store.list_firings(PLAN) == [fired]
    assert store.get_schedule(PLAN) == replace(SCHEDULE, last=fired.slot)
    assert store.is_slot_answered(PLAN, fired.slot, before=NOW)
    assert not store.is_slot_answered(PLAN, "2026-03-01T20:00", before=NOW)


def test_an_answer_from_the_future_gives_way_to_the_real_one(store: Store) -> None:
    """It was recorded while the clock was ahead."""
    missed = FiringRow(plan=PLAN, slot="2026-03-01T16:00", at="2028-03-01T12:00:00Z", answer="missed")
    fired = replace(missed, at="2026-03-01T16:00:01Z", answer="fired", why="r1")
    assert store.answer_slot(missed)
    assert not store.is_slot_answered(PLAN, missed.slot, before=NOW)
    assert store.answer_slot(fired)
    assert store.list_firings(PLAN) == [fired]


def test_the_next_slot_is_recorded_until_the_schedule_changes_or_fires(store: Store) -> None:
    fired = FiringRow(plan=PLAN, slot="s", at=NOW, answer="fired")
    for change in (lambda: store.put_schedule(SCHEDULE), lambda: store.answer_slot(fired)):
        store.put_schedule(SCHEDULE)
        store.arm_schedule(PLAN, NOW)
        assert [schedule.next for schedule in store.list_schedules()] == [NOW]
        change()
        assert [schedule.next for schedule in store.list_schedules()] == [None]


# --- the rest ---------------------------------------------------------------------------------------------


def test_the_facts_of_a_plan_are_read_together(store: Store) -> None:
    append(store, begin(store), row(), e.Queued())
    store.put_schedule(SCHEDULE)
    wait = WaitRow(kind=WaitKind.CLAIM, plan=PLAN, about="process 1", since=NOW)
    store.put_wait(wait)
    store.put_outlines([(PLAN, "stamp", "{}"), (OTHER, "stamp", "{}")])
    refused = store.add_command(command(verb="start"))
    store.answer_command(refused, Answer(error="no", exit=2))
    store.add_command(command(verb="pause"))
    other = PlanFacts(outline=("stamp", "{}"))
    asked = replace(other, schedule=SCHEDULE, queued="pause", refused=(NOW, "start", "no"), wait=wait)
    whole = replace(asked, run=row(), owner=ME)
    assert store.read_plan_facts() == {PLAN: whole, OTHER: other}
    assert store.read_plan_facts(PLAN)[PLAN] == whole
    store.drop_wait(PLAN)
    assert store.list_waits() == []


def test_a_notice_is_recorded_once_and_a_baseline_is_replaced(store: Store) -> None:
    assert (store.record_notice("r1", "key"), store.record_notice("r1", "key")) == (True, False)
    assert store.get_baseline("tree") is None
    store.put_baseline("tree", "red")
    store.put_baseline("tree", "green")
    assert store.get_baseline("tree") == "green"
