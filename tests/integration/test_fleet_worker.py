"""`runplan worker` on a real PostgreSQL: plans land once, whatever happens to the workers and the database."""

import contextlib
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from runplan.adapters.store.postgres import SCHEMA_VERSION
from runplan.domain.times import iso
from tests.support.cli import SETTINGS, Project, Ran, a_plan, end_processes_of, processes_of, steps, until, work, writes
from tests.support.forks import Process
from tests.support.postgres import create_database, start_server
from tests.support.repos import USER_EMAIL, USER_NAME, Repo, init_repo
from tests.support.tools import write_script

pytestmark = pytest.mark.rest

LEASE = "CREATE OR REPLACE FUNCTION runplan.lease() RETURNS INTERVAL LANGUAGE sql STABLE RETURN INTERVAL '3 s'"


class Fleet:
    """A database, a bare remote, the clone of a person, and workers with a home of their own."""

    def __init__(self, place: Path) -> None:
        self.dsn = create_database()
        self.place = place
        self.workers: dict[str, Process] = {}
        self._stack = contextlib.ExitStack()
        self.remote = init_repo(place / "app.git", "--bare")
        self.desk = self.add_host("desk")
        init_repo(self.desk.path)
        self.desk.repo.git("remote", "add", "origin", str(self.remote.path))

    def add_host(self, name: str) -> Project:
        home = self.place / name
        (home / "app").mkdir(parents=True, exist_ok=True)
        (home / "gitconfig").write_text(f"[user]\n\tname = {USER_NAME}\n\temail = {USER_EMAIL}\n")
        own = {"GIT_CONFIG_GLOBAL": str(home / "gitconfig"), "RUNPLAN_FLEET_DSN": self.dsn}
        return Project(repo=Repo(path=home / "app"), home=home, extra=own)

    def runplan(self, *words: str) -> Ran:
        return self.desk.runplan(*words)

    def push(self, **files: str) -> None:
        self.desk.repo.commit("Begin", **files)
        self.desk.repo.git("push", "-q", "-u", "origin", "main")

    def start_worker(self, name: str, *words: str, **env: str) -> int:
        """Start a worker and wait until it takes plans."""
        before = self.count("workers")
        worker = self.begin_worker(name, *words, **env)
        until(lambda: self.count("workers") > before)
        return worker.pid

    def begin_worker(self, name: str, *words: str, **env: str) -> Process:
        self.workers[name] = worker = self.add_host(name).popen("worker", "--host", name, *words, **env)
        self._stack.callback(worker.__exit__, None, None, None)
        return worker

    def start(self, plan: str, *words: str) -> None:
        self.runplan("start", plan, "direct", *words).exits(0)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as db:
            ((schema,),) = db.execute("SELECT schema FROM runplan.repositories").fetchall()
            db.execute(f"SET search_path TO {schema}, runplan")
            return db.execute(query).fetchall()

    def change(self, statement: str) -> None:
        self.rows(f"WITH change AS ({statement} RETURNING 1) SELECT 1" if statement[:6] == "UPDATE" else statement)

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def states(self) -> dict[str, str]:
        return {Path(plan).stem: state for plan, state in self.rows("SELECT plan, state FROM runs ORDER BY number")}

    def landed(self) -> list[str]:
        """The phases on the remote's target, oldest first."""
        log = self.remote.git("log", "--reverse", "--format=%s", "main")
        return [line.removeprefix("Write ") for line in log.splitlines() if line.startswith("Write ")]

    def read_log(self, name: str) -> str:
        return (self.place / name / f".local/state/runplan/fleet/{name}/worker.log").read_text()

    def kill(self, name: str) -> None:
        """End every process of a host."""
        while processes_of(self.place / name):
            end_processes_of(self.place / name)
            self.workers[name].poll()

    def close(self) -> None:
        for name in self.workers:
            self.kill(name)
        self._stack.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with contextlib.closing(Fleet(tmp_path)) as made:
        yield made


def begin(fleet: Fleet, *plans: str, agent: str = "") -> None:
    """Set up the database and the remote, with plans of one phase each, which have the names of the plans."""
    phases = {f"plans/{name}.md": a_plan(name) for name in plans}
    fleet.push(**{"runplan.toml": SETTINGS, "agent.toml": agent or writes(*plans), **phases})
    fleet.runplan("fleet", "init").exits(0)
    with psycopg.connect(fleet.dsn) as db:
        db.execute(LEASE)


def holding(place: Path) -> str:
    """An agent of phase 1 that tells that it is there, and waits to be let on."""
    return steps(f'run = "echo $$ >>{place}/here"', f'wait_for = "{place / "on"}"') + work()


def dispatched(place: Path) -> list[int]:
    """The processes of these agents, oldest first."""
    return [int(pid) for pid in (place / "here").read_text().split()] if (place / "here").exists() else []


def test_runs_take_turns_and_a_phase_waits_for_a_host_with_its_labels(fleet: Fleet, tmp_path: Path) -> None:
    wait = f'[[phase."1".implement]]\nrun = "until [ -e {tmp_path}/go ]; do sleep 0.05; done"\n'
    begin(fleet, "1", agent=wait + writes("1", "2", "3"))
    fleet.push(**{"plans/H.md": a_plan("2", "3").replace("- [ ] Write 3.txt", "- [ ] Write 3.txt\n\nHost: gpu")})
    fleet.start_worker("a", "--slots", "2")
    fleet.rows("UPDATE capacity SET fleet=1, repository=1 RETURNING 1")
    fleet.start("1", "finish", "auto")
    until(lambda: fleet.rows("SELECT 1 FROM events WHERE type='DispatchStarted'"))
    fleet.start("H", "finish", "auto")
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


def test_a_restarted_worker_continues_its_agent(fleet: Fleet, tmp_path: Path) -> None:
    begin(fleet, "1", agent=holding(tmp_path))
    fleet.start_worker("b")
    fleet.start("1", "finish", "auto")
    until(lambda: dispatched(tmp_path))
    fleet.start_worker("a")
    fleet.workers["b"].kill()
    fleet.workers["b"].wait()
    fleet.start_worker("b")
    until(lambda: len(fleet.rows("SELECT 1 FROM events WHERE type='ClaimTaken'")) == 2)
    (tmp_path / "on").touch()
    until(lambda: fleet.states() == {"1": "done"})
    assert len(dispatched(tmp_path)) == 1
    assert fleet.landed() == ["1"]


@pytest.mark.promise
def test_two_workers_land_each_phase_once_and_fire_a_schedule_once(fleet: Fleet) -> None:
    plans = [str(number) for number in range(1, 4)]
    begin(fleet, *plans)
    fleet.start_worker("a", "--slots", "2")
    fleet.start_worker("b", "--slots", "2")
    fleet.start("3", "auto", "every", "1h")
    for plan in plans[:2]:
        fleet.start(plan, "finish", "auto")
    until(lambda: fleet.count("procrastinate_jobs WHERE task_name='runplan.wake'"))
    past = iso(datetime.now(UTC) - timedelta(seconds=3605))
    fleet.change(f"UPDATE schedules SET anchor='{past}', made='{past}'")
    fleet.change("UPDATE procrastinate_jobs SET scheduled_at=now() WHERE task_name='runplan.wake'")
    fleet.change("SELECT wake_plan_at(schema, 'plans/3.md', now()) FROM repositories")
    until(lambda: fleet.states() == dict.fromkeys(plans, "done"))
    until(lambda: not fleet.count("schedules"))  # it ends with the plan
    assert fleet.rows("SELECT answer FROM firings") == [("fired",)]
    assert sorted(fleet.landed()) == plans


def test_commands_from_another_clone_reach_the_host_that_works(fleet: Fleet, tmp_path: Path) -> None:
    """A wait for a person occupies no host, and a sub-plan continues its parent; a stop ends the agent."""
    begin(fleet, "1", "2", agent=holding(tmp_path) + writes("2"))
    fleet.push(**{"plans/P.md": a_plan("1").replace("### Work Items", "Execution: plan plans/2.md\n\n### Work Items")})
    fleet.start_worker("a")
    fleet.start("P", "finish")
    until(lambda: fleet.rows("SELECT 1 FROM runs WHERE waiting_for='approval'") and not fleet.count("claims"))
    assert fleet.runplan("approve", "2").code == 0
    until(lambda: fleet.states() == {"2": "done", "P": "done"})
    fleet.start("1", "finish", "auto")
    until(lambda: dispatched(tmp_path))
    assert fleet.runplan("stop", "1").code == 0
    until(lambda: fleet.states()["1"] == "stopped")
    assert fleet.landed() == ["2"]


def test_a_host_that_is_made_anew_continues_what_it_has_pushed(fleet: Fleet, tmp_path: Path) -> None:
    agent = work(f'run = "echo $$ >>{tmp_path}/here"', f'wait_for = "{tmp_path / "on"}"')
    begin(fleet, "1", "2", agent=agent + writes("2"))
    fleet.start_worker("a")
    fleet.start("1", "finish", "auto")
    until(lambda: dispatched(tmp_path))
    fleet.kill("a")
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "on").touch()
    fleet.start_worker("a")
    until(lambda: fleet.states() == {"1": "done"})
    assert fleet.landed() == ["1"]
    for name in ("config", "HEAD", "index"):  # as a git leaves them that was killed
        next((tmp_path / "a").rglob(f"repository_*/.git/{name}")).with_name(f"{name}.lock").touch()
    fleet.start("2", "finish", "auto")


def test_the_second_machine_with_a_name_is_refused_and_the_first_one_works_on(fleet: Fleet, tmp_path: Path) -> None:
    begin(fleet, "1")
    fleet.start_worker("a")
    second = fleet.add_host("elsewhere").runplan("worker", "--host", "a")
    assert (second.code, "another machine works in this fleet as a; choose another name" in second.last) == (2, True)
    fleet.start("1", "finish", "auto")
    until(lambda: fleet.states() == {"1": "done"})
    # The name is taken while the first one is away. It ends when it is back, and the other one goes on.
    os.kill(fleet.workers["a"].pid, signal.SIGSTOP)
    other = fleet.begin_worker("b", "--host", "a")
    until(lambda: fleet.count("workers WHERE seen > now() - lease()") and fleet.count("workers") == 2)
    os.kill(fleet.workers["a"].pid, signal.SIGCONT)
    assert fleet.workers["a"].wait(30) == 2
    assert '"event":"name-taken"' in fleet.read_log("a")
    assert other.poll() is None


def test_a_worker_waits_for_a_database_that_is_away(fleet: Fleet) -> None:
    name = fleet.dsn.rpartition("/")[2]
    owner = fleet.dsn.replace(name, "postgres")
    begin(fleet, "1")
    with psycopg.connect(owner, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {name} RENAME TO away")
    worker = fleet.begin_worker("a")
    until(lambda: [*(fleet.place / "a").rglob("worker.log")] and '"event":"database-away"' in fleet.read_log("a"))
    with psycopg.connect(owner, autocommit=True) as db:
        db.execute(f"ALTER DATABASE away RENAME TO {name}")
    until(lambda: fleet.count("workers"))
    until(lambda: '"event":"started"' in fleet.read_log("a"))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


def test_a_start_returns_when_it_is_stored_though_every_host_is_busy(fleet: Fleet, tmp_path: Path) -> None:
    begin(fleet, "1", "2", agent=holding(tmp_path) + writes("2"))
    fleet.start_worker("a", "--slots", "1")
    fleet.start("1", "finish", "auto")
    until(lambda: dispatched(tmp_path))
    ran = fleet.runplan("start", "2", "finish", "auto", "direct")
    assert (ran.code, "The start is stored, and the next free host executes it" in ran.last) == (0, True), ran.err
    (tmp_path / "on").touch()
    until(lambda: fleet.states() == {"1": "done", "2": "done"})


def test_a_sick_host_hands_back_its_job_and_a_healthy_one_does_it(fleet: Fleet, tmp_path: Path) -> None:
    begin(fleet, "1", "2", "3", agent=holding(tmp_path) + writes("2", "3"))
    fleet.start_worker("b", "--slots", "1")
    fleet.start("1", "finish", "auto")
    until(lambda: dispatched(tmp_path))
    fails = 'case "$*" in *fetch*|*ls-remote*) echo "Permission denied" >&2; exit 128;; esac'
    write_script(tmp_path / "bin/git", f'[ ! -e {tmp_path}/sick ] || {fails}\nexec {shutil.which("git")} "$@"')
    (tmp_path / "sick").touch()
    fleet.start_worker("a", PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    fleet.start("2", "finish", "auto")
    until(lambda: fleet.runplan("fleet", "status", "a").out.startswith("a  sick "))
    assert "Permission denied" in fleet.runplan("fleet", "status").out
    assert 'runplan_fleet_host_sick{host="a"} 1' in fleet.runplan("fleet", "metrics").out
    (tmp_path / "on").touch()
    until(lambda: fleet.states() == {"1": "done", "2": "done"})
    takers = "SELECT DISTINCT split_part(body::jsonb->>'owner', '/', 1) FROM events WHERE type='ClaimTaken'"
    assert fleet.rows(takers) == [("b",)]
    fleet.kill("b")
    (tmp_path / "sick").unlink()
    until(lambda: fleet.runplan("fleet", "status", "a").out.startswith("a  up "))
    fleet.start("3", "finish", "auto")
    until(lambda: fleet.states()["3"] == "done")


def test_a_worker_that_is_older_than_the_database_drains_and_is_restarted(fleet: Fleet, tmp_path: Path) -> None:
    begin(fleet, "1", agent=holding(tmp_path))
    fleet.start_worker("a")
    fleet.start("1", "finish", "auto")
    until(lambda: dispatched(tmp_path))
    fleet.rows("UPDATE version SET version=version+1 RETURNING 1")
    until(lambda: '"event":"outdated"' in fleet.read_log("a"))
    (tmp_path / "on").touch()
    assert fleet.workers["a"].wait(30) == 5
    assert (fleet.count("claims"), fleet.count("procrastinate_jobs WHERE task_name='runplan.work'")) == (0, 1)
    again = fleet.add_host("a").runplan("worker", "--host", "a")
    helps = f"this runplan needs {SCHEMA_VERSION}; update runplan on this host"
    assert (again.code, again.last.endswith(helps)) == (5, True)
    fleet.rows("UPDATE version SET version=version-1 RETURNING 1")  # stands for the update of the host
    fleet.start_worker("a")
    until(lambda: fleet.states() == {"1": "done"})
    assert (fleet.landed(), len(dispatched(tmp_path))) == (["1"], 1)


def test_a_phase_takes_at_most_32_messages_of_its_host_to_the_database(fleet: Fleet) -> None:
    phases = [str(number) for number in range(1, 7)]
    begin(fleet, agent=writes(*phases))
    fleet.push(**{"plans/X.md": a_plan(*phases)})
    database = fleet.dsn.rpartition("/")[2]
    with psycopg.connect(fleet.dsn, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {database} SET log_statement='all'")
    fleet.start_worker("a")
    fleet.start("X", "finish", "auto")
    until(lambda: fleet.states() == {"X": "done"})
    until(lambda: fleet.rows("SELECT 1 FROM procrastinate_jobs WHERE status='doing'") == [])
    log = (start_server().place / "log").read_text()
    logged = re.findall(r"\[(\d+)\] LOG:  (?:execute [^:]+|statement): (.*)", log)
    host = next(process for process, statement in logged if "INSERT INTO events" in statement)
    messages = Counter(statement[:60] for process, statement in logged if process == host)
    assert messages.total() / len(phases) <= 32, messages.most_common(12)


def test_a_worker_that_ends_leaves_its_schedule_and_its_step_to_another(fleet: Fleet, tmp_path: Path) -> None:
    """It is told to end while it lands a phase of one plan, and again while git takes the work of an agent."""
    begin(fleet, "1", "2")
    fleet.push(**{"plans/1.md": a_plan("1", "3")})
    lands, packs, on = (tmp_path / name for name in ("lands", "packs", "on"))
    wait = f"touch {lands}; until [ -e {on} ]; do sleep 0.05; done"
    write_script(fleet.remote.path / "hooks/update", f'[ "$1" != refs/heads/main ] || {{ {wait}; }}')
    block = f'case "$*" in *pack-objects*) mkdir {packs} && sleep 600;; esac'
    write_script(tmp_path / "bin/git", f'{block}\nexec {shutil.which("git")} "$@"')
    fleet.start_worker("a", "--slots", "2", PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    fleet.start("2", "finish", "auto")
    until(packs.exists)
    fleet.start("1", "auto", "every", "1h")
    assert fleet.runplan("now", "1").code == 0
    until(lands.exists)
    fleet.workers["a"].send_signal(signal.SIGTERM)
    until(lambda: '"event":"stopping"' in fleet.read_log("a"))
    on.touch()
    until(lambda: fleet.states() == {"1": "done", "2": "running"})
    fleet.workers["a"].send_signal(signal.SIGTERM)
    assert fleet.workers["a"].wait(30) == 0
    left = "SELECT DISTINCT args->>'plan' FROM procrastinate_jobs WHERE task_name='runplan.work' ORDER BY 1"
    assert fleet.rows(left) == [("plans/1.md",), ("plans/2.md",)]
