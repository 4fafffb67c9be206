"""Schedules in the hands of the daemon: they fire, rest, end, and answer every slot once, whatever happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from runplan.times import iso, parse_iso
from tests.support.cli import a_plan, processes_of, until
from tests.support.daemons import (
    approve,
    change_schedule,
    daemon_of,
    firings,
    in_foreground,
    kill_daemon,
    log_of,
    none_left,
    run_of,
    schedules,
    shell_agent,
    states,
    until_runs_are,
    user_settings,
    waits,
)
from tests.support.scripts import Meanwhile, set_up, steps, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


def ago(**span: float) -> str:
    return iso(datetime.now(UTC) - timedelta(**span))


def scheduled(project: Project, *words: str) -> None:
    ran = project.runplan("start", "X", "auto", "every", "4h", *words)
    assert ran.code == 0, ran.err


def due_soon(project: Project) -> None:
    """The daemon is gone, and the schedule's next slot is a moment from now."""
    kill_daemon(project)
    soon = ago(hours=4, seconds=-1.5)
    change_schedule(project, anchor=soon, made=soon)


# --- firing ---------------------------------------------------------------------------------------------------


def test_a_schedule_without_now_only_schedules(project: Project) -> None:
    before = datetime.now(UTC)
    ran = project.runplan("start", "X", "auto", "every", "4h")
    assert ran.code == 0, ran.err
    assert "Scheduled plans/X.md every 4h, first at " in ran.last
    (row,) = schedules(project)
    assert (row.plan, row.spec, row.paused) == ("plans/X.md", "4h", None)
    second = timedelta(seconds=1)
    assert before - second <= parse_iso(row.anchor) <= datetime.now(UTC), "four hours from now, not at a round hour"
    assert states(project) == []
    until(lambda: processes_of(project.home) == [daemon_of(project)])


def test_a_schedule_with_now_runs_one_phase_and_stays(project: Project) -> None:
    ran = project.runplan("start", "X", "auto", "every", "4h", "now")
    made, begun = ran.err.splitlines()
    assert made.startswith("runplan: Scheduled plans/X.md every 4h, first at "), "it says both"
    assert begun.startswith("runplan: Accepted as ")
    until_runs_are(project, "done")
    assert project.landed() == ["1"]
    assert [row.spec for row in schedules(project)] == ["4h"]


def test_a_scheduled_run_claims_its_issues_and_its_end_names_the_next_time(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    project.plan(a_plan("1", "2", front="status: active\nissue: 7"))
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    user_settings(project, f'[notify]\ncommand = "echo $RUNPLAN_TEXT >>{tmp_path}/noticed"\n')
    scheduled(project, "now")
    meanwhile.reached("agent")
    assert project.rows("SELECT key FROM claims WHERE kind='issue'") == [("7",)]
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    (row,) = schedules(project)
    until(lambda: [line["next"] for line in log_of(project, "ended")] == [row.next])
    until((tmp_path / "noticed").exists)
    assert row.next is not None
    assert f"Next run: {parse_iso(row.next):%Y-%m-%d %H:%M} UTC." in (tmp_path / "noticed").read_text()
    assert f"next {parse_iso(row.next):%H:%M} UTC" in project.runplan("status", "X").out


def test_now_without_a_schedule_says_how_to_make_one(project: Project) -> None:
    ran = project.runplan("now")
    assert (ran.code, ran.last.endswith("runplan start PLAN auto every 4h")) == (3, True), ran.err
    scheduled(project)
    project.plan(a_plan("3"), name="plans/Y.md")
    other = project.runplan("now", "Y")
    assert (other.code, other.last) == (
        3,
        "runplan: plans/Y.md has no schedule; make one: runplan start plans/Y.md auto every 4h",
    )
    stopped = project.runplan("stop", "Y")
    assert (stopped.code, stopped.last) == (0, "runplan: Nothing to stop for plans/Y.md")
    assert len(schedules(project)) == 1


def test_a_slot_that_comes_fires_by_itself(project: Project) -> None:
    scheduled(project)
    due_soon(project)
    with in_foreground(project):
        until_runs_are(project, "done")
    ((answer, run),) = firings(project)
    assert (answer, run) == ("fired", run_of(project)["id"])


def test_a_slot_that_comes_while_the_plan_is_in_flight_is_a_recorded_skip(
    project: Project, meanwhile: Meanwhile
) -> None:
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"'))
    scheduled(project, "now")
    meanwhile.reached("agent")
    due_soon(project)
    with in_foreground(project):
        until(lambda: firings(project))
        assert firings(project) == [("skipped", "the plan is in flight")]
        meanwhile.let_on("agent")
        until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "verify"]


# --- what a person was asked ------------------------------------------------------------------------------------


WAITS = "phase 1 of plans/X.md needs your approval: runplan approve plans/X.md, or: runplan reject plans/X.md"
REJECTED = "phase 1 was rejected"


@pytest.mark.parametrize("words", [("now",)], ids=["now"])
def test_now_leaves_what_waits_for_approval_to_the_person(project: Project, words: tuple[str, ...]) -> None:
    scheduled(project)
    assert project.runplan("start", "X", "1").code == 0
    until_runs_are(project, "waiting")
    ran = project.runplan(*words)
    assert (ran.code, ran.last) == (4, f"runplan: Not started: {WAITS}"), ran.err
    assert (states(project), project.landed()) == (["waiting"], [])
    if words == ("now",):
        assert firings(project) == [("skipped", WAITS)]
    assert "RunResumed" not in [kind for kind, _ in project.events()]
    approve(project)
    assert project.landed() == ["1"]


@pytest.mark.parametrize("where", ["daemon"])
def test_a_schedule_rests_after_a_rejection_until_the_person_goes_on(project: Project, where: str) -> None:
    scheduled(project)
    project.runplan("start", "X", "1", *(["--foreground"] if where == "foreground" else []))
    until_runs_are(project, "waiting")
    project.runplan("reject", "X", "-m", "no")
    until_runs_are(project, "stopped")
    assert schedules(project)[0].paused == REJECTED
    ran = project.runplan("now")
    again = "retry it: runplan retry plans/X.md; or resume the schedule: runplan resume plans/X.md"
    assert (ran.code, ran.last) == (4, f"runplan: Not started: {REJECTED}; {again}"), ran.err
    due_soon(project)
    with in_foreground(project):
        until(lambda: len(firings(project)) == 2)
        assert [answer for answer, _ in firings(project)] == ["skipped", "skipped"]
        assert states(project) == ["stopped"]
        project.runplan("retry", "X")
        until_runs_are(project, "stopped", "waiting")
    assert project.landed() == []


# --- ending and resting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("front", ["status: active"])
def test_a_schedule_ends_when_its_plan_is_complete(project: Project, front: str) -> None:
    """A plan without front matter is complete when its phases are done."""
    set_up(project, plan=a_plan("1", "2", front=front))
    scheduled(project, "now")
    until_runs_are(project, "done")
    assert len(schedules(project)) == 1
    assert project.runplan("now").code == 0
    until_runs_are(project, "done", "done")
    until(lambda: schedules(project) == [])
    assert project.landed() == ["1", "2"]
    assert project.runplan("status", "X", "--json").json["status"] == "complete"
    again = project.runplan("start", "X", "every", "4h")
    assert (again.code, schedules(project)) == (0, [])


@pytest.mark.parametrize("verb", ["retry"])
def test_a_schedule_rests_when_a_phase_fails_until_a_person_has_looked(project: Project, verb: str) -> None:
    project.agent(steps("exit = 3"))
    scheduled(project, "now")
    until_runs_are(project, "failed")
    until(lambda: schedules(project)[0].paused)
    assert schedules(project)[0].paused == "phase 1 failed (agent-failed)"
    due_soon(project)
    project.agent(work() + work(phase="2"))
    with in_foreground(project):
        until(lambda: firings(project))
        assert firings(project) == [("skipped", "phase 1 failed (agent-failed)")], "no bill every four hours"
        assert states(project) == ["failed"]
        ran = project.runplan(verb, "X")
        assert ran.code == 0, ran.err
        until(lambda: schedules(project)[0].paused is None)
        if verb == "retry":
            until_runs_are(project, "failed", "done")


@pytest.mark.parametrize("taken", ["moved"])
def test_a_schedule_whose_plan_has_left_the_target_rests_and_is_found_by_its_path(project: Project, taken: str) -> None:
    """It is not complete; and somebody who asks by the path that the schedule has is answered."""
    scheduled(project)
    if taken == "moved":
        project.repo.git("mv", "plans/X.md", "plans/Y.md")
        project.repo.git("commit", "-qm", "Rename")
        why = "plans/X.md is no longer on main"
    else:
        project.plan("nothing\n")
        why = "plans/X.md:1: no phases found"
    assert project.runplan("now").code == 0
    until_runs_are(project, "failed")
    assert str(schedules(project)[0].paused).startswith(why)
    assert why in project.runplan("next").out
    assert why in project.runplan("status").out
    told = project.runplan("status", "plans/X.md")
    assert (told.code, f"paused: {why}" in told.out) == (0 if taken == "moved" else 2, True), told.err
    for verb in ("logs", "explain"):
        assert project.runplan(verb, "plans/X.md").code == 0, verb
    assert project.runplan("stop", "plans/X.md").last == "runplan: Cancelled the schedule of plans/X.md (every 4h)"
    if taken == "moved":
        assert {view["plan"] for view in project.runplan("status", "--json").json} == {"plans/X.md", "plans/Y.md"}
        assert project.runplan("start", "plans/X.md").code == 3, "what is gone is not begun again"


def test_a_failure_lays_the_schedule_to_rest_even_if_the_daemon_dies_of_it(project: Project) -> None:
    """The two are one fact: no death comes between them."""
    project.agent(steps("exit = 3"))
    with in_foreground(project, TEST_KILL="after RunEnded") as daemon:
        assert project.runplan("start", "X", "auto", "every", "4h", "now").code == 0
        until(lambda: daemon.poll() is not None)
    assert states(project) == ["failed"]
    (row,) = schedules(project)
    assert row.paused == "phase 1 failed (agent-failed)"


def test_a_paused_schedule_does_not_fire_and_goes_on_when_resumed(project: Project) -> None:
    scheduled(project)
    assert project.runplan("pause", "X").code == 0
    due_soon(project)
    with in_foreground(project):
        until(lambda: firings(project))
        assert firings(project) == [("skipped", "paused by a person")]
        assert project.runplan("resume", "X").code == 0
    assert schedules(project)[0].paused is None
    due_soon_again(project)
    with in_foreground(project):
        until_runs_are(project, "done")


def due_soon_again(project: Project) -> None:
    change_schedule(project, anchor=ago(hours=4, seconds=-1.5))


@pytest.mark.parametrize("daemon", [True], ids=["daemon"])
def test_a_stopped_schedule_never_fires(project: Project, *, daemon: bool) -> None:
    scheduled(project)
    if not daemon:
        kill_daemon(project)
    ran = project.runplan("stop", "X")
    assert ran.last == "runplan: Cancelled the schedule of plans/X.md (every 4h)", ran.err
    assert schedules(project) == []


# --- while nobody was there -----------------------------------------------------------------------------------


def test_what_was_missed_while_off_is_one_run_at_the_start(project: Project) -> None:
    scheduled(project)
    kill_daemon(project)
    change_schedule(project, anchor=ago(hours=13), made=ago(hours=13))
    with in_foreground(project):
        until_runs_are(project, "done")
    assert [answer for answer, _ in firings(project)] == ["missed", "missed", "fired"]
    assert project.landed() == ["1"]


def test_after_a_reboot_a_daemon_goes_on_with_the_repositories_it_knows(project: Project, meanwhile: Meanwhile) -> None:
    """Nobody names one to it: neither its schedules nor the run that was under way."""
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"') + work(phase="2"))
    scheduled(project, "now")
    meanwhile.reached("agent")
    with none_left(project.home):
        pass  # the power fails
    meanwhile.let_on("agent")
    change_schedule(project, anchor=ago(hours=5), made=ago(hours=5))
    with in_foreground(project):
        until_runs_are(project, "done")
        until(lambda: firings(project))
    assert firings(project) == [("skipped", "the plan is in flight")]
    assert project.landed() == ["1"]


# --- keys -----------------------------------------------------------------------------------------------------


def test_a_schedule_whose_key_a_restart_has_lost_waits_and_names_it(project: Project, tmp_path: Path) -> None:
    """It fires, and the run waits: an agent without its key would only fail."""
    shell_agent(project, tmp_path, 'test "$ROBOT_KEY" = sesame', env='"ROBOT_KEY"')
    ran = project.runplan("start", "X", "auto", "every", "4h", ROBOT_KEY="sesame")
    assert ran.code == 0, ran.err
    due_soon(project)
    with in_foreground(project):
        until(lambda: states(project) == ["waiting"])
        view = run_of(project)
        assert (view["waiting_for"], "ROBOT_KEY" in view["about"]) == ("key", True)
        assert project.dispatched() == []
        assert project.runplan("resume", "X", ROBOT_KEY="sesame").code == 0
        until_runs_are(project, "done")
