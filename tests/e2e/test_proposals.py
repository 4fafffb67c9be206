"""A proposed plan waits for a person, who approves it, edits it, has it revised, or abandons it."""

from pathlib import Path

import pytest

from tests.support.cli import RUNPLAN, Project
from tests.support.daemons import states
from tests.support.planning import (
    CONTENT,
    GREET,
    PLAN,
    asked,
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
    shown = project.runplan("diff", "greet-people").out
    assert ("## Risks of all" in shown, "edited by user" in shown) == (True, True)
    assert not kept.exists()
    answered = project.runplan(
        "edit", "greet-people", EDITOR=f"sed -i s/Risks/Mine/ $1; {RUNPLAN} approve greet-people; true"
    )
    assert (answered.code, "Your text is kept at " in answered.last) == (3, True), answered.err
