"""The lines that a run prints: each says something."""

from pathlib import Path
from typing import Any

import pytest

from runplan.app.views.journal import RunLog, describe_duration, describe_event
from runplan.domain.decoding import to_json
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending, NewTestsAnswer
from runplan.domain.run.kinds import GateAnswer, ProofKind, Role
from runplan.domain.run.rows import EventRow


@pytest.mark.parametrize(
    ("line", "shown"), [("passed", "  gate       passed"), ("3 passed", "  gate       passed: 3 passed")]
)
def test_a_gate_without_counts_says_once_that_it_passed(line: str, shown: str) -> None:
    assert describe_event(e.GateJudged(tree="t1", answer=GateAnswer.PASSED, code=0, line=line, time=1)) == shown


def test_a_proof_shows_its_answer_repetition_and_notes() -> None:
    new = e.ProofJudged(
        tree="t", kind=ProofKind.NEW_TESTS, answer=NewTestsAnswer.HOLLOW, line="1", time=2, notes=("x",)
    )
    shown = "  proof      The new tests on the base's code (repeated): hollow: 1; x"
    assert describe_event(new) == shown


def test_the_final_verdict_counts_items_and_phases() -> None:
    phases = (("F1", True, "a.txt"), ("F2", True, "b.txt"))
    final = e.VerdictGiven(tree="t", patch="p", passed=True, items=phases, agent="codex", scope="final", work_items=3)
    assert describe_event(final) == "  verdict    passed: all 3 items of 2 phases"


@pytest.mark.parametrize(
    ("agent", "seconds", "shown"),
    [("", 0.4, ""), ("", 2.4, "  baseline   took 2s"), ("claude", 0.4, "  baseline   claude, 0s")],
)
def test_a_command_of_less_than_a_second_has_no_line_of_its_own(agent: str, seconds: float, shown: str) -> None:
    ended = e.DispatchEnded(id="d1", role=Role.BASELINE, agent=agent, ending=Ending.EXITED, code=0)
    assert describe_duration(ended, seconds) == shown


def test_a_step_whose_end_is_recorded_is_shown_once() -> None:
    begun = e.DispatchStarted(id="d1", role=Role.IMPLEMENT, agent="claude", cycle=1)
    ended = e.DispatchEnded(id="d1", role=Role.IMPLEMENT, agent="claude", ending=Ending.EXITED, code=0, seconds=61.0)
    now = e.DispatchStarted(id="d2", role=Role.VERIFY, agent="codex", cycle=1)
    rows = [
        EventRow(seq=seq, run="r1", at="2026-11-15T10:00:00+00:00", type=type(event).__name__, body=to_json(event))
        for seq, event in enumerate((begun, ended, now))
    ]
    unused: Any = None  # only the end of a run needs its journal
    log = RunLog(unused, unused, Path())
    assert [*log.read(rows)] == [[], ["  implement  claude, 1m01s"], ["  verify     codex …"]]
    assert [*log.read(rows[:1])] == [["  implement  claude …"]]
