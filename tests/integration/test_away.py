"""While the journal or a dispatch directory is missing, its state is unknown and nothing is created in its place."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runplan.adapters.store.claims import landing_lock
from runplan.adapters.store.sqlite import SqliteStore
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain.errors import Unreachable
from runplan.domain.run.dispatch import Ending, Outcome
from tests.support.dispatching import Stage, gone, pid_in, stage

WAITS = "echo $$ >agent; while test ! -e go; do sleep 0.005; done; echo after; exit 7"


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / "state").mkdir()
    with stage(tmp_path / "state") as made:
        yield made


@contextlib.contextmanager
def away(place: Path) -> Iterator[Path]:
    elsewhere = place.with_name("elsewhere")
    place.rename(elsewhere)
    try:
        yield elsewhere
    finally:
        assert not place.exists()
        elsewhere.rename(place)


# --- dispatches ------------------------------------------------------------------------------------------


def test_another_directory_in_its_place_is_unknown_too(on: Stage) -> None:
    dispatch = on.sh("true")
    assert on.outcome(dispatch).code == 0
    with away(on.path):
        (on.path / "dispatch").mkdir(parents=True)
        with pytest.raises(Unreachable, match="is not where it was"):
            on.dispatches.standing(dispatch)
        (on.path / "dispatch").rmdir()
        on.path.rmdir()


def test_a_dispatch_can_be_ended_while_its_place_is_away(on: Stage) -> None:
    dispatches = [on.sh(WAITS.replace("agent", name)) for name in ("one", "two")]
    agents = [pid_in(on.path / name) for name in ("one", "two")]
    with away(on.path):
        on.dispatches.end(dispatches, grace_s=5)
        assert all(map(gone, agents))
    assert [on.outcome(dispatch).ending for dispatch in dispatches] == [Ending.ENDED, Ending.ENDED]


def test_a_directory_removed_by_its_own_agent_is_lost(on: Stage) -> None:
    dispatch = on.sh(f"rm -r {on.path}/dispatch/*")
    on.dispatches.wait([dispatch], timeout_s=None)
    assert on.dispatches.standing(dispatch) == Outcome(ending=Ending.LOST, code=None, signal=None, message="")


# --- the journal -----------------------------------------------------------------------------------------


def test_nothing_is_recorded_in_a_journal_that_was_moved_away_or_replaced(tmp_path: Path) -> None:
    with contextlib.closing(SqliteStore(tmp_path / "state")) as store:
        with away(tmp_path / "state"):
            with pytest.raises(Unreachable, match="is not where it was"):
                store.put_baseline("key", "results")
            with pytest.raises(Unreachable, match="is not where it was"):
                store.require_there()
        assert store.get_baseline("key") is None
        store.put_baseline("key", "results")
        assert store.get_baseline("key") == "results"
        (tmp_path / "state").rename(tmp_path / "elsewhere")
        SqliteStore(tmp_path / "state").close()
        with pytest.raises(Unreachable, match="is not where it was"):
            store.put_baseline("key", "results")


# --- nothing is made -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda common: SqliteStore(common / "runplan"),
        lambda common: Dispatches(common / "runplan/dispatch").directory("r1.1"),
        lambda common: Dispatches(common / "runplan/dispatch").write("r1.1", "prompt.md", "text"),
        lambda common: landing_lock(common / "runplan/locks"),
    ],
    ids=["journal", "dispatch", "file", "landing"],
)
def test_nothing_is_created_below_a_missing_repository(tmp_path: Path, make: Callable[[Path], object]) -> None:
    with pytest.raises(Unreachable, match="is not where it was"):
        make(tmp_path / "gone/.git")
    assert list(tmp_path.iterdir()) == []
