"""Trailers follow git's rules, and only runplan writes its own."""

import pytest
from hypothesis import given, settings, strategies as st

from runplan.domain.gitfacts import LANDING, PHASE, PLAN, RUN, add_trailers, read_trailers

OURS = ((PLAN, "plans/x.md"), (PHASE, "4a"), (RUN, "r-1"), (LANDING, "l-1"))
LINES = "Runplan-Plan: plans/x.md\nRunplan-Phase: 4a\nRunplan-Run: r-1\nRunplan-Landing: l-1\n"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("Subject\n", "Subject\n\n" + LINES, id="subject alone"),
        pytest.param("core: subject\n", "core: subject\n\n" + LINES, id="a subject that looks like a trailer"),
        pytest.param("S\n\nSigned-off-by: A <a@b>\n", "S\n\nSigned-off-by: A <a@b>\n" + LINES, id="joined"),
        pytest.param("S\n\nNote: a\nand more\n", "S\n\nNote: a\nand more\n\n" + LINES, id="prose with a colon"),
        pytest.param("S\n\n  code: x\n", "S\n\n  code: x\n\n" + LINES, id="an indented body"),
        pytest.param(
            "S\n\nA: b\n(cherry picked from commit 1234)\n",
            "S\n\nA: b\n(cherry picked from commit 1234)\n" + LINES,
            id="a picked commit",
        ),
        pytest.param("S\n\nRunplan-Plan: forged\n", "S\n\n" + LINES, id="forged"),
        pytest.param("S\n\nrunplan-landing : forged\nA: b\n", "S\n\nA: b\n" + LINES, id="forged in lower case"),
        pytest.param("S\n\nRunplan-Run: x\n\nBody\n", "S\n\nBody\n\n" + LINES, id="forged in the body"),
        pytest.param("Runplan-Run: x\n", "(no message)\n\n" + LINES, id="forged and nothing else"),
        pytest.param("", "(no message)\n\n" + LINES, id="no message"),
        pytest.param("S\r\n\r\nBody\r\n", "S\n\nBody\n\n" + LINES, id="CRLF"),
        pytest.param("S\n\n\n\n  code\n    more\n", "S\n\n  code\n    more\n\n" + LINES, id="indentation is kept"),
    ],
)
def test_trailers_are_added(message: str, expected: str) -> None:
    assert add_trailers(message, OURS) == expected


def test_any_value_becomes_one_line() -> None:
    assert add_trailers("S", [(PLAN, "a\nRunplan-Run: b")]) == "S\n\nRunplan-Plan: a Runplan-Run: b\n"


def test_without_trailers_only_forged_ones_are_removed() -> None:
    assert add_trailers("S\n\nRunplan-Run: x\nA: b\n", []) == "S\n\nA: b\n"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("S\n\nA: 1\nB-c: two words\n", {"A": "1", "B-c": "two words"}, id="a block"),
        pytest.param("S\n\nA: 1\n\nBody\n", {}, id="not at the end"),
        pytest.param("A: 1\n", {}, id="the subject is no trailer"),
        pytest.param("S\n\nA: 1\nA: 2\n", {"A": "2"}, id="the last counts"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_trailers_are_read_from_the_last_paragraph(message: str, expected: dict[str, str]) -> None:
    assert read_trailers(message) == expected


MESSAGES = st.lists(
    st.sampled_from(["Subject", "core: x", "", "Runplan-Plan: forged", " goes on", "A: b", "text", "\r", "\u2028"])
    | st.text(max_size=8)
).map("\n".join)


@settings(deadline=None, database=None)
@given(MESSAGES)
def test_added_trailers_are_read_back_and_adding_is_idempotent(message: str) -> None:
    once = add_trailers(message, OURS)
    read = read_trailers(once)
    assert {key: read[key] for key, _ in OURS} == dict(OURS)
    assert add_trailers(once, OURS) == once
    assert [line for line in once.split("\n") if line.lower().startswith("runplan-")] == LINES.splitlines()
