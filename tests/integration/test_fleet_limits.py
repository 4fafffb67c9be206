"""What the hosts of a fleet share: the labels of living workers, usage limits of accounts, and the budget of a day."""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from runplan.errors import Fenced
from runplan.run import events as e
from runplan.run.dispatch import Ending
from runplan.run.kinds import Role, RunStatus
from runplan.run.recorded import to_json
from runplan.run.rows import LimitRow, RunRow
from runplan.store.postgres import PostgresStore
from tests.support.postgres import a_location, start_server

NOW, LATER = "2026-03-01T12:00:00Z", "2026-03-01T13:30:00Z"
PLAN = "plans/X.md"


@pytest.fixture
def stores() -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """The stores of two repositories in one fleet."""
    with closing(PostgresStore(a_location())) as one, closing(PostgresStore(a_location())) as other:
        yield one, other


def add_worker(owner: str, *labels: str, seen_s: float = 0, draining: bool = False) -> None:
    add = "INSERT INTO runplan.workers VALUES (%s, 'h', %s, 1, '', now(), now() - make_interval(secs => %s), %s)"
    with psycopg.connect(start_server().dsn) as db:
        db.execute(add, (owner, list(labels), seen_s, draining))


def record(store: PostgresStore, *events: e.Event, at: str = NOW, fence: int = 0) -> None:
    claim = store.claim_plan(PLAN, run="r", owner="a")
    row = RunRow(id="r", plan=PLAN, started=NOW, state=RunStatus.RUNNING, since=NOW, landing="direct")
    rows = [(at, type(event).__name__, to_json(event)) for event in events]
    store.append(rows, row, fence=fence or getattr(claim, "fence", 0))


def limited(account: str, until: str) -> e.AgentLimited:
    return e.AgentLimited(agent="claude", account=account, until=until, words="used up")


def test_only_living_workers_that_take_plans_are_hosts(stores: tuple[PostgresStore, PostgresStore]) -> None:
    add_worker("new", "gpu", "docker", "new")
    add_worker("dead", "dead", seen_s=31)
    add_worker("draining", "draining", draining=True)
    labels = stores[0].list_host_labels()
    assert ("gpu", "docker", "new") in labels
    assert ("dead",) not in labels
    assert ("draining",) not in labels


def test_a_usage_limit_holds_for_its_account_in_all_repositories(stores: tuple[PostgresStore, PostgresStore]) -> None:
    one, other = stores
    with pytest.raises(Fenced):
        record(one, limited("lost-login", LATER), fence=7)
    record(one, limited("team-login", NOW), limited("own-login", NOW))
    record(other, limited("team-login", LATER), at=LATER)
    met = {limit.account: limit for limit in one.list_limits("r", since=NOW)}
    assert met["team-login"] == LimitRow(account="team-login", until=LATER, words="used up", at=LATER), "the newest"
    assert "own-login" in met
    assert "lost-login" not in met, "it is recorded with its event, or not at all"


def test_the_usage_of_a_day_is_that_of_all_repositories(stores: tuple[PostgresStore, PostgresStore]) -> None:
    for number, store in enumerate(stores):
        ended = e.DispatchEnded(id=f"day-{number}", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, usd=1.5)
        record(store, ended, at=LATER)
    facts = stores[0].list_shared_facts(e.DispatchEnded, since=LATER)
    assert {fact.event.id for fact in facts} >= {"day-0", "day-1"}
    assert len(stores[0].list_facts(e.DispatchEnded, since=LATER)) == 1
