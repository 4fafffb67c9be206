"""Which landing an undo takes back is read from what the commits say, and nothing is guessed."""

import pytest

from runplan.domain.gitfacts import (
    LANDING,
    PHASE,
    PLAN,
    RUN,
    UNDOES,
    StandingLanding,
    Unclear,
    add_trailers,
    newest_landing,
    with_originals,
)

X = "plans/X.md"


def said(phase: str, landing: str, *, plan: str = X, undoes: str = "", subject: str = "Work") -> str:
    ours = [(PLAN, plan), (PHASE, phase), (RUN, "r"), (LANDING, landing), *([(UNDOES, undoes)] if undoes else [])]
    return add_trailers(subject, ours)


def newest(*messages: str, phase: str = "1", plan: str = X) -> StandingLanding | Unclear | None:
    """Among commits c1, c2 and so on, given newest first."""
    marked = [(f"c{number}", message) for number, message in enumerate(messages, 1)]
    return newest_landing(marked, plan=plan, phase=phase)


def test_the_newest_landing_that_stands_is_found_with_all_its_commits() -> None:
    assert newest(said("2", "r.2"), said("1", "r.1"), said("1", "r.1")) == StandingLanding(
        landing="r.1", commits=("c2", "c3")
    )
    assert newest(said("1", "s.1"), said("1", "r.1")) == StandingLanding(landing="s.1", commits=("c1",))


def test_an_undone_landing_no_longer_counts() -> None:
    undo = said("1", "u.1", undoes="r.1")
    assert newest(undo, undo, said("1", "r.1")) is None
    assert newest(undo, said("1", "r.1"), said("1", "q.1")) == StandingLanding(landing="q.1", commits=("c3",))
    assert newest(said("1", "s.1"), undo, said("1", "r.1")) == StandingLanding(landing="s.1", commits=("c1",))


@pytest.mark.parametrize("copy", [said("1", "r.1"), said("1", "r.1") + "\n" + said("2", "r.2")])
def test_the_originals_count_instead_of_a_rebased_or_squashed_copy(copy: str) -> None:
    originals = [("o2", said("2", "r.2")), ("o1", said("1", "r.1"))]
    marked = with_originals([("u", said("3", "u.1", undoes="r.3")), ("c", copy)], originals)
    assert [oid for oid, _ in marked] == ["o2", "o1", "u"]
    assert newest_landing(marked, plan=X, phase="1") == StandingLanding(landing="r.1", commits=("o1",))


def test_other_plans_and_phases_are_not_meant_and_blanks_in_a_path_are_compared_as_a_trailer_holds_them() -> None:
    assert newest(said("1", "r.1", plan="plans/Y.md"), said("2", "r.2")) is None
    odd = "plans/Two  blanks.md"
    assert newest(said("1", "r.1", plan=odd), plan=odd) == StandingLanding(landing="r.1", commits=("c1",))


@pytest.mark.parametrize(
    "message",
    [
        said("1", "r.1") + "\n" + said("2", "r.2"),
        said("2", "r.2") + "\n" + said("1", "r.1"),
        said("1", "r.1") + "\n" + said("1", "q.1"),
        said("1", "r.1") + "\nReviewed.\n",
        f"Work\n\n{LANDING}: r.1\n",
    ],
)
def test_a_commit_that_cannot_be_read_as_ours_is_named_and_never_passed_over(message: str) -> None:
    assert newest(said("1", "r.1"), message) == Unclear(commit="c2")


def test_a_phase_squashed_into_one_commit_is_one_landing() -> None:
    whole = said("1", "r.1", subject="Work") + "\n" + said("1", "r.1", subject="x: record phase 1 as done")
    assert newest(whole) == StandingLanding(landing="r.1", commits=("c1",))
