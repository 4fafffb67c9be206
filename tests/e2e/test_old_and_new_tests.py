"""Old tests on the new code, and new tests on the old code: what can be run is run, and the rest is asked."""

import json
from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, set_up, steps

FAILS_T1 = '\n[[phase."*".verify]]\nfail = ["T1"]\n'


def play(
    project: Project,
    *files: tuple[str, str],
    command: str,
    settings: str = "",
    verdict: str = "",
    phase: str = "1",
    plan: str = "",
) -> None:
    """Set an implementer that writes these files, and further settings of tests."""
    writes = [f"write = {json.dumps(path)}\ntext = {json.dumps(text)}" for path, text in files]
    set_up(
        project,
        settings=f"[run]\nmax_fix_cycles = 0\n[tests]\ncommand = {json.dumps(command)}\n{settings}",
        agent=steps(*writes, f'write = "{phase}.txt"\ntext = "x\\n"', phase=phase) + verdict,
        **({"plan": plan} if plan else {}),
    )


def proofs(project: Project) -> list[dict[str, object]]:
    lines = project.runplan("logs", "X", "--json").out.splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == "ProofJudged"]


# --- a suite of shell scripts, whose results have no names ---------------------------------------------------

SCRIPTS = "for file in tests/*.sh; do sh $file || exit 1; done"
STRICT, LOOSE = "test $(cat answer) = 42\n", "test -s answer\n"


@pytest.fixture
def scripts(tmp_path: Path) -> Project:
    made = a_project(tmp_path, "1", "2")
    made.repo.commit("Begin", **{"answer": "42\n", "tests/answer.sh": STRICT})
    return made


WEAKER, WRONG = ("tests/answer.sh", LOOSE), ("answer", "41\n")


def test_a_test_that_one_phase_weakens_protects_the_code_until_a_person_edits_it(scripts: Project) -> None:
    play(scripts, WEAKER, command=SCRIPTS)
    assert scripts.start("1", "auto").code == 0
    play(scripts, WRONG, verdict=FAILS_T1, phase="2", command=SCRIPTS)
    scripts.start("2", "auto").ends(1, "runplan: failed: verification-failed")
    scripts.repo.commit("Decide", **{"tests/answer.sh": "test $(cat answer) -gt 40\n"})
    scripts.start("2", "auto").exits(0)


@pytest.mark.promise
def test_a_command_that_names_no_tests_is_told_by_every_command(scripts: Project) -> None:
    line = "no test names are read from this command: deleted tests are not noticed"
    play(scripts, WEAKER, command=SCRIPTS)
    ran = scripts.start("1", "auto")
    assert ran.err.count(line) == 1, ran.err
    assert line in scripts.show("main:reports/plan-x.md")
    assert line in scripts.runplan("doctor").out
    (scripts.path / "runplan.toml").unlink()
    assert line in scripts.runplan("init").out


@pytest.mark.promise
@pytest.mark.parametrize(("paths", "code"), [('["qa/**"]', 1), pytest.param("[]", 0, marks=pytest.mark.rest)])
def test_the_base_s_versions_of_tests_paths_run_on_the_new_code(scripts: Project, paths: str, code: int) -> None:
    """No built-in pattern covers the file, and the results have no names."""
    scripts.repo.commit("Begin", **{"qa/answer.check": STRICT})
    command = SCRIPTS.replace("tests/*.sh", "qa/*")
    settings = f'changed = "refuse"\npaths = {paths}\n'
    play(scripts, ("qa/answer.check", LOOSE), WRONG, settings=settings, command=command)
    ran = scripts.start("1", "auto")
    assert ran.code == code, ran.err


@pytest.mark.promise
def test_a_person_may_be_asked_about_changed_tests(scripts: Project) -> None:
    play(scripts, WEAKER, WRONG, settings='changed = "ask"\n', verdict=FAILS_T1, command=SCRIPTS)
    scripts.start("1", "auto").exits(4, "needs your sign-off: the tests of the base passed on the base")
    shown = json.loads(scripts.runplan("diff", "X", "--json").out)["proofs"]
    assert {broken["test"] for proof in shown for broken in proof["broken"]} == {"the tests of the base"}
    assert "The base's tests on the new code" in scripts.runplan("diff", "X").out
    assert scripts.runplan("approve", "X").code == 0
    assert scripts.start("1", "auto").code == 0


@pytest.mark.promise
@pytest.mark.parametrize(
    ("files", "settings", "says"),
    [
        ((WEAKER, WRONG), 'changed = "refuse"', "the tests of the base passed on the base"),
        ((("tests/more.sh", "true\n"),), 'prove = "require"', "hollow: they pass on the base's code, too"),
    ],
)
def test_tests_that_prove_less_can_be_refused(
    scripts: Project, files: tuple[tuple[str, str], ...], settings: str, says: str
) -> None:
    play(scripts, *files, settings=f"{settings}\n", command=SCRIPTS)
    scripts.start("1", "auto").ends(1, "runplan: failed: tests-failed", says)


def test_both_runs_can_be_switched_off_and_allowed_tests_may_change(scripts: Project) -> None:
    play(scripts, WEAKER, WRONG, settings='prove = "off"\n', command=SCRIPTS)
    assert scripts.start("1", "auto").code == 0
    assert not proofs(scripts)
    assert "tests.prove" in scripts.show("main:reports/plan-x.md")
    plan = a_plan("1", "2").replace("### Work Items", "Allows: tests/answer.sh\n\n### Work Items")
    play(
        scripts,
        ("tests/answer.sh", "true\n"),
        ("answer", "\n"),
        command=SCRIPTS,
        verdict=FAILS_T1,
        phase="2",
        plan=plan.replace("Step 1 | ⬚", "Step 1 | ✅ Done"),
    )
    scripts.start("2", "auto").exits(0)
