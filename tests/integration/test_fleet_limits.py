"""What the hosts of a fleet share: the labels of living workers."""

from contextlib import closing

import psycopg

from runplan.store.postgres import LEASE_S, PostgresStore
from tests.support.postgres import a_location, start_server


def add_worker(owner: str, *labels: str, seen_s: float = 0, draining: bool = False) -> None:
    add = "INSERT INTO runplan.workers VALUES (%s, 'h', %s, 1, '', now(), now() - make_interval(secs => %s), %s)"
    with psycopg.connect(start_server().dsn) as db:
        db.execute(add, (owner, list(labels), seen_s, draining))


def test_only_living_workers_that_take_plans_are_hosts() -> None:
    location = a_location()
    add_worker("new", "gpu", "docker", "new")
    add_worker("dead", "dead", seen_s=LEASE_S + 1)
    add_worker("draining", "draining", draining=True)
    with closing(PostgresStore(location)) as store:
        labels = store.list_host_labels()
    assert ("gpu", "docker", "new") in labels
    assert ("dead",) not in labels
    assert ("draining",) not in labels
