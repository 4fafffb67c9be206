"""The return of an agent is read strictly; no content raises an error."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from runplan.domain.checks.returns import (
    LONGEST_FINDING,
    MOST_FILES,
    MOST_FINDINGS,
    TrialReport,
    Unusable,
    find_blockers,
    find_image_type,
    parse_return,
    parse_trial,
)
from runplan.domain.run.dispatch import ItemAnswer, ItemResult, Reference, ReferenceKind, Return, ReturnStatus, Usage

EVIDENCE = [
    {"kind": "test", "ref": "tests/test_x.py::test_y"},
    {"kind": "file", "ref": "src/x.py", "line": 12},
    {"kind": "file", "ref": "src/y.py", "gone": True},
    {"kind": "file", "ref": "src/y.py", "absent": True, "unchanged": True},
    {"kind": "witness", "ref": "seen"},
]
WHOLE = {
    "status": "done",
    "summary": "one paragraph",
    "items": [
        {"item": "W1", "result": "pass", "evidence": EVIDENCE},
        {"item": "C1", "result": "fail", "evidence": "…"},
        {"item": "C2", "result": "partial"},
        {"item": "T1", "result": "pass", "evidence": "…", "demanded_by": "W1"},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2, "usd": 0.5},
}


def fenced(value: object, info: str = "json") -> str:
    return f"I am done.\n\n```{info}\n{json.dumps(value, indent=1)}\n```\n"


def done(summary: str) -> dict[str, str]:
    return {"status": "done", "summary": summary}


def test_a_whole_return_is_read_field_by_field() -> None:
    evidence = (
        Reference(kind=ReferenceKind.TEST, ref="tests/test_x.py::test_y"),
        Reference(kind=ReferenceKind.FILE, ref="src/x.py:12"),
        Reference(kind=ReferenceKind.FILE, ref="src/y.py", gone=True),
        Reference(kind=ReferenceKind.FILE, ref="src/y.py", absent=True, unchanged=True),
        Reference(ref="seen"),
    )
    items = (
        ItemResult(item="W1", answer=ItemAnswer.PASSED, evidence=evidence),
        ItemResult(item="C1", answer=ItemAnswer.FAILED, evidence=(Reference(ref="…"),)),
        ItemResult(item="C2", answer=ItemAnswer.PARTIAL),
        ItemResult(item="T1", answer=ItemAnswer.PASSED, evidence=(Reference(ref="…"),), demanded_by="W1"),
    )
    usage = Usage(input_tokens=1, output_tokens=2, usd=0.5)
    expected = Return(status=ReturnStatus.DONE, summary="one paragraph", items=items, usage=usage)
    assert parse_return(json.dumps(WHOLE), "") == expected


@pytest.mark.parametrize("status", list(ReturnStatus))
def test_a_status_alone_is_a_return(status: ReturnStatus) -> None:
    assert parse_return(json.dumps({"status": status.value}), "") == Return(status=status, summary="")


@pytest.mark.parametrize(
    ("file_text", "message", "expected"),
    [
        pytest.param(json.dumps(done("file")), fenced(done("message")), "file", id="the file comes first"),
        pytest.param(None, fenced(done("message")), "message", id="no file: the message"),
        pytest.param(" \n", fenced(done("message")), "message", id="an empty file is no file"),
        pytest.param(None, fenced(done("a")) + fenced(done("a")), "a", id="twice the same block"),
        pytest.param(None, fenced({"name": "x"}) + fenced(done("a")), "a", id="a block before it that is no return"),
        pytest.param(None, "```md\n```sh\nls\n```\n```\n" + fenced(done("a")), "a", id="a block in a block before it"),
        pytest.param(None, fenced(done("a"), "JSON"), "a", id="case of the info word"),
        pytest.param(None, "~~~json\n" + json.dumps(done("a")) + "\n~~~", "a", id="tildes"),
        pytest.param(None, "```json\n" + json.dumps(done("a")), "a", id="a block that is never closed"),
        pytest.param(None, fenced(done("a")).replace('a"', 'a\u2028b"'), "a\u2028b", id="another line end in a text"),
        pytest.param(None, fenced(done("a")).replace("\n", "\r\n"), "a", id="line ends of Windows"),
        pytest.param("\ufeff" + json.dumps(done("bom")), "", "bom", id="byte order mark"),
        pytest.param(json.dumps({**done("x"), "mood": [1]}), "", "x", id="unknown keys"),
        pytest.param(json.dumps({**done("x"), "items": None, "usage": None}), "", "x", id="null is absent"),
        pytest.param('{"status": "done", "summary": "a\\ud800b"}', "", "a?b", id="half a surrogate pair"),
    ],
)
def test_where_the_return_is_found(file_text: str | None, message: str, expected: str) -> None:
    ret = parse_return(file_text, message)
    assert isinstance(ret, Return)
    assert ret.summary == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field `status`"),
        ('{"status": "finished"}', "Invalid enum value 'finished'"),
        ('{"status": 1}', "Expected `str`, got `int` - at `$.status`"),
        ('{"status": "done", "items": [{"result": "pass"}]}', "missing required field `item`"),
        ('{"status": "done", "items": [{"item": "W1"}]}', "missing required field `result`"),
        ('{"status": "done", "items": [{"item": "W1", "result": "mostly"}]}', "Invalid enum value 'mostly'"),
        ('{"status": "done", "usage": {"input_tokens": true}}', "usage.input_tokens"),
        ('{"status": "done", "usage": {"output_tokens": -1}}', "usage.output_tokens"),
        (f'{{"status": "done", "usage": {{"output_tokens": {2**53}}}}}', "usage.output_tokens"),
        ('{"status": "done", "usage": {"usd": -0.01}}', "usage.usd"),
        ('{"status": "done", "usage": {"usd": NaN}}', "at `$.usage.usd`"),
        ("[" * 100_000, "nested too deeply"),
        ('{"status": "failed", "status": "done"}', "'status' is given twice"),
        ('{"status": "done", "items": [{"item": "W1", "result": "fail"}], "items": []}', "'items' is given twice"),
        ('{"status": "done", "items": [{"item": "W1", "result": "fail", "result": "pass"}]}', "'result' is given"),
        ('{"status": "done"}\0', "not JSON in UTF-8"),
        ('{"status": "done"}'.encode("utf-16").decode("utf-8", "replace"), "not JSON in UTF-8"),
        ('{"status": "done", "usage": {"input_tokens": ' + "9" * 5000 + "}}", "not JSON"),
    ],
)
def test_a_return_of_the_wrong_shape_is_unusable_and_says_why(text: str, why: str) -> None:
    ret = parse_return(text, "")
    assert isinstance(ret, Unusable)
    assert why in ret.why


def test_a_broken_file_is_not_replaced_by_a_block_of_the_message() -> None:
    assert isinstance(parse_return('{"status": "do', fenced(WHOLE)), Unusable)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        pytest.param("All tests pass. Everything is done.", "does not end with", id="no block"),
        pytest.param(fenced(done("a")) + "So much for its claim.", "does not end with", id="words after the block"),
        pytest.param(fenced(done("a")) + "```text\n{}\n```\n", "does not end with", id="another block at the end"),
        pytest.param(f"```md\n{fenced(done('a'))}```\n", "does not end with", id="a quoted file that has a block"),
        pytest.param(f"```md\n{fenced(done('a'))}", "does not end with", id="a quoted file whose last fence is open"),
        pytest.param(fenced(done("a")) + fenced(done("b")), "two json blocks that differ", id="two blocks that differ"),
        pytest.param(fenced(done("a"), "text") + fenced(done("b")), "that differ", id="one without the word json"),
        pytest.param(f"````md\n{fenced(done('a'))}````\n{fenced(done('b'))}", "that differ", id="one in a block"),
    ],
)
def test_a_message_that_does_not_end_with_its_only_return_has_none(message: str, why: str) -> None:
    ret = parse_return(None, message)
    assert isinstance(ret, Unusable)
    assert why in ret.why


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("BLOCKER: no database\nmore\nBLOCKER:  no key \n", ("no database", "no key")),
        *((message, ()) for message in ("I would write BLOCKER: if I had one", "  BLOCKER: indented")),
        *((message, ()) for message in ("blocker: small", "")),
        ("BLOCKER:", ("no reason given",)),
    ],
)
def test_blockers_are_the_lines_that_begin_with_the_word(message: str, expected: tuple[str, ...]) -> None:
    assert find_blockers(message) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None, database=None)
@given(st.none() | st.text(), st.text())
def test_arbitrary_text_never_raises(file_text: str | None, message: str) -> None:
    assert isinstance(parse_return(file_text, message), Return | Unusable)
    find_blockers(message)


@settings(deadline=None, database=None)
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("status", "summary", "items", "usage"), json_values)
        | {"items": st.lists(st.dictionaries(st.sampled_from(["item", "result", "evidence"]), json_values))},
    )
)
def test_arbitrary_json_never_raises(value: dict[str, object]) -> None:
    assert isinstance(parse_return(json.dumps(value), ""), Return | Unusable)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"status": "done"}', "missing required field `findings`"),
        ('{"status": "done", "findings": [1]}', "Expected `str`, got `int` - at `$.findings[0]`"),
        ('{"status": "failed", "findings": [""]}', "it says failed, and names no finding: no summary given"),
    ],
)
def test_the_answer_of_a_trial_without_a_list_of_findings_is_unusable(text: str, why: str) -> None:
    report = parse_trial(text, "")
    assert isinstance(report, Unusable)
    assert why in report.why


def test_the_findings_and_files_of_a_trial_are_bounded() -> None:
    findings = ["a\n b", *["x" * 5000] * 30]
    files = ["a\0.png"] * 30
    answer = {"status": "partial", "findings": findings, "artifacts": files, "summary": "a\n b" + "x" * 5000}
    report = parse_trial(json.dumps(answer), "")
    assert isinstance(report, TrialReport)
    assert (report.findings[0], len(report.findings), len(report.files)) == ("a b", MOST_FINDINGS, MOST_FILES)
    assert max(map(len, report.findings)) <= LONGEST_FINDING
    assert (report.summary[:4], len(report.summary), report.files[0].path) == ("a bx", LONGEST_FINDING, "a.png")


@pytest.mark.parametrize(
    ("content", "media"),
    [(b"RIFF\x1a\0\0\0WEBPVP8 ", "image/webp"), (b"RIFF\x1a\0\0\0WAVEfmt ", ""), (b"\xff\xd8\xff\xe0", "image/jpeg")],
)
def test_images_are_known_by_their_first_bytes(content: bytes, media: str) -> None:
    assert find_image_type(content) == media
