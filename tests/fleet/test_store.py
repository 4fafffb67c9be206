"""The store of a host whose network or database machine is gone without a word. Waits are shortened, not skipped."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from runplan.adapters.store import postgres
from runplan.adapters.store.location import FleetLocation
from runplan.adapters.store.postgres import PostgresStore, initialize
from tests.support.cli import until
from tests.support.fleet import Fleet, Host

#: The server works for a while after it was told to commit.
SLOW_COMMIT = """
CREATE FUNCTION {schema}.wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON {schema}.baselines DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.key = 'slow') EXECUTE FUNCTION {schema}.wait();
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with pytest.MonkeyPatch.context() as patch, Fleet(tmp_path_factory.mktemp("fleet")) as made:
        initialize(made.database.local_dsn, [made.url])
        patch.setitem(postgres.NETWORK, "connect_timeout", 2)
        patch.setitem(postgres.NETWORK, "tcp_user_timeout", 500)
        patch.setattr(postgres, "SESSION", "-c idle_in_transaction_session_timeout=1s")
        yield made


def open_on(host: Host, fleet: Fleet) -> closing[PostgresStore]:
    location = FleetLocation(host.env["RUNPLAN_FLEET_DSN"], fleet.location.url)
    return closing(host.namespace.call(lambda: PostgresStore(location)))


def test_a_host_that_is_gone_within_a_transaction_holds_no_claim(fleet: Fleet) -> None:
    alpha, beta = fleet.add_host("alpha"), fleet.add_host("beta")
    with open_on(alpha, fleet) as gone, open_on(beta, fleet) as other:
        gone.run_statement("BEGIN", ())
        gone.lock_claim("plan", "plans/P.md")
        gone.get_claim("plan", "plans/P.md")
        alpha.unplug()

        other.claim_plan("plans/P.md", run="r1", owner="beta/1")
        assert other.list_owners() == {"plans/P.md": "beta/1"}


def test_a_commit_whose_answer_is_lost_is_not_recorded_twice(fleet: Fleet) -> None:
    host = fleet.add_host("delta")
    with psycopg.connect(fleet.location.dsn, autocommit=True) as db:
        db.execute(SLOW_COMMIT.format(schema=fleet.location.schema))
    with open_on(host, fleet) as store, ThreadPoolExecutor(1) as pool:
        recording = pool.submit(host.namespace.call, lambda: store.put_baseline("slow", "1"))
        until(lambda: fleet.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event='PgSleep'"))
        host.proxy.cut()

        recording.result()  # it did not fail: the server has committed
        assert fleet.rows("SELECT results FROM baselines WHERE key='slow'") == [("1",)]


def test_a_store_finds_the_same_data_at_another_address(fleet: Fleet) -> None:
    host = fleet.add_host("gamma", dsn=fleet.both_addresses)
    with open_on(host, fleet) as store:
        store.put_baseline("before", "1")
        fleet.move_database()

        assert host.namespace.call(lambda: store.get_baseline("before")) == "1"
