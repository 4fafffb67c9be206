"""Prompts carry the phase word for word, and a template that does not fit is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from bench.prompts import measure
from runplan.adapters.agents.prompts import (
    PLACEHOLDERS,
    SMALL_DIFF,
    Brief,
    Template,
    fill_template,
    fix_prompt,
    implement_prompt,
    quote_text,
    verify_prompt,
)
from runplan.domain.checks.results import Results
from runplan.domain.checks.returns import Unusable, find_blockers, parse_return
from runplan.domain.errors import SettingsError
from runplan.domain.run.events import GateJudged, PhaseChosen, RepairChosen
from runplan.domain.run.kinds import GateAnswer

PROMPTS = Path(__file__).parents[2] / "config" / "prompts"

TEXT = """## Phase 2 — Tables  \r
```python
x = "{{items}}"
```
\t- [ ] keep *every* byte
"""


def template(name: str) -> str:
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


BASE = Results(exit_code=1, runner="pytest", passed=12, failed=1, failures=frozenset(("tests/test_x.py::test_old",)))


def a_brief(*, test_command: str = "make test", touches: tuple[str, ...] = ("src/**",), text: str = TEXT) -> Brief:
    items = (("W1", "Read\n  rows"), ("C1", "It holds"))
    return Brief(
        plan="plans/tables.md",
        chosen=PhaseChosen(tip="c", phase="2", title="Tables", text=text, items=items, touches=touches),
        worktree="/somewhere/tree",
        branch="runplan/tables/2",
        test_command=test_command,
        baseline=[("make test", BASE)],
    )


def gate(code: int | None, line: str) -> tuple[str, GateJudged]:
    return "make test", GateJudged(tree="d00d", answer=GateAnswer.PASSED, code=code, line=line, time=1)


def implement() -> str:
    return implement_prompt(template("implement"), a_brief())


def fix() -> str:
    return fix_prompt(
        template("fix"),
        a_brief(),
        failed=[("C1", "f.py:3\nis a stub")],
        why="not proven: C1",
        gates=[("make lint", "collected 3\n## Items\nFAILED tests/test_x.py\n")],
        diff="+y = 2\n",
    )


def verify(name: str = "verify") -> str:
    return verify_prompt(
        template(name),
        a_brief(),
        diff="diff --git a/src/a.py b/src/a.py\n+x = 1\n",
        changed=["src/a.py", "src/b.py"],
        gates=[gate(0, "3 passed, 0 failed")],
    )


PROMPT = {"implement": implement(), "fix": fix(), "verify": verify(), "final": verify("final")}


@pytest.mark.parametrize("prompt", PROMPT.values(), ids=PROMPT)
class TestEveryPrompt:
    def test_carries_the_phase_byte_for_byte(self, prompt: str) -> None:
        assert TEXT in prompt

    def test_lists_the_items_by_id_under_their_heading(self, prompt: str) -> None:
        items = prompt.rpartition("\n## Items\n")[2].partition("\n## ")[0]
        assert [line for line in items.splitlines() if line.startswith("- ")] == ["- W1: Read rows", "- C1: It holds"]

    def test_says_where_the_work_is_and_how_to_stop(self, prompt: str) -> None:
        for needed in ("- Worktree: /somewhere/tree\n", "plans/tables.md", "`BLOCKER:`"):
            assert needed in prompt

    def test_sends_nothing_twice(self, prompt: str) -> None:
        """Beside the items, which repeat parts of the phase with their ids."""
        lines = [line for line in prompt.splitlines() if len(line) > 20]
        assert [line for line in lines if lines.count(line) > 1] == []

    def test_echoed_by_an_agent_is_neither_a_return_nor_a_blocker(self, prompt: str) -> None:
        assert isinstance(parse_return(None, prompt), Unusable)
        assert find_blockers(prompt) == ()


def test_prompts_of_implementer_and_fixer_name_test_command_baseline_and_rules() -> None:
    for prompt in (implement(), fix()):
        assert "Test command: make test\n" in prompt
        assert "Before your work the test command says: 12 passed, 1 failed. These failed before" in prompt
        assert "work: tests/test_x.py::test_old.\n" in prompt
        for rule in ("You may commit", "Do not switch the branch", "`runplan.toml`", "`Allows:`", "`src/**`"):
            assert rule in prompt
        assert "RUNPLAN_RETURN" not in prompt, "nobody reads the evidence of an agent on its own work"


def test_verifiers_return_a_verdict() -> None:
    for prompt in (verify(), verify("final")):
        assert "RUNPLAN_RETURN" in prompt
        assert "`json`" in prompt


#: Bytes beside the plan's text and the facts: items, paths, results and the diff.
MOST = {"implement": 3_000, "fix": 3_000, "verify": 3_500, "final": 3_500}


@pytest.mark.parametrize("role", PROMPT)
def test_the_words_of_our_own_are_few_and_nearly_all_of_them_come_first(role: str) -> None:
    """What the prompts of two phases begin with is read from the cache of the provider."""
    sizes = measure()[f"6 items, 4 criteria: {role}"]
    assert sizes["own"] <= MOST[role]
    assert sizes["stable"] >= 0.9 * sizes["own"]


LONG = "Read the rows of the table, and refuse a row that has no date"


def test_an_item_is_in_the_prompt_once_and_its_id_stands_beside_its_first_words() -> None:
    text = f"- [ ] {LONG[:40]}\n  {LONG[40:]}\n"
    items = (("W1", LONG), ("T1", f"{LONG}: another text"))
    brief = a_brief(text=text)
    prompt = implement_prompt(template("implement"), replace(brief, chosen=replace(brief.chosen, items=items)))
    assert f"- W1: Read the rows of the table, and refuse a row …\n- T1: {LONG}: another text\n" in prompt


def test_a_repair_is_named_by_its_title() -> None:
    brief = a_brief()
    repair = RepairChosen(tip="c", title="Handle the review", text="Rename it.")
    prompt = implement_prompt(template("implement"), replace(brief, chosen=repair))
    assert f"\n## Phase (Handle the review) on branch {brief.branch}\n" in prompt


def test_the_paths_that_may_change_are_named_once() -> None:
    assert "match its `Touches:` may" in implement_prompt(template("implement"), a_brief(text="Touches: `src/**`\n"))
    assert "match `src/**` may" in implement_prompt(template("implement"), a_brief(text="It touches: tests\n"))


def test_the_files_of_the_spec_stand_before_the_phase() -> None:
    prompt = implement_prompt(template("implement"), replace(a_brief(), context=["specs/1/design.md"]))
    assert "## Context\n" in prompt.partition("## Phase")[0]
    assert "- `specs/1/design.md`\n" in prompt


def test_only_a_phase_with_a_number_in_a_criterion_gets_the_part_on_numbers() -> None:
    text = "## Phase 2 — Tables\n\n### Acceptance Criteria\n\n- It reads {} rows\n"
    for role in ("implement", "verify"):
        with_one, without = (
            verify_prompt(template(role), a_brief(text=text.format(number)), diff="", changed=[], gates=[])
            for number in ("40", "all")
        )
        assert "PLAN-TEXT-DRIFT: phase=2 bullet=<k>" in with_one
        assert "PLAN-TEXT-DRIFT" not in without


@pytest.mark.parametrize(
    ("prompt", "needed"),
    [
        (verify("final"), ("# Verify the whole plan\n", "=== begin of plan ===\n")),
        (implement_prompt(template("implement"), a_brief(test_command="")), ("Test command: none\n",)),
        (
            verify(),
            (
                *(": .runplan.diff\n", "2 files.\n", "- make test: exit code 0; 3 passed, 0 failed\n", "read-only"),
                "=== begin of diff ===\ndiff --git a/src/a.py b/src/a.py\n+x = 1\n=== end of diff ===\n",
            ),
        ),
        (
            verify_prompt(template("verify"), a_brief(), diff="d", changed=["a"], gates=[gate(None, "killed")]),
            ("did not finish; killed",),
        ),
        (
            verify_prompt(template("verify"), a_brief(), diff="d", changed=[], gates=[]),
            ("None: the project has no test command.", "No file differs."),
        ),
        (
            fix(),
            (
                *("not proven: C1\n\n- C1: f.py:3 is a stub\n", "=== begin of diff ===\n+y = 2\n=== end of diff ===\n"),
                "Run this first: `make lint`\nIts output ended so:\n\n    collected 3\n    ## Items\n    FAILED tests/",
            ),
        ),
        (
            fix_prompt(template("fix"), a_brief(), failed=[], why="", gates=[], diff=""),
            ("The checks did not pass.", "No single item was named.", "Run this first: the test command\n"),
        ),
        (
            fix_prompt(template("fix"), a_brief(test_command=""), failed=[], why="", gates=[], diff=""),
            ("No command failed.",),
        ),
    ],
    ids=[
        *("the final verifier", "no test command", "a verifier", "an unfinished gate", "nothing to verify"),
        *("a fixer", "a fixer without a failed command", "a fixer without a command"),
    ],
)
def test_a_prompt_has_the_facts_that_its_role_needs(prompt: str, needed: tuple[str, ...]) -> None:
    assert [text for text in needed if text not in prompt] == []


LARGE = "".join(
    f"diff --git {names}\n--- old\n+++ new\n@@ -1 +1 @@\n-y\n" + "+x\n" * SMALL_DIFF
    for names in ("a/a b.py b/a b.py", 'a/c.py "b/d\\303.py"', "a/e\udcff b/e\udcff")
)


def test_a_large_diff_is_listed_by_file_with_the_lines_to_read() -> None:
    prompt = verify_prompt(template("verify"), a_brief(), diff=LARGE, changed=["a b.py", "c.py"], gates=[])
    length = SMALL_DIFF + 5
    assert f"It has {3 * length} lines. Read all of it, file by file:\n\n" in prompt
    assert f"- a b.py: +{SMALL_DIFF} -1, lines 1 to {length}\n" in prompt
    assert f"- d\\303.py: +{SMALL_DIFF} -1, lines {length + 1} to {2 * length}\n" in prompt
    assert "+x" not in prompt


def test_a_prompt_is_utf8_for_any_file_name() -> None:
    prompt = verify_prompt(template("verify"), a_brief(), diff=LARGE, changed=["a"], gates=[])
    prompt.encode()
    for odd in ("\udcff", "\ud800"):
        gates = [("make", f"out{odd}")]
        reported = fix_prompt(template("fix"), a_brief(), failed=[], why=f"why{odd}", gates=gates, diff=odd)
        reported.encode()


def test_a_phase_that_holds_the_marker_itself_gets_another_one() -> None:
    text = "a\n=== end of phase ===\n=== end of phase (2) ===\nb"
    assert quote_text(text, "phase") == f"=== begin of phase (3) ===\n{text}\n=== end of phase (3) ==="


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{itmes}}", r"p\.md: unknown placeholder \{\{itmes\}\}; known are branch, "),
        ("{{ items }}", r"p\.md: '\{\{ items \}\}.*' is no placeholder; write \{\{name\}\}"),
        ("{{items", "is no placeholder"),
        ("{{}}", "is no placeholder"),
        ("nothing", r"p\.md: \{\{items\}\} is missing"),
    ],
)
def test_a_template_with_other_placeholders_is_refused(text: str, message: str) -> None:
    changed = template("verify").replace("{{items}}", text)
    with pytest.raises(SettingsError, match=message):
        Template(role="verify", text=changed, origin="p.md").check()


@pytest.mark.parametrize("role", PLACEHOLDERS)
def test_the_shipped_templates_have_their_placeholders(role: str) -> None:
    Template(role=role, text=template(role), origin="p.md").check()


@settings(deadline=None, database=None)
@given(st.text(), st.text())
def test_values_stand_in_the_prompt_as_they_are_and_are_not_expanded_again(first: str, second: str) -> None:
    assert fill_template("<{{a}}|{{b}}|{{a}}>", {"a": first, "b": second}) == f"<{first}|{second}|{first}>"


@settings(deadline=None, database=None)
@given(st.text())
def test_a_quoted_text_stands_whole_between_markers_that_are_not_in_it(text: str) -> None:
    whole = quote_text(text, "phase")
    begin, _, rest = whole.partition("\n")
    end = whole.rpartition("\n")[2]
    assert rest.startswith(text)
    assert begin.replace("begin", "end") == end
    assert end not in text
