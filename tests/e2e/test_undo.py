"""A landed phase is taken back as a new commit, once, and can be worked again."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, a_project, ended
from tests.support.scripts import Meanwhile, set_up, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


@pytest.fixture
def landed(tmp_path: Path) -> Project:
    """Two phases, both landed."""
    project = a_project(tmp_path, "1", "2")
    assert project.start("finish", "auto").code == 0
    return project


def tracker(project: Project) -> list[str]:
    return [line for line in project.show("main:plans/X.md").splitlines() if line.startswith(("| 1", "| 2"))]


def test_an_undone_phase_is_gone_from_the_code_and_todo_in_the_plan(landed: Project) -> None:
    before = landed.repo.head("main")
    undone = landed.runplan("undo", "X", "1")
    assert undone.code == 0, undone.err
    assert undone.last == "runplan: Done: phase 1 was reverted. Report: runplan report plans/X.md"
    assert not (landed.path / "1.txt").exists()
    assert (landed.path / "2.txt").exists()
    assert tracker(landed)[0] == "| 1 — Step 1 | ⬚ | | |"
    assert "✅ Done" in tracker(landed)[1]
    assert "status: active" in landed.show("main:plans/X.md")
    assert "completed:" not in landed.show("main:plans/X.md")
    assert "## Phase Undone — 1 Step 1" in landed.runplan("report", "X").out
    assert landed.repo.status() == ""
    assert landed.leftovers() == []
    assert landed.repo.git("merge-base", "--is-ancestor", before, "main") == ""


def test_an_undone_phase_lands_again_and_is_undone_again(landed: Project) -> None:
    """A trailer of the phase proves nothing after an undo: the landing's own id does."""
    assert landed.runplan("undo", "X", "1").code == 0
    again = landed.start("finish", "auto")
    assert again.code == 0, again.err
    assert (landed.path / "1.txt").exists()
    assert landed.runplan("undo", "X", "1").code == 0
    assert not (landed.path / "1.txt").exists()
    assert landed.repo.git("log", "--format=%s", "main").count("Undo phase 1") == 2


def test_what_cannot_be_undone_is_refused_and_nothing_changes(landed: Project) -> None:
    before = landed.repo.head("main")
    assert landed.runplan("undo", "X", "9").code == 3
    assert landed.runplan("undo", "X", "1", RUNPLAN_AGENT="1").code == 2
    assert landed.repo.head("main") == before
    assert landed.runplan("undo", "X", "1").code == 0
    twice = landed.runplan("undo", "X", "1")
    assert (twice.code, twice.last) == (2, "runplan: phase 1 of plans/X.md is not done; there is nothing to undo")


def test_a_phase_that_others_build_upon_is_undone_after_them(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    project.plan(a_plan("1", "2", depends={"2": "Phase 1."}))
    assert project.start("finish", "auto").code == 0
    refused = project.runplan("undo", "X", "1")
    assert (refused.code, refused.last) == (
        2,
        "runplan: phase 1 is what 2 build upon; first run: runplan undo plans/X.md 2",
    )
    assert project.runplan("undo", "X", "2").code == 0
    assert project.runplan("undo", "X", "1").code == 0


def test_a_phase_that_a_person_marked_done_by_hand_is_left_to_that_person(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    project.plan(a_plan("1", "2").replace("| 1 — Step 1 | ⬚ |", "| 1 — Step 1 | ✅ Done |"))
    refused = project.runplan("undo", "X", "1")
    assert refused.code == 2
    assert "no commit on main has the trailers of phase 1" in refused.err


def test_later_work_on_the_same_lines_is_a_conflict_and_stays(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    set_up(project, agent=work(phase="1") + work(phase="2"))
    assert project.start("1", "auto").code == 0
    project.commit_file("1.txt", "somebody went on with it\n")
    before = project.repo.head("main")
    failed = project.runplan("undo", "X", "1")
    assert (failed.code, failed.last) == (1, "runplan: failed: conflict")
    assert "1.txt" in failed.err
    assert "next: Revert the phase's commits by hand" in failed.err
    assert project.repo.head("main") == before
    assert project.leftovers() == []


def test_a_phase_reverted_by_hand_has_only_its_row_set_back(landed: Project) -> None:
    code = next(line.split("`")[1] for line in tracker(landed) if line.startswith("| 2"))
    landed.repo.git("revert", "--no-edit", code)
    assert landed.runplan("undo", "X", "2").code == 0
    assert tracker(landed)[1] == "| 2 — Step 2 | ⬚ | | |"


def test_a_run_that_has_not_ended_is_ended_before_anything_is_undone(landed: Project) -> None:
    assert landed.runplan("undo", "X", "2").code == 0
    killed = landed.start("finish", "auto", TEST_KILL="after DispatchStarted")
    assert killed.code == -signal.SIGKILL
    refused = landed.runplan("undo", "X", "1")
    assert (refused.code, refused.last) == (
        2,
        "runplan: a run of plans/X.md has not ended; first let it end: runplan retry plans/X.md",
    )
    assert landed.runplan("retry", "X").code == 0


def test_an_undo_is_declined_while_somebody_works_on_the_plan(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work(phase="1") + work(*meanwhile.pause("two"), phase="2"))
    assert project.start("1", "auto").code == 0
    running = project.popen("start", "X", "2", "auto", "--foreground")
    meanwhile.reached("two")
    declined = project.runplan("undo", "X", "1")
    again = project.start("1", "auto")
    meanwhile.let_on("two")
    assert ended(running).code == 0
    assert (declined.code, declined.err) == (0, again.err)
    assert f"plans/X.md is already running in another process ({running.pid}); nothing was changed" in declined.err
    assert declined.last == "runplan: follow it: runplan logs plans/X.md -f"
    assert (project.path / "1.txt").exists()
