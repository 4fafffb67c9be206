"""Which issue a watch takes next."""

from __future__ import annotations

import pytest

from runplan.engine.issues import Candidate, next_issue


@pytest.mark.parametrize(
    ("first", "is_taken"),
    [
        (Candidate(number=1), True),
        (Candidate(number=1, has_branch=True, taken_by="us"), True),  # a crash after the push
        (Candidate(number=1, has_branch=True, taken_by="them"), False),
        (Candidate(number=1, has_branch=True), False),
        (Candidate(number=1, has_branch=True, taken_by="us", has_run=True), False),
        (Candidate(number=1, has_branch=True, taken_by="us", has_pull=True), False),
        (Candidate(number=1, has_run=True), False),
        (Candidate(number=1, has_pull=True), False),
        (Candidate(number=1, is_planned=True), False),
        (Candidate(number=1, is_claimed=True), False),
    ],
)
def test_the_first_issue_that_is_not_worked_on_is_next(first: Candidate, *, is_taken: bool) -> None:
    found = next_issue([first, Candidate(number=2)], own="us")
    assert found is not None
    assert found.number == (1 if is_taken else 2)


def test_there_may_be_none() -> None:
    assert next_issue([], own="us") is None
    assert next_issue([Candidate(number=1, has_run=True)], own="us") is None
