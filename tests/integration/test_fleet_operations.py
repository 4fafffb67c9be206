"""A person operates a fleet: takes a host out; backs up the database, as docs/fleet.md says, and restores it."""

import os
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from runplan.adapters.store.location import FleetLocation
from runplan.adapters.store.postgres import PostgresStore, initialize
from runplan.domain.run.rows import Command
from tests.integration.test_fleet_worker import Fleet, begin, fleet
from tests.support.cli import a_plan, until, writes
from tests.support.documents import fences, read
from tests.support.postgres import create_database, create_member, find_program

pytestmark = pytest.mark.rest

__all__ = ["fleet"]

URL = "example.com/acme/app"
COMMAND = Command(plan="plans/X.md", verb="stop", arguments={}, by="uma", at="2026-03-01T12:00:00Z")


def shown(program: str) -> str:
    """The command of the page that begins with this program."""
    lines = [line for fence in fences(read("docs/fleet.md")) for line in fence.text.splitlines()]
    (line,) = [line for line in lines if line.startswith(f"{program} ")]
    return line


def run_shown(program: str, cwd: Path, **env: str) -> None:
    path = f"{Path(find_program(program)).parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-ec", shown(program)], cwd=cwd, env={**os.environ, **env, "PATH": path}, check=True)


def read_rows(dsn: str) -> dict[str, list[tuple[object, ...]]]:
    """The rows of all tables, by columns, whose order a restored table does not keep; and the rights on them."""
    own = "table_schema NOT IN ('pg_catalog', 'information_schema') AND table_type='BASE TABLE'"
    grants = "SELECT table_name, grantee, privilege_type FROM information_schema.table_privileges ORDER BY 1, 2, 3"
    with psycopg.connect(dsn) as db:
        names = db.execute(f"SELECT table_schema, table_name FROM information_schema.tables WHERE {own}").fetchall()
        rows = {
            ".".join(name): sorted(
                db.execute(sql.SQL("SELECT to_jsonb(t) FROM {} t").format(sql.Identifier(*name))), key=str
            )
            for name in names
        }
        return {**rows, "grants": db.execute(grants).fetchall()}


def test_a_restored_database_has_the_same_rows_and_goes_on(tmp_path: Path) -> None:
    dsn = create_database()
    initialize(dsn, [f"https://{URL}"])
    with closing(PostgresStore(FleetLocation(dsn, URL))) as store:
        number = store.add_command(COMMAND)
        store.claim_plan("plans/X.md", run="r1", owner="alpha/1")
    run_shown("pg_dump", tmp_path, RUNPLAN_FLEET_DSN=dsn)
    restored = create_database()
    run_shown("pg_restore", tmp_path, NEW_FLEET_DSN=restored)
    assert read_rows(restored) == read_rows(dsn)
    create_member()
    member = restored.replace("postgres@", "member@")
    with closing(PostgresStore(FleetLocation(member, URL))) as store:
        assert [command.plan for command in store.list_queued_commands()] == ["plans/X.md"]
        assert store.add_command(COMMAND) > number


def start_held_plan(made: Fleet, gate: Path) -> None:
    """Have host a work on phase 1 of two; its agent waits for the file."""
    wait = f'[[phase."1".implement]]\nrun = "until [ -e {gate} ]; do sleep 0.05; done"\n'
    begin(made, agent=wait + writes("1", "2"))
    made.push(**{"plans/X.md": a_plan("1", "2")})
    made.start_worker("a")
    assert made.runplan("start", "X", "finish", "auto", "direct").code == 0
    until(lambda: made.rows("SELECT 1 FROM events WHERE type='DispatchStarted'"))


def test_a_drained_host_finishes_its_agent_and_hands_its_plan_to_another(fleet: Fleet, tmp_path: Path) -> None:
    start_held_plan(fleet, tmp_path / "go")
    assert fleet.runplan("fleet", "drain", "a").code == 0
    fleet.start_worker("b")
    (tmp_path / "go").touch()
    until(lambda: fleet.states() == {"X": "done"})
    assert fleet.landed() == ["1", "2"]
    taken = fleet.rows("SELECT body::jsonb->>'owner' FROM events WHERE type='ClaimTaken' ORDER BY seq")
    assert [owner[:2] for (owner,) in taken] == ["a/", "b/"]
    implemented = "SELECT count(*) FROM events WHERE type='DispatchStarted' AND body::jsonb->>'phase'='1' AND"
    assert fleet.rows(f"{implemented} body::jsonb->>'role'='implement'") == [(1,)]
    assert fleet.workers["a"].poll() is None
    assert fleet.runplan("fleet", "status", "a").out.split()[1:3] == ["draining", "0"]


def test_a_dead_host_is_forgotten_and_a_living_one_is_not(fleet: Fleet) -> None:
    begin(fleet)
    fleet.start_worker("a")
    refused = fleet.runplan("fleet", "forget", "a")
    assert (refused.code, "a was seen " in refused.err, "end its worker first" in refused.err) == (2, True, True)
    fleet.workers["a"].kill()
    fleet.workers["a"].wait()
    fleet.change("UPDATE workers SET seen = now() - INTERVAL '1 hour'")
    assert fleet.runplan("fleet", "forget", "a").out == "a is forgotten\n"
    assert fleet.runplan("fleet", "status", "a").code == 3
    assert fleet.runplan("fleet", "forget").code == 2


def test_a_database_older_than_the_remote_lands_nothing_again(fleet: Fleet, tmp_path: Path) -> None:
    """The dump is of the moment when the first phase was worked on; then both phases land."""
    start_held_plan(fleet, tmp_path / "go")
    run_shown("pg_dump", tmp_path, RUNPLAN_FLEET_DSN=fleet.dsn)
    (tmp_path / "go").touch()
    until(lambda: fleet.states() == {"X": "done"})
    fleet.close()
    tip = fleet.remote.git("rev-parse", "main")
    fleet.dsn = create_database()
    run_shown("pg_restore", tmp_path, NEW_FLEET_DSN=fleet.dsn)
    assert fleet.states() == {"X": "running"}
    fleet.start_worker("b")
    until(lambda: fleet.states() == {"X": "failed"})
    assert fleet.rows("SELECT row::jsonb->>'reason' FROM runs") == [("already-on-target",)]
    assert fleet.landed() == ["1", "2"]
    assert fleet.remote.git("rev-parse", "main") == tip
