"""The page of a plan: what it takes from the journal, and what it shows."""

import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from runplan.adapters.store.outputs import Outputs
from runplan.app.views.board import Card
from runplan.app.views.changes import proof_of
from runplan.app.views.plan_page import (
    MOST_CHARACTERS,
    MOST_DISPATCHES,
    MOST_TESTS,
    CheckResult,
    Dispatch,
    NamedTest,
    PlanPage,
    choose_phase,
    cut_log,
    fold_phases,
    list_dispatches,
    look_at,
    read_checks,
)
from runplan.app.views.status import PlanView, view_plan
from runplan.domain.run import events as e
from runplan.domain.run.attempts import Attempt
from runplan.domain.run.dispatch import Ending, Evidence
from runplan.domain.run.kinds import GateAnswer, PhaseStep, Reason, Role
from runplan.domain.run.recorded import Recorded
from runplan.domain.run.rows import FailureRow, PlanFacts, RunRow
from runplan.domain.standing.phases import PhaseOutline, PlanOutline
from runplan.engine.report.summary import PhaseRecord, PhaseSpending
from runplan.interfaces.web.drawing import draw_graph, draw_timeline
from runplan.interfaces.web.pages.plan import choose_phases
from runplan.interfaces.web.render import TEMPLATES

NOW = datetime(2026, 3, 1, 12, 1, tzinfo=UTC)
AT = "2026-03-01T12:00:00Z"
CHOSEN = e.PhaseChosen(tip="0", phase="1", items=(("W1", "Write it"), ("C1", "It works")))
STARTED = e.DispatchStarted(id="d1", role=Role.GATE, cycle=1, gates=("tests",), phase="1", at=AT)
ENDED = e.DispatchEnded(id="d1", role=Role.GATE, ending=Ending.EXITED, code=1, seconds=5)
FAILED = e.PhaseFailed(phase="1", reason=Reason.TIMEOUT, step=PhaseStep.GATE, detail="slow")
VERDICT = e.VerdictGiven(
    tree="t", patch="p", passed=False, agent="v", items=(("W1", True, "a.py:1"), ("T1", False, "no")),
    questions=(("T1", "a test of the base"),),
)  # fmt: skip


def recorded(*events: e.Event, run: str = "r1") -> list[Recorded[e.Event]]:
    return [Recorded(seq=seq, run=run, at=AT, event=event) for seq, event in enumerate(events, 1)]


def a_phase(id_: str = "1", status: str = "todo", depends: tuple[str, ...] = ()) -> PhaseOutline:
    return PhaseOutline(id_, "A phase with a title of an ordinary length", status, None, depends)


def a_view(*phases: PhaseOutline, **facts: Any) -> PlanView:
    return view_plan("plans/X.md", PlanOutline(phases=phases), PlanFacts(**facts), landing="cherry-pick", now=NOW)


def a_page(view: PlanView, **fields: Any) -> PlanPage:
    empty: dict[str, Any] = dict.fromkeys(("checks", "dispatches", "logs", "failures", "questions"), ())
    empty |= {"phases": {}, "selected": "3", "attempt": None}
    return PlanPage(card=Card(repo="0" * 16, view=view), **empty | fields)


def a_run(**fields: Any) -> RunRow:
    given = {"state": "running", "phase": "1", "since": AT, **fields}
    return RunRow(id="r1", plan="plans/X.md", started=AT, landing="cherry-pick", **given)


# --- from the journal -------------------------------------------------------------------------------------


def test_the_newest_attempt_at_each_phase_counts() -> None:
    second = e.PhaseChosen(tip="0", phase="2")
    works = fold_phases(recorded(CHOSEN, FAILED, second, CHOSEN, VERDICT))
    assert list(works) == ["2", "1"], "the last one worked on comes last"
    assert (works["1"].failure, proof_of(works["1"]).verdict) == (None, VERDICT)


def list_ids(attempt: Attempt) -> list[str]:
    return [question.id for question in attempt.dispatches.open_questions]


def test_phases_side_by_side_are_told_apart_by_their_lanes() -> None:
    first = e.PhaseChosen(tip="0", phase="1", lane="a")
    second = e.PhaseChosen(tip="0", phase="2", lane="b")
    asked = e.QuestionAsked(id="q", text="why?", lane="a")
    works = fold_phases(recorded(first, second, asked))
    assert [list_ids(work) for work in works.values()] == [["q"], []]
    answered = fold_phases(recorded(first, asked, e.QuestionAnswered(id="q", text="so", lane="a")))
    assert list_ids(answered["1"]) == []


def test_items_have_the_results_of_the_newest_verdict() -> None:
    page = a_page(a_view(), attempt=fold_phases(recorded(CHOSEN, VERDICT))["1"])
    assert [(item.id, item.text, item.result, item.evidence) for item in page.items] == [
        ("W1", "Write it", "pass", "a.py:1"),
        ("C1", "It works", "", ""),
        ("T1", "a test of the base", "fail", "no"),
    ]


def test_a_dispatch_has_its_phase_its_time_and_its_result() -> None:
    running = e.DispatchStarted(id="d2", role=Role.VERIFY, agent="codex", cycle=1, phase="1", at=AT)
    first, second = list_dispatches(recorded(CHOSEN, STARTED, ENDED, running), NOW)
    assert (first.started.phase, first.who, first.seconds, first.result) == ("1", "tests", 5, "exit 1")
    assert (second.started.phase, second.who, second.seconds, second.result) == ("1", "codex", 60, "running")


def test_new_tests_that_fail_on_old_code_are_no_failure() -> None:
    started, ended = (replace(event, role=Role.PROVE) for event in (STARTED, ENDED))
    (proof,) = list_dispatches(recorded(CHOSEN, started, ended), NOW)
    assert proof.result == "ok"


def test_a_process_that_is_gone_is_shown_until_its_work_is_recorded(tmp_path: Path) -> None:
    (dispatch,) = list_dispatches(recorded(CHOSEN, STARTED), NOW)
    log = tmp_path / "d1" / "out.log"
    log.parent.mkdir()
    log.write_text("done\n")
    os.utime(log, (NOW.timestamp() - 57, NOW.timestamp() - 57))
    gone = look_at(Outputs(tmp_path, None), dispatch)
    assert (gone.result, gone.seconds) == ("ended", 3)


def test_only_a_process_of_a_run_that_goes_on_is_running() -> None:
    old = recorded(CHOSEN, STARTED, run="r0")
    assert list_dispatches([*old, *recorded(CHOSEN)], NOW) == []
    assert list_dispatches(recorded(CHOSEN, STARTED, e.RunEnded(outcome="failed")), NOW) == []  # type: ignore[arg-type]


def test_the_phase_at_work_is_shown_before_failed_and_finished_ones() -> None:
    works = fold_phases(recorded(CHOSEN))
    failures = (FailureRow("3", "timeout", ""),)
    phases = [a_phase(id_) for id_ in ("1", "3")]
    assert choose_phase(a_view(*phases, failures=failures, run=a_run(phase="2")), works) == "2"
    assert choose_phase(a_view(*phases, failures=failures, run=a_run(state="failed")), works) == "3"
    assert choose_phase(a_view(*phases), works) == "1"
    assert choose_phase(a_view(a_phase("4")), {}) == "4"


# --- from files -------------------------------------------------------------------------------------------


OUTPUT = """\
test_a (t.T.test_a) ... FAIL
test_b (t.T.test_b) ... ok

======================================================================
FAIL: test_a (t.T.test_a)
----------------------------------------------------------------------
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 2 tests in 0.001s

FAILED (failures=1)
"""


def a_gate(state: Path, output: str, **fields: Any) -> e.GateJudged:
    digest = sha256(output.encode()).hexdigest()
    (state / "d").mkdir(exist_ok=True)
    (state / "d" / digest).write_text(output)
    ran = Evidence(dispatch="d", file=f"dispatch/d/{digest}", sha256=digest)
    known = {"tree": "t", "answer": GateAnswer.FAILED, "code": 1, "line": "1 test fails", "time": 1, "ran": ran}
    return e.GateJudged(**{**known, **fields})


def test_the_tests_of_a_check_are_named_and_the_failed_ones_come_first(tmp_path: Path) -> None:
    proof = proof_of(fold_phases(recorded(CHOSEN, a_gate(tmp_path, OUTPUT)))["1"])
    (check,) = read_checks(Outputs(tmp_path, None), proof)
    tests = [(test.name, test.is_passed) for test in check.tests]
    assert tests == [("test_a (t.T.test_a)", False), ("test_b (t.T.test_b)", True)]
    assert (check.failed, check.passed) == (1, 1)


def test_a_second_run_counts_for_the_tests_that_it_ran(tmp_path: Path) -> None:
    again = "test_a (t.T.test_a) ... ok\n\n" + "-" * 70 + "\nRan 1 test in 0.001s\n\nOK\n"
    second = a_gate(tmp_path, again, answer=GateAnswer.PASSED, code=0, line="flaky", time=2)
    proof = proof_of(fold_phases(recorded(CHOSEN, a_gate(tmp_path, OUTPUT), second))["1"])
    (check,) = read_checks(Outputs(tmp_path, None), proof)
    assert (check.gate.answer, check.failed, check.passed) == ("passed", 0, 2)


def test_a_check_whose_output_is_gone_names_what_the_journal_knows(tmp_path: Path) -> None:
    gate = e.GateJudged(
        tree="t", answer=GateAnswer.FAILED, code=1, line="x", time=1, failures=("t::a",),
        ran=Evidence(dispatch="d", file="gone", sha256="0"),
    )  # fmt: skip
    (check,) = read_checks(Outputs(tmp_path, None), proof_of(fold_phases(recorded(CHOSEN, gate))["1"]))
    assert [test.name for test in check.tests] == ["t::a"]


def test_a_page_takes_the_end_of_a_log() -> None:
    assert cut_log(["a", "b"]) == ["a", "b"]
    long = cut_log([f"{number} {'x' * 5_000}" for number in range(100)])
    assert long[-1].startswith("99 ")
    assert sum(map(len, long)) <= MOST_CHARACTERS


# --- what the page shows ----------------------------------------------------------------------------------


def test_a_long_plan_leaves_out_finished_phases_first() -> None:
    phases = a_view(*(a_phase(str(number), "done" if number < 30 else "todo") for number in range(100))).phases
    shown = choose_phases(phases, "3", is_all=False)
    assert [phase.id for phase in shown[:3]] == ["3", "30", "31"]
    assert len(shown) == 36
    assert tuple(choose_phases(phases, "3", is_all=True)) == phases


def test_the_page_of_a_long_plan_stays_small() -> None:
    """At most 100 kB, with everything that a page can show."""
    phases = [a_phase(str(number), "done", (str(number - 1),)) for number in range(120)]
    started = e.DispatchStarted(id="d", role=Role.IMPLEMENT, agent="claude", cycle=1, at=AT)
    ended = replace(ENDED, role=Role.IMPLEMENT, code=0, agent="claude", input_tokens=9**7, usd=1.5, seconds=99)
    dispatches = tuple(
        Dispatch(started=replace(started, phase=str(number // 3)), run="r1", ended=ended)
        for number in range(MOST_DISPATCHES)
    )
    name = "tests/unit/test_some_module.py::TestClass::test_that_something_holds"
    tests = tuple(NamedTest(f"{name}_{number}", number > 5) for number in range(MOST_TESTS))
    gate = e.GateJudged(name="tests", answer=GateAnswer.FAILED, line="it fails", tree="0" * 40, code=1, time=1)
    check = CheckResult(gate=gate, tests=tests, failed=5, passed=900)
    items = tuple((f"W{number}", True, "src/file.py:12") for number in range(20))
    verdict = e.VerdictGiven(tree="t", patch="p", passed=True, agent="v", items=items)
    spent = PhaseSpending(seconds=100, test_seconds=50, wall_seconds=200, tokens=123_456, usd=1.2)
    page = a_page(
        a_view(*phases, run=a_run(phase="3"), owner="o", alive=True),
        phases={str(number): PhaseRecord(id=str(number), attempts=1, spent=spent) for number in range(120)},
        dispatches=dispatches,
        attempt=fold_phases(recorded(CHOSEN, verdict))["1"],
        checks=(check,),
        logs=((dispatches[0], cut_log(["a line of an agent " * 10] * 500)),),
    )
    common = {"navigation": (), "path": "", "live": "", "csrf": "0" * 64, "read_only": False, "signed_in": True}
    common |= {"count_waiting": int, "about": {"root": "/r", "notes": [], "effect": ""}}
    values = {**common, "version": "1", "now": NOW, "repo": "0" * 16, "plan": "plans/X.md"}
    shown = choose_phases(page.card.view.phases, page.selected, is_all=False)
    titles = {phase.id: phase.title for phase in shown}
    drawn = (draw_graph(shown, title="phases"), draw_timeline(dispatches, titles, title="steps"))
    text = TEMPLATES.get_template("plan.html").render(**values, page=page, shown=shown, drawn=drawn)
    assert 60_000 < len(text.encode()) < 95_000
