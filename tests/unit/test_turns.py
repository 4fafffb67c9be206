"""The slots of the host: which runs may work at the same time."""

from __future__ import annotations

from hypothesis import given, strategies as st

from runplan.core.turns import Key, Turns
from runplan.daemon.slots import HostSlots

KEYS = st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.sampled_from(["a", "b", "c", "d"]))


def test_first_come_first_served() -> None:
    turns = Turns(host=1, repository=1)
    turns, first = turns.ask(("r1", "a"))
    turns, second = turns.ask(("r2", "b"))
    turns, third = turns.ask(("r3", "c"))
    assert (first, second, third) == (True, False, False)
    turns = turns.leave(("r1", "a"))
    assert turns.due() == (("r2", "b"),)
    turns, jumped = turns.ask(("r3", "c"))
    assert not jumped
    assert turns.ask(("r2", "b"))[1]


def test_a_full_repository_does_not_hold_up_the_others() -> None:
    turns = Turns(host=3, repository=1)
    for key, expected in [(("r1", "a"), True), (("r1", "b"), False), (("r2", "c"), True)]:
        turns, granted = turns.ask(key)
        assert granted is expected


@given(st.integers(1, 4), st.integers(1, 3), st.lists(st.tuples(st.booleans(), KEYS), max_size=60))
def test_the_limits_hold_and_nobody_is_lost(host: int, repository: int, moves: list[tuple[bool, Key]]) -> None:
    turns = Turns(host=host, repository=repository)
    about: set[Key] = set()
    for asks, key in moves:
        if asks:
            turns, _ = turns.ask(key)
            about.add(key)
        else:
            turns = turns.leave(key)
            about.discard(key)
        assert len(turns.working) <= host
        assert all(sum(1 for r, _ in turns.working if r == name) <= repository for name in ("r1", "r2", "r3"))
        assert {*turns.working, *turns.waiting} == about
        assert not set(turns.working) & set(turns.waiting)


def test_a_higher_limit_wakes_those_in_line_and_a_lower_one_interrupts_nobody() -> None:
    called: list[str] = []
    slots = HostSlots(Turns(host=1, repository=1), called.append)
    for key in (("a", "x"), ("b", "y"), ("c", "z")):
        slots.ask(key)
    assert (slots.now.working, called) == ((("a", "x"),), [])
    slots.resize(host=2, repository=1)
    assert called == ["b"]
    assert slots.ask(("b", "y"))
    slots.resize(host=1, repository=1)
    assert (len(slots.now.working), called) == (2, ["b"])
    slots.leave(("a", "x"))
    assert called == ["b"], "the limit is still exceeded"


def test_a_run_that_is_adopted_counts_also_above_the_limit() -> None:
    turns = Turns(host=1, repository=1).enter(("r1", "a")).enter(("r1", "b")).enter(("r1", "a"))
    assert turns.working == (("r1", "a"), ("r1", "b"))
    turns, granted = turns.ask(("r2", "c"))
    assert not granted
    turns = turns.leave(("r1", "a"))
    assert turns.due() == ()
    assert turns.leave(("r1", "b")).due() == (("r2", "c"),)


def test_no_slot_is_given_before_the_adopted_runs_of_every_repository_are_counted() -> None:
    called: list[str] = []
    slots = HostSlots(Turns(host=1, repository=1), called.append)
    slots.expect(["r1", "r2"])
    slots.counted("r1")
    assert not slots.ask(("r1", "queued"))
    slots.enter(("r2", "adopted"))
    slots.counted("r2")
    assert (called, slots.ask(("r1", "queued"))) == ([], False)
    slots.leave(("r2", "adopted"))
    assert (called, slots.ask(("r1", "queued"))) == (["r1"], True)
