"""Phases with `Execution:`: pushed, done by another plan, or done by a command of the user's."""

from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, set_up, with_remote, work


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1", "2")


def executed(plan: str, **executions: str) -> str:
    """The plan with a line `Execution:` in some phases; `p2` is that of phase 2."""
    for name, execution in executions.items():
        item = f"- [ ] Write {name[1:]}.txt"
        plan = plan.replace(item, f"Execution: {execution}\n\n{item}")
    return plan


# --- an unknown one -------------------------------------------------------------------------------------


def test_check_and_start_refuse_an_unknown_execution_and_name_its_line(project: Project) -> None:
    plan = executed(a_plan("1", "2"), p2="on the moon")
    line = plan.splitlines().index("Execution: on the moon") + 1
    set_up(project, plan=plan)
    known = "which runplan does not know; it knows: worktree, direct, plan plans/SUB.md, delegate COMMAND"

    checked = project.runplan("check", "X")
    started = project.start("1", "auto")

    error = f"plans/X.md:{line}: error: phase 2 asks for `Execution: on the moon`, {known}"
    assert (checked.code, error in checked.out.splitlines()) == (2, True)
    assert (started.code, started.last) == (2, f"runplan: {error.replace('error: ', '')}")


# --- direct ---------------------------------------------------------------------------------------------


def test_a_direct_phase_waits_for_earlier_commits_to_be_pushed_and_lands_on_the_remote(
    project: Project, tmp_path: Path
) -> None:
    set_up(project, plan=executed(a_plan("1", "2"), p2="direct"))
    remote = with_remote(project, tmp_path / "origin.git")
    before = remote.head("main")

    held = project.start("finish", "auto")

    assert held.code == 4, held.err
    assert "origin lacks commits of your main, on which the phase is built; push them: git push origin main" in held.err
    assert (remote.head("main"), project.landed()) == (before, ["1"])
    project.repo.git("push", "-q", "origin", "main")
    ran = project.runplan("retry", "X")
    assert ran.code == 0, ran.err
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


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("[run]\nmain_protected = true\n", "protected: main does not accept pushes (run.main_protected)"),
        ("", "there is no remote origin here"),
    ],
    ids=["protected", "no remote"],
)
def test_a_direct_phase_is_refused_before_any_work(project: Project, tmp_path: Path, settings: str, why: str) -> None:
    set_up(project, plan=executed(a_plan("1", "2"), p2="direct"), agent=work(), settings=settings)
    if settings:
        with_remote(project, tmp_path / "origin.git")

    ran = project.runplan("start", "X", "finish", "auto", "--dry-run")

    assert (ran.code, f"runplan: plans/X.md:24: phase 2: {why}" in ran.err) == (2, True), ran.err
