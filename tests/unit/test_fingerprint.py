"""The report of differences between two fingerprints."""

from __future__ import annotations

from runplan.git.fingerprint import MOST_LINES, Difference, foreign, lines


def test_a_landing_of_ours_is_no_difference() -> None:
    found = (Difference(name="refs/heads/main", old="1", new="2"),)
    assert foreign(found, ["2"]) == ()
    assert foreign(found, ["3"]) == found


def test_the_report_says_who_where_it_is_known() -> None:
    own = Difference(name="refs/heads/x", old="", new="a" * 40, by_agent=True)
    other = Difference(name="/r/.git/config", old="1", new="2")
    assert lines([own, other], "the agent") == (
        "the agent changed refs/heads/x in your repository: nothing → aaaaaaaaaaaa",
        "/r/.git/config changed while the agent ran: it has other content",
    )


def test_many_differences_are_counted() -> None:
    many = [Difference(name=f"refs/tags/{number}", old="", new="1") for number in range(MOST_LINES + 3)]
    assert lines(many, "the agent")[-1] == "and 3 more"
