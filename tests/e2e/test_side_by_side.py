"""Phases of one plan side by side: where their paths do not overlap, and each lands once."""

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, a_plan, assert_nothing_runs, set_up, steps, until, work
from tests.support.daemons import run_of, until_runs_are

PARALLEL = "[run]\nparallel = 3\n"


def has_landed(project: Project, id_: str) -> bool:
    return id_ in project.landed()


@pytest.mark.promise
def test_phases_with_different_touches_run_in_parallel_and_land_in_turn(project: Project, meanwhile: Meanwhile) -> None:
    agent = "".join(work(*meanwhile.pause(id_), phase=id_) for id_ in ("1", "2", "3"))
    set_up(project, plan=a_plan("1", "2", "3", is_apart=True), settings=PARALLEL, agent=agent)
    before = project.repo.head("main")

    assert project.runplan("start", "X", "finish", "auto").code == 0
    for id_ in ("1", "2", "3"):
        meanwhile.reached(id_)
    seen = project.runplan("status", "X", "--json").json
    assert seen["run"]["phase"] == "1"
    assert [lane["phase"] for lane in seen["run"]["lanes"]] == ["1", "2", "3"]
    assert [phase["status"] for phase in seen["phases"]] == ["in-progress"] * 3
    for id_ in ("2", "3", "1"):
        meanwhile.let_on(id_)
        until(partial(has_landed, project, id_))
    until_runs_are(project, "done")

    assert project.landed() == ["2", "3", "1"]
    assert len(project.repo.git("log", "--format=%H", f"{before}..main").splitlines()) == 6
    assert "status: complete" in project.show("main:plans/X.md")
    assert [project.show(f"main:{id_}.txt") for id_ in ("1", "2", "3")] == ["1", "2", "3"]
    report = project.show("main:reports/plan-x.md")
    assert all(f"## Phase — {id_} Step {id_}" in report for id_ in ("1", "2", "3"))
    landings = project.repo.git("log", "--format=%(trailers:key=Runplan-Landing,valueonly)", f"{before}..main").split()
    assert len(set(landings)) == 3
    assert project.leftovers() == []
    assert_nothing_runs(project)


#: A test that listens on the port of its worktree until the other lane's test listens, too.
LISTENING = """
import os, pathlib, socket, time
place = pathlib.Path({place!r})
role, lane, port = (os.environ["RUNPLAN_" + name] for name in ("ROLE", "LANE", "PORT"))
(place / f"{{role}} {{lane}} {{port}}").touch()
with socket.create_server(("127.0.0.1", int(port))):
    end = time.monotonic() + 20
    while role == "gate" and len(list(place.glob("gate *"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
"""


def test_tests_of_two_lanes_listen_on_ports_of_their_own(project: Project, tmp_path: Path) -> None:
    place = tmp_path / "seen"
    place.mkdir()
    project.repo.write("listen.py", LISTENING.format(place=str(place)))
    agent = "".join(work(f'run = "{sys.executable} listen.py"', phase=id_) for id_ in ("1", "2"))
    settings = f'{PARALLEL}[tests]\ncommand = "{sys.executable} listen.py"\n'
    set_up(project, plan=a_plan("1", "2", is_apart=True), settings=settings, agent=agent)

    assert project.start("finish", "auto").code == 0

    seen = [file.name.split() for file in place.iterdir()]
    worktrees = {(role == "implement", lane): port for role, lane, port in seen if role != "baseline"}
    assert sorted(worktrees) == [(False, "1"), (False, "2"), (True, "1"), (True, "2")]
    assert len({int(port) // 10 for port in worktrees.values()}) == 4
    digests = {body["environment"] for body in project.bodies("DispatchStarted")}
    assert len(digests - {""}) == 1  # a baseline or a set-up of another lane still counts


def test_parallel_phases_in_the_foreground_prefix_their_lines(project: Project) -> None:
    set_up(
        project,
        plan=a_plan("1", "2", is_apart=True),
        settings=PARALLEL + '[tests]\ncommand = "test -e plans/X.md"\nallow_red_baseline = true\n',
        agent=work(phase="1") + work(phase="2"),
    )

    project.start("finish", "auto").exits(
        0, "side by side: phase 1 as [1], phase 2 as [2]", "[1] phase 1  Step 1", "[2]   landed"
    )
    assert sorted(project.landed()) == ["1", "2"]
    printed = project.runplan("explain", "X", "2").out
    assert "phase 2" in printed


def test_a_failed_parallel_phase_lets_the_others_land(project: Project, meanwhile: Meanwhile) -> None:
    agent = steps('write = "1.txt"', "exit = 1", phase="1") + work(*meanwhile.pause("2"), phase="2") + work(phase="3")
    plan = a_plan("1", "2", "3", depends={"3": "Phase 2."}, is_apart=True)
    set_up(project, plan=plan, settings=PARALLEL, agent=agent)

    assert project.runplan("start", "X", "finish", "auto").code == 0
    meanwhile.reached("2")
    failed = "    phase 1: failed (agent-failed), so no further phase starts"
    until(lambda: failed in project.runplan("status", "X").out)
    assert "side by side" not in project.runplan("status", "X").out
    assert "phase 1 did not land, so no further phase starts" in project.runplan("explain", "X").out
    meanwhile.let_on("2")
    until_runs_are(project, "failed")

    assert project.landed() == ["2"]
    assert (run_of(project)["reason"], run_of(project)["phase"]) == ("agent-failed", "1")
    assert "3" not in {body.get("phase") for body in project.bodies("PhaseChosen")}
    report = project.runplan("report", "X").out
    assert "## Phase — 2 Step 2" in report
    assert "The work is kept on the branch `runplan/x/1`" in report  # also what the agent had not committed
    assert "  [1]   failed     agent-failed: " in project.runplan("logs", "X").out
    assert "_1.2/out.log" in report  # of the lane's own dispatch, the one that tried it once more
