"""A fleet from the side of its users: any clone on any machine shows and queues the same."""

import re
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from runplan.adapters.store.location import FleetLocation, normalize_url
from runplan.adapters.store.postgres import PostgresStore, require_queue
from runplan.domain.errors import RefusedEarly
from runplan.domain.names import wip_ref
from tests.support.cli import Project, Ran, a_project, with_remote
from tests.support.postgres import a_location, create_database
from tests.support.repos import Repo

pytestmark = pytest.mark.rest

NO_WORKER = "the request is queued, and no worker of the fleet is running; start one on any host: runplan worker"
_numbers = count(1)


def on_machine(place: Path, origin: Repo, dsn: str) -> Project:
    """A clone with a home of its own."""
    home = place / "home"
    home.mkdir(parents=True)
    origin.git("clone", "-q", str(origin.path), str(place / "repo"))
    repo = Repo(path=place / "repo", env=dict(origin.env))
    for name, value in (("user.name", "Uma"), ("user.email", "uma@example.org")):
        repo.git("config", name, value)
    return Project(repo=repo, home=home, extra={"RUNPLAN_FLEET_DSN": dsn})


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Project, Project]:
    """Two machines with a clone of one remote, which the fleet knows; it has no worker."""
    dsn = create_database()
    origin = with_remote(a_project(tmp_path, "1", "2"), tmp_path / f"origin-{next(_numbers)}.git")
    here, there = (on_machine(tmp_path / name, origin, dsn) for name in ("here", "there"))
    ran = here.runplan("fleet", "init").exits(0)
    assert normalize_url(str(origin.path)) in ran.out
    return here, there


def store_of(project: Project) -> PostgresStore:
    url = project.repo.git("remote", "get-url", "origin")
    return PostgresStore(FleetLocation(project.extra["RUNPLAN_FLEET_DSN"], normalize_url(url)))


def jobs_of(location: FleetLocation) -> list[tuple[str, str, str, str | None]]:
    query = (
        "SELECT task_name, args->>'plan', queue_name, lock FROM runplan.procrastinate_jobs"
        " WHERE args->>'schema'=%s ORDER BY id"
    )
    with psycopg.connect(location.dsn) as db:
        return db.execute(query, (location.schema,)).fetchall()


@pytest.mark.promise
def test_a_team_reads_and_approves_the_plans_of_its_own_repository_alone(tmp_path: Path) -> None:
    owner = create_database()
    machines = []
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        origin = with_remote(a_project(tmp_path / name, "1"), tmp_path / f"{name}.git")
        machines.append(on_machine(tmp_path / name / "machine", origin, owner))
    ours, theirs = machines
    for project in (ours, theirs):
        assert project.runplan("fleet", "init").code == 0
        assert project.runplan("start", "X", "direct").code == 5  # queued, and there is no worker
    location = store_of(ours).location
    with psycopg.connect(owner) as db:
        db.execute(sql.SQL("CREATE ROLE team LOGIN IN ROLE {}").format(sql.Identifier(location.role)))
    member = {"RUNPLAN_FLEET_DSN": owner.replace("postgres@", "team@")}

    assert ours.runplan("status", **member).code == 0
    assert ours.runplan("start", "X", "direct", **member).last == f"runplan: {NO_WORKER}"
    for words in (("queue", "move", "plans/X.md", "1"), ("gc",), ("report", "X"), ("logs", "X"), ("stop", "X")):
        assert "lacks rights" not in ours.runplan(*words, **member).err
    for verb in ("status", "approve", "report", "logs"):
        theirs.runplan(verb, "X", **member).exits(2, "the fleet does not know")
    with closing(store_of(theirs)) as store:
        assert [command.verb for command in store.list_queued_commands()] == ["start"]
        schema = store.location.schema
    with psycopg.connect(member["RUNPLAN_FLEET_DSN"], autocommit=True) as db:
        assert db.execute("SELECT schema FROM runplan.repositories").fetchall() == [(location.schema,)]
        db.execute("CREATE TEMP TABLE procrastinate_jobs (LIKE pg_class)")  # changes nothing for the function
        db.execute("SELECT runplan.queue_plan(%s, 'plans/X.md', 'any')", (location.schema,))
        approve = "INSERT INTO {schema}.commands (plan, verb, arguments, by, at) VALUES ('X', 'approve', '', '', '')"
        db.execute(approve.format(schema=location.schema).encode())
        for statement in (
            f"SELECT runplan.queue_plan('{schema}', 'plans/X.md', 'any')",
            approve.format(schema=schema),
            f"SELECT * FROM {schema}.events",
            "SELECT * FROM runplan.all_events",
            "SELECT * FROM runplan.all_commands",
            "SELECT * FROM runplan.claimed",
            "SELECT * FROM runplan.procrastinate_jobs",
            "UPDATE runplan.workers SET draining=true",
            f"INSERT INTO {location.schema}.events (run, plan, at, type, body) VALUES ('', '', '', '', '')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(statement.encode())


@pytest.mark.promise
def test_no_daemon_works_beside_a_fleet(machines: tuple[Project, Project]) -> None:
    for words in (("daemon",), ("daemon", "restart")):
        ran = machines[0].runplan(*words)
        assert (ran.code, ran.last.endswith("start one: runplan worker")) == (2, True), ran.err


def test_a_command_and_its_job_are_queued_once_and_every_machine_sees_them(machines: tuple[Project, Project]) -> None:
    here, there = machines
    refused = here.runplan("start", "X")
    helps = "add the word direct or pr to start, or set run.landing in runplan.toml and push it"
    assert (refused.code, refused.last.partition("; ")[2]) == (2, helps)
    for _ in range(2):
        here.runplan("start", "X", "auto", "direct").ends(5, f"runplan: {NO_WORKER}")
    with closing(store_of(here)) as store:
        assert [(queued.plan, queued.verb) for queued in store.list_queued_commands()] == [("plans/X.md", "start")] * 2
        assert "environment" not in store.list_queued_commands()[0].arguments
        location = store.location
    assert jobs_of(location) == [("runplan.work", "plans/X.md", "any", f"{location.schema} plans/X.md")]
    assert "start" in there.runplan("status", "X").out
    assert "the run of plans/X.md is queued and has not begun" in there.runplan("explain", "X").err
    assert not (here.path / ".git/runplan/journal.db").exists()
    assert not (here.home / ".local/state/runplan/daemon.lock").exists(), "no daemon was started"


@pytest.mark.promise
def test_a_wrong_database_names_the_setting(machines: tuple[Project, Project]) -> None:
    ran = machines[0].runplan("status", RUNPLAN_FLEET_DSN=f"{machines[0].extra['RUNPLAN_FLEET_DSN']}-nowhere")
    assert (ran.code, "its address is RUNPLAN_FLEET_DSN" in ran.last) == (5, True), ran.err


def test_a_fleet_says_what_to_do_instead_of_work_and_without_a_clone(machines: tuple[Project, Project]) -> None:
    here, _ = machines
    url = here.repo.git("remote", "get-url", "origin")
    ran = here.runplan("logs", "X", "--repository", url)
    assert ran.last.endswith(f"start one: runplan start plans/X.md --repository {url}")
    ran = here.runplan("work", "all")
    assert (ran.code, ran.last.partition("; ")[2]) == (2, "start each one: runplan start PLAN finish")
    assert [plan["plan"] for plan in here.runplan("queue", "--json").json["plans"]] == ["plans/X.md"]


def test_a_repository_that_the_fleet_does_not_know_is_refused(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", RUNPLAN_FLEET_DSN=a_location().dsn)
    assert "work on this machine alone: RUNPLAN_FLEET_DSN=" in project.runplan("status").err
    with_remote(project, tmp_path / "unknown.git")
    ran = project.runplan("status")
    assert (ran.code, ran.last.partition("; ")[2]) == (2, "add it from its clone: runplan fleet init")
    assert project.runplan("status", RUNPLAN_FLEET_DSN="").code == 0


def test_a_plan_is_queued_and_woken_once_and_a_command_for_it_goes_to_any_host() -> None:
    with closing(PostgresStore(a_location())) as store:
        for _ in range(2):
            store.wake_plan_at("plans/X.md", datetime(2030, 1, 1, tzinfo=UTC))
        wake = ("runplan.wake", "plans/X.md", "any", None)
        lock = f"{store.location.schema} plans/X.md"
        for labels, queue in (
            (("gpu", "docker"), "docker+gpu"),
            (("arm",), "arm"),  # the phase needs another host now
            ((), "any"),  # a host without labels can stop the run
            (("gpu",), "any"),
        ):
            store.queue_plan("plans/X.md", labels)
            assert jobs_of(store.location) == [wake, ("runplan.work", "plans/X.md", queue, lock)]


def test_a_queue_of_another_version_is_refused() -> None:
    with psycopg.connect(a_location().dsn.replace("member@", "postgres@")) as db:
        db.execute("UPDATE runplan.queue SET version='02.00.00'")
        with pytest.raises(RefusedEarly, match=r"has the tables of Procrastinate 02\.00\.00, the installed one needs"):
            require_queue(db)
        db.rollback()


@pytest.fixture
def waiting(machines: tuple[Project, Project]) -> tuple[Project, Project]:
    """A change that waits on the first machine, as its worker has recorded and pushed it."""
    here, there = machines
    here.runplan("start", "X", "direct", "--foreground", RUNPLAN_FLEET_DSN="").exits(4)
    with closing(store_of(here)) as store, store.transaction():
        for run, row in here.rows("SELECT id, row FROM runs"):
            of_worker = row.replace('"daemon": false', '"daemon": true')
            store.execute("INSERT INTO runs (id, row) VALUES (?,?)", run, of_worker)
        for event in here.rows("SELECT run, plan, at, type, body FROM events ORDER BY seq"):
            store.execute("INSERT INTO events (run, plan, at, type, body) VALUES (?,?,?,?,?)", *event)
    (branch,) = [body["branch"] for kind, body in here.events() if kind == "Leased"]
    push = ("push", "-q", str(origin_of(here)), f"{branch}:{wip_ref(branch)}")
    here.repo.git("--git-dir=.git/runplan/tool.git", *push)
    return here, there


def origin_of(project: Project) -> Path:
    return Path(project.repo.git("remote", "get-url", "origin"))


def test_a_change_that_waits_is_shown_on_every_machine(waiting: tuple[Project, Project], tmp_path: Path) -> None:
    here, there = waiting
    shown = there.runplan("diff", "X").exits(0)
    assert "+" in shown.out.partition("diff --git ")[2]
    for words in (("status", "X"), ("explain", "X"), ("logs", "X"), ("inbox",), ("report", "--since", "today")):
        ran = there.runplan(*words)
        assert ("phase 1" in ran.out.lower(), ran.code) == (True, 0), (words, ran)
    # Without a clone, from a directory that is in no repository:
    url = normalize_url(str(origin_of(here)))
    shown = here.runplan_in(tmp_path, "inbox", HOME=str(tmp_path / "elsewhere"))
    assert f"runplan diff plans/X.md 1 --repository {url}" in shown.out
    for _ in range(2):
        ran = here.runplan_in(tmp_path, "diff", "X", "--repository", url, HOME=str(tmp_path / "elsewhere"))
        assert (ran.code, "diff --git" in ran.out) == (0, True), ran.err
    unknown = here.runplan_in(tmp_path, "status", "--repository", "https://example.com/a/b")
    assert (unknown.code, unknown.last.partition("; ")[2]) == (3, "see: runplan fleet status")


@pytest.mark.promise
def test_a_report_has_what_another_host_has_landed_or_says_how_old_it_is(machines: tuple[Project, Project]) -> None:
    here, there = machines

    def land(text: str, moment: str) -> None:
        there.commit_file("reports/plan-x.md", f"# Report\n\n## Phase 1\n\n{text}\n")
        there.repo.git("push", "-q", "origin", "main")
        with closing(store_of(here)) as store, store.transaction():
            landed = ("r1", "plans/Y.md", moment, "Landed", "{}")
            store.execute("INSERT INTO events (run, plan, at, type, body) VALUES (?,?,?,?,?)", *landed)

    def report() -> Ran:
        return here.runplan("report", "X", RUNPLAN_RUN_LANDING="direct")

    land("The first landing.", "2026-11-17T12:00:00Z")
    assert "The first landing." in report().out
    origin_of(here).rename(origin_of(here).with_name("away"))
    assert report().err == "", "nothing has landed since, so the remote is not asked"
    origin_of(here).with_name("away").rename(origin_of(here))
    land("The second landing.", "2026-11-17T13:00:00Z")
    origin_of(here).rename(origin_of(here).with_name("away"))
    shown = report()
    assert "The first landing." in shown.out
    assert re.search(r"plans are shown as of the last fetch at \d{4}-\d\d-\d\dT", shown.err)
    origin_of(here).with_name("away").rename(origin_of(here))
    assert "The second landing." in report().out
