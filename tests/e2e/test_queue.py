"""`runplan work` works through the ready plans of the queue."""

from pathlib import Path

import pytest

import runplan
from tests.support.cli import Project, a_plan, until, verify, work
from tests.support.daemons import schedules, states, until_runs_are

A = "plans/A.md"
B = "plans/B.md"
X = "plans/X.md"
AGAIN = "Resume with: runplan resume queue:2"


def queued(project: Project) -> list[tuple[str, str]]:
    return [(plan["plan"], plan["why"]) for plan in project.runplan("queue", "--json").json["plans"]]


def add(project: Project, name: str, phase: str, front: str = "") -> None:
    project.plan(a_plan(phase, front=front), name=name)


@pytest.mark.promise
def test_work_begins_plan_after_plan_and_one_that_waits_for_a_person_stops_nothing(project: Project) -> None:
    add(project, A, "1", front="after: X")
    add(project, B, "2", front="priority: 1")
    assert queued(project) == [(B, ""), (A, f"after {X}"), (X, "")]
    ran = project.runplan("work", "2")  # not auto: each waits for approval
    assert ran.code == 0, ran.err
    assert ran.last == f"runplan: Accepted as queue:2; follow it: runplan logs {B} -f"
    until_runs_are(project, "waiting", plan=B)
    until_runs_are(project, "waiting", plan=X)
    until(lambda: not project.runplan("queue", "--json").json["works"])
    assert queued(project)[0] == (B, "waits for you: approval")
    assert states(project, A) == []
    again = project.runplan("work", "all").exits(0)
    assert again.last.startswith("runplan: no plan of the queue is ready: plans/B.md waits for you")


def test_a_paused_work_begins_no_further_plan_until_it_is_resumed(project: Project, tmp_path: Path) -> None:
    add(project, A, "1", front="priority: 1")
    project.agent(work(f'wait_for = "{tmp_path}/go"') + verify("pass_all = true"))
    assert project.runplan("work", "2", "auto").code == 0
    until_runs_are(project, "running", plan=A)
    assert project.runplan("queue").out.splitlines()[0].split("  ")[-1] == "is worked on"
    said = f"Paused queue:2: it begins no further plan; those that it has begun are not paused. {AGAIN}"
    assert project.runplan("pause", "queue:2").last == f"runplan: {said}"
    (tmp_path / "go").touch()
    until_runs_are(project, "done", plan=A)
    shown = project.runplan("explain", "queue:2").out
    assert "queue:2: Paused: by a person; it begins no further plan; begun: plans/A.md" in shown
    assert "Resume: runplan resume queue:2" in shown
    assert states(project, X) == []
    project.runplan("work", "2", "auto").ends(0, "runplan: queue:2 is paused; continue it: runplan resume queue:2")
    assert project.runplan("resume", "queue:2").code == 0
    until(lambda: states(project, X))
    assert project.runplan("explain", "queue:9").code == 3


def test_a_stop_ends_the_work_and_its_runs(project: Project) -> None:
    add(project, A, "1")
    assert project.runplan("work", "all").code == 0
    for plan in (A, X):
        until_runs_are(project, "waiting", plan=plan)
    add(project, B, "2", front="after: A")
    assert project.runplan("stop").code == 0
    for plan in (A, X):
        until_runs_are(project, "stopped", plan=plan)
    assert (states(project, B), project.runplan("queue", "--json").json["works"]) == ([], [])


def test_a_person_moves_pins_and_unpins(project: Project) -> None:
    add(project, A, "1")
    add(project, B, "2")
    assert project.runplan("work", "00").last == "runplan: work 00: say how many plans to work on, or all"
    project.runplan("queue", "move", "X", "1").ends(0, f"runplan: {X} is number 1 of 3 in the queue")
    assert project.runplan("queue", "pin", "B").code == 0
    shown = project.runplan("queue").out.splitlines()
    assert shown[:3] == [f"  1  {B}  pinned, ready", f"  2  {X}  ready", f"  3  {A}  ready"]
    forecast = "no history yet: two agents and up to two fix cycles a phase"
    assert shown[4:6] == [
        "3 plans are ready. Work on the next one: runplan work",
        f"Forecast of what is ready: {forecast}",
    ]
    assert project.runplan("queue", "unpin", "B").code == 0
    assert [plan for plan, _ in queued(project)] == [X, A, B]
    absent = f"runplan: nothing: no such plan in the queue; there are: {X}, {A}, {B}"
    assert (project.runplan("queue", "move", "nothing", "1").code, project.runplan("queue", "pin", "nothing").last) == (
        3,
        absent,
    )
    assert project.runplan("queue", "pin").last == f"runplan: say which plan: {X}, {A} or {B}"
    assert project.runplan("queue", "move", "X").code == 2
    assert [entry.plan for entry in runplan.open(project.path, env=project.env).queue()] == [X, A, B]


def test_the_queue_has_a_schedule_and_is_stopped(project: Project) -> None:
    ran = project.runplan("work", "all", "every", "day", "at", "22:00")
    assert (ran.code, "Scheduled queue:all every day at 22:00, first at " in ran.last) == (0, True), ran.err
    assert [row.plan for row in schedules(project)] == ["queue:all"]
    assert "All ready plans of the queue" in project.runplan("status").out
    assert project.runplan("now").code == 0
    until_runs_are(project, "done")
    stopped = project.runplan("stop", "queue:all")
    assert stopped.last == "runplan: Cancelled the schedule of queue:all (every day at 22:00)"
    assert project.runplan("work", "two").code == 2
