"""Phases ahead of one that does not land: the agent ends, its work is kept and named, and a retry lands both once."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, a_plan, assert_nothing_runs, fix, set_up, steps, until, verify, work
from tests.support.daemons import run_of, until_waits_for_phase

PLAN = a_plan("1", "2", depends={"2": "Phase 1."})
WEAKER = ('write = "tests/answer.sh"\ntext = "test -s answer\\n"', 'write = "answer"\ntext = "41\\n"')
SCRIPTS = "for file in tests/*.sh; do sh $file || exit 1; done"
FIXERS = "".join(fix(f'append = "{phase}.txt"\ntext = "fixed\\n"', phase=phase) for phase in "12")


@dataclass(frozen=True, kw_only=True)
class Case:
    """How phase 1 ends without a landing."""

    reason: str
    is_written: bool = False  #: whether the agent of phase 2 has ended then
    gate: str = ""  #: the end of its tests, which wait for the phase ahead
    verdict: tuple[str, ...] = ()  #: of a verifier that waits for the phase ahead
    more: tuple[str, ...] = ()  #: that its implementer does
    settings: str = ""  #: of tests
    held: bool = False  #: whether a file of the user's is in the way
    typed: tuple[str, ...] = ()  #: by a person, then


CASES = {
    "red gate": Case(reason="tests-failed", gate="exit 1"),
    "failed verdict": Case(reason="verification-failed", is_written=True, verdict=('fail = "W1"',)),
    "rejected promise": Case(
        reason="stopped", is_written=True, gate="true", more=WEAKER, settings='changed = "ask"\n', typed=("reject", "X")
    ),
    "held landing": Case(
        reason="stopped", is_written=True, verdict=("pass_all = true",), held=True, typed=("stop", "X")
    ),
    "stop": Case(reason="stopped", verdict=("sleep = 60",), typed=("stop", "X")),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_phase_ahead_of_one_that_does_not_land_is_kept_and_lands_with_it_later(
    project: Project, meanwhile: Meanwhile, tmp_path: Path, case: Case
) -> None:
    wait = f": >{tmp_path}/proof.here; until test -e {tmp_path}/proof.on; do sleep 0.02; done"
    tests = f"test ! -e 1.txt || {{ {wait}; {case.gate}; }}; {SCRIPTS}" if case.gate else SCRIPTS
    ahead = ('write = "2.txt"\ntext = "2\\n"', *(() if case.is_written else meanwhile.pause("two")), 'commit = "Two"')
    agent = work(*case.more, phase="1") + steps(*ahead, phase="2")
    agent += verify(*meanwhile.pause("proof"), *case.verdict) if case.verdict else ""
    settings = f"[run]\npipeline = 1\nmax_fix_cycles = 0\n[tests]\ncommand = '''{tests}'''\n{case.settings}"
    project.repo.write("answer", "42\n")
    project.repo.write("tests/answer.sh", "test $(cat answer) = 42\n")
    set_up(project, plan=PLAN, settings=settings, agent=agent)
    if case.held:
        project.repo.write("1.txt", "mine\n")

    assert project.runplan("start", "X", "finish", "auto").code == 0
    meanwhile.reached("proof")
    until_waits_for_phase(project, "2") if case.is_written else meanwhile.reached("two")
    meanwhile.let_on("proof")
    if case.typed:
        until(partial(can_type, project, case))
        assert project.runplan(*case.typed).code == 0
    until(lambda: run_of(project)["state"] in ("failed", "stopped"))

    assert project.landed() == []
    assert (run_of(project)["reason"], run_of(project)["phase"]) == (case.reason, "1")
    assert project.show("runplan/x/2:2.txt") == "2"
    report = project.runplan("report", "X").out
    assert "`runplan/x/1`" in report
    assert "`runplan/x/2`" in report
    assert_nothing_runs(project)

    (project.path / "1.txt").unlink(missing_ok=True)
    set_up(project, settings="[tests]\ncommand = 'true'\n", agent=work(phase="1") + work(phase="2") + FIXERS)
    project.start("finish", "auto").exits(0)
    assert list(dict.fromkeys(project.landed())) == ["1", "2"]
    assert [project.show(f"main:{phase}.txt").splitlines()[0] for phase in "12"] == ["1", "2"]
    assert [left for left in project.leftovers() if "/parked/" not in left] == []


def can_type(project: Project, case: Case) -> bool:
    """Whether the run has come to the step at which the person types."""
    kinds = [kind for kind, _ in project.events()]
    return ("LandingHeld" if case.held else "ApprovalAsked" if case.more else "LanesChosen") in kinds
