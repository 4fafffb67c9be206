"""The report shows what happened, newest first, and nothing an agent writes can change its structure."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import Delivery, Proof
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.kinds import GateAnswer, PhaseStep, Reason
from runplan.domain.run.reasons import next_action
from runplan.domain.run.recorded import Recorded
from runplan.engine.report import sections
from runplan.engine.report.text import escape_inline, prepend_sections

TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
OTHER_TREE = "d8329fc1cc938780ffdd9f94e0d364e0ea74f579"
COMMITS = {f"abc1234{'0' * 33}": "Read rows", f"def5678{'0' * 33}": "Read cells"}

ITEMS = (("W1", True, "tests/test_rows.py::test_row"), ("C1", True, "see `x|y`"))
VERDICT = e.VerdictGiven(tree=TREE, patch="p", passed=True, items=ITEMS, agent="codex")
GATE = e.GateJudged(tree=TREE, answer=GateAnswer.PASSED, code=0, line="12 passed, 0 failed", time=1)
LINT = e.GateJudged(tree=TREE, answer=GateAnswer.PASSED, code=0, line="passed", time=1, name="lint")
RESULTS = json.dumps({"passed": 10, "failed": None, "exit_code": 0})
KNOWN = e.BaselineKnown(key="k", tree=OTHER_TREE, results=RESULTS)
PROOF = Proof(baselines={"tests": KNOWN}, gates=(GATE,), verdicts=(VERDICT,))
BUILT = e.CandidateBuilt(onto="c", onto_tree=OTHER_TREE, commits=tuple(COMMITS), tree=TREE, patch="p")
DELIVERY = Delivery(candidate=BUILT)
CHOSEN = e.PhaseChosen(
    tip="c", phase="4a", title="Read tables", items=(("W1", "Read rows"), ("C1", "Pipes `a|b`\nare kept"))
)
LEASE = e.Leased(phase="4a", branch="refs/heads/runplan/parser/4a", base="c", base_tree="t", worktree="w", attempt=1)
PHASE = WorkAttempt(chosen=CHOSEN, lease=LEASE, proof=PROOF, delivery=DELIVERY)
FAILED = e.PhaseFailed(
    phase="4b",
    title="Write tables",
    reason=Reason.TESTS_FAILED,
    step=PhaseStep.GATE,
    detail="FAILED tests/test_rows.py::test_row",
    evidence="1 failed, 11 passed",
    branch="runplan/parser/4b",
)


def test_a_failed_undo_has_advice_of_its_own() -> None:
    assert next_action(Reason.BLOCKED, PhaseStep.UNDO).startswith("Undo the phase again")
    assert next_action(Reason.BLOCKED, PhaseStep.LAND) == next_action(Reason.BLOCKED, None) == Reason.BLOCKED.advice


def phase_section(phase: WorkAttempt, **given: Any) -> str:
    usual: dict[str, Any] = {"plan": "plans/parser.md", "run": "r-1", "subjects": COMMITS}
    return sections.phase_section(phase, **{**usual, "commands": {"tests": "make test", "lint": "ruff"}, **given})


def failure_section(failed: e.PhaseFailed, **given: Any) -> str:
    recorded = Recorded(seq=1, run="r-1", at="2026-01-02T03:04:05Z", event=failed)
    return sections.failure_section(recorded, plan="plans/parser.md", **given)


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
    assert failure_section(FAILED, parked="refs/x", notes=["issue #3 is shared"]) == (
        "## Run Failed — 2026-01-02 03:04\n\n"
        "<!-- runplan: run r-1, phase 4b, attempt 1 -->\n\n"
        "**Plan:** `plans/parser.md`\n\n**Phase:** 4b Write tables\n\n**Failed at:** gate\n\n"
        "**Time:** 2026-01-02 03:04:05 UTC\n\n"
        f"**Reason:** `tests-failed`. {Reason.TESTS_FAILED.advice}\n\n"
        "**Detail:**\n\n    FAILED tests/test_rows.py::test_row\n\n    1 failed, 11 passed\n\n"
        "**State:**\n\n- Nothing of the phase landed\n"
        "- The work is kept on the branch `runplan/parser/4b`; the next attempt continues from it\n"
        "- Work that is on no branch is kept at `refs/x`\n- issue #3 is shared\n\n"
        "**To resume:** `runplan retry plans/parser.md`\n"
    )


def test_every_verifier_gives_its_evidence_and_the_final_verdict_is_listed() -> None:
    """The items are those of the phase; a final verdict has one item for each phase of the plan."""
    other = replace(VERDICT, agent="gemini", items=(("W1", True, "rows.py"), ("C1", False, "no")))
    final = replace(VERDICT, scope="final", items=(("phase-1", True, "x"),))
    section = phase_section(replace(PHASE, proof=replace(PROOF, verdicts=(VERDICT, other, final))))
    assert "| W1 | Read rows | pass | `codex`: tests/test_rows.py::test_row; `gemini`: rows.py |" in section
    assert "| fail | `codex`: see `x\\|y`; `gemini`: no |" in section
    assert f"- Verdict: pass by `gemini` on tree `{TREE}`\n" in section
    assert f"- Verdict on all phases: pass by `codex` on tree `{TREE}`\n" in section
    assert "phase-1" not in section


def test_a_check_is_listed_with_its_differences_to_the_base() -> None:
    differences = (("new", 7, ("a", "b", "c", "d", "e", "f")), ("fixed", 1, ("g",)))
    section = phase_section(replace(PHASE, proof=replace(PROOF, gates=(replace(GATE, differences=differences),))))
    assert "exit 0, 12 passed, 0 failed; 7 new: a, b, c, d, e, …; 1 fixed: g\n" in section


def test_an_approval_is_part_of_the_verification() -> None:
    approved = replace(DELIVERY, approved=TREE, approved_by="Uma (mcp)")
    assert f"- Approved by Uma (mcp) on tree `{TREE}`\n" in phase_section(replace(PHASE, delivery=approved))
    assert "Approved" not in phase_section(replace(PHASE, delivery=replace(DELIVERY, approved=OTHER_TREE)))


@pytest.mark.parametrize(
    ("proof", "line"),
    [
        pytest.param(
            replace(PROOF, verdicts=(replace(VERDICT, tree=OTHER_TREE),)),
            f"on tree `{OTHER_TREE}`, carried over to tree `{TREE}` (the same patch)",
            id="carried over",
        ),
        pytest.param(
            replace(PROOF, baselines={}, gates=(replace(GATE, answer=GateAnswer.SKIPPED, code=None),)),
            "- Tests: skipped — no test infrastructure\n",
            id="N8",
        ),
        pytest.param(
            replace(PROOF, gates=(replace(GATE, code=None, line="killed"),)),
            f"`make test` on tree `{TREE}`: did not finish, killed",
            id="not ended",
        ),
        pytest.param(replace(PROOF, gates=(GATE, LINT)), f"- Gate lint: `ruff` on tree `{TREE}`: exit 0", id="each"),
    ],
)
def test_the_verification_names_each_check_its_end_and_its_tree(proof: Proof, line: str) -> None:
    assert line in phase_section(replace(PHASE, proof=proof))


def test_warnings_and_fix_cycles_are_shown() -> None:
    section = phase_section(replace(PHASE, cycle=3), warnings=["a.txt changed in the checkout while the agent ran"])
    assert "**Status:** Completed (verified, landed) after 2 fix cycles\n" in section
    assert "- Warning: a.txt changed in the checkout while the agent ran\n" in section


def test_quoted_output_has_a_bounded_length() -> None:
    long = "m" * 10_000_000
    many = {f"abc1234{number:033}": long for number in range(1000)}
    proof = replace(PROOF, gates=(replace(GATE, line=long),))
    section = phase_section(replace(PHASE, proof=proof), subjects=many, warnings=(long,))
    assert len(section) < 60_000
    assert f"- `abc1234` {'m' * 296} […]\n" in section
    assert "- and 900 more\n" in section
    assert len(failure_section(replace(FAILED, detail=long))) < 30_000


def test_a_failure_with_nothing_to_add_is_short() -> None:
    section = failure_section(replace(FAILED, detail="", evidence="", branch=""))
    assert "**Detail:**" not in section
    assert "**State:**\n\n- Nothing of the phase landed\n\n" in section


# --- the file -----------------------------------------------------------------------------------------


def test_newer_sections_stand_above_older_ones() -> None:
    report = prepend_sections(None, plan_title="P", sections=["## A\n\nx\n", "## B\n"])
    assert report == "# Plan Report — P\n\n## B\n\n## A\n\nx\n"
    again = prepend_sections(report, plan_title="P", sections=["## C\n"])
    assert again == "# Plan Report — P\n\n## C\n\n## B\n\n## A\n\nx\n"


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        pytest.param("# Mine\n\nIntro.\n\n## Old\n", "# Mine\n\nIntro.\n\n## A\n\n## Old\n", id="an introduction"),
        pytest.param("# Mine", "# Mine\n\n## A\n", id="no line end"),
        pytest.param("# M\n```\n## no\n```\n## Old\n", "# M\n```\n## no\n```\n\n## A\n\n## Old\n", id="fence"),
        pytest.param("notes\n", "# Plan Report — T\n\nnotes\n\n## A\n", id="no title"),
        pytest.param("", "# Plan Report — T\n\n## A\n", id="empty"),
    ],
)
def test_existing_text_of_the_report_stays(report: str, expected: str) -> None:
    assert prepend_sections(report, plan_title="T", sections=["## A\n"]) == expected


def test_a_section_that_is_there_is_not_added_again_unless_of_another_run_or_attempt() -> None:
    both = [phase_section(PHASE), failure_section(FAILED)]
    once = prepend_sections(None, plan_title="P", sections=both)
    assert prepend_sections(once, plan_title="P", sections=both) == once
    others = [phase_section(PHASE, run="r-2"), failure_section(replace(FAILED, attempt=2))]
    twice = prepend_sections(once, plan_title="P", sections=others)
    assert (twice.count("## Phase — 4a"), twice.count("## Run Failed")) == (2, 2)


LINES = st.lists(
    st.sampled_from(["# Mine", "## Old", "```", "text", "", "| a |", "### x", "\x0c## no", "<!-- c -->"]) | st.text()
)


@settings(deadline=None, database=None)
@given(LINES.map("\n".join), st.sampled_from(["", "\n"]))
def test_prepend_keeps_every_byte_and_is_done_once(text: str, end: str) -> None:
    report = text + end
    section = phase_section(PHASE)
    made = prepend_sections(report, plan_title="P", sections=[section])
    assert prepend_sections(made, plan_title="P", sections=[section]) == made
    cut = re.sub(r"\s+", "", made.replace("\r", "").replace(section, "", 1).removeprefix("# Plan Report — P\n"))
    assert cut == re.sub(r"\s+", "", report.replace("\r", ""))


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
    hostile = replace(
        PHASE,
        chosen=replace(PHASE.chosen, title=text, items=(("W1", text), ("C1", text))),
        proof=replace(
            PROOF,
            gates=(replace(GATE, line=text, differences=(("new", 1, (text,)),)),),
            verdicts=(replace(VERDICT, items=(("W1", True, text), ("C1", True, text))),),
        ),
    )
    section = phase_section(hostile, subjects=dict.fromkeys(COMMITS, text), warnings=(text,))
    assert skeleton(section) == skeleton(phase_section(PHASE, warnings=("w",)))
    section.encode("utf-8")


@settings(deadline=None, database=None)
@given(HOSTILE)
def test_no_text_changes_the_structure_of_a_failure_section(text: str) -> None:
    hostile = failure_section(replace(FAILED, title=text, step=f"gate {text}", detail=f"x{text}"), notes=(text, text))
    assert skeleton(hostile) == skeleton(failure_section(FAILED, notes=("a", "b")))


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
    assert escape_inline(text) == expected
