"""`runplan worker` on a real PostgreSQL: plans land once, whatever happens to the workers and the database."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.cli import NO_SANDBOX, RUNPLAN, SETTINGS, Ran, a_plan, end_processes_of, processes_of, until, writes
from tests.support.postgres import start_server
from tests.support.repos import USER_EMAIL, USER_NAME, Repo, init_repo, isolated_env

_numbers = count(1)
LEASE = "CREATE OR REPLACE FUNCTION runplan.lease() RETURNS INTERVAL LANGUAGE sql STABLE RETURN INTERVAL '3 s'"


@dataclass
class Fleet:
    """A database, a bare remote, the clone of a person, and workers with a home of their own."""

    place: Path
    dsn: str = ""
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        server = start_server()
        name = f"fleet_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(server.dsn, autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}")
        self.dsn = server.dsn.removesuffix("postgres") + name
        self.remote = init_repo(self.place / "app.git", "--bare")
        self.desk = Repo(path=self.place / "desk", env=self.env_of("person"))
        self.desk.path.mkdir()
        self.desk.git("-c", "init.defaultBranch=main", "init", "-q")
        self.desk.git("remote", "add", "origin", str(self.remote.path))

    def env_of(self, name: str) -> dict[str, str]:
        home = self.place / name
        home.mkdir(exist_ok=True)
        (home / "gitconfig").write_text(f"[user]\n\tname = {USER_NAME}\n\temail = {USER_EMAIL}\n")
        own = {"HOME": str(home), "GIT_CONFIG_GLOBAL": str(home / "gitconfig"), "RUNPLAN_FLEET_DSN": self.dsn}
        return isolated_env(**own, **NO_SANDBOX)

    def push(self, **files: str) -> None:
        self.desk.commit("Begin", **files)
        self.desk.git("push", "-q", "-u", "origin", "main")

    def runplan(self, *words: str) -> Ran:
        ran = subprocess.run([RUNPLAN, *words], cwd=self.desk.path, env=self.desk.env, capture_output=True, check=False)
        return Ran(code=ran.returncode, out=ran.stdout.decode(), err=ran.stderr.decode())

    def start_worker(self, name: str, *words: str) -> int:
        with (self.place / f"{name}.err").open("ab") as err:
            command = [str(RUNPLAN), "worker", "--host", name, *words]
            self.workers[name] = subprocess.Popen(
                command, cwd=self.place, env=self.env_of(name), stdin=subprocess.DEVNULL, stdout=err, stderr=err
            )
        return self.workers[name].pid

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as db:
            ((schema,),) = db.execute("SELECT schema FROM runplan.repositories").fetchall()
            db.execute(f"SET search_path TO {schema}, runplan")
            return db.execute(query, values or None).fetchall()

    def states(self) -> dict[str, str]:
        return {Path(plan).stem: state for plan, state in self.rows("SELECT plan, state FROM runs ORDER BY number")}

    def landed(self) -> list[str]:
        """The phases on the remote's target, oldest first."""
        log = self.remote.git("log", "--reverse", "--format=%s", "main")
        return [line.removeprefix("Write ") for line in log.splitlines() if line.startswith("Write ")]

    def close(self) -> None:
        for name, worker in self.workers.items():
            while processes_of(self.place / name):
                end_processes_of(self.place / name)
                worker.poll()
            worker.wait(10)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with contextlib.closing(Fleet(tmp_path)) as made:
        yield made


def begin(fleet: Fleet, *plans: str, agent: str = "") -> None:
    """Set up the database and the remote, with plans of one phase each, which have the names of the plans."""
    phases = {f"plans/{name}.md": a_plan(name) for name in plans}
    fleet.push(**{"runplan.toml": SETTINGS, "agent.toml": agent or writes(*plans), **phases})
    ran = fleet.runplan("fleet", "init")
    assert ran.code == 0, ran.err
    with psycopg.connect(fleet.dsn) as db:
        db.execute(LEASE)


def test_a_worker_lands_a_plan(fleet: Fleet) -> None:
    begin(fleet, "1")
    fleet.start_worker("a")
    until(lambda: fleet.rows("SELECT 1 FROM workers"))
    started = fleet.runplan("start", "1", "finish", "auto", "direct")
    assert started.code == 0, started.err
    until(lambda: fleet.states() == {"1": "done"})
    assert fleet.landed() == ["1"]
    fleet.workers["a"].send_signal(signal.SIGTERM)
    assert fleet.workers["a"].wait(30) == 0
    assert fleet.rows("SELECT 1 FROM workers") == []


def test_runs_take_turns_and_a_phase_waits_for_a_host_with_its_labels(fleet: Fleet, tmp_path: Path) -> None:
    wait = f'[[phase."1".implement]]\nrun = "until [ -e {tmp_path}/go ]; do sleep 0.05; done"\n'
    begin(fleet, "1", agent=wait + writes("1", "2", "3"))
    fleet.push(**{"plans/H.md": a_plan("2", "3").replace("- [ ] Write 3.txt", "- [ ] Write 3.txt\n\nHost: gpu")})
    fleet.start_worker("a", "--slots", "2")
    until(lambda: fleet.rows("SELECT 1 FROM workers"))
    fleet.rows("UPDATE capacity SET fleet=1, repository=1 RETURNING 1")
    assert fleet.runplan("start", "1", "finish", "auto", "direct").code == 0
    until(lambda: fleet.rows("SELECT 1 FROM events WHERE type='DispatchStarted'"))
    assert fleet.runplan("start", "H", "finish", "auto", "direct").code == 0
    until(lambda: fleet.states() == {"1": "running", "H": "queued"} and len(fleet.rows("SELECT 1 FROM claims")) == 1)
    (tmp_path / "go").touch()
    until(lambda: fleet.rows("SELECT 1 FROM runs WHERE waiting_for='host'") and not fleet.rows("SELECT 1 FROM claims"))
    assert fleet.landed() == ["1", "2"]
    assert fleet.rows("SELECT * FROM permits") == []
    ((about,),) = fleet.rows("SELECT row::jsonb->>'about' FROM runs WHERE waiting_for='host'")
    assert about.startswith("phase 3 needs a host with the labels gpu, and no worker has them; start one: ")
    fleet.start_worker("g", "--labels", "gpu")
    until(lambda: fleet.states() == {"1": "done", "H": "done"})
    assert fleet.landed() == ["1", "2", "3"]
    ((owner,),) = fleet.rows(
        "SELECT body::jsonb->>'owner' FROM events WHERE type='ClaimTaken' ORDER BY seq DESC LIMIT 1"
    )
    assert owner.startswith("g/")
