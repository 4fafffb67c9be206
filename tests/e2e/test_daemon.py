"""Runs of the daemon: started, followed, approved and stopped from any terminal."""

import os
import signal
import sqlite3
from contextlib import closing

import pytest

from runplan.app.views.plans import ABSENT
from tests.support.cli import Meanwhile, Project, a_plan, ended, processes_of, steps, until, work
from tests.support.daemons import (
    daemon_of,
    in_foreground,
    kill_daemon,
    log_of,
    run_of,
    schedules,
    several_plans,
    states,
    until_runs_are,
    user_settings,
)


@pytest.mark.promise
def test_a_start_returns_when_accepted_and_the_daemon_lands_the_phase(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"'))
    ran = project.runplan("start", "X", "1", "auto").exits(0)
    assert ran.last.startswith("runplan: Accepted as r")
    assert ran.last.endswith("; follow it: runplan logs plans/X.md -f")
    meanwhile.reached("agent")
    assert run_of(project)["state"] == "running"
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    assert project.landed() == ["1"]
    assert project.leftovers() == []


@pytest.mark.promise
def test_start_and_retry_wait_for_the_outcome_and_exit_with_it(project: Project) -> None:
    ran = project.runplan("start", "X", "1", "--wait")
    assert (ran.code, "runplan approve plans/X.md" in ran.last) == (4, True), ran.err
    view = run_of(project)
    assert (view["waiting_for"], view["wake"]) == ("approval", None)
    until(lambda: processes_of(project.home) == [daemon_of(project)])  # a run that waits for approval holds no process
    ran = project.go_on(ran)
    assert (ran.code, "Accepted as" in ran.last) == (0, True), ran.err
    until_runs_are(project, "done")
    owners = {body["owner"] for body in project.bodies("ClaimTaken")}
    assert {int(owner.partition(":")[0]) for owner in owners} == {daemon_of(project)}
    project.agent(steps("exit = 3", phase="2"))
    for words in (("start", "X", "2", "auto"), ("retry", "X")):
        project.runplan(*words, "--wait").ends(1, "runplan: failed: agent-failed")
    project.agent(work(phase="2"))
    ran = project.runplan("retry", "X", "--wait").exits(0, "  landed     ")
    assert ran.last.startswith("runplan: Done: 1 phase landed (2)"), ran.err
    assert project.landed() == ["1", "2"]


@pytest.mark.promise
def test_a_stop_ends_agents_keeps_the_work_and_lists_what_it_stopped(project: Project, meanwhile: Meanwhile) -> None:
    meanwhile.start(project, "auto", "every", "4h", "now", first="tell = {tokens = 600, usd = 0.6}")
    ran = project.runplan("stop").exits(0)
    assert ran.err.splitlines() == [
        "runplan: Cancelled the schedule of plans/X.md (every 4h)",
        "runplan: Stopping plans/X.md; its work is kept",
    ]
    until_runs_are(project, "stopped")
    until(lambda: processes_of(project.home) == [daemon_of(project)])
    assert project.show("runplan/x/1:1.txt") == "1"
    assert project.landed() == []
    assert project.runplan("status", "X", "--json").json["claim"] is None
    (booked,) = project.bodies("DispatchEnded")
    assert (booked["ending"], booked["input_tokens"], booked["usd"]) == ("ended", 600, 0.6)
    assert "Nothing to stop here" in project.runplan("stop").err


@pytest.mark.promise
def test_a_stop_reaches_a_foreground_run_in_another_terminal(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    foreground = meanwhile.begin(project, "agent", "start", "X", "1", "auto", "--foreground")
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


def test_runs_beyond_max_parallel_wait_until_it_is_raised_or_one_ends(project: Project, meanwhile: Meanwhile) -> None:
    user_settings(project, "[daemon]\nmax_parallel = 1\n")
    plans = several_plans(project, 3)
    project.agent("".join(steps(*meanwhile.pause(n), f'write = "{n}.txt"', phase=n) for n in ("1", "2", "3")))
    for plan in plans:
        assert project.runplan("start", plan, "auto").code == 0
    meanwhile.reached("1")
    until(lambda: [states(project, plan) for plan in plans] == [["running"], ["queued"], ["queued"]])
    view = run_of(project, "P2")
    assert (view["state"], view["waiting_for"]) == ("queued", "slot")
    daemon = daemon_of(project)
    user_settings(project, "[daemon]\nmax_parallel = 2\n")
    os.kill(daemon, signal.SIGHUP)
    meanwhile.reached("2")
    assert [states(project, plan) for plan in plans] == [["running"], ["running"], ["queued"]]
    for name in ("1", "3", "2"):
        meanwhile.reached(name)
        meanwhile.let_on(name)
    for plan in plans:
        until_runs_are(project, "done", plan=plan)
    assert (sorted(project.landed()), daemon_of(project)) == (["1", "2", "3"], daemon)


@pytest.mark.promise
def test_other_work_is_declined_in_a_phase_and_unknown_words_refused(project: Project, meanwhile: Meanwhile) -> None:
    meanwhile.start(project, last="exit = 3")
    for words in (("2", "auto", "--wait"), ("finish", "auto"), ("1", "direct"), ("2", "--foreground")):
        ran = project.runplan("start", "X", *words)
        assert (ran.code, "plans/X.md is busy with phase 1 (r" in ran.last) == (4, True), ran.err
    unknown = project.runplan("start", "X", "fnish")
    says = "runplan: fnish: no such word or phase; the phases are 1, 2; did you mean finish?"
    assert (unknown.code, unknown.last) == (2, says)
    assert project.runplan("start", "X", "9").code == 3
    same = project.runplan("start", "X")
    assert (same.code, "plans/X.md is already running" in same.last) == (0, True), same.err
    meanwhile.let_on("agent")
    until_runs_are(project, "failed")


@pytest.mark.promise
def test_a_daemon_that_died_is_told_once_and_a_start_resumes_its_run(project: Project, meanwhile: Meanwhile) -> None:
    meanwhile.start(project)
    pid, run = daemon_of(project), run_of(project)["id"]
    kill_daemon(project, signal.SIGSEGV)
    told, again = (project.runplan("status", "X") for _ in range(2))
    assert f"(process {pid}, since " in told.err
    assert "): Fatal Python error: Segmentation fault. The last lines of " in told.err
    assert '"event":"DispatchStarted"' in told.err
    assert again.err == ""
    assert told.out.endswith(f"\n\n{ABSENT}\n")
    ran = project.runplan("start", "X", "1", "auto")
    assert (ran.code, ran.last.startswith(f"runplan: Resumed {run}; follow it: ")) == (0, True), ran.err
    kill_daemon(project)
    meanwhile.let_on("agent")
    with in_foreground(project):  # as a service manager starts it again
        told = project.runplan("status", "X")
        assert "it left no error, as after SIGKILL" in told.err
        until_runs_are(project, "done")
    assert (project.landed(), project.dispatched()) == (["1"], ["implement", "verify"])


def test_a_foreground_run_that_waits_is_continued_by_the_daemon(project: Project, meanwhile: Meanwhile) -> None:
    """As a page or another agent does, which cannot wait for the run."""
    project.agent(work() + work(*meanwhile.pause("second"), phase="2"))
    assert project.start("finish").code == 4
    run = run_of(project)["id"]
    project.runplan("approve", "X", "--background").ends(
        0, f"runplan: Accepted as {run}; follow it: runplan logs plans/X.md -f"
    )
    meanwhile.reached("second")
    meanwhile.let_on("second")
    until(lambda: run_of(project)["waiting_for"] == "approval")
    assert project.landed() == ["1"]
    ran = project.runplan("approve", "X", "--wait")  # it is the daemon's now
    assert (ran.code, "Done: 2 phases landed" in ran.err, states(project)) == (0, True, ["done"]), ran.err
    assert project.landed() == ["1", "2"]


def test_an_interrupted_start_wait_says_that_the_run_continues(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    with project.running("start", "X", "1", "auto", "--wait") as waits:
        meanwhile.reached("agent")
        printed = waits.stderr
        assert printed is not None
        until(lambda: b"implement" in printed.readline())
        waits.send_signal(signal.SIGINT)
        ran = ended(waits)
    run = run_of(project)["id"]
    assert (ran.code, ran.last) == (
        130,
        f"runplan: detached; {run} continues. Follow it: runplan logs plans/X.md -f; stop it: runplan stop plans/X.md",
    )
    meanwhile.let_on("agent")
    until_runs_are(project, "done")


def test_a_start_warns_when_another_run_has_claimed_the_issue(project: Project) -> None:
    project.plan(a_plan("1", "2", front="status: active\nissue: 7"))
    project.plan(a_plan("3", front="status: active\nissue: 7"), name="plans/Y.md")
    project.agent(work() + work(phase="2") + work(phase="3"))
    assert project.runplan("start", "X", "1").code == 0
    until_runs_are(project, "waiting")
    claimed = f"issue #7 is claimed by the run {run_of(project)['id']} of plans/X.md; both runs continue"
    second = project.runplan("start", "Y", "auto")
    assert (second.code, f"runplan: warning: {claimed}" in second.err.splitlines()) == (0, True), second.err
    until_runs_are(project, "done", plan="plans/Y.md")
    assert f"- Warning: {claimed}" in project.runplan("report", "Y").out.replace("\\", "")


STILL = "Stands still: the daemon cannot work in this repository for now."


def change_journal(project: Project, statement: str) -> None:
    with closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute(statement)


def test_status_says_why_the_daemon_cannot_record(project: Project, meanwhile: Meanwhile) -> None:
    meanwhile.start(project)
    change_journal(project, "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no room'); END")
    assert STILL not in project.runplan("status").out
    meanwhile.let_on("agent")
    until(lambda: log_of(project, "closed"))
    daemon = daemon_of(project)
    for words in ((), ("X",)):
        printed = project.runplan("status", *words).out
        assert f"\n  {STILL}\n" in printed
        last = printed.splitlines()[-1]
        assert last.startswith(f"The daemon (process {daemon}) cannot work here since ")
        assert ": no room; nothing was recorded; " in last
        assert "; it tries again at " in last
    seen = project.runplan("status", "X", "--json").json
    assert (seen["daemon"]["state"], seen["daemon"]["pid"]) == ("closed", daemon)
    assert "no room" in seen["daemon"]["error"]
    assert seen["run"]["stuck"] == {"level": "look", "sentence": STILL}

    change_journal(project, "DROP TRIGGER full")
    os.kill(daemon, signal.SIGHUP)
    until_runs_are(project, "done")
    assert project.runplan("status", "X", "--json").json["daemon"] is None


def test_a_stop_that_cannot_be_recorded_ends_the_agent_and_can_be_repeated(
    project: Project, meanwhile: Meanwhile
) -> None:
    meanwhile.start(project, "auto", "every", "4h", "now")
    for table in ("commands", "events"):
        full = f"CREATE TRIGGER full_{table} BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no room'); END"
        change_journal(project, full)
    ran = project.runplan("stop", "X").exits(5, "no room; nothing was recorded; ")
    assert ran.err.splitlines()[0] == "runplan: Ended the agent of plans/X.md; its work is kept"
    assert ran.last.endswith("; then stop it again")
    until(lambda: processes_of(project.home) == [daemon_of(project)])
    for table in ("commands", "events"):
        change_journal(project, f"DROP TRIGGER full_{table}")
    assert project.runplan("stop", "X").code == 0
    until_runs_are(project, "stopped")
    assert (schedules(project), project.dispatched(), project.landed()) == ([], ["implement"], [])


def test_a_foreground_run_without_free_descriptors_is_exit_5(project: Project) -> None:
    words = ["start", "X", "finish", "auto", "--foreground"]
    project.agent(work() + work(phase="2"))
    limited = project.runplan_from('ulimit -Sn 20; exec "$@"', *words)
    limited.exits(5, "Too many open files; raise the limit")
    project.runplan(*words).exits(0)


@pytest.mark.parametrize("caller", ['exec "$@" <&- >&- 2>&-', 'ulimit -v 900000; exec "$@"'])
def test_a_run_works_with_closed_streams_and_limited_memory(project: Project, caller: str) -> None:
    project.agent(work())
    project.runplan_from(caller, "start", "X", "1", "auto", "--foreground").exits(0)
    assert project.landed() == ["1"]
