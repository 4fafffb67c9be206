"""Phases with `Execution:`: pushed, done by another plan, or done by a command; and landings by a direct push."""

import re
from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, a_plan, set_up, until, with_remote, work
from tests.support.daemons import in_foreground, kill_daemon, run_of, until_runs_are, user_settings
from tests.support.repos import Repo


def executed(plan: str, **executions: str) -> str:
    """The plan with a line `Execution:` in some phases; `p2` is that of phase 2."""
    for name, execution in executions.items():
        item = f"- [ ] Write {name[1:]}.txt"
        plan = plan.replace(item, f"Execution: {execution}\n\n{item}")
    return plan


# --- direct ---------------------------------------------------------------------------------------------


def test_a_direct_phase_waits_for_earlier_pushes_and_lands_on_the_remote(project: Project, tmp_path: Path) -> None:
    set_up(project, plan=executed(a_plan("1", "2"), p2="direct"))
    remote = with_remote(project, tmp_path / "origin.git")
    before = remote.head("main")

    project.start("finish", "auto").exits(
        4, "origin lacks commits of your main, on which the phase is built; push them: git push origin main"
    )
    assert (remote.head("main"), project.landed()) == (before, ["1"])
    project.repo.git("push", "-q", "origin", "main")
    project.runplan("retry", "X").exits(0)
    assert remote.head("main") == project.repo.head("main")
    assert (project.landed(), project.dispatched().count("implement")) == (["1", "2"], 2)


def test_a_direct_phase_is_not_repeated_where_the_local_branch_did_not_follow(project: Project, tmp_path: Path) -> None:
    set_up(project, plan=executed(a_plan("1", "2"), p1="direct"))
    remote = with_remote(project, tmp_path / "origin.git")
    assert project.start("1", "auto").code == 0
    landed = remote.head("main")
    project.repo.git("reset", "-q", "--hard", "HEAD~2")

    again = project.start("1", "auto")

    assert (again.code, project.dispatched().count("implement")) == (5, 1)
    assert "your main lacks commits of origin, to which the phase is pushed; run: git " in again.err
    project.repo.git("pull", "-q", "--ff-only", "origin", "main")
    retried = project.runplan("retry", "X")
    assert (retried.code, remote.head("main")) == (0, landed), retried.err
    assert "nothing to do" in retried.err.lower()


@pytest.mark.promise
def test_a_direct_phase_is_refused_before_any_work(project: Project, tmp_path: Path) -> None:
    plan = executed(a_plan("1", "2"), p2="direct")
    set_up(project, plan=plan, agent=work(), settings="[run]\nmain_protected = true\n")
    with_remote(project, tmp_path / "origin.git")

    ran = project.runplan("start", "X", "finish", "auto", "--dry-run")

    why = "protected: main does not accept pushes (run.main_protected)"
    assert (ran.code, f"runplan: plans/X.md:24: phase 2: {why}" in ran.err) == (2, True), ran.err


# --- another plan ---------------------------------------------------------------------------------------

META = executed(a_plan("1", "2", "3"), p1="plan plans/A.md", p2="plan plans/B.md", p3="plan plans/C.md")


def with_subplans(project: Project, **agents: str) -> None:
    """A plan X of the plans A, B and C, each with one phase; `B1` is another agent for that phase."""
    for name in "ABC":
        project.repo.write(f"plans/{name}.md", a_plan(f"{name}1").replace("title: X", f"title: {name}"))
    set_up(project, plan=META, agent=works("A1", "B1", "C1", **agents))


def works(*phases: str, **agents: str) -> str:
    return "".join(agents.get(phase, work(phase=phase)) for phase in phases)


def landings(project: Project) -> list[str]:
    """Plan and phase of each landing of the target, oldest first, by the trailers of its bookkeeping."""
    trailers = "%(trailers:key=Runplan-Plan,valueonly,separator=) %(trailers:key=Runplan-Phase,valueonly,separator=)"
    log = project.repo.git("log", "--reverse", f"--format=%s%x00{trailers}", "main")
    rows = [line.split("\0") for line in log.splitlines()]
    return [of for subject, of in rows if ": record phase" in subject]


#: The landings of the plan X: after the phase of each sub-plan the row of its own.
IN_ORDER = [row for n, name in enumerate("ABC", 1) for row in (f"plans/{name}.md {name}1", f"plans/X.md {n}")]


@pytest.mark.promise
def test_a_plan_of_three_sub_plans_names_the_one_that_fails_and_completes_once_after_retry(project: Project) -> None:
    with_subplans(project, B1="")

    project.start("finish", "auto").ends(
        1, "runplan: failed: blocked", "plans/B.md is not complete (phase B1, no-commits): the agent left no change"
    )
    assert landings(project) == IN_ORDER[:2]
    set_up(project, agent=works("A1", "B1", "C1"))
    project.runplan("retry", "X").exits(0)
    assert landings(project) == IN_ORDER
    assert project.dispatched("plans/A.md") == ["implement", "verify"]
    assert "status: complete" in project.show("main:plans/X.md")
    report = project.runplan("report", "X").out
    assert "[plan-b.md](plan-b.md)" in report
    assert "- Verdict on all phases: pass by `robot` on tree" in report
    *_, diff = project.prompts("verify")
    assert re.findall(r"^diff --git a/(\w+.txt) ", diff, re.MULTILINE) == ["A1.txt", "B1.txt", "C1.txt"]
    assert project.leftovers() == []


def test_the_daemon_works_sub_plans_through_pause_and_kill_and_shows_which(
    project: Project, meanwhile: Meanwhile
) -> None:
    user_settings(project, "[daemon]\nmax_parallel = 1\n")  # a run that waits for a sub-plan takes no place
    with_subplans(project, B1=work(*meanwhile.pause("B"), phase="B1"))
    project.runplan("start", "X", "finish", "auto").exits(0)
    meanwhile.reached("B")
    project.runplan("pause", "X").exits(0)
    until(lambda: project.bodies("Halted", "plans/B.md"))
    project.runplan("resume", "X").exits(0)
    kill_daemon(project)

    run = run_of(project)
    with in_foreground(project):
        meanwhile.let_on("B")
        until_runs_are(project, "done")

    assert (run["waiting_for"], run["about"], run["subplan"]) == ("sub-plan", "plans/B.md", "plans/B.md")
    assert landings(project) == IN_ORDER
    assert project.dispatched("plans/B.md") == ["implement", "verify"]


def test_a_sub_plan_without_auto_waits_for_approval_and_is_stopped_with_its_parent(project: Project) -> None:
    with_subplans(project)
    waits = project.start("1").exits(4, "plans/X.md waits for plans/A.md. Then continue it: runplan retry plans/X.md")
    assert ("Approve: runplan approve plans/A.md" in waits.last, landings(project)) == (True, [])
    project.runplan("approve", "A").exits(0)
    project.runplan("retry", "X").exits(0)
    assert landings(project) == IN_ORDER[:2]
    project.runplan("start", "X", "2").exits(0)
    until_runs_are(project, "waiting", plan="plans/B.md")
    project.runplan("stop", "X").exits(0, "Stopping plans/X.md; its work is kept")
    until_runs_are(project, "done", "stopped")
    until_runs_are(project, "stopped", plan="plans/B.md")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("plans", "why"),
    [
        ({"A": "plans/X.md"}, "the plans wait for each other: plans/X.md → plans/A.md → plans/X.md; remove one"),
        ({"A": "plans/D.md"}, "plans/D.md: no such plan on main"),
        (
            {"A": "plans/D.md", "D": "plans/E.md", "E": "plans/F.md", "F": ""},
            "more than 3 sub-plans are below each other: plans/X.md → plans/A.md → plans/D.md → plans/E.md → plans/F",
        ),
    ],
    ids=["cycle", "missing", "depth"],
)
def test_sub_plans_that_cannot_be_worked_are_refused_at_once(project: Project, plans: dict[str, str], why: str) -> None:
    with_subplans(project)
    for name, below in plans.items():
        plan = a_plan(f"{name}1")
        project.repo.write(f"plans/{name}.md", executed(plan, **{f"p{name}1": f"plan {below}"}) if below else plan)
    project.repo.commit("Nest")

    ran = project.start("finish", "auto")

    assert (ran.code, ran.last.startswith(f"runplan: {why}")) == (2, True), ran.err
    assert project.dispatched("plans/A.md") == []


# --- a command ------------------------------------------------------------------------------------------

LANDS = "echo 1 > 1.txt && git add 1.txt && git commit -qm 'By hand' && env > ../seen"


@pytest.mark.promise
def test_a_command_lands_by_itself_and_its_row_after_gate_and_verifier(project: Project) -> None:
    plan = executed(a_plan("1", "2"), p1=f"delegate {LANDS}")
    set_up(project, plan=plan, settings='[tests]\ncommand = "test ! -e broken"\n', agent=work(phase="2"))
    before = project.repo.head("main")

    project.start("finish", "auto", KEPT="kept").exits(0)
    subjects = project.repo.git("log", "--reverse", "--format=%s", f"{before}..main").splitlines()
    assert subjects == ["By hand", "x: record phase 1 as done", "Write 2", "x: record phase 2 as done"]
    assert project.dispatched()[:4] == ["baseline", "delegate", "gate", "verify"]
    seen = (project.path.parent / "seen").read_text().splitlines()
    assert {"KEPT=kept", "RUNPLAN_ROLE=delegate", "RUNPLAN_PHASE=1"} <= set(seen)
    assert project.repo.status() == ""
    assert project.leftovers() == []


def test_a_command_whose_script_a_phase_has_written_waits_for_a_person_who_sees_it(project: Project) -> None:
    script = "echo 2 >2.txt; git add 2.txt; git commit -qm Two"
    agent = work(f'write = "ship.sh"\ntext = "{script}\\n"', phase="1")
    set_up(project, plan=executed(a_plan("1", "2"), p2="delegate sh ship.sh"), agent=agent)
    asked = project.start("finish", "auto").exits(4)
    assert "`sh ship.sh` runs with your rights, and ship.sh changed since the plan began" in asked.err
    assert f"\n+{script}\n" in project.runplan("diff", "X").out
    project.runplan("approve", "X").exits(0)
    assert "Two" in project.repo.git("log", "--format=%s", "main").splitlines()


@pytest.mark.parametrize(
    ("line", "reason", "said"),
    [
        ("true", "no-commits", "the command did not move the target"),
        (f"touch broken && git add broken && {LANDS}", "tests-failed", "what has landed stays on the target: "),
    ],
    ids=["unmoved", "red"],
)
def test_a_command_that_does_not_do_the_phase_fails_it(project: Project, line: str, reason: str, said: str) -> None:
    settings = '[tests]\ncommand = "test ! -e broken"\n'
    set_up(project, plan=executed(a_plan("1", "2"), p1=f"delegate {line}"), settings=settings)

    ran = project.start("1", "auto")

    assert (ran.code, ran.last, said in ran.err) == (1, f"runplan: failed: {reason}", True), ran.err
    assert "fix" not in project.dispatched()
    assert "record phase" not in project.repo.git("log", "--format=%s", "main")


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        (f"{LANDS}; kill -9 $PPID; sleep 60", 1),
        (f"test -e ../tried || {{ touch ../tried; kill -9 $PPID; sleep 60; }}; {LANDS}", 2),
    ],
    ids=["after it landed", "before it landed"],
)
def test_a_command_without_a_result_is_repeated_only_on_the_same_target(project: Project, line: str, runs: int) -> None:
    set_up(project, plan=executed(a_plan("1", "2"), p1=f"delegate {line}"))

    project.start("1", "auto").exits(0)
    assert project.dispatched() == ["delegate"] * runs + ["verify"]
    assert project.repo.git("log", "--format=%s", "main").splitlines().count("By hand") == 1


# --- landing by a direct push ----------------------------------------------------------------------------


@pytest.fixture
def remote(project: Project, tmp_path: Path) -> Repo:
    return with_remote(project, tmp_path / "origin.git")


@pytest.mark.promise
def test_a_plan_and_its_undo_land_on_the_remote_the_local_branch_follows(project: Project, remote: Repo) -> None:
    project.start("finish", "auto", "direct").exits(0)
    assert remote.head("main") == project.repo.head("main") == project.repo.head("refs/remotes/origin/main")
    assert project.landed() == ["1", "2"]
    assert "✅ Done" in project.show("origin/main:plans/X.md")
    project.runplan("undo", "X", "1").exits(0)
    assert "1.txt" not in remote.git("ls-tree", "--name-only", "main").split()
    assert project.repo.head("main") == remote.head("main")
    assert project.repo.status() == ""
    assert project.leftovers() == []


def test_an_included_configuration_that_lands_has_no_effect(project: Project, remote: Repo, tmp_path: Path) -> None:
    """The user's configuration includes a tracked file; `start` and `doctor` name it."""
    program = f"'touch {tmp_path}/ran; git-upload-pack'"
    edit = f'run = "git config -f team.gitconfig remote.origin.uploadpack {program}"'
    project.commit_file("team.gitconfig", "[alias]\n\tst = status\n")
    project.agent(work(edit) + work(phase="2"))
    project.repo.git("push", "-q", "origin", "main")
    project.repo.git("config", "include.path", "../team.gitconfig")
    ran = project.start("finish", "auto", "direct").exits(0)
    assert remote.git("show", "main:2.txt") == "2"
    assert remote.head("main") == project.repo.head("main")
    left_out = f"git's configuration includes {project.path}/team.gitconfig ({{}}), which a landing can change"
    assert left_out.format("alias.st") in ran.err
    examined = project.runplan("doctor")
    assert "WARN  git         version" in examined.out
    assert left_out.format("alias.st, remote.origin.uploadpack") in examined.out
    assert not (tmp_path / "ran").exists()


@pytest.mark.promise
def test_an_unreachable_remote_is_exit_5_and_retry_continues(project: Project, remote: Repo, tmp_path: Path) -> None:
    away = tmp_path / "away.git"
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work(*meanwhile.pause("working")))
    project.repo.git("push", "-q", "origin", "main")
    running = meanwhile.begin(project, "working", "start", "X", "1", "auto", "direct", "--foreground")
    remote.path.rename(away)
    meanwhile.let_on("working")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 5, err
    assert err.decode().rstrip().endswith("the work is kept. Continue with: runplan retry plans/X.md")
    assert project.runplan("retry", "X").code == 5
    away.rename(remote.path)
    project.runplan("retry", "X").exits(0)
    assert remote.git("show", "main:1.txt") == "1"
    assert project.dispatched().count("implement") == 1
    assert project.leftovers() == []
