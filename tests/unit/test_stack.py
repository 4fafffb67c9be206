"""The groups of a stack of pull requests: what each one holds, and which lacks a repair from below."""

import pytest

from runplan.domain.names import pull_branch
from runplan.domain.plan.model import Plan, parse_plan
from runplan.domain.run import events as e
from runplan.engine.landing.stack import find_heads, find_stale, list_groups, narrow_plan


def a_plan(*groups: str) -> Plan:
    """A plan whose phases, counted from 1, have these groups; "" for none."""
    texts = (
        f"## Phase {number}: Step {number}\n\n**Status:** todo\n\n" + (f"Pull-request: `{group}`\n\n" if group else "")
        for number, group in enumerate(groups, 1)
    )
    return parse_plan(f"# Plan: X\n\n{''.join(texts)}".encode(), path="plans/X.md")


def test_neighbours_with_one_name_are_a_group_and_other_phases_are_alone() -> None:
    plan = a_plan("", "api", "api", "")
    groups = {group: [phase.id for phase in phases] for group, phases in plan.stack.items()}
    assert groups == {"1": ["1"], "api": ["2", "3"], "4": ["4"]}
    assert list_groups(plan) == ["1", "api", ""]
    assert [narrow_plan(plan, group).title for group in list_groups(plan)] == ["X: Step 1", "X: api", "X: Step 4"]
    alone = a_plan("all", "all")
    assert narrow_plan(alone, "") == alone


def test_the_branch_of_a_group_is_beside_that_of_the_plan() -> None:
    names = [pull_branch("runplan/", "x", group) for group in ("", "1", "the api")]
    assert names[:2] == ["runplan/x/pr", "runplan/x/pr-1"]
    assert names[2].startswith("runplan/x/pr-the_api-")


@pytest.mark.parametrize(
    ("phases", "heads"),
    [
        ("1 1 2 2 3", {"1": 1, "2": 3, "": 4}),
        ("1 complete 2", {"1": 1, "2": 2}),
        ("plan 1", {"1": 1}),
        ("1 3 2", {"1": 0, "": 2}),
        ("", {}),
    ],
)
def test_a_group_ends_before_the_first_commit_of_one_above(phases: str, heads: dict[str, int]) -> None:
    commits = [(str(place), phase) for place, phase in enumerate(phases.split())]
    assert find_heads(a_plan("", "", ""), commits) == {group: str(place) for group, place in heads.items()}


GROUPS = ["1", "2", ""]
LANDED = e.Landed(id="l", phase="", tip="t", code="c")


def repaired(group: str) -> list[e.Event]:
    return [e.RepairChosen(tip="t", group=group), LANDED]


def merged(group: str) -> list[e.Event]:
    return [e.MergeChosen(tip="t", merge="m", group=group), LANDED]


@pytest.mark.parametrize(
    ("facts", "done", "stale"),
    [
        ([], [], None),
        (repaired("1"), [], ("2", "1")),
        (repaired("1")[:1], [], None),
        ([*repaired("1"), *merged("2")], [], ("", "2")),
        ([*repaired("1"), *merged("2"), *merged("")], [], None),
        ([*repaired("1"), *merged("2"), *merged(""), *repaired("1")], [], ("2", "1")),
        (repaired("2"), [], ("", "2")),
        (repaired("2"), ["1", "2"], None),
        (repaired(""), [], None),
        ([*repaired("1"), e.Concluded()], [], None),
    ],
)
def test_a_repair_below_is_due_until_merged(facts: list[e.Event], done: list[str], stale: object) -> None:
    assert find_stale(GROUPS, done, facts) == stale
