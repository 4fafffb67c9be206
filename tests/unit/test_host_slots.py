"""The slots of the host: which runs may work at the same time."""

from __future__ import annotations

from hypothesis import given, strategies as st

from runplan.daemon.slots import HostSlots, Key, SlotTable

KEYS = st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.sampled_from(["a", "b", "c", "d"]))


def test_first_come_first_served() -> None:
    table = SlotTable(host=1, repository=1)
    table, first = table.ask(("r1", "a"))
    table, second = table.ask(("r2", "b"))
    table, third = table.ask(("r3", "c"))
    assert (first, second, third) == (True, False, False)
    table = table.leave(("r1", "a"))
    assert table.due() == (("r2", "b"),)
    table, jumped = table.ask(("r3", "c"))
    assert not jumped
    assert table.ask(("r2", "b"))[1]


def test_a_full_repository_does_not_hold_up_the_others() -> None:
    table = SlotTable(host=3, repository=1)
    for key, expected in [(("r1", "a"), True), (("r1", "b"), False), (("r2", "c"), True)]:
        table, granted = table.ask(key)
        assert granted is expected


@given(st.integers(1, 4), st.integers(1, 3), st.lists(st.tuples(st.booleans(), KEYS), max_size=60))
def test_the_limits_hold_and_nobody_is_lost(host: int, repository: int, moves: list[tuple[bool, Key]]) -> None:
    table = SlotTable(host=host, repository=repository)
    about: set[Key] = set()
    for asks, key in moves:
        if asks:
            table, _ = table.ask(key)
            about.add(key)
        else:
            table = table.leave(key)
            about.discard(key)
        assert len(table.working) <= host
        assert all(sum(1 for r, _ in table.working if r == name) <= repository for name in ("r1", "r2", "r3"))
        assert {*table.working, *table.waiting} == about
        assert not set(table.working) & set(table.waiting)


def test_a_higher_limit_wakes_those_in_line_and_a_lower_one_interrupts_nobody() -> None:
    called: list[str] = []
    slots = HostSlots(SlotTable(host=1, repository=1), called.append)
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
    table = SlotTable(host=1, repository=1).enter(("r1", "a")).enter(("r1", "b")).enter(("r1", "a"))
    assert table.working == (("r1", "a"), ("r1", "b"))
    table, granted = table.ask(("r2", "c"))
    assert not granted
    table = table.leave(("r1", "a"))
    assert table.due() == ()
    assert table.leave(("r1", "b")).due() == (("r2", "c"),)


def test_no_slot_is_given_before_the_adopted_runs_of_every_repository_are_counted() -> None:
    called: list[str] = []
    slots = HostSlots(SlotTable(host=1, repository=1), called.append)
    slots.expect(["r1", "r2"])
    slots.counted("r1")
    assert not slots.ask(("r1", "queued"))
    slots.enter(("r2", "adopted"))
    slots.counted("r2")
    assert (called, slots.ask(("r1", "queued"))) == ([], False)
    slots.leave(("r2", "adopted"))
    assert (called, slots.ask(("r1", "queued"))) == (["r1"], True)
