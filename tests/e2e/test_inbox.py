"""The inbox: what waits for a person in all repositories, and the commands that answer it."""

import shlex
from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, set_up, steps, work


def a_neighbour(project: Project, place: Path) -> Project:
    """Another repository of the same user."""
    place.mkdir()
    other = a_project(place, "1")
    other.home = project.home
    return other


@pytest.mark.promise
def test_the_inbox_lists_changes_sign_offs_and_questions_of_all_repositories(project: Project, tmp_path: Path) -> None:
    assert project.runplan("inbox").out == "Nothing waits for you.\n"
    other = a_neighbour(project, tmp_path / "other dir")
    set_up(other, plan=a_plan("1").replace("## Phase 1 — Step 1\n", "## Phase 1 — Step 1\n\nSign-off: required\n"))
    assert other.start("1", "auto").code == 4
    project.plan(a_plan("2"), name="plans/Y.md")
    assert project.runplan("start", "Y", "--foreground").code == 4
    project.agent(steps('say = "BLOCKER: which port?"'))
    assert project.start("1", "auto").code == 4
    broken = a_neighbour(project, tmp_path / "broken")
    assert broken.start("1").code == 4
    (broken.path / ".git/runplan/journal.db").write_bytes(b"no journal" * 1000)

    seen = project.runplan("inbox")
    view = project.runplan("inbox", "--json").json

    entries = view["entries"]
    assert [(entry["kind"], entry["plan"], entry["phase"], entry["title"]) for entry in entries] == [
        ("sign-off", "plans/X.md", "1", "Step 1"),
        ("change", "plans/Y.md", "2", "Step 2"),
        ("question", "plans/X.md", "1", "Step 1"),
    ]
    assert [entry["repository"] for entry in entries] == [str(other.path), str(project.path), str(project.path)]
    assert [lost["repository"] for lost in view["unreadable"]] == [str(broken.path)]
    assert (seen.code, f"runplan: warning: {broken.path} cannot be read" in seen.err) == (0, True), seen.err
    question = entries[2]
    assert question["text"] == "which port?"
    assert question["commands"] == [f"runplan answer {question['id']} TEXT"]
    approve = "runplan approve plans/X.md 1"
    assert approve in entries[0]["commands"]
    assert f"\n  cd {shlex.quote(str(other.path))} && {approve}\n" in seen.out
    assert "\n  runplan approve plans/Y.md 2\n" in seen.out
    assert other.runplan(*shlex.split(approve)[1:]).code == 0
    assert project.runplan("reject", "Y").code == 0
    assert project.runplan("stop").code == 0
    assert project.runplan("inbox").out == "Nothing waits for you.\n"


def test_a_failed_plan_is_listed_until_it_is_retried(project: Project, tmp_path: Path) -> None:
    project.agent(steps('say = "nothing done"'))
    assert project.start("1", "auto").code == 1
    (entry,) = project.runplan("inbox", "--json").json["entries"]
    assert (entry["kind"], entry["plan"], entry["run"]) == ("failed", "plans/X.md", entry["id"])
    assert entry["text"].startswith("phase 1: no-commits: ")
    assert entry["commands"] == [
        *("runplan retry plans/X.md", "runplan retry plans/X.md 1", "runplan report plans/X.md")
    ]
    other = a_neighbour(project, tmp_path / "other")
    assert other.start("1").code == 4
    places = {str(project.path), str(other.path)}
    for words, place in ((("status", "--all"), project.path), (("status",), project.home)):
        seen = project.runplan_in(place, *words)
        assert {line.removeprefix("== cd ") for line in seen.out.splitlines() if line.startswith("== ")} == places
        views = project.runplan_in(place, *words, "--json").json
        assert {(view["repository"], view["need"]) for view in views} == {
            (str(project.path), "failed"),
            (str(other.path), "waiting"),
        }
    project.agent(work())
    assert project.runplan("retry", "X").code == 0
    assert [entry["kind"] for entry in project.runplan("inbox", "--json").json["entries"]] == ["change"]


def test_a_failed_plan_that_was_moved_is_listed_until_its_absence_was_seen(project: Project) -> None:
    project.agent(steps('say = "nothing done"'))
    assert project.start("1", "auto").code == 1
    project.repo.git("mv", "plans/X.md", "plans/Y.md")
    project.repo.git("commit", "-qm", "Rename")
    assert "plans/X.md" in project.runplan("inbox").out
    assert "plans/X.md: the plan is gone" in project.runplan("status").out
    assert project.runplan("inbox").out == "Nothing waits for you.\n"
    project.repo.git("revert", "--no-edit", "HEAD")
    assert "runplan retry plans/X.md" in project.runplan("status").out
    assert "runplan retry plans/X.md" in project.runplan("inbox").out


def test_a_failed_plan_that_was_put_off_is_not_offered_again_until_it_is_active(project: Project) -> None:
    project.agent(steps('say = "nothing done"'))
    assert project.start("1", "auto").code == 1
    active = (project.path / "plans/X.md").read_text()
    project.repo.commit("Do it later", **{"plans/X.md": f"---\nstatus: deferred\n---\n{active}"})
    assert project.runplan("retry", "X").code == 2
    assert "runplan retry" not in project.runplan("status").out
    assert project.runplan("inbox").out == "Nothing waits for you.\n"
    project.repo.commit("Do it now", **{"plans/X.md": active})
    assert "runplan retry plans/X.md" in project.runplan("status").out
    assert "runplan retry plans/X.md" in project.runplan("inbox").out
