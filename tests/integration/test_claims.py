"""A plan has one owner, a process; a dead owner is replaced, a living one never."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.adapters.processes import identity
from runplan.adapters.store.claims import Claims
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.errors import Unreachable
from runplan.domain.run.rows import Acquired, ClaimRow, HeldByOther, Reentered

PLAN = "plans/X.md"
OTHER = "plans/Y.md"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path)
    yield store
    store.close()


@pytest.fixture
def claims(store: SqliteStore, tmp_path: Path) -> Claims:
    return Claims(store, tmp_path / "locks")


#: A process that claims a plan, prints its identity, and holds the claim until its input ends.
HOLDER = """
import sys
from pathlib import Path
from runplan.adapters.store.claims import Claims
from runplan.adapters.store.sqlite import SqliteStore
directory, plan, run = sys.argv[1:]
claims = Claims(SqliteStore(Path(directory)), Path(directory) / "locks")
claims.take_plan(plan, run=run)
print(claims.me, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(place: Path, plan: str = PLAN) -> Iterator[str]:
    """The identity of a living process that has taken the plan."""
    argv = [sys.executable, "-c", HOLDER, str(place), plan, "r-theirs"]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.communicate()


def put(store: SqliteStore, owner: str, *, kind: str = "plan", key: str = PLAN, run: str = "r-theirs") -> int:
    with store.transaction():
        return store.set_claim(kind, key, run=run, owner=owner)


# --- taking ---------------------------------------------------------------------------------------------


def test_a_claim_that_a_full_disk_refuses_leaves_the_plan_free(store: SqliteStore, claims: Claims) -> None:
    pages = store.query("PRAGMA page_count")[0][0]
    store.query(f"PRAGMA max_page_count={pages}")
    with pytest.raises(Unreachable, match="database or disk is full") as raised:  # which keeps what it has seen
        claims.take_plan(PLAN, run="r" * 10_000)
    store.query("PRAGMA max_page_count=1000000")
    assert isinstance(claims.take_plan(PLAN, run="r-mine"), Acquired), raised


def test_the_owner_that_took_the_plan_meanwhile_is_named(store: SqliteStore, tmp_path: Path) -> None:
    """M1: other id. The row is read again when the lock turns out to be held."""

    class Late(SqliteStore):
        """Another process takes the plan after the first look."""

        held = ""

        def get_claim(self, kind: str, key: str) -> ClaimRow | None:
            seen = super().get_claim(kind, key)
            if not self.held:
                self.held = others.enter_context(holder(tmp_path))
            return seen

    late = Late(tmp_path)
    with contextlib.closing(late), contextlib.ExitStack() as others:
        result = Claims(late, tmp_path / "locks").take_plan(PLAN, run="r1")
        assert result == HeldByOther(owner=late.held)
        assert store.list_owners() == {PLAN: late.held}


def test_a_claim_is_reentered_by_the_owner_of_row_and_lock(store: SqliteStore, claims: Claims, tmp_path: Path) -> None:
    claims.take_plan(PLAN, run="r1")
    assert claims.take_plan(PLAN, run="r2") == Reentered(fence=1)
    other = identity(os.getppid()) or ""
    put(store, other)
    assert claims.take_plan(PLAN, run="r1") == HeldByOther(owner=other), "the row is another's"
    with holder(tmp_path, OTHER):
        put(store, claims.me, key=OTHER)
        assert claims.take_plan(OTHER, run="r1") == HeldByOther(owner=claims.me), "the lock is another's"


def test_a_living_process_s_row_is_respected_without_a_lock(store: SqliteStore, claims: Claims, tmp_path: Path) -> None:
    owner = identity(os.getppid()) or ""
    put(store, owner)
    assert claims.take_plan(PLAN, run="r1") == HeldByOther(owner=owner)
    store.release_plan(PLAN, run="r-theirs", owner=owner)
    assert Claims(store, tmp_path / "locks").take_plan(PLAN, run="r2") == Acquired(fence=2), "the lock is free"
    assert claims.take_plan(OTHER, run="r1") == Acquired(fence=1)


def test_a_lock_without_its_row_is_no_claim(store: SqliteStore, claims: Claims) -> None:
    claims.take_plan(PLAN, run="r1")
    store.release_plan(PLAN, run="r1", owner=claims.me)
    assert claims.take_plan(PLAN, run="r2") == HeldByOther(owner="a process that is just starting")


# --- giving back ----------------------------------------------------------------------------------------


def test_a_process_gives_back_its_plan_and_no_other_and_no_issue_of_the_run(store: SqliteStore, claims: Claims) -> None:
    """M4, M13: own, absent, and foreign."""
    claims.take_plan(PLAN, run="r1")
    store.claim_issue(7, run="r1", owner=claims.me)
    put(store, identity(os.getppid()) or "", key=OTHER)
    claims.release_plan(PLAN, run="r1")
    claims.release_plan(PLAN, run="r1")
    assert store.get_claim("plan", PLAN) is None
    assert store.get_claim("plan", OTHER) is not None
    assert store.get_claim("issue", "7") is not None, "it ends with its run"
    assert claims.take_plan(PLAN, run="r2") == Acquired(fence=2)
