"""The one timer of a daemon that has nothing to do, and whom it wakes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from runplan.daemon.lifecycle import Pulse

EVERY_S = 60.0
HOUR_S = 3600.0


class Machine:
    """Two clocks: the one on the wall, and one that nobody sets and that stands still while the machine sleeps."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_800_000_000.0, 5_000.0
        self.woken: Counter[str] = Counter()
        self.pulse = Pulse(
            EVERY_S,
            look=lambda: self.woken.update(["look"]),
            jumped=lambda: self.woken.update(["everybody"]),
            wall=lambda: self.wall,
            steady=lambda: self.steady,
        )

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def idles(self, seconds: float) -> None:
        """Nothing happens, and the daemon sleeps for as long as it may, again and again."""
        until = self.steady + seconds
        while self.steady + self.pulse.left_s <= until:
            self.woken["sleep"] += 1
            self.passes(self.pulse.left_s)
            self.pulse.beat()
        self.passes(until - self.steady)


def test_an_idle_hour_has_a_look_a_minute_and_wakes_nobody_else() -> None:
    machine = Machine()
    machine.idles(HOUR_S)
    assert machine.woken == {"sleep": 60, "look": 60}


def test_what_wakes_the_daemon_meanwhile_neither_brings_a_look_nor_puts_it_off() -> None:
    machine = Machine()
    for _ in range(5):
        machine.passes(11)
        machine.pulse.beat()
    assert (machine.woken, machine.pulse.left_s) == ({}, 5)


def test_after_a_machine_slept_everybody_who_waits_for_a_moment_is_woken_once() -> None:
    machine = Machine()
    machine.idles(90)
    machine.wall += 8 * HOUR_S
    machine.idles(HOUR_S)
    assert machine.woken["everybody"] == 1
    assert machine.woken["look"] == machine.woken["sleep"] == 61


def test_a_clock_that_was_set_is_seen_by_whatever_wakes_the_daemon_next() -> None:
    for by in (-HOUR_S, HOUR_S):
        machine = Machine()
        machine.wall += by
        machine.pulse.beat()
        assert machine.woken == {"everybody": 1, "look": 1}


def test_a_clock_that_is_set_a_little_again_and_again_is_seen_before_it_matters() -> None:
    machine = Machine()
    for _ in range(10):
        machine.wall += 0.3
        machine.idles(60)
    assert machine.woken["everybody"] == 2


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(-100, 100)), max_size=30))
def test_no_look_is_late_and_no_sleep_is_for_nothing(happens: list[tuple[int, int]]) -> None:
    machine = Machine()
    for idle_s, by_s in happens:
        machine.idles(idle_s)
        machine.wall += by_s
        machine.pulse.beat()
        assert 0 < machine.pulse.left_s <= EVERY_S
    slept, passed_s = machine.woken["sleep"], sum(idle_s for idle_s, _ in happens)
    assert slept <= passed_s / EVERY_S + 1
