"""A proposed plan waits for a person, who approves it, edits it, has it revised, or abandons it."""

import re
from pathlib import Path

import pytest

from tests.support.cli import RUNPLAN, Project
from tests.support.daemons import states
from tests.support.github.server import on_github
from tests.support.planning import (
    CONTENT,
    GREET,
    PLAN,
    asked,
    fields,
    plan,
    planner,
    planning_project,
    prompts,
    what_is_the_users,
)

QUIET = planner(critique=CONTENT)  #: three agents make the proposal
SMALLER = PLAN.replace("with the word bye", "").replace("A file greets.", "One small file greets.")


@pytest.fixture
def project(project: Project) -> Project:
    return planning_project(project, QUIET)


def proposed(project: Project, *words: str) -> str:
    """Plan the goal; the hash of the proposal."""
    plan(project, *words).exits(4)
    return asked(project)[-1]


def revising(answer: object) -> str:
    return planner(critique=CONTENT, revise=answer)


@pytest.mark.promise
def test_a_rejection_with_words_revises_at_once_and_asks_again(project: Project) -> None:
    """M5"""
    planning_project(project, revising({"plan": SMALLER}))
    mine = what_is_the_users(project)
    first = proposed(project)
    project.runplan("reject", "greet-people", "-m", "Make it smaller.").exits(4)
    assert project.dispatched(GREET)[3:] == ["revise"]
    assert "Make it smaller." in prompts(project, "revise")[0]
    assert asked(project)[0] == first != asked(project)[1]
    assert "One small file greets." in project.runplan("diff", "greet-people").out
    assert what_is_the_users(project) == mine
    assert "Rejected by Uma User (terminal): Make it smaller." in project.runplan("report", "greet-people").out


@pytest.mark.parametrize("words", [("-m", "Make it smaller."), ()])
def test_the_rejected_text_is_not_proposed_again(project: Project, words: tuple[str, ...]) -> None:
    """M6, in the same run and in the next one"""
    planning_project(project, revising({"plan": PLAN}))
    proposed(project)
    ran = project.runplan("reject", "greet-people", *words)
    ran = ran if words else project.runplan("retry", "greet-people")
    assert (ran.code, ran.last) == (1, "runplan: failed: plan-invalid"), ran.err
    assert fields(project, "StepJudged", "problems")[-1] == ["a person rejected exactly this text; change it"]
    assert len(asked(project)) == 1


@pytest.mark.promise
def test_a_rejection_without_words_abandons_the_plan(project: Project) -> None:
    mine = what_is_the_users(project)
    proposed(project)
    project.runplan("reject", "greet-people").exits(0)
    assert states(project, GREET) == ["stopped"]
    assert project.runplan("status", "greet-people", "--json").json["status"] == "abandoned"
    assert what_is_the_users(project) == mine
    assert project.leftovers() == []
    none = project.runplan("approve", "greet-people")
    assert none.code == 3, "M4: nothing is proposed"


@pytest.mark.promise
def test_an_edited_text_is_checked_labelled_and_asked_about_again(project: Project) -> None:
    """M7"""
    first = proposed(project)
    alone = project.runplan("plan").out
    assert all(f"runplan {verb} {GREET}" in alone for verb in ("diff", "approve", "reject", "edit")), alone
    project.runplan("edit", "greet-people", EDITOR="sed -i 's/A file greets/A file waves/'").exits(4)
    assert asked(project)[0] == first != asked(project)[1]
    assert "edited by user" in project.runplan("diff", "greet-people").out
    assert project.runplan("approve", "greet-people").code == 0
    assert "A file waves." in project.show(f"main:{GREET}")


def test_an_invalid_edit_is_refused_kept_and_continued(project: Project) -> None:
    first = proposed(project)
    edited = project.runplan("edit", "greet-people", EDITOR="sed -i 's/## Risks/## Mut/'").exits(2)
    kept = Path(edited.last.rpartition(" ")[2])
    assert "## Mut" in kept.read_text()
    assert asked(project) == [first]
    assert "## Risks" in project.runplan("diff", "greet-people").out
    failed = project.runplan("edit", "greet-people", EDITOR="false")
    assert (failed.code, f"Your text is kept at {kept}" in failed.last) == (2, True), failed.err
    assert "## Mut" in kept.read_text()
    for damage in (
        r"s/No translations/No translati\xf6ns/",
        r"s/translati\xf6ns/translations/; 1s/---/-/",
        "1s/-/---/",
    ):
        damaged = project.runplan("edit", "greet-people", EDITOR=f"sed -i '{damage}'")
        assert (damaged.code, f"Your text is kept at {kept}" in damaged.last) == (2, True), damaged.err
    project.runplan("edit", "greet-people", EDITOR="sed -i 's/## Mut/## Risks of all/'").exits(
        4, f"continuing with your text in {kept};"
    )
    assert "## Risks of all" in project.runplan("diff", "greet-people").out
    assert not kept.exists()
    answered = project.runplan(
        "edit", "greet-people", EDITOR=f"sed -i s/Risks/Mine/ $1; {RUNPLAN} approve greet-people; true"
    )
    assert (answered.code, "Your text is kept at " in answered.last) == (3, True), answered.err


def test_an_editor_that_leaves_no_text_changes_nothing(project: Project) -> None:
    first = proposed(project)
    replace = 'sh -c \'rm "$0"; mkdir "$0"\''
    for editor, left in (
        ("false", "exit code 1"),
        ("cp /dev/null", "no text"),
        ("rm", "no text"),
        (replace, "no text"),
    ):
        edited = project.runplan("edit", "greet-people", EDITOR=editor).exits(2)
        assert re.fullmatch(
            rf"runplan: nothing was changed: the editor \(.*\) (left|failed with) {left}.*", edited.last
        )
    assert asked(project) == [first]


def test_a_file_of_the_user_at_the_path_is_not_overwritten(project: Project) -> None:
    proposed(project)
    project.repo.write(GREET, "mine\n")
    project.runplan("approve", "greet-people").exits(4, GREET)
    assert (project.path / GREET).read_text() == "mine\n"
    (project.path / GREET).rename(project.path / "mine.md")
    project.runplan("retry", "greet-people").exits(0)
    assert "status: active" in project.show(f"main:{GREET}")
    assert len(asked(project)) == 1


def test_with_pull_requests_the_plan_is_the_first_commit_of_its_branch(project: Project, tmp_path: Path) -> None:
    planning_project(project, QUIET, '[run]\nlanding = "pr"\n')
    with on_github(project, tmp_path) as server:
        proposed(project)
        project.runplan("approve", "greet-people").exits(0)
        branch = "runplan/greet-people/pr"
        assert server.hub.git("diff", "--name-only", "main", branch) == GREET
        assert server.hub.git("rev-list", "--count", f"main..{branch}") == "1"
        project.runplan("start", "greet-people", "finish", "auto", "--foreground").exits(0)
        assert [pull.merged for pull in server.hub.pulls.values()] == [True]
        assert "status: complete" in server.hub.git("show", f"main:{GREET}")
