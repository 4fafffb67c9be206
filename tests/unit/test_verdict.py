"""A verdict passes a phase only when every item is proven; anything less is a fail, or no verdict at all."""

import pytest

from runplan.checks.returns import Unusable
from runplan.checks.verdict import NoVerdict, Verdict, judge, unfit_reply
from runplan.run.dispatch import ItemResult, Return, ReturnStatus

LONG = "I read the diff and the tests, and compared each item with the files it names. " * 5
NO_RETURN = Unusable(why="no return")


def stated(item: str, evidence: str = "tests/test_x.py::test_y", *, passed: bool = True) -> ItemResult:
    return ItemResult(item=item, passed=passed, evidence=evidence)


def returned(*items: ItemResult, status: ReturnStatus = ReturnStatus.DONE, summary: str = "all read") -> Return:
    return Return(status=status, summary=summary, items=items)


def passes(verdict: object) -> bool:
    return isinstance(verdict, Verdict) and verdict.passed


def fails(verdict: object) -> bool:
    return isinstance(verdict, Verdict) and not verdict.passed


def failed_items(verdict: object) -> list[str]:
    assert isinstance(verdict, Verdict), verdict
    assert not verdict.passed
    return [result.item for result in verdict.failed]


def test_done_with_a_pass_and_evidence_for_every_item_passes_in_the_order_of_the_phase() -> None:
    verdict = judge(returned(stated("C1"), stated("W1")), LONG, ["W1", "C1"], gates_red=False)
    assert verdict == Verdict((stated("W1"), stated("C1")))


def test_a_structured_return_is_itself_the_reply_however_short_the_message() -> None:
    assert passes(judge(returned(stated("W1")), "", ["W1"], gates_red=False))


def test_a_phase_without_items_is_answered_as_a_whole() -> None:
    assert passes(judge(returned(stated("P")), "", [], gates_red=False))
    assert failed_items(judge(returned(), "", [], gates_red=False)) == ["P"]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([stated("W1")], ["C1"], id="unstated"),
        pytest.param([stated("W1"), stated("C1", passed=False)], ["C1"], id="failed"),
        pytest.param([stated("W1"), stated("C1", "")], ["C1"], id="no evidence"),
        pytest.param([stated("W1"), stated("C1", " - ")], ["C1"], id="evidence without a word"),
        pytest.param([stated("W1"), stated("C1", "N/A.")], ["C1"], id="evidence that says nothing"),
        pytest.param([stated("W1"), stated("C1", "Noted as gap in a.py, fine otherwise")], ["C1"], id="a noted gap"),
        pytest.param([stated("W1"), stated("C1", "a.py: deferred to a later phase")], ["C1"], id="deferred"),
        pytest.param([stated("W1"), stated("C1", "Out of scope for a.py")], ["C1"], id="out of scope"),
        pytest.param([stated("W1"), stated("C1", "a.py is future work")], ["C1"], id="future work"),
        pytest.param([stated("W1"), stated("C1", "TODO in a.py")], ["C1"], id="TODO"),
        pytest.param([stated("W1"), stated("C1", "a.py could not be verified")], ["C1"], id="could not verify"),
        pytest.param([stated("W1"), stated("C1", "yes")], ["C1"], id="a bare yes"),
        pytest.param([stated("W1"), stated("C1", "Looks good to me, e.g. the code")], ["C1"], id="names nothing"),
        pytest.param([stated("W1"), stated("C1"), stated("C1", passed=False)], ["C1"], id="pass and fail"),
        pytest.param([stated("W1", passed=False), stated("W1"), stated("C1")], ["W1"], id="fail and pass"),
        pytest.param([stated("w1"), stated("C1")], ["W1"], id="ids are exact"),
    ],
)
def test_an_unproven_item_is_a_fail(items: list[ItemResult], expected: list[str]) -> None:
    assert failed_items(judge(returned(*items), LONG, ["W1", "C1"], gates_red=False)) == expected


@pytest.mark.parametrize(
    "evidence",
    [
        "1.txt:1",
        "src/greet",
        "tests/test_x.py::test_y",
        "test_greets_twice passes",
        "TestGreets in the suite",
        "`make test` exits 0",
        "make test exits 0",
        "the Makefile has the target",
        "No TODO left in a.py",
        "nothing deferred; cargo test is green",
        "tests/test_deferred.py, todo.py",
    ],
)
def test_evidence_names_a_file_a_test_or_a_command(evidence: str) -> None:
    assert passes(judge(returned(stated("W1", evidence)), LONG, ["W1"], gates_red=False))


def test_a_failed_item_keeps_the_evidence_against_it() -> None:
    verdict = judge(returned(stated("W1", "f.py:3 is a stub", passed=False)), "", ["W1"], gates_red=True)
    assert isinstance(verdict, Verdict)
    assert not verdict.passed
    assert verdict.failed == (stated("W1", "f.py:3 is a stub", passed=False),)
    assert verdict.why == "not proven: W1"


@pytest.mark.parametrize("status", [ReturnStatus.PARTIAL, ReturnStatus.BLOCKED, ReturnStatus.FAILED])
def test_any_status_but_done_fails_though_every_item_passes(status: ReturnStatus) -> None:
    verdict = judge(returned(stated("W1"), status=status, summary="scope creep"), "", ["W1"], gates_red=False)
    assert failed_items(verdict) == []
    assert isinstance(verdict, Verdict)
    assert not verdict.passed
    assert "scope creep" in verdict.why


def test_a_pass_for_an_unknown_id_is_ignored() -> None:
    verdict = judge(returned(stated("W1"), stated("W9")), "", ["W1"], gates_red=False)
    assert verdict == Verdict((stated("W1"),))


def test_a_fail_for_an_unknown_id_is_a_fail_with_its_evidence() -> None:
    against = stated("X9", "the build is broken", passed=False)
    verdict = judge(returned(stated("W1"), against, stated("X9")), LONG, ["W1"], gates_red=False)
    assert isinstance(verdict, Verdict)
    assert not verdict.passed
    assert verdict.failed == (against,)
    assert verdict.why == "not proven: X9"


def test_the_name_of_an_unknown_id_is_bounded() -> None:
    verdict = judge(returned(stated("W1"), stated("X" * 9_999, "", passed=False)), LONG, ["W1"], gates_red=False)
    assert isinstance(verdict, Verdict)
    assert not verdict.passed
    assert verdict.failed == (stated("X" * 80, "no reason given", passed=False),)


def test_a_pass_while_a_gate_is_red_is_no_verdict() -> None:
    assert isinstance(judge(returned(stated("W1")), LONG, ["W1"], gates_red=True), NoVerdict)


def test_a_fail_while_a_gate_is_red_stands() -> None:
    assert fails(judge(returned(stated("W1", passed=False)), LONG, ["W1"], gates_red=True))


@pytest.mark.parametrize(
    ("message", "fit"),
    [
        pytest.param("x" * 400, True, id="N1"),
        pytest.param(LONG + "\nTests are running. Let me wait for the monitor.", False, id="N2"),
        pytest.param(LONG + "\nTESTS ARE RUNNING. LET ME WAIT.\n" + "ok\n" * 9, False, id="N2 tenth line"),
        pytest.param(LONG + "\nMonitor will signal.\n" + "ok\n" * 10, True, id="N2 eleventh line"),
        pytest.param("Tests passed.", False, id="N4"),
        pytest.param("", False, id="N4 empty"),
        pytest.param("ä" * 100, True, id="N4 counts bytes"),
        pytest.param(" " * 400, False, id="N4 blanks"),
        pytest.param(LONG + "\nI had to wait and monitor the run.", True, id="single words are innocent"),
        pytest.param(LONG + "\nI’ll check back.", False, id="curly apostrophe"),
    ],
)
def test_a_reply_that_is_too_short_or_stalled_is_unfit(message: str, fit: bool) -> None:
    assert (unfit_reply(message, structured=False) == "") is fit


@pytest.mark.parametrize(
    "phrase",
    [
        "let me wait for the monitor",
        "tests are running. let me wait",
        "monitor will signal",
        "monitor to signal",
        "still searching. let me wait",
        "waiting on bashoutput",
        "polling bashoutput",
        "i'll wait for the tests to finish",
        "i will wait for the tests to finish",
        "waiting for the tests to finish",
        "waiting for the test run to finish",
        "waiting for the test suite to finish",
        "waiting for the background task",
        "waiting for the background process",
        "tests are still running",
        "still running in the background",
        "let me check back",
        "i'll check back",
        "i will check back",
        "let me wait for it to finish",
        "let me wait for the results",
        "i'll report back once",
        "i will report back once",
    ],
)
def test_every_stalled_phrase_is_named_and_outweighs_a_return(phrase: str) -> None:
    verdict = judge(returned(stated("W1")), f"{LONG}\n{phrase.title()} …", ["W1"], gates_red=False)
    assert isinstance(verdict, NoVerdict)
    assert "the reply ends while still waiting: " in verdict.why


@pytest.mark.parametrize("message", ["", "Looked.", LONG])
def test_a_broken_return_names_its_error(message: str) -> None:
    broken = Unusable(why="the return file is not JSON", found=True)
    assert judge(broken, message, ["W1"], gates_red=False) == NoVerdict(why="the return file is not JSON")


def test_a_long_reply_without_a_return_is_no_verdict_and_says_what_is_missing() -> None:
    assert judge(NO_RETURN, LONG, ["W1"], gates_red=False) == NoVerdict(why="no return")


@pytest.mark.parametrize(
    ("message", "summary", "passed"),
    [
        pytest.param("| setup.py | ⚠️ Flag |", "", False, id="N5 row"),
        pytest.param("There is one ⚠ flag left.", "", False, id="N5 prose"),
        pytest.param("", "⚠️ Flag: setup.py", False, id="N5 summary"),
        pytest.param("A red flag is drawn.", "", True, id="N5 clean"),
    ],
)
def test_a_flag_in_the_reply_fails_the_verification(message: str, summary: str, passed: bool) -> None:
    verdict = judge(returned(stated("W1"), summary=summary), message, ["W1"], gates_red=False)
    assert isinstance(verdict, Verdict)
    assert verdict.passed is passed
