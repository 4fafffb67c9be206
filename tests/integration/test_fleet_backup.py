"""The backup of a fleet's database: the commands of docs/fleet.md, on a real server."""

import os
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
from psycopg import sql

from runplan.run.rows import Command
from runplan.store.location import FleetLocation
from runplan.store.postgres import PostgresStore, initialize
from tests.support.documents import fences, read
from tests.support.postgres import create_database, create_member, find_program

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
    """The rows of all tables, and the rights on them."""
    own = "table_schema NOT IN ('pg_catalog', 'information_schema') AND table_type='BASE TABLE'"
    grants = "SELECT table_name, grantee, privilege_type FROM information_schema.table_privileges ORDER BY 1, 2, 3"
    with psycopg.connect(dsn) as db:
        names = db.execute(f"SELECT table_schema, table_name FROM information_schema.tables WHERE {own}").fetchall()
        rows = {
            ".".join(name): sorted(db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(*name))), key=str)
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
