"""A fleet on one machine: hosts with a network, a home, a state and a clone of their own; servers apart from them.

The agent marks the begin and the end of each dispatch in one log for all hosts. It holds a lock for its phase while it
works, so that a second live dispatch of a phase is seen, on whatever host it is.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import psycopg

from runplan.adapters.configuration.places import state_directory
from runplan.adapters.store.location import FleetLocation, normalize_url
from runplan.adapters.store.postgres import initialize
from tests.support.cli import NO_SANDBOX, RUNPLAN, Project, Ran, a_plan, end_processes_of, processes_of, until
from tests.support.daemons import Wall
from tests.support.network import HostNamespace, Namespace, Network, Proxy, find_program
from tests.support.postgres import MAKING, Server, create_database, start_server
from tests.support.repos import MAIN, USER_EMAIL, USER_NAME, Repo, init_repo, isolated_env

SETTINGS = """\
[agents]
implementer = "marking"
verifier = "marking"
[agents.marking]
kind = "command"
argv = ["{python}", "-I", "-S", "{agent}", "{marks}"]
"""
#: Works as long as `pace` says, and while one of the files `hold/PLAN.PHASE.ROLE`, `hold/HOST` and `hold/any` is there.
AGENT = r"""
import fcntl, json, os, pathlib, re, subprocess, sys, time
marks, env = pathlib.Path(sys.argv[1]), os.environ
plan, phase, role = pathlib.Path(env["RUNPLAN_PLAN"]).stem, env["RUNPLAN_PHASE"], env["RUNPLAN_ROLE"]
host, dispatch = pathlib.Path(env["HOME"]).name, env["RUNPLAN_DISPATCH"]
def mark(kind, **more):
    fields = {"kind": kind, "host": host, "plan": plan, "phase": phase, "role": role, "dispatch": dispatch, **more}
    with open(marks / "log", "a") as log:
        log.write(json.dumps({**fields, "pid": os.getpid(), "at": time.monotonic()}) + "\n")
lock = open(marks / f"{plan}.{phase}.lock", "a+")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    lock.seek(0)
    mark("overlap", held_by=lock.read())
else:
    lock.truncate(0)
    lock.write(dispatch)
    lock.flush()
mark("begin")
time.sleep(float((marks / "pace").read_text()))
while any((marks / "hold" / name).exists() for name in (f"{plan}.{phase}.{role}", host, "any")):
    time.sleep(0.02)
if role == "verify":
    prompt = pathlib.Path(env["RUNPLAN_PROMPT"]).read_text()
    listed = re.search(r"^## Items$(.*?)^## ", prompt, re.M | re.S)
    names = re.findall(r"^- ([A-Z]+\d+): ", listed[1] if listed else "", re.M)
    changed = re.search(r"^\+\+\+ b/(.+)$", pathlib.Path(".runplan.diff").read_text(), re.M)
    items = [{"item": name, "result": "pass", "evidence": changed[1]} for name in names]
    answer = {"status": "done", "summary": "Seen.", "items": items}
    pathlib.Path(env["RUNPLAN_RETURN"]).write_text(json.dumps(answer))
else:
    pathlib.Path(f"{plan}-{phase}.txt").write_text(f"{plan} {phase}\n")
    subprocess.run(["git", "add", "-A"], check=True)
    if subprocess.run(["git", "diff", "--cached", "--quiet"]).returncode:
        subprocess.run(["git", "commit", "-qm", f"Write {plan} {phase}"], check=True)
mark("end")
"""

TAKINGS = """
CREATE TABLE {schema}.takings (plan TEXT, owner TEXT, fence BIGINT, at TIMESTAMPTZ DEFAULT clock_timestamp());
CREATE FUNCTION {schema}.log_taking() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO {schema}.takings VALUES (NEW.key, NEW.owner, NEW.fence); RETURN NEW;
END $$;
CREATE TRIGGER log_taking AFTER INSERT OR UPDATE ON {schema}.claims FOR EACH ROW WHEN (NEW.kind = 'plan')
    EXECUTE FUNCTION {schema}.log_taking();
"""


@dataclass(frozen=True)
class Mark:
    """One line of an agent."""

    kind: str
    host: str
    plan: str
    phase: str
    role: str
    dispatch: str
    pid: int
    at: float
    held_by: str = ""


@dataclass
class Host:
    """One machine of the fleet."""

    name: str
    home: Path
    namespace: HostNamespace
    network: Network
    proxy: Proxy  #: between this host and PostgreSQL
    env: dict[str, str]
    worker: int = 0  #: its process
    _started: subprocess.Popen[bytes] | None = None

    def run(self, *args: str, cwd: Path | None = None, **env: str) -> Ran:
        """The command on this host, in its clone if it has one."""
        ran = self.namespace.run(
            [RUNPLAN, *args],
            cwd=cwd or (self.clone if self.clone.exists() else self.home),
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            timeout=100,
        )
        return Ran(code=ran.returncode, out=ran.stdout.decode(), err=ran.stderr.decode())

    @property
    def clone(self) -> Path:
        return self.home / "app"

    @property
    def log(self) -> Path:
        return self.home / "worker.log"

    def start_worker(self, *words: str, **env: str) -> None:
        """Start the worker of this host."""
        with self.log.open("ab") as log:
            self._started = self.namespace.start(
                [RUNPLAN, "worker", "--host", self.name, *words],
                cwd=self.home,
                env={**self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.worker = find_program(self._started)

    def signal_worker(self, number: int) -> None:
        os.kill(self.worker, number)
        if number == signal.SIGCONT and self._started is not None:  # the program that entered the namespace stops, too
            self._started.send_signal(number)

    def stop_worker(self, number: int = signal.SIGTERM) -> None:
        """Signal the worker and wait for its end."""
        self.signal_worker(number)
        assert self._started is not None
        self._started.wait(60)

    def kill(self) -> None:
        """The whole host: every process, the worker, its shims, its agents."""
        self.namespace.kill()
        while processes_of(self.home):
            end_processes_of(self.home)
            time.sleep(0.01)
        if self._started is not None:
            self._started.wait(10)

    def has_dispatch(self, dispatch: str) -> bool:
        """Whether an agent of the dispatch lives on this host."""
        mark = f"RUNPLAN_DISPATCH={dispatch}".encode()
        for pid in processes_of(self.home):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    return True
        return False

    def freeze(self) -> None:
        """Every process stops, as when a laptop sleeps."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        for pid in processes_of(self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def fill_disk(self) -> None:
        """Leave not a byte on the disk of this host."""
        with contextlib.suppress(OSError), (self.home / "ballast").open("wb") as ballast:
            while True:
                ballast.write(b"0" * 65536)
                ballast.flush()

    def make_room(self) -> None:
        (self.home / "ballast").unlink()

    def unplug(self) -> None:
        """No packet from or to the host arrives; without a network of its own its way to PostgreSQL is blocked."""
        if self.network.is_separate:
            self.network.unplug(self.name)
        else:
            self.proxy.swallows = True

    def plug(self) -> None:
        if self.network.is_separate:
            self.network.plug(self.name)
        self.proxy.heal()


class GitServer:
    """`git daemon` for one directory; it may be away for a while."""

    def __init__(self, namespace: Namespace, address: str, place: Path) -> None:
        self._namespace = namespace
        self._process: subprocess.Popen[bytes] | None = None
        self._place = place
        self._address = address
        self.port = namespace.call(partial(_free_port, address))
        self.start()

    @property
    def url(self) -> str:
        return f"git://{self._address}:{self.port}/app.git"

    def start(self) -> None:
        options = [f"--listen={self._address}", f"--port={self.port}", f"--base-path={self._place}", "--reuseaddr"]
        command = ["git", "daemon", *options, "--export-all", "--enable=receive-pack", str(self._place)]
        how = {"env": isolated_env(), "stderr": subprocess.DEVNULL, "start_new_session": True}
        self._process = self._namespace.start(command, **how)
        until(self._answers)

    def _answers(self) -> bool:
        return self._namespace.run(["git", "ls-remote", "--heads", self.url]).returncode == 0

    def stop(self) -> None:
        """End it with all the connections that it serves."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def _write_identity(home: Path) -> dict[str, str]:
    """The variable by which git on a host knows who commits."""
    (home / "gitconfig").write_text(f"[user]\n\tname = {USER_NAME}\n\temail = {USER_EMAIL}\n")
    return {"GIT_CONFIG_GLOBAL": str(home / "gitconfig")}


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])


def skewed_clock(place: Path, seconds: int) -> dict[str, str]:
    """The variables by which the processes of a host have a clock that is ahead, or behind.

    Not by libfaketime: with 0.9.10 on arm64 `time.sleep` of Python fails with EINVAL.
    """
    place.mkdir(parents=True)
    wall = Wall(place)
    wall.jump_to(seconds)
    return wall.env


@dataclass
class Fleet:
    """PostgreSQL, a git server and hosts; use it in a `with`."""

    place: Path
    hosts: dict[str, Host] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._stack = contextlib.ExitStack()
        self.network = Network()
        self._stack.callback(self.network.close)
        self.marks = self.place / "marks"
        (self.marks / "hold").mkdir(parents=True)
        self.set_pace(0)
        database, _, servers = self.network.addresses
        self.remote = init_repo(self.place / "git/app.git", "--bare")
        self.remote.git("config", "receive.autogc", "false")
        self.git = GitServer(self.network.servers, servers, self.place / "git")
        self._stack.callback(self.git.stop)
        self.database = Server(self.network.servers, database)
        self._stack.callback(self.database.stop)
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.thaw()
            host.kill()
            host.proxy.close()
        self._stack.close()

    # --- its parts --------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.git.url

    @property
    def location(self) -> FleetLocation:
        """The store, as this process reaches it."""
        return FleetLocation(self.database.local_dsn, normalize_url(self.url))

    @property
    def both_addresses(self) -> str:
        """A DSN of both machines of PostgreSQL, by no proxy."""
        places = ",".join(f"{address}:{self.database.port}" for address in self.network.addresses[:2])
        return f"postgresql://postgres@{places}/postgres"

    def add_host(self, name: str, *, dsn: str = "", disk_mb: int = 0, **env: str) -> Host:
        """A host with a proxy of its own to PostgreSQL, unless a DSN is given; perhaps with a small disk."""
        home = self.place / "hosts" / name
        home.mkdir(parents=True)
        if disk_mb:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk_mb}m", "none", home], check=True)
            self._stack.callback(lambda: subprocess.run(["umount", "--lazy", home], check=True))
        proxy = Proxy(self.network.servers, self.network.addresses[2], (self.database.address, self.database.port))
        address, port = proxy.address
        own = {
            "HOME": str(home),
            **_write_identity(home),
            "RUNPLAN_FLEET_DSN": dsn or f"postgresql://postgres@{address}:{port}/postgres",
        }
        namespace = self.network.add_host(name)
        host = Host(name, home, namespace, self.network, proxy, {**isolated_env(), **NO_SANDBOX, **own, **env})
        self.hosts[name] = host
        return host

    def add_desk(self, plans: dict[str, tuple[str, ...]], settings: str = "") -> Host:
        """The host of a person: a clone with these plans, pushed, and no worker."""
        desk = self.add_host("desk")
        agent = self.place / "agent.py"
        agent.write_text(AGENT)
        repo = self.clone_of(desk)
        init_repo(desk.clone)
        repo.git("remote", "add", "origin", self.url)
        files = {f"plans/{name}.md": a_plan(*phases) for name, phases in plans.items()}
        files["runplan.toml"] = SETTINGS.format(python=sys.executable, agent=agent, marks=self.marks) + settings
        repo.commit("Begin", **files)
        desk.namespace.call(lambda: repo.git("push", "-q", "-u", "origin", "main"))
        repo.git("remote", "set-head", "origin", "main")
        return desk

    def clone_of(self, host: Host) -> Repo:
        return Repo(path=host.clone, env=host.env)

    # --- what is seen -----------------------------------------------------------------------------------

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the repository's tables, or of the fleet's."""
        path = f"-c search_path={self.location.schema},runplan"
        with psycopg.connect(self.location.dsn, options=path, autocommit=True) as db:
            return db.execute(query, values or None).fetchall()

    def watch_claims(self) -> None:
        """Log each taking of a plan with its moment, from now on."""
        with psycopg.connect(self.location.dsn, autocommit=True) as db:
            db.execute(TAKINGS.format(schema=self.location.schema))

    def list_takings(self, plan: str, host: str) -> list[float]:
        """When the host took the plan, each time with a higher fence, by the clock of the marks."""
        query = "SELECT extract(epoch FROM at) FROM takings WHERE plan=%s AND starts_with(owner, %s)"
        offset = time.time() - time.monotonic()
        return [float(at) - offset for (at,) in self.rows(query, f"plans/{plan}.md", f"{host}/")]

    def states(self) -> dict[str, str]:
        """The state of the newest run of each plan."""
        return {Path(plan).stem: state for plan, state in self.rows("SELECT plan, state FROM runs ORDER BY number")}

    def read_marks(self, *kinds: str) -> list[Mark]:
        log = self.marks / "log"
        marks = [Mark(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
        return [mark for mark in marks if not kinds or mark.kind in kinds]

    def landings(self) -> Counter[tuple[str, str]]:
        """How often the code of each phase is on the remote's main, by (plan, phase)."""
        subjects = self.remote.git("log", "--format=%s", MAIN).splitlines()
        words = (subject.split() for subject in subjects if subject.startswith("Write "))
        return Counter((plan, phase) for _, plan, phase in words)

    # --- what is done -----------------------------------------------------------------------------------

    def set_pace(self, seconds: float) -> None:
        (self.marks / "pace").write_text(str(seconds))

    def hold(self, name: str = "any") -> None:
        """Let agents wait from now on: all, those of a host, or those of `PLAN.PHASE.ROLE`."""
        (self.marks / "hold" / name).touch()

    def release(self, name: str = "any") -> None:
        (self.marks / "hold" / name).unlink()

    def restart_database(self, *, away_s: float = 0.0) -> None:
        """PostgreSQL crashes, stays away for a while, and recovers at its address."""
        self.database.stop()
        time.sleep(away_s)
        self.database.start(self.database.port)

    def move_database(self) -> None:
        """The machine of PostgreSQL is gone; the same data is started at another address."""
        gone, new, _ = self.network.addresses
        self.network.drop_address(gone)
        self.database.stop()
        self.database.start(self.database.port, new)


# --- a project that a worker runs ---------------------------------------------------------------------------


@dataclass
class FleetProject(Project):
    """A project in a fleet of its own: a database, and one host at a time."""

    host: str = "alpha"

    def move_to(self, host: str) -> None:
        """The next worker has another name, and a state directory of its own."""
        self.host = host
        self.extra["XDG_STATE_HOME"] = str(self.home / host)

    @property
    def worked(self) -> Repo:
        schema = FleetLocation("", normalize_url(self.repo.git("remote", "get-url", "origin"))).schema
        return Repo(path=state_directory(self.env) / "fleet" / self.host / "repositories" / schema, env=self.repo.env)

    @property
    def worktrees(self) -> Path:
        return self.worked.path.with_name(f"{self.worked.path.name}.runplan")

    def leftovers(self) -> list[str]:
        """As of any project; but a worker keeps the directory of its worktrees, because another plan may need it."""
        return [left for left in super().leftovers() if left != str(self.worktrees)]

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        url = normalize_url(self.repo.git("remote", "get-url", "origin"))
        options = f"-c search_path={FleetLocation('', url).schema},runplan"
        with psycopg.connect(self.extra["RUNPLAN_FLEET_DSN"], options=options, autocommit=True) as db:
            return db.execute(query.replace("?", "%s"), values or None).fetchall()


def make_fleet_project(project: Project) -> FleetProject:
    """Give the project a database of its own, in which a lost host is missed after two seconds."""
    with MAKING:
        template = _template()
    dsn = create_database(template)
    initialize(dsn, [project.repo.git("remote", "get-url", "origin")])
    config = _write_identity(project.home)
    made = FleetProject(project.repo, project.home, {**project.extra, **config, "RUNPLAN_FLEET_DSN": dsn})
    made.move_to("alpha")
    return made


@cache
def _template() -> str:
    """A database with the tables of a fleet."""
    server = start_server()
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("CREATE DATABASE fleet_template")
    initialize(server.dsn_of("postgres", "fleet_template"), [])
    set_lease(server.dsn_of("postgres", "fleet_template"), 2)
    return "fleet_template"


def set_lease(dsn: str, seconds: float) -> None:
    """Let a host that was not seen for so long count as dead; for workers that start from now on."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(
            "CREATE OR REPLACE FUNCTION runplan.lease() RETURNS INTERVAL LANGUAGE sql STABLE "
            f"RETURN INTERVAL '{seconds} s'"
        )
