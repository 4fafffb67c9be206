"""A plan that is revised while a run works on it: finished phases stay, and the run continues with its own options."""

from pathlib import Path

import pytest

from tests.support.cli import SETTINGS, Project, a_plan, a_project, steps, writes
from tests.support.planning import REVISE, planner

#: The plan after phase 2 was reworded.
REWORDED = "### Work Items\n\n- [ ] Write 2.txt with a bye\n\n### Acceptance Criteria\n\n- [ ] `test -e 2.txt`\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = a_project(tmp_path, "1", "2", "3")
    project.commit_file("runplan.toml", SETTINGS.replace("[agents]\n", '[agents]\nplanner = "robot"\n'))
    return project


def revises(project: Project) -> str:
    """A planner that rewords phase 2 of the plan as it is on the target now."""
    head, heading, rest = project.show("main:plans/X.md").partition("## Phase 2 — Step 2\n\n")
    text = f"{head}{heading}{REWORDED}\n## Phase 3{rest.partition('## Phase 3')[2]}\n"
    return planner(draft={"plan": text}, revise={**REVISE, "plan": text})


@pytest.mark.promise
def test_a_phase_that_does_not_fit_the_code_is_revised_and_the_run_continues(project: Project) -> None:
    project.plan(a_plan("1", "2", "3", depends={"2": "Phase 1. May need refresh."}))
    assert project.start("1", "auto").code == 0
    done = project.show("main:plans/X.md")
    project.agent(revises(project) + writes("2", "3"))

    project.start("finish", "auto").exits(4, "the proposed plan needs your approval")
    shown = project.runplan("diff", "X").out
    assert "+- [ ] Write 2.txt with a bye" in shown
    assert "Step 1" not in "".join(line for line in shown.splitlines() if line.startswith(("+", "-")))

    project.runplan("approve", "X").exits(0)
    assert project.landed() == ["1", "plan", "2", "3"]
    text = project.show("main:plans/X.md")
    row = next(line for line in done.splitlines() if line.startswith("| 1 — Step 1"))
    assert row in text
    assert "status: complete" in text
    assert "with a bye" in text


def test_a_phase_that_is_planned_first_becomes_a_proposal_before_it_is_worked(project: Project) -> None:
    large = "## Phase 2 — Step 2\n\nExecution: plan-first\n"
    project.plan(a_plan("1", "2", "3").replace("## Phase 2 — Step 2\n", large))
    assert project.start("1", "auto").code == 0
    project.agent(revises(project) + writes("2", "3"))

    ran = project.start("finish", "auto", "--model", "small")

    assert (ran.code, project.landed()) == (4, ["1"]), ran.err
    assert "+- [ ] Write 2.txt with a bye" in project.runplan("diff", "X").out
    [prompt] = project.prompts("draft")
    assert "Phase 2 is large, so it is planned before it is worked." in prompt
    project.runplan("approve", "X").exits(0)
    assert project.landed() == ["1", "plan", "2", "3"]
    assert "plan-first" not in project.show("main:plans/X.md")
    models = {(body["role"], body["model"]) for body in project.bodies("DispatchStarted") if body["agent"]}
    assert {("draft", ""), ("implement", "small")} <= models, "the model is that of the implementer alone"
    assert ("draft", "small") not in models


def test_a_person_revises_a_plan_whose_phase_asks(project: Project) -> None:
    project.agent(writes("1", "3") + steps('say = "BLOCKER: which port?"', phase="2"))
    assert project.start("finish", "auto").code == 4
    project.agent(revises(project) + writes("2", "3"))

    project.runplan("plan", "--revise", "X", "2", "-m", "Say bye.").exits(4)
    assert project.runplan("status", "X", "--json").json["run"]["waiting_for"] == "approval"
    project.runplan("approve", "X").exits(0)
    assert project.landed() == ["1", "plan", "2", "3"]
