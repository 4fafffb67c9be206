"""Schedules fire, pause and end, and every slot is recorded once."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runplan.adapters.configuration.places import socket_path
from runplan.domain.times import iso, parse_iso
from runplan.hosts.daemon.client import Client
from tests.support.cli import Meanwhile, Project, a_plan, processes_of, steps, until, work
from tests.support.daemons import (
    Wall,
    change_schedule,
    daemon_of,
    firings,
    in_foreground,
    kill_daemon,
    log_of,
    none_left,
    run_of,
    schedules,
    states,
    until_runs_are,
    user_settings,
)


def ago(**span: float) -> str:
    return iso(datetime.now(UTC) - timedelta(**span))


def scheduled(project: Project, *words: str) -> None:
    project.runplan("start", "X", "auto", "every", "4h", *words).exits(0)


def due_soon(project: Project) -> None:
    """The daemon is gone, and the schedule's next slot is a moment from now."""
    kill_daemon(project)
    soon = ago(hours=4, seconds=-1.5)
    change_schedule(project, anchor=soon, made=soon)


@pytest.mark.promise
def test_a_schedule_without_now_only_schedules(project: Project) -> None:
    before = datetime.now(UTC)
    ran = project.runplan("start", "X", "auto", "every", "4h").exits(0)
    assert "Scheduled plans/X.md every 4h, first at " in ran.last
    (row,) = schedules(project)
    assert (row.plan, row.spec, row.paused) == ("plans/X.md", "4h", None)
    second = timedelta(seconds=1)
    assert before - second <= parse_iso(row.anchor) <= datetime.now(UTC), "four hours from now, not at a round hour"
    assert states(project) == []
    until(lambda: processes_of(project.home) == [daemon_of(project)])
    daily = project.runplan("start", "X", "auto", "every", "day at 9am").err.splitlines()
    assert re.search(r"every day at 9am instead of every 4h, first at \S+ 09:0[1-5] UTC \([1-5] min after", daily[0])


@pytest.mark.promise
def test_now_without_a_schedule_is_exit_3(project: Project) -> None:
    ran = project.runplan("now")
    assert (ran.code, ran.last.endswith("runplan start PLAN auto every 4h")) == (3, True), ran.err
    scheduled(project)
    project.plan(a_plan("3"), name="plans/Y.md")
    project.runplan("now", "Y").ends(
        3, "runplan: plans/Y.md has no schedule; make one: runplan start plans/Y.md auto every 4h"
    )
    project.runplan("stop", "Y").ends(0, "runplan: Nothing to stop for plans/Y.md")
    assert len(schedules(project)) == 1


def test_a_stop_may_keep_the_schedule(project: Project, meanwhile: Meanwhile) -> None:
    meanwhile.start(project, "auto", "every", "4h", "now")
    project.runplan("stop", "X", "--keep-schedule").ends(
        0, "runplan: Stopping plans/X.md; its work and its schedule (every 4h) are kept"
    )
    until_runs_are(project, "stopped")
    (row,) = schedules(project)
    assert (row.spec, row.paused) == ("4h", None)
    assert "Nothing to stop for plans/X.md" in project.runplan("stop", "X", "--keep-schedule").err
    assert len(schedules(project)) == 1


@pytest.mark.promise
def test_a_schedule_runs_one_phase_at_once_with_now_and_ends_when_its_plan_is_complete(project: Project) -> None:
    ran = project.runplan("start", "X", "auto", "every", "4h", "now")
    made, begun = ran.err.splitlines()
    assert made.startswith("runplan: Scheduled plans/X.md every 4h, first at "), "it says both"
    assert begun.startswith("runplan: Accepted as ")
    until_runs_are(project, "done")
    assert (len(schedules(project)), project.landed()) == (1, ["1"])
    assert project.runplan("now").code == 0
    until_runs_are(project, "done", "done")
    until(lambda: schedules(project) == [])
    assert project.landed() == ["1", "2"]
    assert project.runplan("status", "X", "--json").json["status"] == "complete"
    again = project.runplan("start", "X", "every", "4h")
    assert (again.code, schedules(project)) == (0, [])


def test_a_failed_phase_pauses_the_schedule_until_retry(project: Project) -> None:
    project.agent(steps("exit = 3"))
    with in_foreground(project, TEST_KILL="after RunEnded") as daemon:  # the pause is recorded with the end
        scheduled(project, "now")
        until(lambda: daemon.poll() is not None)
    assert (states(project), schedules(project)[0].paused) == (["failed"], "phase 1 failed (agent-failed)")
    soon = ago(hours=4, seconds=-1.5)
    change_schedule(project, anchor=soon, made=soon)
    project.agent(work() + work(phase="2"))
    with in_foreground(project):
        until(lambda: firings(project))
        assert firings(project) == [("skipped", "phase 1 failed (agent-failed)")], "no bill every four hours"
        assert states(project) == ["failed"]
        project.runplan("retry", "X").exits(0)
        until(lambda: schedules(project)[0].paused is None)
        until_runs_are(project, "failed", "done")


def test_a_schedule_whose_plan_was_moved_is_paused_and_can_be_stopped(project: Project) -> None:
    scheduled(project)
    project.repo.git("mv", "plans/X.md", "plans/Y.md")
    project.repo.git("commit", "-qm", "Rename")
    why = "plans/X.md is no longer on main"
    assert project.runplan("now").code == 0
    until_runs_are(project, "failed")
    assert str(schedules(project)[0].paused).startswith(why)
    assert why in project.runplan("next").out
    assert why in project.runplan("status").out
    printed = project.runplan("status", "plans/X.md")
    assert (printed.code, f"paused: {why}" in printed.out) == (0, True), printed.err
    assert "; there are: plans/Y.md" in printed.out
    assert "runplan retry" not in printed.out, "it would find no plan"
    for verb in ("logs", "explain"):
        assert project.runplan(verb, "plans/X.md").code == 0, verb
    assert project.runplan("stop", "plans/X.md").last == "runplan: Cancelled the schedule of plans/X.md (every 4h)"
    views = {view["plan"]: view["status"] for view in project.runplan("status", "--json").json}
    assert views == {"plans/X.md": "unreadable", "plans/Y.md": "active"}
    gone = project.runplan("start", "plans/X.md")
    assert (gone.code, gone.last.endswith("; there are: plans/Y.md")) == (3, True), gone.err


@pytest.mark.promise
def test_a_paused_schedule_fires_again_after_resume(project: Project) -> None:
    scheduled(project)
    assert project.runplan("pause", "X").code == 0
    due_soon(project)
    with in_foreground(project):
        until(lambda: firings(project))
        assert firings(project) == [("skipped", "paused by a person")]
        assert project.runplan("resume", "X").code == 0
    assert schedules(project)[0].paused is None
    change_schedule(project, anchor=ago(hours=4, seconds=-1.5))
    with in_foreground(project):
        until_runs_are(project, "done")
    assert firings(project)[1:] == [("fired", run_of(project)["id"])]


@pytest.mark.promise
def test_slots_missed_while_off_fire_once(project: Project) -> None:
    scheduled(project)
    kill_daemon(project)
    change_schedule(project, anchor=ago(hours=13), made=ago(hours=13))
    with in_foreground(project):
        until_runs_are(project, "done")
    assert [answer for answer, _ in firings(project)] == ["missed", "fired"]
    assert project.landed() == ["1"]


@pytest.mark.promise
def test_after_a_reboot_the_daemon_continues_its_runs_and_schedules(project: Project, meanwhile: Meanwhile) -> None:
    """It finds its schedules and the running run by itself."""
    meanwhile.start(project, "auto", "every", "4h", "now")
    with none_left(project.home):
        pass  # the power fails
    meanwhile.let_on("agent")
    change_schedule(project, anchor=ago(hours=5), made=ago(hours=5))
    with in_foreground(project):
        until_runs_are(project, "done")
        until(lambda: firings(project))
    assert firings(project) == [("skipped", "the plan is in flight")]
    assert project.landed() == ["1"]


def test_a_night_of_sleep_ends_no_agent_answers_each_slot_once_and_sends_one_morning_report(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    """An agent may run for two hours by its own clock, which stood still."""
    sent, wall = tmp_path / "sent", Wall(tmp_path)
    due = datetime.now(UTC) + timedelta(hours=16)
    command = f'command = "echo $RUNPLAN_NOTICE: $RUNPLAN_TITLE >>{sent}"'
    user_settings(project, f'[notify]\nmorning = "{due:%H:%M}"\n{command}\non = ["morning"]\n')

    def jump(hours: float, slots: int, plan: str = "plans/X.md") -> None:
        """The daemon notices it within a minute, or at the next request."""
        wall.jump_to(int(hours * 3600))
        Client(socket_path(project.env)).close()
        until(lambda: len(firings(project, plan)) == slots)

    with in_foreground(project, **wall.env):
        meanwhile.start(project, "auto", "every", "4h", "now")
        jump(9, 2)
        assert firings(project)[-1] == ("skipped", "the plan is in flight")
        meanwhile.let_on("agent")
        until_runs_are(project, "done")
        assert (project.landed(), project.dispatched(), log_of(project, "trouble")) == (
            ["1"],
            ["implement", "verify"],
            [],
        )
        jump(9.5, 2)
        jump(13, 3)
        until_runs_are(project, "done", "done")
        answered = [json.loads(slot)[0] for (slot,) in project.rows("SELECT slot FROM firings ORDER BY rowid")]
        assert answered == sorted({*answered}), "each slot once, in their order"
        jump(24, 3)
        until(sent.exists)
        project.plan(a_plan("9"), name="plans/Y.md")
        project.runplan("start", "Y", "every", "30m").exits(0)
        jump(25, 2, "plans/Y.md")
    assert re.fullmatch("morning: runplan: Phases: 2 landed.*\n", sent.read_text())
