"""An undo takes back what one phase landed and nothing else, whatever people did to the history since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, a_project, copied
from tests.support.repos import Repo
from tests.support.scripts import set_up, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project, Ran


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Begin, Write 1, its record, Write 2, its record."""
    project = a_project(tmp_path_factory.mktemp("model"), "1", "2")
    assert project.start("finish", "auto").code == 0
    return project


@pytest.fixture
def landed(model: Project, tmp_path: Path) -> Project:
    return copied(model, tmp_path)


def short(project: Project, revision: str) -> str:
    return project.repo.git("rev-parse", revision)[:12]


def refused(project: Project, phase: str) -> Ran:
    """The undo, which must change nothing."""
    before = project.repo.head("main")
    ran = project.runplan("undo", "X", phase)
    assert ran.code == 2, ran.err
    assert project.repo.head("main") == before
    assert project.repo.status() == ""
    return ran


@pytest.mark.parametrize("phase", ["1"])
def test_phases_squashed_into_one_commit_are_not_taken_back_together(landed: Project, phase: str) -> None:
    words = landed.repo.git("log", "--format=%B", "--reverse", "HEAD~4..HEAD")
    landed.repo.git("reset", "-q", "--soft", "HEAD~4")
    landed.repo.git("commit", "-qm", words)
    other = "2" if phase == "1" else "1"
    told = refused(landed, phase).last
    assert f"the commit {short(landed, 'HEAD')} also has trailers of phase {other} of plans/X.md" in told
    assert f"git show {short(landed, 'HEAD')}" in told


def test_half_a_phase_is_not_taken_back(tmp_path: Path) -> None:
    """A commit whose trailers were buried is named, never passed over."""
    project = a_project(tmp_path, "1")
    two = '[[phase."1".implement]]\nwrite = "1b.txt"\ntext = "b\\n"\n[[phase."1".implement]]\ncommit = "Write 1b"\n'
    set_up(project, agent=work(phase="1") + two)
    assert project.start("1", "auto").code == 0
    upper = [short(project, "HEAD~1"), short(project, "HEAD")]
    words = project.repo.git("log", "-1", "--format=%B", "HEAD~2")
    project.repo.git("checkout", "-q", "-B", "main", "HEAD~2")
    project.repo.git("commit", "-q", "--amend", "-m", f"{words}\n\nReviewed by somebody, and found good.\n")
    buried = short(project, "HEAD")
    project.repo.git("cherry-pick", *upper)
    told = refused(project, "1").last
    assert f"the commit {buried} has text below its Runplan trailers" in told


def test_a_rebased_phase_is_taken_back(landed: Project) -> None:
    """The commits have new names; the row still says what its landing wrote."""
    base, tip = short(landed, "HEAD~4"), short(landed, "HEAD")
    landed.repo.git("checkout", "-q", "-B", "main", base)
    landed.commit_file("early.txt", "early\n")
    landed.repo.git("cherry-pick", f"{base}..{tip}")
    assert landed.runplan("undo", "X", "1").code == 0
    assert not (landed.path / "1.txt").exists()
    assert (landed.path / "2.txt").exists()
    assert (landed.path / "early.txt").exists()


def test_a_moved_report_is_neither_reverted_nor_in_the_way(landed: Project) -> None:
    (landed.path / "docs").mkdir()
    landed.repo.git("mv", "reports", "docs/reports")
    landed.repo.git("commit", "-qm", "Move the reports")
    landed.settings('[paths]\nreports = "docs/reports"\n')
    before = landed.show("main:docs/reports/plan-x.md")
    undone = landed.runplan("undo", "X", "2")
    assert undone.code == 0, undone.err
    after = landed.show("main:docs/reports/plan-x.md")
    assert "## Phase Undone — 2 Step 2" in after
    assert set(before.splitlines()) <= set(after.splitlines())
    assert "plan-x.md" not in landed.repo.git("show", "--stat", "--format=", "HEAD~1")


def test_a_fresh_clone_with_a_namesake_keeps_the_old_report(landed: Project, tmp_path: Path) -> None:
    landed.plan(a_plan("7"), "plans/old/X.md")
    fresh = tmp_path / "fresh"
    landed.repo.git("clone", "-q", str(landed.path), str(fresh))
    for key, value in (("user.name", "Uma"), ("user.email", "uma@example.org")):
        landed.repo.git("-C", str(fresh), "config", key, value)
    before = landed.show("main:reports/plan-x.md")
    undone = landed.runplan_in(fresh, "undo", "plans/X.md", "1")
    assert undone.code == 0, undone.err
    assert landed.repo.git("-C", str(fresh), "show", "main:reports/plan-x.md") == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("grep.patternType", "fixed"),
        ("i18n.logOutputEncoding", "UTF-16"),
        ("color.ui", "always"),
    ],
)
def test_a_landing_is_found_whatever_the_user_has_set(landed: Project, key: str, value: str) -> None:
    landed.repo.git("config", key, value)
    assert landed.runplan("undo", "X", "2").code == 0


def test_a_landing_is_found_for_a_plan_whose_name_has_blanks(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    project.plan(a_plan("1"), "plans/Two  blanks.md")
    assert project.runplan("start", "plans/Two  blanks.md", "1", "auto", "--foreground").code == 0
    undone = project.runplan("undo", "plans/Two  blanks.md", "1")
    assert undone.code == 0, undone.err
    assert not (project.path / "1.txt").exists()


@pytest.mark.parametrize(("depth", "phase"), [(2, "1")])
def test_a_shallow_clone_says_that_it_is_one(landed: Project, tmp_path: Path, depth: int, phase: str) -> None:
    fresh = Repo(path=tmp_path / "fresh", env=dict(landed.repo.env))
    landed.repo.git("clone", "-q", f"--depth={depth}", f"file://{landed.path}", str(fresh.path))
    before = fresh.head("main")
    ran = landed.runplan_in(fresh.path, "undo", "X", phase)
    assert ran.code == 2, ran.err
    assert "this clone is shallow" in ran.last
    assert "git fetch --deepen=100" in ran.last
    assert fresh.head("main") == before
    fresh.git("fetch", "-q", "--deepen=100")
    for key, value in (("user.name", "Uma"), ("user.email", "uma@example.org")):
        fresh.git("config", key, value)
    assert landed.runplan_in(fresh.path, "undo", "X", phase).code == 0
