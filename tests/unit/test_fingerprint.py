"""Two looks at the user's repository: what differs, and how the report says it."""

from __future__ import annotations

from runplan.git.fingerprint import MOST_LINES, Difference, Fingerprint, differences, foreign, lines, load


def look(refs: dict[str, str] | None = None, *, head: str = "ref: refs/heads/main", **files: str) -> Fingerprint:
    return Fingerprint(refs=refs or {}, heads={"HEAD": head}, files=files)


def test_equal_looks_have_no_difference_also_after_storing_one() -> None:
    before = look({"refs/heads/main": "1" * 40}, config="hash")
    assert differences(load(before.dump()), before) == ()


def test_what_is_new_gone_or_changed_is_named() -> None:
    before = look({"refs/heads/a": "1", "refs/heads/b": "2"}, config="x", hook="h")
    now = look({"refs/heads/b": "3", "refs/tags/t": "4"}, head="5", config="y")
    found = {(one.kind, one.name, one.old, one.new) for one in differences(before, now)}
    assert found == {
        ("ref", "refs/heads/a", "1", ""),
        ("ref", "refs/heads/b", "2", "3"),
        ("ref", "refs/tags/t", "", "4"),
        ("head", "HEAD", "ref: refs/heads/main", "5"),
        ("file", "config", "x", "y"),
        ("file", "hook", "h", ""),
    }


def test_a_landing_of_ours_is_no_difference() -> None:
    found = differences(look({"refs/heads/main": "1"}), look({"refs/heads/main": "2"}))
    assert foreign(found, ["2"]) == ()
    assert foreign(found, ["3"]) == found


def test_the_report_says_who_where_it_is_known() -> None:
    own = Difference(kind="ref", name="refs/heads/x", old="", new="a" * 40, by_agent=True)
    other = Difference(kind="file", name="/r/.git/config", old="1", new="2")
    assert lines([own, other], "the agent") == (
        "the agent changed refs/heads/x in your repository: nothing → aaaaaaaaaaaa",
        "/r/.git/config changed while the agent ran: it has other content",
    )


def test_many_differences_are_counted() -> None:
    many = [Difference(kind="ref", name=f"refs/tags/{number}", old="", new="1") for number in range(MOST_LINES + 3)]
    assert lines(many, "the agent")[-1] == "and 3 more"
