"""A proposal is the agent's text with our front matter; its summary names what approving it means."""

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.marks import PlanStatus
from runplan.domain.plan.model import parse_plan
from runplan.domain.plan.proposal import (
    check_revision,
    set_plan_status,
    slug_of_title,
    summarize,
    title_of_goal,
    write_proposal,
)

PLAN = """# Search

## Phase 1 — Index

Touches: src/**
Sign-off: required, look at it

### Work Items

- [ ] Write it

### Acceptance Criteria

- [ ] `make test`

## Phase 2 — Query

Allows: Makefile

- [ ] Read it

## Open Questions

- Which order?
  By age?

And what else?
"""


def propose(markdown: str = PLAN, *, title: str = "Search", before: str = "") -> str:
    return write_proposal(markdown, title=title, created="2026-01-02T03:04:05Z", issues=(7,), before=before)


# --- text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("front", ["", "---\nstatus: complete\ntitle: Theirs\n---\n\n"])
def test_a_proposal_has_our_front_matter_and_a_tracker(front: str) -> None:
    text = propose(front + PLAN)
    head, _, body = text.partition("---\n\n")
    assert head == "---\ntitle: Search\nstatus: proposed\ncreated: 2026-01-02T03:04:05Z\nissue: 7\n"
    assert "| 1 — Index | ⬚ | | |\n| 2 — Query | ⬚ | | |\n\n## Phase 1" in body
    plan = parse_plan(text.encode(), path="plans/x.md")
    assert (plan.status, plan.issues, plan.format) == (PlanStatus.PROPOSED, (7,), "tracker")


def test_a_text_between_two_rules_is_no_front_matter_and_a_tracker_of_the_agent_stays() -> None:
    assert "---\n\nWords.\n\n---\n" in propose(f"---\n\nWords.\n\n---\n{PLAN}")
    assert propose(propose()) == propose()


@pytest.mark.parametrize("title", ['Say "hi": a \\ plan', "# 5", "- a", "'", "Übung, (neu)"])
def test_any_title_is_read_back_from_the_front_matter(title: str) -> None:
    assert parse_plan(propose(title=title).encode(), path="plans/x.md").title == title


def test_activation_changes_the_status_alone() -> None:
    assert set_plan_status(propose(), PlanStatus.ACTIVE) == propose().replace("status: proposed", "status: active")


BEFORE = (
    "---\r\nstatus: active\r\nowner: me\r\n---\r\n# Old\r\n\r\n## Phase 1 — A\r\n\r\n**Status:** ✅ Done (4a6075d)\r\n"
    "\r\n## Phase 2 — B\r\n\r\n**Status:** ⬚\r\n"
)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_revision_keeps_front_matter_line_ends_and_form(mark: str) -> None:
    agents = BEFORE.replace("\r\n", "\n").replace("— B", "— C")
    text = propose(agents, before=mark + BEFORE)
    assert text == mark + BEFORE.replace("active", "proposed").replace("---\r\n#", "---\r\n\r\n#").replace("— B", "— C")
    assert check_revision(BEFORE, text) == ()


def test_a_revision_of_a_plan_with_boxes_gets_no_tracker() -> None:
    before = "# Old\n\n## Phase 1 — A\n\n- [x] a\n\n## Phase 2 — B\n\n- [ ] b\n"
    assert propose(before, before=before).endswith(f"---\n\n{before}")


# --- summary ------------------------------------------------------------------------------------------------


def test_the_summary_names_what_a_person_decides() -> None:
    summary = summarize(propose(), path="plans/x.md")
    assert [(phase.id, phase.title, phase.items) for phase in summary.phases] == [("1", "Index", 2), ("2", "Query", 1)]
    assert (summary.title, summary.characters, summary.dispatches) == ("Search", len(propose()), 5)
    assert summary.open_questions == ("Which order? By age?", "And what else?")
    assert summary.permissions == (
        "phase 2 may change guarded files and promises of tests: Makefile",
        "phase 2 has no Touches: line and may change any file",
    )
    assert summary.sign_offs == ("phase 1: Sign-off: required, look at it",)
    assert not summary.is_free


def test_an_execution_other_than_worktree_is_a_permission() -> None:
    text = propose(PLAN.replace("Touches: src/**", "Touches: src/**\nExecution: direct"))
    assert "phase 1 is worked with Execution: direct" in summarize(text, path="plans/x.md").permissions


@pytest.mark.parametrize(
    ("questions", "is_free"),
    [
        *((questions, True) for questions in ("", "None.\n", "- *none*\n")),
        *((questions, False) for questions in ("- None\n\nExcept one?\n", "### Which order?\n", "Keine.\n")),
    ],
)
def test_a_plan_is_free_without_questions_and_permissions(questions: str, is_free: bool) -> None:
    plan = PLAN.replace("Allows: Makefile", "Touches: src/x.py").partition("- Which order")[0] + questions
    assert summarize(propose(plan), path="plans/x.md").is_free is is_free


def test_questions_at_the_top_end_at_the_next_heading() -> None:
    plan = PLAN.partition("## Open")[0].replace("# Search\n", "# Search\n\n# Open Questions\n\nWhich?\n", 1)
    assert summarize(propose(plan), path="plans/x.md").open_questions == ("Which?",)


def test_finished_phases_are_not_part_of_the_decision() -> None:
    text = propose().replace("| 2 — Query | ⬚ |", "| 2 — Query | ✅ Done |")
    summary = summarize(text, path="plans/x.md")
    assert ([phase.id for phase in summary.phases], summary.permissions, summary.dispatches) == (["1"], (), 3)


# --- revision -----------------------------------------------------------------------------------------------

RUNNING = propose().replace("| 1 — Index | ⬚ | |", "| 1 — Index | ✅ Done | `4a6075d` |")


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        pytest.param("Read it", "Read it twice", [], id="an open phase is reworded"),
        pytest.param("Query | ⬚ | | |\n", "Query | ⬚ | | |\n| 3 — More | ⬚ | | |\n", [], id="a phase is added"),
        pytest.param("Write it", "Write  it", ["phase 1 is done"], id="the text of a finished phase"),
        pytest.param("`4a6075d`", "`4a6075e`", ["phase 1 is done"], id="the row of a finished phase"),
        pytest.param("✅ Done | `4a6075d` |", "⬚ | |", ["phase 1 is done"], id="a finished phase is open"),
        pytest.param("2 — Query", "2b — Query", ["phase 2 is missing"], id="another id"),
        pytest.param("| 2 — Query | ⬚ |", "| 2 — Query | ✅ |", ["phase 2 is marked done"], id="done without work"),
    ],
)
def test_a_revision_keeps_finished_phases_and_ids(old: str, new: str, problems: list[str]) -> None:
    after = RUNNING.replace(old, new)
    after += "\n## Phase 3 — More\n" if "3 — More" in new else ""
    stated = check_revision(RUNNING, after)
    assert [text.partition(";")[0].partition(",")[0] for text in stated] == problems


def test_a_revision_that_is_no_plan_is_unreadable() -> None:
    with pytest.raises(PlanUnreadable):
        check_revision(RUNNING, "words")


# --- names ------------------------------------------------------------------------------------------------


LONG = "Make every page load within a second, also on slow lines"


@pytest.mark.parametrize(
    ("goal", "title"),
    [
        ("Add search", "Add search"),
        ("\n\n**Add** search\nin German", "Add** search"),
        ("Add search\n\n## Details\n", "Add search"),
        ("Please do this:\n\n# Add search\n", "Add search"),
        ("---\nactive: false\n---\n\nAdd search\n---\n", "Add search"),
        ("---\n***\n- Add `x`", "Add `x"),
        (f"{LONG}, please", LONG),
        ("x" * 70, "x" * 60),
        ("\x1b[1mAdd\x00 \ud800", "Add ?"),
        (" \n", ""),
    ],
)
def test_the_title_of_a_goal_is_its_first_words(goal: str, title: str) -> None:
    """F22 among them: a goal with the lines of a front matter."""
    assert title_of_goal(goal) == title


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Add search/index!", "add-search-index"),
        ("Übung für alle", "ubung-fur-alle"),
        ("Begrüße sie", "begrusse-sie"),
        ("Tasks", "tasks-plan"),
        ("搜索", "plan-44ce7ae9"),
    ],
)
def test_a_title_is_the_name_of_a_file(title: str, slug: str) -> None:
    assert slug_of_title(title) == slug
