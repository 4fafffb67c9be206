"""The database of a fleet: its versions, and the rights of workers and clients in it."""

import shutil
import threading
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest

from runplan.adapters.store.location import FleetLocation
from runplan.adapters.store.postgres import (
    MIGRATIONS,
    SCHEMA_VERSION,
    PostgresStore,
    connect,
    hide_keys,
    initialize,
    list_queue_migrations,
    migrate_queue,
    require_queue,
    require_version,
)
from runplan.domain.errors import RefusedEarly, RunplanError, Unreachable
from tests.support.postgres import a_location, create_database, start_server
from tests.support.tls import make_certificate, tls_before

#: Older ones add values to an enumeration, which no single transaction can; no fleet ever had them.
QUEUE_VERSIONS = sorted({name for file in list_queue_migrations() if (name := file.name.partition("_")[0]) >= "03"})
URL = "/srv/git/app"
OTHER = "/srv/git/other"


@pytest.fixture
def database() -> str:
    """The owner's DSN of an empty database."""
    return create_database()


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """The migrations of a later runplan."""
    with_next = tmp_path / "migrations"
    shutil.copytree(str(MIGRATIONS), with_next)
    following = SCHEMA_VERSION + 1
    (with_next / f"fleet-{following}.sql").write_text("CREATE TABLE racks (name TEXT);")
    (with_next / f"repository-{following}.sql").write_text("ALTER TABLE events ADD COLUMN rack TEXT DEFAULT 'r1';")
    return with_next


def run(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as db:
        cursor = db.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.matrix
@pytest.mark.parametrize(
    "statement",
    [
        *("UPDATE {schema}.events SET body='{{}}'", "DELETE FROM {schema}.events", "DELETE FROM runplan.all_events"),
        *("TRUNCATE {schema}.events", "DELETE FROM {schema}.runs", "DROP TABLE {schema}.events"),
        *("DROP SCHEMA {schema} CASCADE", "ALTER TABLE {schema}.events DISABLE TRIGGER ALL"),
        *("CREATE TABLE {schema}.more (x INT)", "CREATE TABLE runplan.more (x INT)", "CREATE SCHEMA more"),
        *("CREATE FUNCTION runplan.f() RETURNS INT LANGUAGE sql RETURN 1", "UPDATE runplan.version SET version=9"),
        *("INSERT INTO runplan.repositories VALUES ('https://example.com/evil', 'evil')", "SELECT * FROM pg_authid"),
        *("SELECT * FROM private.wages", "SELECT pg_read_file('/etc/passwd')", "COPY (SELECT 1) TO PROGRAM 'true'"),
        *("CREATE ROLE evil", "SET ROLE postgres"),
    ],
)
def test_a_worker_has_no_other_rights_than_those_on_rows(statement: str) -> None:
    location = a_location()
    run(start_server().dsn, "CREATE SCHEMA IF NOT EXISTS private; CREATE TABLE IF NOT EXISTS private.wages (x INT)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(location.dsn, statement.format(schema=location.schema))


def test_a_role_without_rights_is_told_what_its_owner_runs() -> None:
    location = a_location()
    run(start_server().dsn, "DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN")
    stranger = start_server().dsn_of("stranger")

    with pytest.raises(RefusedEarly, match=r"lacks rights .*GRANT runplan_worker TO ROLE"):
        PostgresStore(FleetLocation(stranger, location.url))
    with pytest.raises(RefusedEarly, match=r"lacks rights .* database's owner: RUNPLAN_FLEET_DSN=\.\.\. runplan fleet"):
        initialize(location.dsn, [OTHER])


def test_an_upgrade_changes_every_repository_or_nothing(database: str, next_version: Path) -> None:
    initialize(database, [URL])
    member = database.replace("postgres@", "member@")
    store = PostgresStore(FleetLocation(database, URL))
    broken = next_version / f"repository-{SCHEMA_VERSION + 1}.sql"
    whole = broken.read_text()

    broken.write_text(f"{whole} SELECT 1/0;")
    with pytest.raises(Unreachable, match="division by zero"):
        initialize(database, [OTHER], migrations=next_version)
    with closing(store):
        assert store.get_newest_event() == 0
    assert run(database, "SELECT url, version FROM runplan.repositories, runplan.version") == [(URL, SCHEMA_VERSION)]
    assert run(database, "SELECT to_regclass('runplan.racks')") == [(None,)]

    broken.write_text(whole)
    for _ in range(2):
        initialize(database, [OTHER], migrations=next_version)
    a_location()  # creates the role `member`
    for url in (URL, OTHER):
        run(member, f"SELECT rack FROM {FleetLocation(database, url).schema}.events")
    assert run(member, "INSERT INTO runplan.racks VALUES ('r2') RETURNING name") == [("r2",)]


def test_a_database_of_version_1_is_migrated_with_its_rows(database: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    shutil.copytree(str(MIGRATIONS), first, ignore=shutil.ignore_patterns("*-[!1].sql"))
    initialize(database, [URL], migrations=first)
    run(database, "INSERT INTO runplan.workers (owner, host, labels, slots, version) VALUES ('a/1', 'a', '{}', 1, '')")
    initialize(database, [])
    assert run(database, "SELECT host, failures FROM runplan.workers") == [("a", 0)]
    role = FleetLocation(database, URL).role
    rights = f"SELECT privilege_type FROM information_schema.table_privileges WHERE grantee='{role}'"
    assert run(database, f"{rights} AND table_name='commands' ORDER BY 1") == [("DELETE",), ("INSERT",), ("SELECT",)]
    newest = create_database()
    initialize(newest, [URL])
    with psycopg.connect(database) as migrated, psycopg.connect(newest) as made:
        assert describe_tables(migrated) == describe_tables(made)


def describe_tables(db: psycopg.Connection) -> set[tuple[object, ...]]:
    columns = "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns"
    functions = "SELECT proname::text, pg_get_function_arguments(oid), pg_get_functiondef(oid) FROM pg_proc"
    return {
        *db.execute(f"{columns} WHERE table_schema = 'runplan'").fetchall(),
        *db.execute(f"{functions} WHERE pronamespace = 'runplan'::regnamespace").fetchall(),
    }


@pytest.mark.matrix
@pytest.mark.parametrize("version", QUEUE_VERSIONS)
def test_the_queue_is_migrated_from_each_version_of_procrastinate(database: str, version: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE SCHEMA runplan; SET search_path TO runplan")
        for file in list_queue_migrations():
            if file.name.partition("_")[0] <= version:
                db.execute(file.read_bytes())
        db.execute("CREATE TABLE queue (version TEXT)")
        db.execute("INSERT INTO queue VALUES (%s)", (version,))
        with db.transaction():
            migrate_queue(db)
        require_queue(db)
        migrated = describe_tables(db)
        db.execute("DROP SCHEMA runplan CASCADE; CREATE SCHEMA runplan; CREATE TABLE queue (version TEXT)")
        db.execute((files("procrastinate.sql") / "schema.sql").read_bytes())
        assert {row[:2] for row in describe_tables(db)} <= {row[:2] for row in migrated}


def test_another_version_is_refused_with_the_command_that_helps(database: str, next_version: Path) -> None:
    location = FleetLocation(database, URL)
    with pytest.raises(RefusedEarly, match=r"not set up; run: runplan fleet init$"):
        PostgresStore(location)
    initialize(database, [])
    with pytest.raises(RefusedEarly, match=f"does not know {URL}; add it from its clone: runplan fleet init$"):
        PostgresStore(location)

    initialize(database, [URL], migrations=next_version)
    versions = f"has version {SCHEMA_VERSION + 1}, this runplan needs {SCHEMA_VERSION}"
    for refused in (lambda: PostgresStore(location), lambda: connect(database), lambda: initialize(database, [])):
        with pytest.raises(RefusedEarly, match=f"{versions}; update runplan on this host$"):
            refused()

    with pytest.raises(RefusedEarly, match=r"has version 2, this runplan needs 3; update the database: runplan fleet"):
        require_version(2, needed=3)


def test_two_inits_at_once_make_one_database(database: str) -> None:
    errors: list[BaseException] = []
    both = threading.Barrier(4)

    def init() -> None:
        try:
            both.wait(10)
            initialize(database, [URL, OTHER])
        except RunplanError as error:
            errors.append(error)

    threads = [threading.Thread(target=init) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert run(database, "SELECT count(*) FROM runplan.repositories") == [(2,)]


def test_the_dsn_alone_decides_about_tls(tmp_path: Path) -> None:
    location = a_location()
    certificate = make_certificate(tmp_path)
    with tls_before(start_server().port, certificate) as port:

        def opened(parameters: str) -> PostgresStore:
            address = f"postgresql://member@127.0.0.1:{port}/postgres?{parameters}"
            return PostgresStore(FleetLocation(address, location.url))

        with closing(opened(f"sslmode=verify-full&sslrootcert={certificate[0]}")) as store:
            assert store.get_newest_event() == 0
        for refused in ("sslmode=disable", "sslmode=verify-full&sslrootcert=/dev/null"):
            with pytest.raises(Unreachable, match="does not answer"):
                opened(refused)


def test_options_of_the_dsn_are_kept() -> None:
    location = a_location()
    options = "?options=-c%20lock_timeout%3D7s&connect_timeout=3&application_name=mine"
    with closing(connect(location.dsn + options, location.schema)) as db:
        show = "SELECT current_setting('lock_timeout'), current_setting('application_name'), current_schema()"
        assert db.execute(show).fetchone() == ("7s", "mine", location.schema)
        assert db.info.get_parameters()["connect_timeout"] == "3"


def test_runs_get_no_key_to_the_database_and_the_sandbox_knows_the_files_of_keys() -> None:
    dsn = "postgresql://u:hunter2@h/db?sslkey=/k&passfile=/p"
    env = {"RUNPLAN_FLEET_DSN": dsn, "PGPASSWORD": "hunter2", "PGSSLKEY": "/other", "PATH": "/bin"}
    assert hide_keys(dsn, env) == {"PGSSLKEY": "/k", "PGPASSFILE": "/p", "PATH": "/bin"}


@pytest.mark.parametrize(
    "dsn",
    [
        *("postgresql://u:hun@ter2@127.0.0.1:1/db", "postgresql://u:hun/ter2@127.0.0.1:1/db"),
        *("postgresql://u:hun%ter2@127.0.0.1:1/db", "postgresql://u:hun ter2@127.0.0.1:1/db"),
        *("host=127.0.0.1 port=1 password=hun ter2", "hunter2", "postgresql://u:hunter2@127.0.0.1:1/db"),
    ],
)
def test_no_message_shows_a_part_of_the_password(dsn: str) -> None:
    location = FleetLocation(dsn, URL)
    assert "ter2" not in repr(location)
    with pytest.raises(RunplanError) as refused:
        PostgresStore(location)
    chain: BaseException | None = refused.value
    while chain is not None:
        assert "hun" not in str(chain)
        assert "ter2" not in str(chain)
        chain = chain.__cause__
