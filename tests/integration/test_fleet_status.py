"""runplan fleet status, drain, up and metrics, on rows that workers and clients have written."""

import contextlib
import json
import re
import signal
import subprocess
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]

from runplan.adapters.store.heartbeat import RECOVER_PLANS, Heartbeat, WorkerRow
from runplan.adapters.store.location import FleetLocation
from runplan.adapters.store.postgres import PostgresStore, initialize
from runplan.domain.errors import Unreachable
from tests.e2e.test_docs import documented, shape
from tests.support.cli import RUNPLAN, Project, Ran, a_project
from tests.support.documents import read
from tests.support.postgres import create_database, start_server

URL = "example.com/acme/app"
WORKER = """
INSERT INTO workers (owner, host, labels, slots, version, seen)
VALUES (%s, %s, %s, %s, '1.0', now() - %s::interval)"""


@dataclass(frozen=True)
class Fleet:
    dsn: str
    project: Project

    def run(self, *words: str) -> Ran:
        return self.project.runplan("fleet", *words, RUNPLAN_FLEET_DSN=self.dsn)

    def execute(self, statement: str, *values: object) -> None:
        with psycopg.connect(self.dsn, options="-c search_path=runplan") as db:
            db.execute(statement.encode(), values)

    def add_worker(self, host: str, *labels: str, slots: int = 1, silent_s: int = -600) -> None:
        """Seen in the future by default: it lives, however slow the test is."""
        self.execute(WORKER, f"{host}/1", host, list(labels), slots, f"{silent_s} s")

    def store(self) -> closing[PostgresStore]:
        return closing(PostgresStore(FleetLocation(self.dsn, URL)))


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    dsn = create_database()
    initialize(dsn, [f"https://{URL}"])
    return Fleet(dsn, a_project(tmp_path))


def test_status_shows_hosts_their_plans_and_why_others_wait(fleet: Fleet) -> None:
    fleet.add_worker("alpha", "docker", "gpu", slots=1)
    fleet.add_worker("beta", silent_s=120)
    with fleet.store() as store:
        store.claim_plan("plans/A.md", run="r1", owner="alpha/1")
        store.queue_plan("plans/B.md", ["gpu"])
        store.queue_plan("plans/C.md", ["mac"])
        for account, until in (("claude", "2999-01-01T00:00:00Z"), ("codex", "2026-01-01T00:00:00Z")):
            limit = json.dumps({"account": account, "until": until, "words": "resets at midnight"})
            add = "INSERT INTO events (run, plan, at, type, body) VALUES ('r1', 'plans/A.md', '', 'AgentLimited', ?)"
            store.execute_alone(add, limit)
    fleet.execute("UPDATE capacity SET fleet=1")
    for plan in ("A", "D"):
        fleet.execute("SELECT request_permit(schema, %s, 'alpha/1', false) FROM repositories", plan)
    assert shape(fleet.run("status", "--json").json) == shape(documented("fleet status --json"))
    assert (fleet.run("status", "alpha").code, fleet.run("status", "beta").code) == (0, 5), "for health checks"
    shown = fleet.run("status").out.splitlines()
    assert shown[0] == "alpha  up        1 of 1 slot in use, seen 0s ago, labels docker, gpu, version 1.0"
    assert shown[1] == f"  plans/A.md of {URL}"
    assert shown[2] == "beta   dead      0 of 1 slot in use, seen 2m ago, version 1.0"
    assert re.fullmatch(r"Queue: 2 plans, the oldest for \d+s", shown[4])
    assert shown[5:] == [
        f"  plans/B.md of {URL}: every slot of 1 host is in use",
        f"  plans/C.md of {URL}: no host has the labels mac; start one: runplan worker --labels mac",
        "Runs: 1 at work, 1 waiting for their turn; at most 1 at once, 3 in a repository",
        "Usage limit of claude: until 2999-01-01 00:00 UTC (resets at midnight)",
        f"Repositories: {URL}",
    ]


@pytest.mark.rest
def test_a_plan_in_hand_does_not_count_as_waiting(fleet: Fleet) -> None:
    fleet.add_worker("alpha")
    with fleet.store() as store:
        store.queue_plan("plans/A.md")
        assert [queued["why"] for queued in fleet.run("status", "--json").json["queue"]] == ["a host takes it now"]
        fleet.execute("UPDATE procrastinate_jobs SET status='doing'")
        store.queue_plan("plans/A.md")  # a command for the host that has it
    assert fleet.run("status", "--json").json["queue"] == []


@pytest.mark.rest
def test_a_plan_of_a_dead_host_is_in_the_queue(fleet: Fleet) -> None:
    fleet.add_worker("alpha", silent_s=120)
    with fleet.store() as store:
        store.claim_plan("plans/A.md", run="r1", owner="alpha/1")
    permit = "INSERT INTO permits (schema, plan, owner, works) SELECT schema, %s, 'alpha/1', true FROM repositories"
    fleet.execute(permit, "plans/A.md")
    shown = fleet.run("status").out.splitlines()
    assert shown[0].startswith("alpha  dead      0 of 1 slot in use")
    assert shown[3] == f"  plans/A.md of {URL}: its host alpha is dead; no host takes plans; start one: runplan worker"
    assert shown[4].startswith("Runs: 0 at work, 0 waiting for their turn")
    fleet.add_worker("beta")
    fleet.execute(RECOVER_PLANS)
    (left,) = fleet.run("status", "--json").json["queue"]
    assert left["why"].startswith("its host alpha is dead; take-over waits ")
    fleet.execute("UPDATE steady SET since = since - lease()")
    assert fleet.run("status", "--json").json["queue"][0]["why"] == "its host alpha is dead; a host takes it now"
    fleet.execute("UPDATE workers SET seen = now() WHERE host = 'beta'")  # there was no gap
    fleet.execute(RECOVER_PLANS)
    assert [queued["why"] for queued in fleet.run("status", "--json").json["queue"]] == ["a host takes it now"]


@pytest.mark.rest
def test_drain_and_up_change_one_host_and_tell_it_and_an_unknown_one_is_refused(fleet: Fleet) -> None:
    said = "runplan: gamma: no such host; no worker has registered; start one: runplan worker"
    fleet.run("drain", "gamma").ends(3, said)
    fleet.add_worker("alpha")
    fleet.add_worker("beta")
    said = "runplan: gamma: no such host; there are: alpha, beta"
    assert [fleet.run(verb, "gamma").last for verb in ("status", "drain", "up")] == [said] * 3
    with psycopg.connect(fleet.dsn, autocommit=True) as listener:
        listener.execute("LISTEN runplan_workers")
        assert fleet.run("drain", "alpha").out == "alpha finishes its agents and takes no plans\n"
        assert [told.payload for told in listener.notifies(timeout=10, stop_after=1)] == ["alpha"]
    states = {host["name"]: host["draining"] for host in fleet.run("status", "--json").json["hosts"]}
    assert states == {"alpha": True, "beta": False}
    assert " draining " in fleet.run("status", "alpha").out
    assert fleet.run("up", "alpha").code == 0
    assert not fleet.run("status", "alpha", "--json").json["draining"]


def test_metrics_are_those_of_hosts_queue_and_repositories(fleet: Fleet) -> None:
    row = WorkerRow(owner="alpha/1", host="alpha", labels=[], slots=2, version="1.0")
    with closing(Heartbeat(fleet.dsn, row)) as heartbeat:
        heartbeat.beat(None)
        heartbeat.beat(None, free=5, failures=3)
    fleet.execute("UPDATE workers SET seen = now() + INTERVAL '600 s'")
    fleet.add_worker("beta", silent_s=120)
    with fleet.store() as store:
        store.claim_plan("plans/A.md", run="r1", owner="alpha/1")
        store.queue_plan("plans/B.md")
        add = "INSERT INTO events (run, plan, at, type, body) VALUES ('r1', 'plans/A.md', '', ?, ?)"
        for owner in ("", "beta/1"):
            store.execute_alone(add, "ClaimTaken", json.dumps({"owner": "alpha/1", "took_over": owner}))
        store.execute_alone(add, "DispatchEnded", '{"role": "implement", "agent": "codex", "ending": "lost"}')
    lines = fleet.run("metrics").out.splitlines()
    repeated = f'agent="codex",ending="lost",repository="{URL}",role="implement"'
    assert {
        'runplan_fleet_host_up{host="alpha"} 1.0',
        'runplan_fleet_host_up{host="beta"} 0.0',
        'runplan_fleet_slots{host="alpha"} 2.0',
        'runplan_fleet_plans{host="alpha"} 1.0',
        'runplan_fleet_disk_free_bytes{host="alpha"} 5.0',
        'runplan_fleet_heartbeats_failed_total{host="alpha"} 3.0',
        "runplan_fleet_queue_length 1.0",
        "runplan_fleet_database_up 1.0",
        f'runplan_takeovers_total{{plan="plans/A.md",repository="{URL}"}} 1.0',
        f"runplan_dispatches_total{{{repeated}}} 1.0",
        "# TYPE runplan_takeovers_total counter",
        "# TYPE runplan_fleet_heartbeat_age_seconds gauge",
    } <= {*lines}
    (latency,) = [line.split()[1] for line in lines if line.startswith('runplan_fleet_database_seconds{host="alpha"}')]
    assert float(latency) > 0
    known = {re.split(r"[ {]", line)[0] for line in lines}
    rules = yaml.safe_load(read("config/fleet/alerts.yaml"))["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"runplan_\w+", rule["expr"])}
    assert named
    assert named - known == set()


def test_metrics_are_served_also_while_the_database_is_away_until_sigterm(fleet: Fleet) -> None:
    def scrape() -> set[str]:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return {re.sub(r"^(\w+).* ", r"\1 ", line) for line in answer.read().decode().splitlines()}

    fleet.add_worker("alpha", slots=2)
    command = [str(RUNPLAN), "fleet", "metrics", "--serve", "--port", "0"]
    env = {**fleet.project.env, "RUNPLAN_FLEET_DSN": fleet.dsn}
    with (
        subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as server,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(server.kill)
        assert server.stderr is not None
        url = server.stderr.readline().split()[-1]
        assert {"runplan_fleet_database_up 1.0", "runplan_fleet_slots 2.0"} <= scrape()
        with psycopg.connect(start_server().dsn, autocommit=True) as db:
            db.execute(f"DROP DATABASE {fleet.dsn.rpartition('/')[2]} WITH (FORCE)")
        lines = scrape()
        assert "runplan_fleet_database_up 0.0" in lines
        assert "runplan_fleet_slots 2.0" not in lines
        assert "does not answer" in server.stderr.readline()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


@pytest.mark.rest
def test_doctor_names_the_database_and_its_workers(fleet: Fleet) -> None:
    def check(dsn: str) -> dict[str, str]:
        ran = fleet.project.runplan("doctor", "--json", RUNPLAN_FLEET_DSN=dsn, RUNPLAN_RUN_LANDING="direct")
        return next(check for check in ran.json if check["name"] == "fleet")

    fleet.project.repo.git("remote", "add", "origin", f"https://{URL}.git")
    assert check(fleet.dsn)["state"] == "WARN"
    assert check(fleet.dsn)["remedy"] == "start one on a host: runplan worker"
    fleet.add_worker("alpha")
    secret = fleet.dsn.replace("postgres@", "postgres:secret@")
    detail = f"{fleet.dsn}, version 2; 1 living worker"
    assert check(secret) == {"name": "fleet", "ok": True, "state": "ok", "detail": detail, "remedy": ""}
    assert check("postgresql://uma:secret@127.0.0.1:1/runplan")["state"] == "FAIL"
    assert "secret" not in str(check("postgresql://uma:secret@127.0.0.1:1/runplan"))


def test_a_host_that_drains_still_drains_after_a_restart(fleet: Fleet) -> None:
    def start(owner: str) -> Heartbeat:
        return Heartbeat(fleet.dsn, WorkerRow(owner=owner, host="alpha", labels=[], slots=1, version="1.0"))

    with closing(start("alpha/1")) as first, closing(start("alpha/2")) as second:
        assert first.beat(None) is False
        assert fleet.run("drain", "alpha").code == 0
        first.leave()
        assert second.beat(None) is True
        assert fleet.run("up", "alpha").code == 0
        assert second.beat(None) is False
        second.leave()


def test_a_heartbeat_that_is_cut_off_says_that_the_database_does_not_answer(fleet: Fleet) -> None:
    row = WorkerRow(owner="alpha/1", host="alpha", labels=[], slots=1, version="1.0")
    with closing(Heartbeat(fleet.dsn, row)) as heartbeat:
        heartbeat.beat(None)
        fleet.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
        )
        for call in (
            lambda: heartbeat.beat(None),
            lambda: heartbeat.lease_s,
            lambda: heartbeat.list_owned(),
            lambda: heartbeat.wait(0.1),
            lambda: heartbeat.set_capacity(fleet=1, repository=1),
            lambda: heartbeat.leave(),
        ):
            with pytest.raises(Unreachable, match="does not answer"):
                call()
