"""Nights of a fleet: whatever happens to three workers, each phase lands once, and no plan is stuck.

`NIGHT=seed` plays one night again, `NIGHTS=n` plays so many; `make walk` plays thousands.
"""

import gc
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from runplan.adapters.store.postgres import PostgresStore
from runplan.adapters.store.sql import Append, Store
from runplan.domain.run.rows import ClaimRow, OwnerState
from tests.model.fleet import Broken, Night, play_nights

FIRST = int(os.environ.get("NIGHT", "0"))
NIGHTS = int(os.environ.get("NIGHTS", "1" if "NIGHT" in os.environ else "40"))
FEW = min(NIGHTS, 12)


@pytest.mark.parametrize(
    "nights",
    [range(FIRST, FIRST + FEW), pytest.param(range(FIRST + FEW, FIRST + NIGHTS), marks=pytest.mark.rest)],
    ids=["first", "further"],
)
def test_every_night_keeps_the_promises(nights: range, tmp_path: Path) -> None:
    play_nights(nights, tmp_path)


@pytest.mark.rest
def test_a_night_doubles_an_agent_without_the_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Store._append_all

    def append_all(self: Store, appends: Sequence[Append]) -> None:
        claims = [self.get_claim("plan", each.row.plan) or ClaimRow(run="", owner="", fence=0) for each in appends]
        pairs = zip(appends, claims, strict=True)
        checked(self, [Append(each.events, each.row, claim.fence, each.pauses) for each, claim in pairs])

    monkeypatch.setattr(Store, "_append_all", append_all)
    with pytest.raises(Broken, match="two agents"):
        play_nights(range(40), tmp_path)


@pytest.mark.rest
def test_a_night_doubles_an_agent_without_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresStore, "get_owner_state", lambda _store, _owner: OwnerState.GONE)
    with pytest.raises(Broken, match="two agents"):
        play_nights(range(40), tmp_path)


def test_a_claim_whose_answer_was_lost_is_given_back(tmp_path: Path) -> None:
    """The start that it was taken for was refused meanwhile; other hosts would be declined."""
    night = Night(0, tmp_path)
    worker = night.workers["alpha"]
    night.database.sqlite.execute("INSERT INTO claims VALUES ('plan', 'plans/a.md', 'r1', ?, 1)", (worker.me,))
    worker.begin("plans/a.md")
    night.finish_tasks()
    assert night.claims == []


@pytest.mark.rest
def test_a_worker_keeps_no_descriptor_of_plans_that_it_has_left(tmp_path: Path) -> None:
    play_nights([1], tmp_path / "first")  # imports open files
    gc.collect()
    before = [*Path("/dev/fd").iterdir()]
    play_nights([2], tmp_path)
    gc.collect()
    assert len([*Path("/dev/fd").iterdir()]) <= len(before)
