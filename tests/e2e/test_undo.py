"""An undo reverts one landed phase with a new commit and nothing else."""

from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, copied, set_up, work


def tracker(project: Project) -> list[str]:
    return [line for line in project.show("main:plans/X.md").splitlines() if line.startswith(("| 1", "| 2"))]


@pytest.mark.promise
def test_an_undo_reverts_the_code_and_resets_the_tracker_row(landed: Project) -> None:
    before = landed.repo.head("main")
    landed.runplan("undo", "X", "1").ends(0, "runplan: Done: phase 1 was reverted. Report: runplan report plans/X.md")
    assert not (landed.path / "1.txt").exists()
    assert (landed.path / "2.txt").exists()
    assert tracker(landed)[0] == "| 1 — Step 1 | ⬚ | | |"
    assert "✅ Done" in tracker(landed)[1]
    assert "status: active" in landed.show("main:plans/X.md")
    assert "completed:" not in landed.show("main:plans/X.md")
    assert "| X (`plans/X.md`) | active | 20" in landed.show("main:reports/README.md")
    assert "## Phase Undone — 1 Step 1" in landed.runplan("report", "X").out
    assert landed.repo.status() == ""
    assert landed.leftovers() == []
    assert landed.repo.git("merge-base", "--is-ancestor", before, "main") == ""


@pytest.mark.promise
def test_an_undo_of_a_phase_that_did_not_land_is_refused(landed: Project, tmp_path: Path) -> None:
    before = landed.repo.head("main")
    assert landed.runplan("undo", "X", "9").code == 3
    assert landed.repo.head("main") == before
    assert landed.runplan("undo", "X", "1").code == 0
    landed.runplan("undo", "X", "1").ends(2, "runplan: phase 1 of plans/X.md is not done; there is nothing to undo")
    landed.plan(a_plan("7").replace("⬚", "✅ Done"), "plans/Y.md")
    landed.runplan("undo", "Y", "7").exits(2, "no commit on main has the trailers of phase 7")


def test_an_undo_that_conflicts_with_later_work_fails(project: Project) -> None:
    set_up(project, agent=work(phase="1") + work(phase="2"))
    assert project.start("1", "auto").code == 0
    project.commit_file("1.txt", "later work\n")
    before = project.repo.head("main")
    project.runplan("undo", "X", "1").ends(
        1, "runplan: failed: conflict", "1.txt", "by hand and set its row in the plan to todo"
    )
    assert project.repo.head("main") == before
    assert project.leftovers() == []


def test_an_undo_during_a_run_that_waits_or_below_a_landed_dependent_is_refused(project: Project) -> None:
    set_up(project, plan=a_plan("1", "2", depends={"2": "Phase 1."}), agent=work() + work(phase="2"))
    assert project.start("1", "auto").code == 0
    assert project.start("2").code == 4
    ways = "continue it: runplan retry plans/X.md; or end it: runplan stop plans/X.md"
    project.runplan("undo", "X", "1").ends(2, f"runplan: a run of plans/X.md has not ended; {ways}")
    assert project.runplan("approve", "X").code == 0
    project.runplan("undo", "X", "1").ends(
        2, "runplan: phase 2 depends on phase 1; undo 2 first: runplan undo plans/X.md 2"
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Begin, Write 1, its record, Write 2, its record."""
    project = a_project(tmp_path_factory.mktemp("model"), "1", "2")
    assert project.start("finish", "auto").code == 0
    return project


@pytest.fixture
def landed(model: Project, tmp_path: Path) -> Project:
    return copied(model, tmp_path)


def test_an_undo_of_a_squashed_phase_is_refused(landed: Project) -> None:
    words = landed.repo.git("log", "--format=%B", "--reverse", "HEAD~4..HEAD")
    landed.repo.git("reset", "-q", "--soft", "HEAD~4")
    landed.repo.git("commit", "-qm", words)
    before = landed.repo.head("main")
    ran = landed.runplan("undo", "X", "1")
    assert (ran.code, landed.repo.head("main"), landed.repo.status()) == (2, before, ""), ran.err
    assert f"the commit {before[:12]} belongs to more than one landing" in ran.last
    assert f"git show {before[:12]}" in ran.last
