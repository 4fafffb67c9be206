"""Phases ahead: the next phase begins on one that is being proven, and is proven itself only after that has landed."""

import pytest

from tests.support.cli import (
    Meanwhile,
    Project,
    a_plan,
    assert_nothing_runs,
    ended,
    fix,
    set_up,
    steps,
    until,
    verify,
    work,
)
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
def test_the_next_phase_is_written_while_one_is_proven_and_proven_after_its_landing(
    project: Project, meanwhile: Meanwhile
) -> None:
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
        meanwhile.let_on("fix")
        ran = ended(run)

    assert ran.code == 0, ran.err
    assert list(dict.fromkeys(project.landed())) == ["1", "2"]  # phase 1 has two commits
    assert project.show("main:1.txt") == ("both" if shared else "fixed")
    roles = [role for role, phase in starts(project) if phase == "2"]
    assert ("fix" in roles) is shared
    assert_nothing_runs(project)


def test_a_phase_ahead_that_fails_on_work_that_is_fixed_later_begins_again(
    project: Project, meanwhile: Meanwhile
) -> None:
    draft = steps('write = "1.txt"\ntext = "draft\\n"', 'commit = "Draft"', phase="1")
    above = steps('write = "2.txt"\ntext = "2\\n"', 'run = "grep -q fixed 1.txt"', phase="2")
    agent = draft + above + fix('write = "1.txt"\ntext = "fixed\\n"', phase="1")
    agent += paused_proof(meanwhile, 'fail = "W1"') + verify("pass_all = true", cycle="2")
    tests = "! grep -qs draft 1.txt || test ! -e 2.txt"  # red for phase 2 on the draft of phase 1
    settings = f"{AHEAD}[tests]\ncommand = '{tests}'\n"
    set_up(project, plan=a_plan("1", "2", depends=DEPENDS), settings=settings, agent=agent)

    with project.running(*FINISH) as run:
        meanwhile.reached("proof")
        until(lambda: ("PhaseFailed", "2") in [(kind, body.get("phase")) for kind, body in project.events()])
        meanwhile.let_on("proof")
        ran = ended(run)

    assert ran.code == 0, ran.err
    assert list(dict.fromkeys(project.landed())) == ["1", "2"]
    assert project.show("main:1.txt") == "fixed"


@pytest.mark.parametrize("has_ended", [False, True], ids=["at-work", "written"])
def test_a_phase_ahead_ends_with_the_failure_below_and_its_work_is_kept(
    project: Project, meanwhile: Meanwhile, has_ended: bool
) -> None:
    pause = () if has_ended else meanwhile.pause("two")
    agent = work(phase="1") + work(*pause, phase="2") + paused_proof(meanwhile, 'fail = "W1"')
    settings = f"{AHEAD}max_fix_cycles = 0\n"
    set_up(project, plan=a_plan("1", "2", depends=DEPENDS), settings=settings, agent=agent)

    with project.running(*FINISH) as run:
        meanwhile.reached("proof")
        if has_ended:
            until_waits_for_phase(project, "2")
        else:
            meanwhile.reached("two")
        meanwhile.let_on("proof")
        ran = ended(run)

    assert ran.code == 1, ran.err
    assert project.landed() == []
    assert (run_of(project)["reason"], run_of(project)["phase"]) == ("verification-failed", "1")
    assert project.show("runplan/x/2:2.txt") == "2"
    report = project.runplan("report", "X").out
    assert "stopped by the failure of phase 1, on which it began" in report
    assert "`runplan/x/2`" in report
    assert_nothing_runs(project)

    project.repo.git("branch", "-D", "runplan/x/1")  # phase 1 is written anew, and otherwise
    other = steps('write = "1.txt"\ntext = "other\\n"', 'commit = "Other"', phase="1")
    set_up(project, agent=other + work(phase="2"), settings="")
    retried = project.start("finish", "auto")
    assert retried.code == 0, retried.err
    assert project.landed() == ["1", "2"]
    assert [project.show(f"main:{id_}.txt") for id_ in "12"] == ["other", "2"]


def test_the_baseline_of_kept_work_is_the_target_where_its_base_landed_otherwise(
    project: Project, meanwhile: Meanwhile
) -> None:
    agent = work(phase="1") + paused_proof(meanwhile, "pass_all = true") + work(phase="2")
    agent += verify('fail = "W1"', phase="2")
    settings = f"{AHEAD}max_fix_cycles = 0\n"
    set_up(project, plan=a_plan("1", "2", depends=DEPENDS), settings=settings, agent=agent)
    with project.running(*FINISH) as run:
        meanwhile.reached("proof")
        until_waits_for_phase(project, "2")
        project.repo.commit("Mine", **{"mine.txt": "x"})  # phase 1 lands on top of it
        meanwhile.let_on("proof")
        assert ended(run).code == 1
    assert project.landed() == ["1"]

    settings = "[tests]\ncommand = 'test -e mine.txt'\n"  # no baseline is known for it
    set_up(project, settings=settings, agent=fix('append = "2.txt"\ntext = "more"', phase="2"))
    retried = project.start("2", "auto")

    assert retried.code == 0, retried.err
    assert ("baseline", "2") in starts(project)


def test_a_failure_below_ends_no_agent_of_a_phase_beside_it(project: Project, meanwhile: Meanwhile) -> None:
    agent = work(phase="1") + work(*meanwhile.pause("two"), phase="2") + work(*meanwhile.pause("three"), phase="3")
    plan = a_plan("1", "2", "3", depends={"2": "Phase 1."})
    for phase in "123":
        plan = plan.replace(f"Step {phase}\n\n", f"Step {phase}\n\nTouches: {phase}.txt\n\n")
    settings = f"{AHEAD}parallel = 2\nmax_fix_cycles = 0\n"
    set_up(project, plan=plan, settings=settings, agent=agent + paused_proof(meanwhile, 'fail = "W1"'))

    with project.running(*FINISH) as run:
        for name in ("three", "proof", "two"):
            meanwhile.reached(name)
        meanwhile.let_on("proof")
        until(lambda: "runplan/x/2" in project.repo.git("branch", "--list", "runplan/*"))
        meanwhile.let_on("three")
        ran = ended(run)

    assert ran.code == 1, ran.err
    assert project.landed() == ["3"]
    assert starts(project).count(("implement", "3")) == 1
    assert run_of(project)["reason"] == "verification-failed"
    assert_nothing_runs(project)


def test_a_phase_ahead_begins_again_when_the_one_below_corrects_its_text(
    project: Project, meanwhile: Meanwhile
) -> None:
    drift = "say = 'PLAN-TEXT-DRIFT: phase=2 bullet=1 field=lines plan=340-380 actual=343'"
    criteria = "\n### Acceptance Criteria\n\n- No number here\n- 2.txt has 340-380 lines\n"
    first = f'write = "2.txt"\ntext = "begun\\n"\nonce = "{project.home}/once"'  # not committed
    agent = work(phase="1") + paused_proof(meanwhile, drift, "pass_all = true")
    agent += steps(first, *meanwhile.pause("two"), 'run = "grep -q 325-361 plans/X.md"', phase="2")
    set_up(project, plan=a_plan("1", "2", depends=DEPENDS) + criteria, settings=AHEAD, agent=agent)

    with project.running(*FINISH) as run:
        meanwhile.reached("proof")
        meanwhile.reached("two")
        listed = project.runplan("gc", "--dry-run").out
        meanwhile.let_on("proof")
        until(lambda: "1" in project.landed())
        meanwhile.let_on("two")
        ran = ended(run)

    assert ran.code == 0, ran.err
    assert project.landed() == ["1", "2"]
    assert "would remove" not in listed
    assert project.show("main:2.txt") == "begun"  # the next agent continues the kept work
    assert project.leftovers() == []


@pytest.mark.promise
def test_no_phase_begins_on_one_that_a_person_has_to_sign_off(project: Project) -> None:
    plan = a_plan("1", "2").replace("- [ ] Write 1.txt\n", "- [ ] Write 1.txt\n\nSign-off: required\n")
    set_up(project, plan=plan, settings=AHEAD)

    ran = project.start("finish", "auto")

    assert ran.code == 4, ran.err
    assert ("implement", "2") not in starts(project)
    assert project.runplan("approve", "X").code == 0
