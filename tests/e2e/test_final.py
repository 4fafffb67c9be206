"""Several verifiers, the verification across all phases, sign-off, and the parent that holds the end of a plan."""

import re

import pytest

from tests.support.cli import SETTINGS, Project, steps
from tests.support.daemons import until_runs_are

EVERY = "all"  #: the phase of a verifier that judges all of them
SECOND = """\
[agents.second]
kind = "script"
script = "second.toml"
"""


def two_verifiers(project: Project, second: str) -> None:
    both = SETTINGS.replace('verifier = "robot"', 'verifiers = ["robot", "second"]')
    project.repo.write("runplan.toml", both + SECOND)
    project.repo.write("second.toml", second)
    project.repo.commit("Two verifiers")


@pytest.mark.promise
def test_all_verifiers_have_to_pass_on_the_same_tree(project: Project) -> None:
    two_verifiers(project, steps("pass_all = true", role="verify"))
    project.start("1", "auto").exits(0)
    verdicts = project.bodies("VerdictGiven")
    assert [verdict["agent"] for verdict in verdicts] == ["robot", "second"]
    assert len({verdict["tree"] for verdict in verdicts}) == 1
    report = project.show("main:reports/plan-x.md")
    assert "Verdict: pass by `robot`" in report
    assert "Verdict: pass by `second`" in report


@pytest.mark.promise
def test_finish_verifies_all_phases_on_the_last_candidate(project: Project) -> None:
    project.start("finish", "auto").exits(0)
    *_, last = project.bodies("VerdictGiven")
    assert (last["scope"], [item[0] for item in last["items"]]) == ("final", ["F1", "F2"])
    *_, prompt = project.prompts("verify")
    assert prompt.startswith("# Verify the whole plan\n")
    assert "## Phase 1 — Step 1" in prompt
    assert re.findall(r"^diff --git a/(\S+) ", prompt, re.MULTILINE) == ["1.txt", "2.txt"], "no file of runplan's own"
    assert "Verdict on all phases: pass by `robot`" in project.show("main:reports/plan-x.md")


def test_a_parent_holds_the_end_of_a_plan_until_its_ref_is_gone(project: Project) -> None:
    """It is looked for after 10, 20, 40 and then every 60 minutes, and the last phase lands once."""
    ref = "refs/runplan/requires/x"
    project.repo.git("update-ref", ref, "main")
    assert project.runplan("start", "X", "finish", "auto").code == 0
    until_runs_are(project, "waiting")
    (pause,) = [body for body in project.bodies("Paused") if body["kind"] == "parent"]
    assert f"git update-ref -d {ref}" in pause["words"]
    assert project.landed() == ["1"]
    project.repo.git("update-ref", "-d", ref)
    assert project.runplan("retry", "X").code == 0
    until_runs_are(project, "done")
    assert project.landed() == ["1", "2"]
    assert len([body for body in project.bodies("DispatchStarted") if body["scope"]]) == 1
