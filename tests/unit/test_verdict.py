"""A verdict passes a phase only when every item is proven; anything less is a fail, or no verdict at all."""

import pytest
from msgspec.structs import replace

from runplan.domain.checks.evidence import Facts, Judgement
from runplan.domain.checks.returns import Unusable
from runplan.domain.checks.verdict import Verdict, judge_reply
from runplan.domain.run.dispatch import ItemAnswer, ItemResult, Reference, ReferenceKind, Return, ReturnStatus

FACTS = Facts(count_lines={"x.py": 9, "y.py": 9}.get, is_in_base=lambda _: False, changed=["x.py"])


def stated(item: str, evidence: str = "x.py:3", answer: str = "pass", demanded_by: str = "") -> ItemResult:
    given = (Reference(ref=evidence),) if evidence else ()
    return ItemResult(item=item, answer=ItemAnswer(answer), evidence=given, demanded_by=demanded_by)


def returned(*items: ItemResult, status: ReturnStatus = ReturnStatus.DONE, summary: str = "all read") -> Return:
    return Return(status=status, summary=summary, items=items)


def judged(*items: ItemResult, wanted: str = "W1 C1", questions: str = "") -> Verdict:
    verdict = judge_reply(returned(*items), wanted.split(), FACTS, questions=questions.split())
    assert isinstance(verdict, Verdict)
    return verdict


def file(ref: str, **flags: bool) -> Reference:
    return Reference(kind=ReferenceKind.FILE, ref=ref, **flags)


def failed_items(verdict: Verdict) -> list[str]:
    return [item.item for item in verdict.failed]


def test_done_with_a_pass_and_a_reference_for_every_item_passes_in_the_order_of_the_phase() -> None:
    passed = [Judgement(item=item, passed=True, evidence="x.py:3", rests_on_work=True) for item in ("W1", "C1")]
    assert judged(stated("C1"), stated("W1")) == Verdict(tuple(passed))


def test_a_phase_without_items_is_answered_as_a_whole() -> None:
    assert judged(stated("P"), wanted="").passed
    assert failed_items(judged(wanted="")) == ["P"]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([stated("W1")], ["C1"], id="unstated"),
        pytest.param([stated("W1"), stated("C1", answer="fail")], ["C1"], id="failed"),
        pytest.param([stated("W1"), stated("C1", answer="partial")], ["C1"], id="partial"),
        pytest.param([stated("W1"), stated("C1", "")], ["C1"], id="no evidence"),
        pytest.param([stated("W1"), stated("C1", "LGTM")], ["C1"], id="evidence that does not resolve"),
        pytest.param([stated("W1"), stated("C1"), stated("C1", answer="fail")], ["C1"], id="pass and fail"),
        pytest.param([stated("W1", answer="fail"), stated("W1"), stated("C1")], ["W1"], id="fail and pass"),
        pytest.param([stated("w1"), stated("C1")], ["W1"], id="ids are exact"),
        pytest.param([stated("W1"), stated("C1"), stated("X9", answer="fail")], ["X9"], id="a fail of another id"),
    ],
)
def test_an_unproven_item_is_a_fail(items: list[ItemResult], expected: list[str]) -> None:
    verdict = judged(*items)
    assert failed_items(verdict) == expected
    assert verdict.why == f"not proven: {expected[0]}"


def test_no_word_in_the_evidence_decides() -> None:
    assert judged(stated("W1", "x.py lists TODO items; deferred and out of scope"), wanted="W1").passed


@pytest.mark.parametrize(
    ("answer", "evidence", "words"),
    [
        ("fail", "f.py:3 is a stub", "f.py:3 is a stub"),
        ("partial", "no docs yet", "done in part: no docs yet"),
        ("fail", "", "no reason given"),
    ],
)
def test_a_failed_item_keeps_the_words_against_it(answer: str, evidence: str, words: str) -> None:
    verdict = judged(stated("W1", evidence, answer), wanted="W1")
    assert verdict.failed == (Judgement(item="W1", passed=False, evidence=words),)


@pytest.mark.parametrize("status", [ReturnStatus.PARTIAL, ReturnStatus.BLOCKED, ReturnStatus.FAILED])
def test_any_status_but_done_fails_though_every_item_passes(status: ReturnStatus) -> None:
    verdict = judge_reply(returned(stated("W1"), status=status, summary="scope creep"), ["W1"], FACTS)
    assert isinstance(verdict, Verdict)
    assert failed_items(verdict) == []
    assert "scope creep" in verdict.why


def test_a_pass_for_an_unknown_id_is_ignored_and_the_name_of_one_that_fails_is_bounded() -> None:
    assert [item.item for item in judged(stated("W1"), stated("W9"), wanted="W1").items] == ["W1"]
    assert failed_items(judged(stated("W1"), stated("X" * 9_999, answer="fail"), wanted="W1")) == ["X" * 80]


@pytest.mark.parametrize(("answer", "kind"), [("pass", Unusable), ("fail", Verdict)])
def test_a_pass_while_a_gate_is_red_is_no_verdict(answer: str, kind: type) -> None:
    assert isinstance(judge_reply(returned(stated("W1", answer=answer)), ["W1"], FACTS, gates_red=True), kind)


def test_without_a_return_there_is_no_verdict() -> None:
    assert judge_reply(Unusable(why="no return"), ["W1"], FACTS) == Unusable(why="no return")


@pytest.mark.parametrize(
    ("items", "status", "asked"),
    [
        pytest.param([stated("W1"), stated("C1", "z.py")], "done", ["C1"], id="the rest passes"),
        pytest.param([stated("W1"), stated("C1")], "done", [], id="nothing is missing"),
        pytest.param([stated("W1", answer="fail"), stated("C1", "z.py")], "done", [], id="another item fails"),
        pytest.param([stated("W1"), stated("C1", "z.py")], "partial", [], id="the verifier is not done"),
    ],
)
def test_unresolved_passes_alone_are_asked_for_again(items: list[ItemResult], status: str, asked: list[str]) -> None:
    verdict = judge_reply(returned(*items, status=ReturnStatus(status)), ["W1", "C1"], FACTS)
    assert isinstance(verdict, Verdict)
    assert [item for item, _ in verdict.unresolved] == asked


@pytest.mark.parametrize(
    ("answer", "demanded_by", "passes", "asks"),
    [("pass", "W1", True, False), ("pass", "", False, True), ("pass", "T1", False, True), ("fail", "W1", False, False)],
)
def test_a_broken_promise_needs_an_item_for_it(answer: str, demanded_by: str, passes: bool, asks: bool) -> None:
    verdict = judged(stated("W1"), stated("T1", "as asked", answer, demanded_by), wanted="W1", questions="T1")
    assert (verdict.passed, bool(verdict.unresolved)) == (passes, asks)


ABSENT = file("docs/z.md", absent=True)


@pytest.mark.parametrize(
    ("work", "criterion", "asked"),
    [
        pytest.param([file("x.py")], [file("x.py"), ABSENT], [], id="stated as absent"),
        pytest.param([file("x.py")], [ABSENT], [], id="only stated as absent"),
        pytest.param([file("x.py")], [file("x.py")], ["C1"], id="not stated"),
        pytest.param([file("x.py"), ABSENT], [file("x.py")], ["C1"], id="stated for another item"),
        pytest.param([file("x.py", absent=True)], [ABSENT], ["W1"], id="stated of a file that is there"),
        pytest.param([file("y.py")], [file("x.py"), ABSENT], ["W1"], id="a file that is neither changed nor named"),
        pytest.param([file("y.py", unchanged=True)], [file("x.py"), ABSENT], [], id="a file from before"),
        pytest.param([file("README")], [file("x.py"), ABSENT], [], id="a file that the phase names"),
        pytest.param([file("src/a.c")], [file("x.py"), ABSENT], [], id="a file in Touches"),
        pytest.param([file("y.py", unchanged=True)], [ABSENT], ["W1", "C1"], id="nothing rests on the work"),
        pytest.param([file("README")], [ABSENT], ["W1", "C1"], id="nothing rests on the work, though named"),
    ],
)
def test_an_item_passes_with_its_files_and_a_reference_that_concerns_the_phase(
    work: list[Reference], criterion: list[Reference], asked: list[str]
) -> None:
    """The criterion names docs/z.md, which was never there; the phase changed x.py, and names README and src."""
    files = {"x.py": 9, "y.py": 9, "README": 9, "src/a.c": 9}
    facts = replace(FACTS, count_lines=files.get, text="As `./README` says.", touches=["src"])
    facts = replace(facts, missing=(("C1", "docs/z.md"),))
    items = [
        ItemResult(item=item, answer=ItemAnswer.PASSED, evidence=tuple(evidence))
        for item, evidence in (("W1", work), ("C1", criterion))
    ]
    verdict = judge_reply(returned(*items), ["W1", "C1"], facts)
    assert isinstance(verdict, Verdict)
    assert [item for item, _ in verdict.unresolved] == failed_items(verdict) == asked
