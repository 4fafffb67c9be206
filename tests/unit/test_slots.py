"""Who may be at work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runplan.core.slots import Key, Slots

KEYS = st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.sampled_from(["a", "b", "c", "d"]))


def test_first_come_first_served() -> None:
    slots = Slots(host=1, repository=1)
    slots, first = slots.ask(("r1", "a"))
    slots, second = slots.ask(("r2", "b"))
    slots, third = slots.ask(("r3", "c"))
    assert (first, second, third) == (True, False, False)
    slots = slots.leave(("r1", "a"))
    assert slots.due() == (("r2", "b"),)
    slots, jumped = slots.ask(("r3", "c"))
    assert not jumped
    assert slots.ask(("r2", "b"))[1]


def test_a_full_repository_does_not_hold_up_the_others() -> None:
    slots = Slots(host=3, repository=1)
    for key, expected in [(("r1", "a"), True), (("r1", "b"), False), (("r2", "c"), True)]:
        slots, granted = slots.ask(key)
        assert granted is expected


@given(st.integers(1, 4), st.integers(1, 3), st.lists(st.tuples(st.booleans(), KEYS), max_size=60))
def test_the_limits_hold_and_nobody_is_lost(host: int, repository: int, moves: list[tuple[bool, Key]]) -> None:
    slots = Slots(host=host, repository=repository)
    about: set[Key] = set()
    for asks, key in moves:
        if asks:
            slots, _ = slots.ask(key)
            about.add(key)
        else:
            slots = slots.leave(key)
            about.discard(key)
        assert len(slots.working) <= host
        assert all(sum(1 for r, _ in slots.working if r == name) <= repository for name in ("r1", "r2", "r3"))
        assert {*slots.working, *slots.waiting} == about
        assert not set(slots.working) & set(slots.waiting)
