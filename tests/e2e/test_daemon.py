"""Runs in the hands of the daemon: handed over, followed, answered, paused and stopped from any terminal."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, ended, processes_of, until
from tests.support.daemons import (
    daemon_of,
    in_foreground,
    log_of,
    run_of,
    several_plans,
    states,
    until_runs_are,
    user_settings,
)
from tests.support.scripts import Meanwhile, steps, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


# --- handing over ---------------------------------------------------------------------------------------------


def test_a_start_is_accepted_at_once_and_lands_without_anybody(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"'))
    ran = project.runplan("start", "X", "1", "auto")
    assert ran.code == 0, ran.err
    assert ran.last.startswith("runplan: Accepted as r")
    assert ran.last.endswith("; follow it: runplan logs plans/X.md -f")
    meanwhile.reached("agent")
    assert run_of(project)["state"] == "running"
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    assert project.landed() == ["1"]
    assert project.leftovers() == []


def test_starts_at_the_same_moment_give_one_daemon_and_one_run(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"'))
    answers = [ended(process) for process in [project.popen("start", "X", "1", "auto") for _ in range(4)]]
    meanwhile.let_on("agent")
    assert [ran.code for ran in answers] == [0] * 4, [ran.err for ran in answers]
    told = sorted(ran.last.partition(" (")[0].partition(" as ")[0] for ran in answers)
    assert told == ["runplan: Accepted", *["runplan: plans/X.md is already running"] * 3]
    until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "verify"]
    assert len(log_of(project, "started")) == 1


def test_a_second_daemon_is_refused_and_says_who_the_first_is(project: Project) -> None:
    with in_foreground(project) as first:
        ran = project.runplan("daemon")
        assert ran.code == 2, ran.err
        assert "the daemon is already running: runplan " in ran.last
        assert f"(process {first.pid}, since " in ran.last
        assert daemon_of(project) == first.pid


def test_what_can_be_refused_is_refused_before_the_daemon_is_asked(project: Project) -> None:
    ran = project.runplan("start", "X", "9", "auto")
    assert (ran.code, ran.last) == (3, "runplan: 9: no such phase; the phases are 1, 2")
    assert not daemon_of(project)


# --- following ------------------------------------------------------------------------------------------------


def test_a_start_that_waits_ends_as_the_run_does(project: Project) -> None:
    ran = project.runplan("start", "X", "1", "auto", "--wait")
    assert ran.code == 0, ran.err
    assert "  landed     " in ran.err
    assert ran.last.startswith("runplan: Done"), ran.err
    assert project.landed() == ["1"]


def test_a_start_that_waits_fails_with_the_reason_on_its_last_line(project: Project) -> None:
    project.agent(steps("exit = 3"))
    ran = project.runplan("start", "X", "1", "auto", "--wait")
    assert (ran.code, ran.last) == (1, "runplan: failed: agent-failed"), ran.err


def test_a_start_that_waits_does_not_hang_on_a_person(project: Project) -> None:
    ran = project.runplan("start", "X", "1", "--wait")
    assert ran.code == 4, ran.err
    assert "runplan approve plans/X.md" in ran.last
    assert project.go_on(ran).code == 0
    until_runs_are(project, "done")
    assert project.landed() == ["1"]


def test_a_start_that_waits_waits_for_its_own_run_when_another_has_to_end_first(project: Project) -> None:
    project.agent(work() + work(phase="2"))
    waits_for_approval(project)
    first = run_of(project)["id"]
    ran = project.runplan("start", "X", "2", "auto", "--wait")
    assert ran.code == 0, ran.err
    assert f"Accepted as {run_of(project)['id']}; " in ran.err
    assert run_of(project)["id"] != first
    assert states(project) == ["stopped", "done"]
    assert project.landed() == ["2"]
    assert project.show("runplan/x/1:1.txt") == "1"


# --- answering ------------------------------------------------------------------------------------------------


def waits_for_approval(project: Project) -> None:
    assert project.runplan("start", "X", "1").code == 0
    until(lambda: states(project) == ["waiting"])
    view = run_of(project)
    assert (view["waiting_for"], view["wake"]) == ("approval", None)


def test_what_waits_for_a_person_holds_no_process_and_lands_when_approved(project: Project) -> None:
    waits_for_approval(project)
    until(lambda: processes_of(project.home) == [daemon_of(project)])
    ran = project.runplan("approve", "X")
    assert ran.code == 0, ran.err
    assert "Accepted as" in ran.last
    until_runs_are(project, "done")
    assert project.landed() == ["1"]
    owners = {body["owner"] for kind, body in project.events() if kind == "ClaimTaken"}
    assert {int(owner.partition(":")[0]) for owner in owners} == {daemon_of(project)}


# --- pausing and stopping -------------------------------------------------------------------------------------


def test_a_stop_ends_the_agents_keeps_the_work_and_says_what_it_stopped(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    assert project.runplan("start", "X", "auto", "every", "4h", "now").code == 0
    meanwhile.reached("agent")
    ran = project.runplan("stop")
    assert ran.code == 0, ran.err
    assert ran.err.splitlines() == [
        "runplan: Cancelled the schedule of plans/X.md (every 4h)",
        "runplan: Stopping plans/X.md; its work is kept",
    ]
    until_runs_are(project, "stopped")
    until(lambda: processes_of(project.home) == [daemon_of(project)])
    assert project.show("runplan/x/1:1.txt") == "1"
    assert project.landed() == []
    assert project.runplan("status", "X", "--json").json["claim"] is None
    assert "Nothing to stop here" in project.runplan("stop").err


def test_a_stop_of_one_plan_leaves_the_claims_of_others(project: Project, meanwhile: Meanwhile) -> None:
    project.plan(a_plan("2"), name="plans/Y.md")
    project.agent(work(*meanwhile.pause("x")) + work(*meanwhile.pause("y"), phase="2"))
    for plan in ("X", "Y"):
        assert project.runplan("start", plan, "auto").code == 0
    meanwhile.reached("x")
    meanwhile.reached("y")
    assert "Stopping plans/X.md" in project.runplan("stop", "X").err
    until_runs_are(project, "stopped")
    assert project.runplan("status", "X", "--json").json["claim"] is None
    assert project.runplan("status", "Y", "--json").json["claim"] is not None
    meanwhile.let_on("y")
    until_runs_are(project, "done", plan="plans/Y.md")
    assert project.landed() == ["2"]


@pytest.mark.parametrize("daemon", [False], ids=["no-daemon"])
def test_a_stop_reaches_a_run_in_another_terminal(project: Project, meanwhile: Meanwhile, *, daemon: bool) -> None:
    with in_foreground(project) if daemon else nullcontext():
        stop_of_another_terminal(project, meanwhile)


def stop_of_another_terminal(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    foreground = project.popen("start", "X", "1", "auto", "--foreground")
    meanwhile.reached("agent")
    ran = project.runplan("stop")
    assert (ran.code, ran.err.splitlines()) == (
        0,
        [
            f"runplan: Stopped the run of plans/X.md in process {foreground.pid}",
            "runplan: Stopping plans/X.md; its work is kept",
        ],
    )
    assert ended(foreground).code == 130
    until_runs_are(project, "stopped")
    until(lambda: set(processes_of(project.home)) <= {daemon_of(project)})


# --- turns ----------------------------------------------------------------------------------------------------


def test_no_more_runs_than_may_be_are_at_work_and_the_others_have_their_turn_in_order(
    project: Project, meanwhile: Meanwhile
) -> None:
    user_settings(project, "[daemon]\nmax_parallel = 1\n")
    plans = several_plans(project, 3)
    project.agent("".join(steps(*meanwhile.pause(n), f'write = "{n}.txt"', phase=n) for n in ("1", "2", "3")))
    for plan in plans:
        assert project.runplan("start", plan, "auto").code == 0
    meanwhile.reached("1")
    until(lambda: [states(project, plan) for plan in plans] == [["running"], ["queued"], ["queued"]])
    view = run_of(project, "P2")
    assert (view["state"], view["waiting_for"]) == ("queued", "slot")
    for name, then in (("1", "2"), ("2", "3")):
        meanwhile.let_on(name)
        meanwhile.reached(then)
        assert states(project, plans[int(name) - 1]) == ["done"]
    assert project.dispatched("plans/P3.md") == ["implement"]
    meanwhile.let_on("3")
    until_runs_are(project, "done", plan="plans/P3.md")
    assert project.landed() == ["1", "2", "3"]


# --- waiting --------------------------------------------------------------------------------------------------


def test_what_waits_is_told_once_however_busy_the_repository_is(project: Project, tmp_path: Path) -> None:
    """Neither is a person told again, nor is the wait for a checkout begun anew, because another plan is worked."""
    told = tmp_path / "told"
    user_settings(project, f'[notify]\ncommand = "echo $RUNPLAN_NOTICE $RUNPLAN_PLAN >>{told}"\n')
    project.commit_file("1.txt", "before\n")
    project.plan(a_plan("3"), name="plans/Y.md")
    project.plan(a_plan("4"), name="plans/Z.md")
    project.agent(work() + work(phase="3") + work(phase="4"))
    project.repo.write("1.txt", "somebody edits this\n")
    assert project.runplan("start", "Y").code == 0
    assert project.runplan("start", "X", "1", "auto").code == 0
    until(lambda: states(project) == states(project, "plans/Y.md") == ["waiting"])
    wake = run_of(project)["wake"]
    assert project.runplan("start", "Z", "auto", "--wait").code == 0
    assert len([kind for kind, _ in project.events() if kind == "Paused"]) == 1
    assert run_of(project)["wake"] == wake
    until(lambda: told.exists() and "plans/Z.md" in told.read_text())
    assert told.read_text().count("plans/Y.md") == 1, told.read_text()
