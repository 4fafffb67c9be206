"""Prompts carry the phase word for word, and a template that does not fit is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from runplan.agents.prompts import (
    PLACEHOLDERS,
    SMALL_DIFF,
    Brief,
    Template,
    fix_prompt,
    implement_prompt,
    quoted,
    render,
    verify_prompt,
)
from runplan.checks.returns import Unusable, blockers, parse_return
from runplan.errors import SettingsError
from runplan.run.events import GateJudged, PlanRead

PROMPTS = Path(__file__).parents[2] / "config" / "prompts"

TEXT = """## Phase 2 — Tables  \r
```python
x = "{{items}}"
```
\t- [ ] keep *every* byte
"""


def template(name: str) -> str:
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


def a_brief(*, test_command: str = "make test", touches: tuple[str, ...] = ("src/**",), text: str = TEXT) -> Brief:
    items = (("W1", "Read\n  rows"), ("C1", "It holds"))
    return Brief(
        plan="plans/tables.md",
        read=PlanRead(tip="c", choice="next", phase="2", title="Tables", text=text, items=items, touches=touches),
        worktree="/somewhere/tree",
        branch="runplan/tables/2",
        test_command=test_command,
    )


def gate(code: int | None, line: str) -> tuple[str, GateJudged]:
    return "make test", GateJudged(tree="d00d", answer="passed", code=code, line=line, time=1)


def implement() -> str:
    return implement_prompt(template("implement"), a_brief())


def fix() -> str:
    return fix_prompt(
        template("fix"),
        a_brief(),
        failed=[("C1", "f.py:3\nis a stub")],
        why="not proven: C1",
        output="collected 3\n## Items\nFAILED tests/test_x.py\n",
        diff="+y = 2\n",
    )


def verify() -> str:
    return verify_prompt(
        template("verify"),
        a_brief(),
        diff="diff --git a/src/a.py b/src/a.py\n+x = 1\n",
        changed=["src/a.py", "src/b.py"],
        gates=[gate(0, "3 passed, 0 failed")],
    )


@pytest.mark.parametrize("prompt", [implement(), fix(), verify()], ids=["implement", "fix", "verify"])
class TestEveryPrompt:
    def test_carries_the_phase_byte_for_byte(self, prompt: str) -> None:
        assert TEXT in prompt

    def test_lists_the_items_by_id_under_their_heading(self, prompt: str) -> None:
        items = prompt.rpartition("\n## Items\n")[2].partition("\n## ")[0]
        assert [line for line in items.splitlines() if line.startswith("- ")] == ["- W1: Read rows", "- C1: It holds"]

    def test_says_where_the_work_is_and_how_to_return(self, prompt: str) -> None:
        for needed in ("/somewhere/tree", "plans/tables.md", "RUNPLAN_RETURN", "`json`", "`BLOCKER:`", "`src/**`"):
            assert needed in prompt

    def test_echoed_by_an_agent_is_neither_a_return_nor_a_blocker(self, prompt: str) -> None:
        assert isinstance(parse_return(None, prompt), Unusable)
        assert blockers(prompt) == ()


def test_prompts_of_implementer_and_fixer_name_test_command_and_committer() -> None:
    for prompt in (implement(), fix()):
        assert "Test command: make test\n" in prompt
        for rule in ("You may commit", "stage files by name", "Never push", "`runplan.toml`", "hooks"):
            assert rule in prompt


def test_without_a_test_command_the_prompt_says_none() -> None:
    assert "Test command: none\n" in implement_prompt(template("implement"), a_brief(test_command=""))


def test_the_prompt_of_a_phase_without_touches_says_so() -> None:
    assert "names no paths" in implement_prompt(template("implement"), a_brief(touches=()))


def test_the_verifier_gets_diff_files_and_gates_and_must_not_write() -> None:
    prompt = verify()
    for needed in (
        "    /somewhere/tree/.runplan.diff\n",
        "=== begin of diff ===\ndiff --git a/src/a.py b/src/a.py\n+x = 1\n=== end of diff ===\n",
        "- src/a.py\n- src/b.py\n",
        "- make test on tree d00d: exit code 0; 3 passed, 0 failed\n",
        "read-only",
    ):
        assert needed in prompt


def test_a_large_diff_is_only_named() -> None:
    diff = "+x\n" * SMALL_DIFF
    prompt = verify_prompt(template("verify"), a_brief(), diff=diff, changed=["a"], gates=[])
    assert f"It has {SMALL_DIFF} lines." in prompt
    assert "+x" not in prompt


def test_a_prompt_is_utf8_for_any_file_name() -> None:
    prompt = verify_prompt(template("verify"), a_brief(), diff="d", changed=["a\udcff b", "c\nd"], gates=[])
    assert "- a\\xff b\n- c\\nd\n" in prompt
    for odd in ("\udcff", "\ud800"):
        reported = fix_prompt(template("fix"), a_brief(), failed=[], why=f"why{odd}", output=f"out{odd}", diff=odd)
        reported.encode()


def test_the_prompt_names_an_unfinished_gate_and_a_missing_one() -> None:
    gates = [gate(None, "killed")]
    some = verify_prompt(template("verify"), a_brief(), diff="d", changed=["a"], gates=gates)
    none = verify_prompt(template("verify"), a_brief(), diff="d", changed=[], gates=[])
    assert "did not finish; killed" in some
    assert "None: the project has no test command." in none
    assert "No file differs." in none


def test_the_fixer_gets_the_failed_items_and_the_gate_output_set_apart() -> None:
    prompt = fix()
    assert "not proven: C1\n\n- C1: f.py:3 is a stub\n" in prompt
    assert "=== begin of diff ===\n+y = 2\n=== end of diff ===\n" in prompt
    assert "    collected 3\n    ## Items\n    FAILED tests/test_x.py\n" in prompt


def test_the_fixer_prompt_says_that_there_is_no_output() -> None:
    prompt = fix_prompt(template("fix"), a_brief(), failed=[], why="", output="", diff="")
    for needed in ("The checks did not pass.", "No single item was named.", "No command failed."):
        assert needed in prompt


def test_a_phase_that_holds_the_marker_itself_gets_another_one() -> None:
    text = "a\n=== end of phase ===\n=== end of phase (2) ===\nb"
    assert quoted(text, "phase") == f"=== begin of phase (3) ===\n{text}\n=== end of phase (3) ==="


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
    assert render("<{{a}}|{{b}}|{{a}}>", {"a": first, "b": second}) == f"<{first}|{second}|{first}>"


@settings(deadline=None, database=None)
@given(st.text())
def test_a_template_without_places_stays_as_it_is(text: str) -> None:
    if "{{" not in text:
        assert render(text, {}) == text


@settings(deadline=None, database=None)
@given(st.text())
def test_a_quoted_text_stands_whole_between_markers_that_are_not_in_it(text: str) -> None:
    whole = quoted(text, "phase")
    begin, _, rest = whole.partition("\n")
    end = whole.rpartition("\n")[2]
    assert rest.startswith(text)
    assert begin.replace("begin", "end") == end
    assert end not in text
