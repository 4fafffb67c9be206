"""The output of a step of planning is judged by its structure, in any language; no content raises an error."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from runplan.domain.checks.planning import LONGEST_OUTPUT, StepFacts, StepResult, judge_output
from runplan.domain.plan.proposal import write_proposal
from runplan.domain.run.kinds import PLANNING, Role

DOCS = Path(__file__).parents[2] / "docs" / "agents.md"
PATHS = frozenset({"src/app.py", "src/db.py", "tests/test_app.py", "Makefile"})
FACTS = StepFacts(paths=PATHS, test_command="make test")

UNDERSTOOD = {
    "status": "done",
    "problem": "Die Suche findet keine Umlaute.",
    "success": ["`grep` auf „Übung“ liefert einen Treffer"],
    "assumptions": ["Der Index bleibt in SQLite"],
    "questions": [],
}
EXPLORED = {"files": [{"path": "src/app.py", "why": "Anfang"}, {"path": "src/db.py", "why": "Index"}], "notes": "klein"}
OPTIONS = {
    "options": [
        {"name": "A", "advantages": ["einfach"], "drawbacks": ["langsam"]},
        {"name": "B", "advantages": ["schnell"], "drawbacks": ["neu"]},
    ],
    "choice": "B",
    "why": "Zeit zählt",
}
CRITIQUE = {
    "principles": [{"id": f"P{n}", "verdict": "PASS" if n > 1 else "FAIL", "why": "geprüft"} for n in range(1, 9)],
    "findings": [{"id": "F1", "where": "Phase 1", "text": "Der Rückweg fehlt"}],
}
PHASE = """## Phase {id} — Index

Depends: none
Touches: src/index.py

### Work Items

- [ ] Schreibe den Index

### Acceptance Criteria

- [ ] `make test` läuft durch
"""
PLAN = f"""# Suche mit Umlauten

## Goal

Jeder findet „Übung“.

{PHASE.format(id=1)}
## Non-Scope

Andere Sprachen.

## Risks

Keine.

## Open Questions

None.
"""


def judge(role: Role, value: object, facts: StepFacts = FACTS) -> StepResult:
    return judge_output(role, message="", file_text=json.dumps(value), facts=facts)


def judge_plan(plan: str, facts: StepFacts = FACTS) -> StepResult:
    return judge(Role.DRAFT, {"plan": plan}, facts)


ACCEPTED = {
    Role.UNDERSTAND: UNDERSTOOD,
    Role.EXPLORE: EXPLORED,
    Role.ALTERNATIVES: OPTIONS,
    Role.DRAFT: {"plan": PLAN},
    Role.CRITIQUE: CRITIQUE,
    Role.REVISE: {"plan": PLAN},
}


@pytest.mark.parametrize("role", PLANNING)
class TestEveryStep:
    def test_a_german_answer_passes(self, role: Role) -> None:
        assert judge(role, ACCEPTED[role]).problems == ()

    def test_the_json_block_that_ends_the_message_is_the_answer_too(self, role: Role) -> None:
        message = f"Fertig.\n\n```json\n{json.dumps(ACCEPTED[role])}\n```\n"
        assert judge_output(role, message=message, file_text=None, facts=FACTS) == judge(role, ACCEPTED[role])

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
            ('{"plan": "a", "plan": "b"}', "given twice"),
            ('{"files": "a", "options": 1, "problem": 2, "plan": 3, "principles": 4}', "Expected `"),
            ("[]", "Expected `object`"),
            ('{"status": "do', "is not JSON"),
        ],
    )
    def test_hostile_json_is_a_problem(self, role: Role, text: str, why: str) -> None:
        [problem] = judge_output(role, message="", file_text=text, facts=FACTS).problems
        assert why in problem

    @given(st.text(), st.none() | st.text())
    def test_no_text_raises(self, role: Role, message: str, file_text: str | None) -> None:
        judge_output(role, message=message, file_text=file_text, facts=FACTS)


def test_the_documented_returns_have_the_shape_of_each_step() -> None:
    """They are shortened, so some lack a second entry."""
    rows = re.findall(r"^\| `([a-z]+)` \| `(\{.*?\})` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert [role for role, _ in rows] == list(PLANNING)
    facts = replace(FACTS, paths=frozenset({"src/x.py"}), findings=(("F1", "x"),))
    problems = {role: judge_output(Role(role), message="", file_text=text, facts=facts).problems for role, text in rows}
    assert problems == {
        "understand": (),
        "explore": (),
        "alternatives": ("options has 1 names that differ; at least two are needed",),
        "draft": (unanswered("F1"), problems["revise"][0]),
        "critique": ("1 principles have a verdict with a reason; at least 8 are needed",),
        "revise": problems["draft"][1:],
    }


def unanswered(finding: str) -> str:
    return f"the finding {finding} has no answer; say what you changed, or why not"


SECOND = OPTIONS["options"][1]
VERDICTS = CRITIQUE["principles"]


def changed(base: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {name: value for name, value in {**base, **fields}.items() if value is not None}


@pytest.mark.parametrize(
    ("role", "value", "problem"),
    [
        pytest.param(Role.UNDERSTAND, "## Goal\n\n1. a\n2. b\n3. c", "Expected `object`", id="F1 F4 a plan instead"),
        pytest.param(Role.UNDERSTAND, {"problem": "It fails."}, "missing required field `success`", id="F2 thin"),
        pytest.param(Role.UNDERSTAND, changed(UNDERSTOOD, problem=" \n"), "problem is empty", id="no problem"),
        pytest.param(Role.UNDERSTAND, changed(UNDERSTOOD, success=["", " "]), "success is empty", id="no criterion"),
        pytest.param(Role.UNDERSTAND, changed(UNDERSTOOD, assumptions=None), "`assumptions`", id="no assumptions"),
        pytest.param(Role.EXPLORE, {"files": [], "notes": "prose"}, "files names 0 paths", id="F5 no paths"),
        pytest.param(
            Role.EXPLORE,
            {"files": [{"path": path} for path in ("src/app.py", "src/no.py", "lib/no.py")]},
            "files names 1 paths that exist, and at least 2 are needed; these do not: src/no.py, lib/no.py",
            id="F6 invented paths",
        ),
        pytest.param(
            Role.EXPLORE,
            {"files": [{"path": "src/app.py"}, {"path": "./src/app.py:3"}]},
            "names 1 paths",
            id="F7 one path twice",
        ),
        pytest.param(Role.ALTERNATIVES, changed(OPTIONS, choice=""), "choice is ''", id="F9 no choice"),
        pytest.param(Role.ALTERNATIVES, changed(OPTIONS, choice="C"), "choice is 'C', which is not", id="unknown one"),
        pytest.param(Role.ALTERNATIVES, changed(OPTIONS, why=""), "why is empty", id="no reason"),
        pytest.param(Role.ALTERNATIVES, changed(OPTIONS, options=[SECOND] * 2), "has 1 names", id="one option twice"),
        pytest.param(
            Role.ALTERNATIVES,
            changed(OPTIONS, options=[{"name": "A", "advantages": ["x"], "drawbacks": [""]}, SECOND]),
            "the option 'A' needs at least one advantage and one drawback",
            id="no drawback",
        ),
        pytest.param(Role.CRITIQUE, {"principles": [], "findings": []}, "0 principles have", id="F13 no verdict"),
        pytest.param(Role.CRITIQUE, changed(CRITIQUE, principles=VERDICTS[:7]), "7 principles", id="F14 F15 too few"),
        pytest.param(Role.CRITIQUE, changed(CRITIQUE, principles=VERDICTS[:1] * 8), "1 principles", id="one for all"),
        pytest.param(
            Role.CRITIQUE,
            changed(CRITIQUE, principles=[{"id": "p1", "verdict": "tests pass", "why": "x"}]),
            "'p1' with the verdict 'tests pass': write P1 to P12 with PASS or FAIL",
            id="F16 words",
        ),
        pytest.param(
            Role.CRITIQUE,
            changed(CRITIQUE, principles=[{**row, "why": ""} for row in VERDICTS]),
            "0 principles have",
            id="verdicts without reasons",
        ),
        pytest.param(Role.CRITIQUE, changed(CRITIQUE, findings=[]), "there is no finding", id="a FAIL without one"),
        pytest.param(Role.CRITIQUE, changed(CRITIQUE, findings=[{"text": "bad"}]), "1 needs where", id="no place"),
        pytest.param(Role.DRAFT, {"status": "done"}, "there is no plan", id="no plan"),
    ],
)
def test_what_lacks_structure_is_not_accepted(role: Role, value: object, problem: str) -> None:
    assert any(problem in text for text in judge(role, value).problems), judge(role, value).problems


# --- understand, explore, critique --------------------------------------------------------------------------


def test_understand_keeps_five_questions() -> None:
    """F3"""
    result = judge(Role.UNDERSTAND, changed(UNDERSTOOD, questions=[f"{n}?" for n in range(7)]))
    assert result.questions == ("0?", "1?", "2?", "3?", "4?")
    assert result.text.startswith("Problem: Die Suche findet keine Umlaute.\n\nSuccess:\n- `grep` auf")
    text = judge(Role.UNDERSTAND, UNDERSTOOD).text
    assert ("Assumptions:\n- " in text, "Questions" in text) == (True, False), "a list without entries has no title"


@pytest.mark.parametrize(
    "path", ["./src/db.py", "src/db.py:12", "src/db.py#L3", "`src/db.py`", "tests/", "/x/y/src/db.py"]
)
def test_explore_takes_other_forms_of_a_path(path: str) -> None:
    assert judge(Role.EXPLORE, {"files": [{"path": "src/app.py"}, {"path": path}]}).problems == ()


def test_explore_needs_no_more_paths_than_there_are() -> None:
    for paths in (frozenset[str](), frozenset({"a"})):
        named = {"files": [{"path": path} for path in paths]}
        assert judge(Role.EXPLORE, named, replace(FACTS, paths=paths)).problems == ()


def test_findings_get_ids_where_one_is_missing_or_doubled() -> None:
    for first, second in ((None, "F1"), ("x", "x")):
        findings = [{"id": first, "where": "a", "text": "b"}, {"id": second, "where": "c", "text": "d"}]
        result = judge(Role.CRITIQUE, changed(CRITIQUE, findings=findings))
        assert result.findings == (("F1", "a: b"), ("F2", "c: d"))


def test_the_objection_that_no_principle_asks_for_is_a_finding() -> None:
    result = judge(Role.CRITIQUE, changed(CRITIQUE, objection="It solves\nthe wrong problem."))
    assert (result.problems, result.findings[-1]) == ((), ("OPEN", "the whole plan: It solves the wrong problem."))


def test_of_two_verdicts_on_a_principle_the_worse_counts() -> None:
    rows = [*CRITIQUE["principles"], {"id": "P1", "verdict": "PASS", "why": "doch"}]
    assert judge(Role.CRITIQUE, changed(CRITIQUE, principles=rows)).verdicts[0] == ("P1", "FAIL: geprüft")


def test_outputs_are_bounded_and_without_control_characters() -> None:
    rows = ["\x1b[31m\ud800rot\u202e" + "x" * 50_000] * 100
    result = judge(Role.UNDERSTAND, changed(UNDERSTOOD, success=rows))
    assert len(result.text) <= LONGEST_OUTPUT
    assert "- ?rotxxx" in result.text


# --- plans ---------------------------------------------------------------------------------------------------


def test_a_plan_is_handed_over_without_its_front_matter() -> None:
    result = judge_plan(f"---\nstatus: complete\n---\n\n{PLAN}")
    assert (result.problems, result.text, result.title) == ((), PLAN, "Suche mit Umlauten")


@pytest.mark.parametrize("fence", ["```", "````", "~~~"])
def test_a_plan_in_a_fence_keeps_its_inner_fences(fence: str) -> None:
    plan = PLAN.replace("Keine.", '```json\n{"plan": "not this"}\n```')
    message = f"Entwurf:\n\n```markdown\n# old\n```\n\nUnd jetzt:\n\n{fence}markdown\n{plan}{fence}\n\nFertig.\n"
    assert judge_output(Role.DRAFT, message=message, file_text=None, facts=FACTS).text == plan


def test_four_backticks_keep_fences_without_a_word_and_inner_markdown_apart() -> None:
    plan = PLAN.replace("Keine.", "```\nls\n```\n\n```markdown\n# Beispiel\n```")
    assert judge_output(Role.DRAFT, message=f"````markdown\n{plan}````\n", file_text=None, facts=FACTS).text == plan


MANY_ITEMS = PLAN.replace("- [ ] Schreibe den Index\n", "- [ ] x\n" * 11)
MANY_PHASES = PLAN.replace(PHASE.format(id=1), "\n".join(PHASE.format(id=n) for n in range(1, 14)))


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        pytest.param("Nur Text.", "no phases found", id="no phases"),
        pytest.param(PLAN.replace("## Goal", "## 1. Goal"), "the section Goal is missing", id="F11 numbered heading"),
        pytest.param(PLAN.replace("## Risks", "## Gefahren"), "the section Risks is missing", id="F10 no risks"),
        pytest.param(PLAN.replace("## Non-Scope", "Text"), "the section Non-Scope is missing", id="F10 no non-scope"),
        pytest.param(PLAN.replace("## Open Questions", "Text"), "the section Open Questions", id="F10 no questions"),
        pytest.param(PLAN.replace("- [ ] Schreibe den Index", ""), "phase 1 has no work item", id="no item"),
        pytest.param(PLAN.replace("`make test` läuft durch", "Es geht"), "phase 1 has no criterion", id="no proof"),
        pytest.param(PLAN.replace("Depends: none", "Depends: 7"), "depends on phase 7, which is not", id="unknown id"),
        pytest.param(PLAN.replace("Depends: none", "Depends: 1"), "wait for each other", id="cycle"),
        pytest.param(PLAN.replace("src/index.py", "den Index neu"), "`Touches: den Index neu` is neither", id="prose"),
        pytest.param(PLAN.replace("src/index.py", "*.zig"), "`Touches: *.zig` is neither", id="no such files"),
        pytest.param(PLAN.replace("src/index.py", "../x.py"), "`Touches: ../x.py` is neither", id="outside"),
        pytest.param(PLAN.replace("- [ ]", "- [x]"), "phase 1 is marked done", id="a new plan has no finished phase"),
        pytest.param(PLAN.replace("Depends: none", "Execution: magic"), "(line: Execution: magic)", id="execution"),
        pytest.param(PLAN.replace("Depends: none", "Execution: plan plans/no.md"), "no plan plans/no", id="sub-plan"),
        pytest.param(PLAN.replace("None.", "- [ ] Wer?"), "belong to no phase", id="strict: a box outside of phases"),
        pytest.param(PLAN + "x" * 12_000, "characters, and at most 12,000", id="too long"),
        pytest.param(MANY_ITEMS, "11 work items, and at most 10", id="too many items"),
        pytest.param(MANY_PHASES, "13 phases, and at most 12", id="too many phases"),
        pytest.param("- [ ] a\n- [ ] b\n## Goal\n## Non-Scope\n## Risks\n## Open Questions\n", "Phase 1", id="boxes"),
        pytest.param(PLAN.replace("Keine.", "\n" * 30_000), "lines, and a plan at most", id="lines without end"),
    ],
)
def test_a_plan_that_cannot_be_worked_is_not_accepted(plan: str, problem: str) -> None:
    assert any(problem in text for text in judge_plan(plan).problems), judge_plan(plan).problems


@pytest.mark.parametrize("command", ["", "make test"])
def test_a_criterion_names_something_that_can_be_run_or_read(command: str) -> None:
    plan = PLAN.replace("`make test` läuft durch", "alles läuft durch")
    (problem,) = judge_plan(plan, replace(FACTS, test_command=command)).problems
    assert "phase 1 has no criterion that names" in problem


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("## Goal", "# Goals", id="F12 other level"),
        pytest.param("## Risks", "### Risk", id="F12 other number"),
        pytest.param("## Non-Scope", "## **non scope**", id="other spelling"),
        pytest.param("`make test` läuft durch", "make test läuft durch", id="the test command"),
        pytest.param("`make test` läuft durch", "tests/test_app.py::test_x läuft durch", id="a test at the base"),
        pytest.param("`make test` läuft durch", "src/index.py liest alles.", id="a file that the phase creates"),
        pytest.param("src/index.py", "src/neu/**, tests/*.py, *akefile, neu/", id="paths that match or are created"),
    ],
)
def test_other_ways_to_write_a_plan_are_accepted(old: str, new: str) -> None:
    assert judge_plan(PLAN.replace(old, new)).problems == ()


def test_a_plan_has_the_sections_that_the_settings_name() -> None:
    facts = replace(FACTS, sections=("Goal", "Rollbacks"))
    [problem] = judge(Role.DRAFT, {"plan": PLAN}, facts).problems
    assert problem == "the section Rollbacks is missing; add a heading with that name"
    assert not judge(Role.DRAFT, {"plan": f"{PLAN}\n## Rollback of it\n\nNone.\n"}, facts).problems


def test_a_text_that_a_person_rejected_is_not_accepted_again() -> None:
    """M6"""
    rejected = write_proposal(PLAN, title="x", created="2026-01-01")
    facts = replace(FACTS, rejected=(rejected,))
    assert judge_plan(PLAN, facts).problems == ("a person rejected exactly this text; change it",)
    assert judge_plan(PLAN.replace("Jeder", "Jede"), facts).problems == ()


def test_a_revision_answers_every_finding_with_words() -> None:
    facts = replace(FACTS, findings=(("F1", "a"), ("F2", "b"), ("F3", "c")))
    answers = [
        {"finding": "F1", "changed": True, "how": "Phase 1\nergänzt"},
        {"finding": "F2", "changed": False, "how": "nicht nötig"},
        {"finding": "F3", "changed": True, "how": " "},
        {"finding": "F9", "changed": True, "how": "?"},
    ]
    result = judge(Role.REVISE, {"plan": PLAN, "answers": answers}, facts)
    assert result.answers == (("F1", "changed: Phase 1 ergänzt"), ("F2", "not changed: nicht nötig"))
    assert result.problems == (unanswered("F3"),)


def test_a_revision_in_a_fence_still_answers_the_findings() -> None:
    facts = replace(FACTS, findings=(("F1", "a"),))
    block = f"````markdown\n{PLAN}````\n"
    [problem] = judge_output(Role.REVISE, message=block, file_text=None, facts=facts).problems
    assert problem.startswith("no return")
    answers = {"answers": [{"finding": "F1", "changed": True, "how": "neu"}]}
    message = f"{block}\n```json\n{json.dumps(answers)}\n```\n"
    result = judge_output(Role.REVISE, message=message, file_text=None, facts=facts)
    assert (result.problems, result.text) == ((), PLAN)


def test_a_revised_plan_of_a_person_keeps_its_form() -> None:
    """Only what is new is judged: not its size, its remarks and the sections that it never had."""
    before = (
        "# Alt\n\n> **Landing mode: PR**\n\n"
        + "\n".join(f"## Phase {n} — X\n\n- [{'x' if n == 9 else ' '}] tue {n}\n" for n in range(20))
        + "x" * 20_000
    )
    after = before.replace("- [ ] tue 0", "- [ ] tue 0 anders")
    facts = replace(FACTS, before=before)
    assert judge_plan(before + "\n" + PHASE.format(id=20), facts).problems == ()
    [problem] = judge_plan(after, facts).problems
    assert problem.startswith("phase 0 has no criterion that names")


def test_a_phase_that_is_planned_first_is_planned_once() -> None:
    first = PLAN.replace("## Phase 1 — Index\n", "## Phase 1 — Index\n\nExecution: plan-first\n")
    facts = replace(FACTS, before=first, revises="1")
    [problem] = judge(Role.DRAFT, {"plan": first.replace("Schreibe", "Baue")}, facts).problems
    assert problem == "phase 1 is planned now; remove its line `Execution: plan-first`"
    assert not judge(Role.DRAFT, {"plan": PLAN}, facts).problems


def test_a_plan_without_a_title_gets_that_of_the_goal() -> None:
    assert judge_plan(PLAN.partition("\n")[2]).title == ""
