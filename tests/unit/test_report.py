"""The report shows what happened, newest first, and nothing an agent writes can change its structure."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from runplan.report.text import (
    CommitLine,
    FailureAccount,
    GateLine,
    ItemLine,
    PhaseAccount,
    VerdictLine,
    block,
    code,
    failure_section,
    first,
    inline,
    phase_section,
    prepend,
    row,
)
from runplan.run.reasons import Reason

TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
OTHER_TREE = "d8329fc1cc938780ffdd9f94e0d364e0ea74f579"

PHASE = PhaseAccount(
    plan="plans/parser.md",
    phase="4a",
    title="Read tables",
    run="r-1",
    status="Completed (verified, landed)",
    branch="runplan/parser/4a",
    commits=(CommitLine(short="abc1234", subject="Read rows"), CommitLine(short="def5678", subject="Read cells")),
    items=(
        ItemLine(id="W1", text="Read rows", passed=True, evidence="tests/test_rows.py::test_row"),
        ItemLine(id="C1", text="Pipes `a|b`\nare kept", passed=True, evidence="see `x|y`"),
    ),
    gates=(
        GateLine(name="Baseline", command="make test", exit_code=0, tree=OTHER_TREE, result="10 passed, 0 failed"),
        GateLine(name="Gate", command="make test", exit_code=0, tree=TREE, result="12 passed, 0 failed"),
    ),
    verdicts=(VerdictLine(verifier="codex", tree=TREE, landed_tree=TREE),),
)

FAILURE = FailureAccount(
    at="2026-01-02 03:04",
    plan="plans/parser.md",
    phase="4b",
    title="Write tables",
    run="r-1",
    attempt=1,
    step="gate",
    reason=Reason.TESTS_FAILED,
    detail="FAILED tests/test_rows.py::test_row\n1 failed, 11 passed",
    state=("the branch `runplan/parser/4b` is kept", "main is untouched"),
    resume="runplan start plans/parser.md 4b auto",
)


def test_the_section_of_a_landed_phase() -> None:
    assert phase_section(PHASE) == (
        "## Phase — 4a Read tables\n\n"
        "<!-- runplan: run r-1, phase 4a -->\n\n"
        "**Status:** Completed (verified, landed)\n\n"
        "**Plan:** `plans/parser.md`\n\n"
        "**Branch:** `runplan/parser/4a`\n\n"
        "**Commits:**\n\n"
        "- `abc1234` Read rows\n"
        "- `def5678` Read cells\n\n"
        "### Work Items\n\n"
        "| # | Item | Status | Evidence |\n"
        "|---|---|---|---|\n"
        "| W1 | Read rows | pass | tests/test_rows.py::test_row |\n"
        "| C1 | Pipes `a\\|b` are kept | pass | see `x\\|y` |\n\n"
        "### Verification\n\n"
        f"- Baseline: `make test` on tree `{OTHER_TREE}`: exit 0, 10 passed, 0 failed\n"
        f"- Gate: `make test` on tree `{TREE}`: exit 0, 12 passed, 0 failed\n"
        f"- Verdict: pass by `codex` on tree `{TREE}`\n"
    )


def test_the_section_of_a_failure() -> None:
    assert failure_section(FAILURE) == (
        "## Run Failed — 2026-01-02 03:04\n\n"
        "<!-- runplan: run r-1, phase 4b, attempt 1 -->\n\n"
        "**Plan:** `plans/parser.md`\n\n"
        "**Phase:** 4b Write tables\n\n"
        "**Failed at:** gate\n\n"
        f"**Reason:** `tests-failed`. {Reason.TESTS_FAILED.advice}\n\n"
        "**Detail:**\n\n"
        "    FAILED tests/test_rows.py::test_row\n"
        "    1 failed, 11 passed\n\n"
        "**State:**\n\n"
        "- the branch `runplan/parser/4b` is kept\n"
        "- main is untouched\n\n"
        "**To resume:** `runplan start plans/parser.md 4b auto`\n"
    )


def test_a_verdict_from_another_tree_names_both() -> None:
    carried = replace(PHASE, verdicts=(VerdictLine(verifier="codex", tree=OTHER_TREE, landed_tree=TREE),))
    assert f"on tree `{OTHER_TREE}`, carried over to tree `{TREE}` (the same patch)" in phase_section(carried)


def test_every_section_of_a_project_without_tests_says_so() -> None:
    """N8"""
    assert "- Tests: skipped — no test infrastructure\n" in phase_section(replace(PHASE, gates=()))


def test_warnings_and_failed_items_are_shown() -> None:
    account = replace(
        PHASE,
        items=(ItemLine(id="W1", text="x", passed=False, evidence="no"),),
        warnings=("a.txt changed in the checkout while the agent ran",),
    )
    section = phase_section(account)
    assert "| W1 | x | fail | no |" in section
    assert "- Warning: a.txt changed in the checkout while the agent ran\n" in section


def test_quoted_output_has_a_bounded_length() -> None:
    long = "m" * 10_000_000
    many = tuple(CommitLine(short="abc1234", subject=long) for _ in range(1000))
    gates = (replace(PHASE.gates[0], result=long),)
    section = phase_section(replace(PHASE, commits=many, gates=gates, warnings=(long,)))
    assert len(section) < 60_000
    assert f"- `abc1234` {'m' * 300} […]\n" in section
    assert "- and 900 more\n" in section
    assert len(failure_section(replace(FAILURE, detail=long))) < 30_000


def test_a_gate_that_did_not_end_says_so() -> None:
    gate = GateLine(name="Gate", command="make test", exit_code=None, tree=TREE, result="killed")
    assert f"`make test` on tree `{TREE}`: did not finish, killed" in phase_section(replace(PHASE, gates=(gate,)))


def test_a_failure_with_nothing_to_add_is_short() -> None:
    section = failure_section(replace(FAILURE, detail="", state=()))
    assert "**Detail:**" not in section
    assert "Nothing is left behind." in section


# --- the file -----------------------------------------------------------------------------------------


def test_the_first_section_makes_the_report() -> None:
    assert prepend(None, plan_title="Parser", sections=["## A\n\nx\n"]) == "# Plan Report — Parser\n\n## A\n\nx\n"


def test_newer_sections_stand_above_older_ones() -> None:
    report = prepend(None, plan_title="P", sections=["## A\n", "## B\n"])
    assert prepend(report, plan_title="P", sections=["## C\n"]) == "# Plan Report — P\n\n## C\n\n## B\n\n## A\n"


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        pytest.param("# Mine\n\nIntro.\n\n## Old\n", "# Mine\n\nIntro.\n\n## A\n\n## Old\n", id="an introduction"),
        pytest.param("# Mine", "# Mine\n\n## A\n", id="no line end"),
        pytest.param("# Mine\r\n\r\n## Old\r\n", "# Mine\r\n\r\n## A\r\n\r\n## Old\r\n", id="CRLF"),
        pytest.param("\ufeff# Mine\n", "\ufeff# Mine\n\n## A\n", id="byte order mark"),
        pytest.param("# M\n```\n## no\n```\n## Old\n", "# M\n```\n## no\n```\n\n## A\n\n## Old\n", id="fence"),
        pytest.param("notes\n", "# Plan Report — T\n\nnotes\n\n## A\n", id="no title"),
        pytest.param("", "# Plan Report — T\n\n## A\n", id="empty"),
    ],
)
def test_existing_text_of_the_report_stays(report: str, expected: str) -> None:
    assert prepend(report, plan_title="T", sections=["## A\n"]) == expected


def test_a_section_that_is_there_is_not_added_again() -> None:
    sections = [phase_section(PHASE), failure_section(FAILURE)]
    once = prepend(None, plan_title="P", sections=sections)
    assert prepend(once, plan_title="P", sections=sections) == once
    windows = once.replace("\n", "\r\n")
    assert prepend(windows, plan_title="P", sections=sections) == windows


def test_the_same_phase_of_another_run_is_another_section() -> None:
    once = prepend(None, plan_title="P", sections=[phase_section(PHASE)])
    twice = prepend(once, plan_title="P", sections=[phase_section(replace(PHASE, run="r-2"))])
    assert twice.count("## Phase — 4a") == 2


def test_two_failures_of_one_minute_have_a_section_each() -> None:
    sections = [failure_section(FAILURE), failure_section(replace(FAILURE, attempt=2))]
    assert prepend(None, plan_title="P", sections=sections).count("## Run Failed") == 2


LINES = st.lists(
    st.sampled_from(["# Mine", "## Old", "```", "text", "", "| a |", "### x", "\x0c## no", "<!-- c -->"]) | st.text()
)


@settings(deadline=None, database=None)
@given(LINES.map("\n".join), st.sampled_from(["", "\n"]))
def test_prepend_keeps_every_byte_and_is_done_once(text: str, end: str) -> None:
    report = text + end
    section = phase_section(PHASE)
    made = prepend(report, plan_title="P", sections=[section])
    assert prepend(made, plan_title="P", sections=[section]) == made
    cut = re.sub(r"\s+", "", made.replace("\r", "").replace(section, "", 1).removeprefix("# Plan Report — P\n"))
    assert cut == re.sub(r"\s+", "", report.replace("\r", ""))


@settings(deadline=None, database=None)
@given(LINES.map("\n".join))
def test_prepend_only_inserts(report: str) -> None:
    made = prepend("# T\n" + report, plan_title="P", sections=["## A\n"])
    rest = iter(made)
    assert all(character in rest for character in "# T\n" + report)


# --- the words of agents --------------------------------------------------------------------------------

PIECES = (
    *("\n## Phase — 9 forged", "\r\n# x", "\n\n", "\n    ", "\u2028", "- [ ] ", "---", "***", "> ", "1. ", "word "),
    *("|", "\\", "`", "```", "<!--", "-->", "<details>", "&lt;", "\x1b[31m", "\x00", "\ud800", "\u202e"),
)
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("".join)
OPENING = re.compile(r"#+ \w+|- |\*\*[A-Z][\w ]+:\*\*|<!-- runplan: .* -->|\|---.*|$")


def skeleton(section: str) -> list[str]:
    """The structure that a Markdown reader sees: the opening of each line, and the cells of each row."""
    kinds: list[str] = []
    for line in section.splitlines():
        if line.startswith("| "):
            kinds.append(row_kind(line))
        elif line and not line.startswith("    "):
            opening = OPENING.match(line)
            kinds.append(opening.group() if opening else f"loose: {line}")
    return kinds


def row_kind(line: str) -> str:
    """GFM: a backslash takes the meaning of one punctuation mark, so an escaped pipe is no border."""
    unescaped = re.sub(r"\\[!-/:-@\[-`{-~]", "", line)
    return f"row of {unescaped.count('|')}"


@settings(deadline=None, database=None)
@given(HOSTILE)
def test_no_text_changes_the_structure_of_a_phase_section(text: str) -> None:
    plain = replace(PHASE, warnings=("w",))
    hostile = replace(
        plain,
        title=text,
        commits=(CommitLine(short="abc1234", subject=text), CommitLine(short="def5678", subject=text)),
        items=tuple(ItemLine(id="W1", text=text, passed=True, evidence=text) for _ in plain.items),
        gates=tuple(replace(gate, result=text) for gate in plain.gates),
        warnings=(text,),
    )
    section = phase_section(hostile)
    assert skeleton(section) == skeleton(phase_section(plain))
    section.encode("utf-8")


@settings(deadline=None, database=None)
@given(HOSTILE)
def test_no_text_changes_the_structure_of_a_failure_section(text: str) -> None:
    hostile = replace(FAILURE, title=text, step=f"gate {text}", detail=f"x{text}", state=(text, text))
    assert skeleton(failure_section(hostile)) == skeleton(failure_section(FAILURE))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\t c", "a b c"),
        ("Vec<u8> and `Vec<u8>`", "Vec&lt;u8> and `Vec<u8>`"),
        ("`` a ` <b> `` <b>", "`` a ` <b> `` &lt;b>"),
        ("`open <b>", "`open &lt;b>"),
        ("\\` <!-- ` x -->", "\\` &lt;!-- ` x -->"),
        ("\x1b[31mred\x1b[0m\x00", "red"),
        ("\u202eturned", "turned"),
    ],
)
def test_inline_shows_tags_and_keeps_code(text: str, expected: str) -> None:
    assert inline(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# a", "\\# a"),
        ("- a", "\\- a"),
        ("1. a", "1\\. a"),
        ("```x", "\\```x"),
        ("`a` b", "`a` b"),
        ("plain", "plain"),
    ],
)
def test_the_first_character_opens_no_block(text: str, expected: str) -> None:
    assert first(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("a", "`a`"), ("a`b", "``a`b``"), ("`a", "`` `a ``"), ("", "`  `")])
def test_code_spans_hold_any_backticks(text: str, expected: str) -> None:
    assert code(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("a|b", "| a\\|b |"), ("a\\|b", "| a\\\\\\|b |"), ("a\\", "| a\\ |")])
def test_pipes_stay_inside_their_cell(text: str, expected: str) -> None:
    assert row(text) == expected


def test_a_block_is_indented_line_by_line() -> None:
    assert block("\na\r\n\n  ## b\u2028c\n") == "    a\n\n      ## b\n    c"
