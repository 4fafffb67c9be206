"""The concurrency limit: which runs may work at the same time."""

import pytest
from hypothesis import given, strategies as st

from runplan.hosts.daemon.host import ConcurrencyLimit, Key

KEYS = st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.sampled_from(["a", "b", "c", "d"]))


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def limit(woken: list[str]) -> ConcurrencyLimit:
    """One run at once."""
    return ConcurrencyLimit(host=1, repository=1, wake=woken.append)


def test_first_come_first_served(limit: ConcurrencyLimit, woken: list[str]) -> None:
    assert [limit.request_permit(key) for key in (("r1", "a"), ("r2", "b"), ("r3", "c"))] == [True, False, False]
    limit.release_permit("r1", "a")
    assert woken == ["r2"]
    assert not limit.request_permit(("r3", "c"))
    assert limit.request_permit(("r2", "b"))
    assert limit.request_permit(("r2", "b")), "it works already"


def test_a_repository_at_its_limit_does_not_delay_the_others(woken: list[str]) -> None:
    limit = ConcurrencyLimit(host=3, repository=1, wake=woken.append)
    assert [limit.request_permit(key) for key in (("r1", "a"), ("r1", "b"), ("r2", "c"))] == [True, False, True]


@given(st.integers(1, 4), st.integers(1, 3), st.lists(st.tuples(st.booleans(), KEYS), max_size=60))
def test_the_limits_hold_and_no_run_is_lost(host: int, repository: int, moves: list[tuple[bool, Key]]) -> None:
    limit = ConcurrencyLimit(host=host, repository=repository, wake=lambda _: None)
    known: set[Key] = set()
    for requests, key in moves:
        if requests:
            limit.request_permit(key)
            known.add(key)
        else:
            limit.release_permit(*key)
            known.discard(key)
        assert len(limit.working) <= host
        assert all(sum(1 for root, _ in limit.working if root == name) <= repository for name in ("r1", "r2", "r3"))
        assert {*limit.working, *limit.waiting} == known
        assert not set(limit.working) & set(limit.waiting)


def test_a_higher_limit_wakes_queued_runs_a_lower_one_stops_none(limit: ConcurrencyLimit, woken: list[str]) -> None:
    for key in (("a", "x"), ("b", "y"), ("c", "z")):
        limit.request_permit(key)
    limit.resize(host=2, repository=1)
    assert woken == ["b"]
    assert limit.request_permit(("b", "y"))
    limit.resize(host=1, repository=1)
    assert len(limit.working) == 2
    limit.release_permit("a", "x")
    assert woken == ["b"], "the limit is still exceeded"


def test_an_adopted_run_counts_also_above_the_limit(limit: ConcurrencyLimit, woken: list[str]) -> None:
    for key in (("r1", "a"), ("r1", "b"), ("r1", "a")):
        limit.request_permit(key, is_running=True)
    assert (len(limit.working), limit.request_permit(("r2", "c"))) == (2, False)
    limit.release_permit("r1", "a")
    assert woken == []
    limit.release_permit("r1", "b")
    assert woken == ["r2"]
