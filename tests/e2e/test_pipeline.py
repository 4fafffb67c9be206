"""Phases ahead: the next phase begins on one that is being proven, and is proven itself only after that has landed."""

import pytest

from tests.support.cli import Meanwhile, Project, a_plan, assert_nothing_runs, fix, set_up, steps, verify, work
from tests.support.daemons import run_of, until_runs_are, until_waits_for_phase

AHEAD = "[run]\npipeline = 1\n"
DEPENDS = {"2": "Phase 1.", "3": "Phase 2."}
FINISH = ("start", "X", "finish", "auto", "--foreground")


def paused_proof(meanwhile: Meanwhile, *more: str) -> str:
    """The verifier of phase 1, which waits to be let on."""
    return verify(*meanwhile.pause("proof"), *more, phase="1")


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
    agent = work(phase="1") + paused_proof(meanwhile, "pass_all = true") + seen + work(phase="2") + work(phase="3")
    settings = f"{AHEAD}[tests]\ncommand = 'test -d plans'\n"
    set_up(project, plan=a_plan("1", "2", "3", depends=DEPENDS), settings=settings, agent=agent)

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


@pytest.mark.parametrize("shared", [False, True], ids=["merges", "conflicts"])
def test_a_phase_ahead_follows_the_fix_of_the_one_below(project: Project, meanwhile: Meanwhile, shared: bool) -> None:
    below = 'write = "1.txt"\ntext = "fixed\\n"'
    above = steps('write = "1.txt"\ntext = "two\\n"', 'commit = "Two"', phase="2") if shared else work(phase="2")
    agent = work(phase="1") + above + fix(*meanwhile.pause("fix"), below, phase="1")
    agent += paused_proof(meanwhile, 'fail = "W1"') + verify("pass_all = true", cycle="2")
    agent += fix('write = "1.txt"\ntext = "both\\n"', phase="2")
    set_up(project, plan=a_plan("1", "2", depends=DEPENDS), settings=AHEAD, agent=agent)

    with project.running(*FINISH) as run:
        meanwhile.reached("proof")
        until_waits_for_phase(project, "2")
        meanwhile.let_on("proof")
        meanwhile.reached("fix")
        ran = meanwhile.finish(run, "fix")

    assert ran.code == 0, ran.err
    assert list(dict.fromkeys(project.landed())) == ["1", "2"]  # phase 1 has two commits
    assert project.show("main:1.txt") == ("both" if shared else "fixed")
    roles = [role for role, phase in starts(project) if phase == "2"]
    assert ("fix" in roles) is shared
    assert_nothing_runs(project)
