"""make demo-fleet: a plan on two hosts, one of which is killed in the middle.

Hosts are separations on one machine: each worker has a home, a state directory and clones of its own. They share a
PostgreSQL server and a git remote.
"""

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psycopg

from runplan.adapters.store.location import FleetLocation, normalize_url
from runplan.adapters.store.postgres import PostgresStore
from runplan.domain.run.rows import RunRow
from runplan.interfaces.cli.setup.demo import OWN, PLAN, make_repository
from tests.support.cli import end_processes_of, processes_of, run_program
from tests.support.postgres import Server

HOSTS = ("alpha", "beta")
PAUSE_S = 0.6  #: before each step of an agent, so that one is at work when its host is killed
LEASE_S = 5
LIMIT_S = 120.0
INTRODUCTION = f"""\
A small shop adds up prices; the plan {PLAN} teaches it discounts in three phases.
Two hosts, {" and ".join(HOSTS)}, share a PostgreSQL server and a git remote, and nothing else.
The agent plays a script: no model, no network. The host that works on phase 2 is killed.
A host that is silent for {{lease_s}} seconds counts as dead; without the demo that takes 30 seconds."""


@dataclass
class Machine:
    """A person's clone, the remote, and the homes of the hosts."""

    place: Path
    dsn: str

    @property
    def clone(self) -> Path:
        return self.place / "you/shop"

    def env(self, user: str) -> dict[str, str]:
        """The environment of a user; this user's own settings of runplan and git have no effect."""
        home = self.place / user
        home.mkdir(exist_ok=True)
        (home / ".gitconfig").write_text("[user]\n\tname = You\n\temail = you@example.org\n", encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUNPLAN_", "GIT_", "XDG_"))}
        own = {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "RUNPLAN_FLEET_DSN": self.dsn, "PAGER": "cat"}
        return {**kept, **own}

    def run(self, *words: str, shown: bool = True) -> str:
        """Run a command in the clone, as a person does."""
        if shown:
            say(f"\n$ {shlex.join(words)}")
        argv = [*OWN, *words[1:]] if words[0] == "runplan" else list(words)
        ran = run_program(argv, self.clone, self.env("you"))
        if shown:
            say((ran.err + ran.out).rstrip())
        if ran.code:
            sys.exit(f"{shlex.join(words)} ended with {ran.code}: {ran.err}")
        return ran.out

    @property
    def run_row(self) -> RunRow | None:
        return self.store.get_newest_run(PLAN)

    @property
    def owner(self) -> str:
        """The host that has the plan in hand."""
        return self.store.list_owners().get(PLAN, "").partition("/")[0]

    @property
    def has_ended(self) -> bool:
        return self.run_row is not None and not self.run_row.is_active

    @cached_property
    def store(self) -> PostgresStore:
        return PostgresStore(FleetLocation(self.dsn, normalize_url(str(self.place / "shop.git"))))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def worker(machine: Machine, host: str) -> Iterator[None]:
    """A host with a worker; all its processes end with it."""
    words = ["worker", "--host", host, "--slots", "1"]
    say(f"\n{host}$ runplan {shlex.join(words)}")
    log = (machine.place / f"{host}.log").open("ab")
    with (
        log,
        subprocess.Popen(
            [*OWN, *words], cwd=machine.place, env=machine.env(host), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            kill_host(machine, host)


def kill_host(machine: Machine, host: str) -> int:
    """Kill every process of a host at once; their number."""
    killed = processes_of(machine.place / host)
    end_processes_of(machine.place / host)
    return len(killed)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit("the demo waited in vain; see: docs/fleet.md")
        time.sleep(0.1)


def make_remote(machine: Machine, pause_s: float) -> None:
    env = machine.env("you")
    make_repository(machine.clone, env, is_planned=True, pause_s=pause_s)
    remote = machine.place / "shop.git"
    for words in (
        ("init", "-q", "--bare", "-b", "main", str(remote)),
        ("remote", "add", "origin", str(remote)),
        ("push", "-qu", "origin", "main"),
    ):
        subprocess.run(["git", *words], cwd=machine.clone, env=env, check=True)


def play(machine: Machine, lease_s: int, pause_s: float) -> None:
    say(INTRODUCTION.format(lease_s=lease_s))
    make_remote(machine, pause_s)
    machine.run("runplan", "fleet", "init")
    with psycopg.connect(machine.dsn) as db:
        lease = (
            f"CREATE OR REPLACE FUNCTION runplan.lease() RETURNS INTERVAL LANGUAGE sql RETURN INTERVAL '{lease_s} s'"
        )
        db.execute(lease.encode())
    with contextlib.ExitStack() as hosts:
        for host in HOSTS:
            hosts.enter_context(worker(machine, host))
        wait_for(lambda: len(machine.store.list_host_labels()) == len(HOSTS))
        machine.run("runplan", "start", PLAN, "finish", "auto", "direct")
        wait_for(lambda: (run := machine.run_row) and run.phase == "2" and run.agent)
        victim = machine.owner
        machine.run("runplan", "fleet", "status")
        count = kill_host(machine, victim)
        say(f"\n{victim} is killed: kill -9 for its {count} processes, the worker and its agents.")
        began = time.monotonic()
        wait_for(lambda: machine.owner != victim or machine.has_ended)
        say(f"{machine.owner} has taken over after {time.monotonic() - began:.0f} seconds.")
        wait_for(lambda: machine.has_ended)
        machine.run("runplan", "fleet", "status")
        say(f"\n$ runplan logs {PLAN}      (its part about phase 2)")
        log = machine.run("runplan", "logs", PLAN, shown=False)
        say("\n".join(part for part in log.split("\n\n") if "  phase 2  " in part))
    show_landings(machine)


def show_landings(machine: Machine) -> None:
    machine.run("git", "fetch", "-q", "origin", shown=False)
    machine.run("git", "log", "--oneline", "--graph", "--no-decorate", "origin/main")
    format_ = " ".join(
        f"%(trailers:key={key},valueonly,separator=%x20)" for key in ("Runplan-Phase", "Runplan-Landing")
    )
    lines = machine.run("git", "log", f"--format={format_}", "origin/main", shown=False).splitlines()
    landings = {(phase, landing) for phase, _, landing in (line.partition(" ") for line in lines) if landing}
    phases = sorted(phase for phase, _ in landings)
    if phases != ["1", "2", "3"]:
        sys.exit(f"the phases of the landings are {phases}")
    say("\nPhases 1, 2 and 3 are on the remote, each landed once.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make demo-fleet")
    parser.add_argument("--lease", type=int, default=LEASE_S, metavar="SECONDS")
    parser.add_argument("--pause", type=float, default=PAUSE_S, metavar="SECONDS")
    args = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="runplan-demo-fleet-")).resolve()
    server = Server()
    try:
        play(Machine(place, server.dsn), args.lease, args.pause)
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)
    say("Database, hosts and repositories were removed. For your own: docs/fleet.md")


if __name__ == "__main__":
    main()
