"""The store of a host whose network or database machine is gone without a word. Waits are shortened, not skipped."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from runplan.errors import Unreachable
from runplan.store import postgres
from runplan.store.location import FleetLocation
from runplan.store.postgres import PostgresStore, initialize
from tests.support.fleet import Fleet, Host


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with pytest.MonkeyPatch.context() as patch, Fleet(tmp_path_factory.mktemp("fleet")) as made:
        patch.setitem(postgres.NETWORK, "connect_timeout", 2)
        patch.setitem(postgres.NETWORK, "tcp_user_timeout", 500)
        patch.setattr(postgres, "SESSION", "-c idle_in_transaction_session_timeout=500ms")
        initialize(made.database.local_dsn, [made.url])
        yield made


def open_on(host: Host, fleet: Fleet) -> closing[PostgresStore]:
    location = FleetLocation(host.env["RUNPLAN_FLEET_DSN"], fleet.location.url)
    return closing(host.namespace.call(lambda: PostgresStore(location)))


def test_a_host_that_is_gone_within_a_transaction_holds_no_claim(fleet: Fleet) -> None:
    alpha, beta = fleet.add_host("alpha"), fleet.add_host("beta")
    with open_on(alpha, fleet) as gone, open_on(beta, fleet) as other:
        gone._begin()
        gone._lock_claim("plan", "plans/P.md")
        alpha.unplug()

        other.claim_plan("plans/P.md", run="r1", owner="beta/1")
        assert other.list_owners() == {"plans/P.md": "beta/1"}


def test_a_store_finds_the_same_data_at_another_address(fleet: Fleet) -> None:
    places = ",".join(f"{address}:{fleet.database.port}" for address in fleet.network.addresses[:2])
    host = fleet.add_host("gamma", dsn=f"postgresql://postgres@{places}/postgres")
    with open_on(host, fleet) as store:
        store.put_baseline("before", "1")
        fleet.move_database()

        with pytest.raises(Unreachable):  # the call under way; it does not hang
            host.namespace.call(lambda: store.get_baseline("before"))
        assert host.namespace.call(lambda: store.get_baseline("before")) == "1"
