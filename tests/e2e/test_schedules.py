"""Schedules fire, pause and end, and every slot is recorded once."""

import json
import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runplan.domain.times import iso, parse_iso
from runplan.hosts.daemon.client import Client
from tests.support.cli import Meanwhile, Project, a_plan, fix, processes_of, steps, until, work, writes
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
    socket_of,
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


def test_a_plan_that_is_a_draft_is_refused(project: Project) -> None:
    scheduled(project)
    project.plan(a_plan("1", front="status: draft"))
    checked = project.runplan("check", "X").out.splitlines()[-1]
    assert checked.startswith("plans/X.md: warning: the plan says status: draft; ")
    ran = project.runplan("now", "X")
    assert (ran.code, states(project)) == (2, []), ran.err
    assert ran.last.startswith("runplan: plans/X.md: the plan says status: draft; to have it worked, write status: ")


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
    project.agent(work(*meanwhile.pause("agent")))
    scheduled(project, "now")
    meanwhile.reached("agent")
    project.runplan("stop", "X", "--keep-schedule").ends(
        0, "runplan: Stopping plans/X.md; its work and its schedule (every 4h) are kept"
    )
    until_runs_are(project, "stopped")
    (row,) = schedules(project)
    assert (row.spec, row.paused) == ("4h", None)
    assert "Nothing to stop for plans/X.md" in project.runplan("stop", "X", "--keep-schedule").err
    assert len(schedules(project)) == 1


def test_a_rejection_pauses_the_schedule(project: Project) -> None:
    project.agent(writes("1") + fix('write = "1.txt"\ntext = "longer\\n"'))
    scheduled(project)
    project.runplan("start", "X", "1")
    until_runs_are(project, "waiting")
    project.runplan("reject", "X")
    until_runs_are(project, "stopped")
    rejected = "phase 1 was rejected"
    assert schedules(project)[0].paused == rejected
    ran = project.runplan("now")
    again = "retry it: runplan retry plans/X.md; or resume the schedule: runplan resume plans/X.md"
    assert (ran.code, ran.last) == (4, f"runplan: Not started: {rejected}; {again}"), ran.err
    due_soon(project)
    with in_foreground(project):
        until(lambda: [answer for answer, _ in firings(project)] == ["skipped"])
        assert states(project) == ["stopped"]
        project.runplan("retry", "X")
        until_runs_are(project, "stopped", "waiting")
    assert project.landed() == []


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


def test_a_failure_and_the_pause_of_its_schedule_are_one_transaction(project: Project) -> None:
    project.agent(steps("exit = 3"))
    with in_foreground(project, TEST_KILL="after RunEnded") as daemon:
        assert project.runplan("start", "X", "auto", "every", "4h", "now").code == 0
        until(lambda: daemon.poll() is not None)
    assert states(project) == ["failed"]
    (row,) = schedules(project)
    assert row.paused == "phase 1 failed (agent-failed)"


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


HOUR = 3600


@pytest.fixture
def wall(project: Project, tmp_path: Path) -> Iterator[Wall]:
    """A daemon that goes by a clock of its own."""
    made = Wall(tmp_path)
    with in_foreground(project, **made.env):
        yield made


def jump(project: Project, wall: Wall, hours: float) -> None:
    """Set the clock ahead of the real one; the daemon notices within a minute, or at the next request."""
    wall.jump_to(int(hours * HOUR))
    Client(socket_of(project)).close()


def also_another(project: Project) -> None:
    """A plan with a slot every half hour: what the daemon answers of it shows how far it has come with the others."""
    project.plan(a_plan("9"), name="plans/Y.md")
    assert project.runplan("start", "Y", "auto", "every", "30m").code == 0


def jump_and_wait(project: Project, wall: Wall, hours: float) -> None:
    """The same, until what is due of all plans has been answered; to where the clock has never been before."""
    before = len(firings(project, "plans/Y.md"))
    jump(project, wall, hours)
    until(lambda: len(firings(project, "plans/Y.md")) > before)


def answers(project: Project) -> list[str]:
    return [answer for answer, _ in firings(project)]


def slots(project: Project) -> list[str]:
    """The moments of what was answered, in that order."""
    found = project.rows("SELECT slot FROM firings WHERE plan='plans/X.md' ORDER BY rowid")
    return [json.loads(slot)[0] for (slot,) in found]


def test_a_clock_jump_forwards_fires_once_and_answers_no_slot_twice(project: Project, wall: Wall) -> None:
    scheduled(project)
    jump(project, wall, 9)
    until(lambda: answers(project) == ["missed", "fired"])
    until_runs_are(project, "done")
    jump(project, wall, 9.5)
    jump(project, wall, 13)
    until(lambda: len(answers(project)) == 3)
    assert slots(project) == sorted({*slots(project)}), "each of them once, in their order"


def test_the_morning_report_is_sent_once_a_day_and_only_with_news(project: Project, wall: Wall, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    command = f'command = "echo $RUNPLAN_NOTICE: $RUNPLAN_TITLE >>{sent}"'
    due = datetime.now(UTC) + timedelta(hours=12)
    user_settings(project, f'[notify]\nmorning = "{due:%H:%M}"\n{command}\non = ["morning"]\n')
    os.kill(daemon_of(project), signal.SIGHUP)
    until(lambda: log_of(project, "settings-changed"))
    also_another(project)
    assert project.runplan("start", "X", "1", "auto", "--wait").code == 0
    jump(project, wall, 24)
    until(sent.exists)
    jump_and_wait(project, wall, 24.1)
    assert len(sent.read_text().splitlines()) == 1
    assert sent.read_text().startswith("morning: runplan: Phases: 1 landed")


def test_a_running_agent_survives_a_night_of_sleep(project: Project, wall: Wall, meanwhile: Meanwhile) -> None:
    """It may run for two hours by its own clock, which stood still; the slots of the night are recorded."""
    project.agent(work(*meanwhile.pause("agent")) + work(phase="2"))
    scheduled(project, "now")
    meanwhile.reached("agent")
    jump(project, wall, 9)
    until(lambda: len(answers(project)) == 2)
    assert firings(project)[-1] == ("skipped", "the plan is in flight")
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    assert (project.landed(), project.dispatched()) == (["1"], ["implement", "verify"])
    assert log_of(project, "trouble") == []
