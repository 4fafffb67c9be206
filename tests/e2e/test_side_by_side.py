"""Phases of one plan side by side or ahead of one another; each lands once."""

from functools import partial

import pytest

from tests.support.cli import Meanwhile, Project, a_plan, assert_nothing_runs, fix, set_up, steps, until, verify, work
from tests.support.daemons import run_of, until_runs_are, until_waits_for_phase

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


# --- phases ahead ----------------------------------------------------------------------------------------


def starts(project: Project) -> list[tuple[str, str]]:
    """What happened, in order: role and phase of each process, and the landings."""
    rows = []
    for kind, body in project.events():
        if kind == "DispatchStarted":
            rows.append((body["role"], body["phase"]))
        elif kind == "Landed":
            rows.append(("landed", body["phase"]))
    return rows


@pytest.mark.promise
def test_the_next_phase_is_written_during_a_proof_and_proven_later(project: Project, meanwhile: Meanwhile) -> None:
    seen = steps('run = "test -e 1.txt"', phase="2")
    agent = (
        work(phase="1")
        + verify(*meanwhile.pause("proof"), "pass_all = true")
        + seen
        + work(phase="2")
        + work(phase="3")
    )
    settings = "[run]\npipeline = 1\n[tests]\ncommand = 'test -d plans'\n"
    plan = a_plan("1", "2", "3", depends={"2": "Phase 1.", "3": "Phase 2."})
    set_up(project, plan=plan, settings=settings, agent=agent)

    assert project.runplan("start", "X", "finish", "auto").code == 0
    meanwhile.reached("proof")
    until_waits_for_phase(project, "2")
    assert project.landed() == []
    assert "phase 2: the work is done, and is proven when phase 1 has landed" in project.runplan("explain", "X").out
    assert "  Running: phase 1, verify" in project.runplan("status", "X").out
    assert run_of(project)["state"] == "running"
    meanwhile.let_on("proof")
    until_runs_are(project, "done")

    assert project.landed() == ["1", "2", "3"]
    rows = starts(project)
    assert rows.index(("implement", "2")) < rows.index(("landed", "1")) < rows.index(("gate", "2"))
    assert rows.index(("landed", "1")) < rows.index(("verify", "2"))
    assert [row for row in rows if row[0] == "baseline"] == [("baseline", "1")]
    assert [project.show(f"main:{id_}.txt") for id_ in "123"] == ["1", "2", "3"]
    assert project.leftovers() == []
    assert_nothing_runs(project)


PLAN = a_plan("1", "2", depends={"2": "Phase 1."})
FIXERS = "".join(fix(f'append = "{phase}.txt"\ntext = "fixed\\n"', phase=phase) for phase in "12")


@pytest.mark.parametrize("reason", ["verification-failed", "stopped"])
def test_a_phase_ahead_of_one_that_does_not_land_is_kept_and_lands_with_it_later(
    project: Project, meanwhile: Meanwhile, reason: str
) -> None:
    """Its agent has ended when the verdict fails, and is at work when a person stops the run."""
    is_stopped = reason == "stopped"
    ahead = ('write = "2.txt"\ntext = "2\\n"', *(meanwhile.pause("two") if is_stopped else ()), 'commit = "Two"')
    verdict = verify(*meanwhile.pause("proof"), "sleep = 60" if is_stopped else 'fail = "W1"')
    settings = "[run]\npipeline = 1\nmax_fix_cycles = 0\n"
    set_up(project, plan=PLAN, settings=settings, agent=work() + steps(*ahead, phase="2") + verdict)

    assert project.runplan("start", "X", "finish", "auto").code == 0
    meanwhile.reached("proof")
    meanwhile.reached("two") if is_stopped else until_waits_for_phase(project, "2")
    meanwhile.let_on("proof")
    if is_stopped:
        assert project.runplan("stop", "X").code == 0
    until(lambda: run_of(project)["state"] in ("failed", "stopped"))

    assert project.landed() == []
    assert (run_of(project)["reason"], run_of(project)["phase"]) == (reason, "1")
    assert project.show("runplan/x/2:2.txt") == "2"
    report = project.runplan("report", "X").out
    assert "`runplan/x/1`" in report
    assert "`runplan/x/2`" in report
    assert_nothing_runs(project)

    set_up(project, settings="[tests]\ncommand = 'true'\n", agent=work(phase="1") + work(phase="2") + FIXERS)
    project.start("finish", "auto").exits(0)
    assert list(dict.fromkeys(project.landed())) == ["1", "2"]
    assert [project.show(f"main:{phase}.txt").splitlines()[0] for phase in "12"] == ["1", "2"]
    assert [left for left in project.leftovers() if "/parked/" not in left] == []
