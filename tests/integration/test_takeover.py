"""A run of a fleet continues on another host: nothing is landed twice, and at most one dispatch is repeated."""

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.adapters.configuration.load import load_settings
from runplan.adapters.store.claims import name_owner
from runplan.adapters.store.location import FleetLocation
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.run import events as e
from runplan.domain.run.kinds import Mode
from runplan.domain.run.requests import RunRequest
from runplan.engine.loop.context import RepositoryContext, context_at
from runplan.engine.loop.leftovers import collect_leftovers, remove_dropped_logs
from runplan.engine.loop.repository import open_repository
from runplan.hosts.foreground import ForegroundHost, Interruption
from tests.support.cli import (
    Project,
    a_plan,
    a_project,
    end_processes_of,
    fix,
    set_up,
    steps,
    verify,
    with_remote,
    work,
)
from tests.support.postgres import a_location
from tests.support.repos import Repo
from tests.support.tools import write_script

pytestmark = pytest.mark.rest

PLAN = "plans/X.md"
GATED = '[tests]\ncommand = "echo 1 passed"\n'


class HostLost(BaseException):
    """The host ends at once, after an event was recorded."""


class Host:
    """A process on a host of its own: its clone, its home and its processes."""

    def __init__(self, name: str, project: Project) -> None:
        self.name = name
        self.project = project
        self.location: FleetLocation | None = None
        self._dies_at = ""

    def _die(self, event: e.Event) -> None:
        if self._dies_at in (type(event).__name__, f"{type(event).__name__} {getattr(event, 'role', '')}"):
            raise HostLost

    @contextmanager
    def opened(self) -> Iterator[RepositoryContext]:
        env = {**os.environ, **self.project.env}
        with context_at(self.project.path, env, lambda root, env: load_settings(root, env=env).settings) as context:
            yield replace(context, fleet=self.location)

    def work_on_plan(self, *, landing: str = "", anew: bool = False, dies_at: str = "") -> bool:
        """Begin a run with this landing, or adopt the one in the journal; whether the host is alive at the end."""
        self._dies_at = dies_at
        with self.opened() as context, open_repository(context) as repository:
            repository.claims.me = name_owner(self.name)
            owner = ForegroundHost(Interruption(0.0), context.env, show=self._die).owner
            owner.open(context, repository)
            try:
                if landing:
                    started = e.RunStarted(
                        plan=PLAN, title="X", mode=Mode.FINISH, wanted="", auto=True, landing=landing, target="main",
                        slug="x", anew=anew,
                    )  # fmt: skip
                    answer = owner.begin(RunRequest(started=started))
                    assert answer is not None
                    assert not answer.declined, answer
                else:
                    owner.adopt(PLAN)
                owner.work()
            except HostLost:
                return False
        return True


class Fleet:
    """Two hosts with clones of one remote; the journal is handed on, as a database would."""

    def __init__(self, place: Path, agent: str, settings: str = GATED, plan: str = "") -> None:
        (place / "a").mkdir()
        project = a_project(place / "a", "1")
        set_up(project, agent=agent, settings=settings, plan=plan or a_plan("1"))
        self.remote = with_remote(project, place / "origin.git")
        (place / "b/home").mkdir(parents=True)
        self.remote.git("clone", "-q", str(self.remote.path), str(place / "b/repo"))
        other = Repo(path=place / "b/repo", env=dict(project.repo.env))
        for name in ("user.name", "user.email"):
            other.git("config", name, project.repo.git("config", name))
        self.a = Host("alpha", project)
        self.b = Host("beta", Project(repo=other, home=place / "b/home", extra=dict(project.extra)))

    def lose(self, host: Host, to: Host, *, without: str = "") -> None:
        """End the processes of a host, and give its journal to another; `without` these events."""
        end_processes_of(host.project.home)
        state = to.project.path / ".git/runplan"
        state.mkdir(exist_ok=True)
        for file in (host.project.path / ".git/runplan").glob("journal.db*"):
            shutil.copy(file, state / file.name)
        with closing(sqlite3.connect(state / "journal.db")) as journal, journal:
            journal.execute("DELETE FROM events WHERE type=?", (without,))

    def landings(self) -> Counter[str]:
        trailer = "%(trailers:key=Runplan-Landing,valueonly,separator=%x20)"
        log = self.remote.git("log", "--first-parent", f"--format=%s%x00{trailer}", "main").splitlines()
        rows = [line.split("\0") for line in log]
        return Counter(landing for subject, landing in rows if landing and ": record phase" in subject)

    def wip(self) -> list[str]:
        return self.remote.git("for-each-ref", "--format=%(refname)", "refs/runplan/").split()

    def hook(self, words: str) -> None:
        """What the server does before it takes a push."""
        write_script(self.remote.path / "hooks/pre-receive", words)

    def move(self, event: str, *, without: str = "") -> list[tuple[str, dict[str, Any]]]:
        """Lose the first host at an event, and let the second one work to the end; all events."""
        assert not self.a.work_on_plan(landing="direct", dies_at=event)
        self.lose(self.a, self.b, without=without)
        assert self.b.work_on_plan()
        events = self.b.project.events()
        assert (events[-1][0], events[-1][1].get("outcome")) == ("RunEnded", "done"), events[-1]
        assert set(self.landings().values()) == {1}
        assert self.wip() == []
        return events


def once(place: Path, *played: str) -> tuple[str, ...]:
    """Steps that only the first agent plays."""
    return tuple(f'{step}\nonce = "{place / "once"}.{number}"' for number, step in enumerate(played))


def of(events: list[tuple[str, dict[str, Any]]], kind: str) -> list[dict[str, Any]]:
    return [body for name, body in events if name == kind]


@pytest.mark.parametrize(
    ("event", "repeated"),
    [
        *((event, "implement") for event in ("DispatchStarted implement", "WorkTaken")),
        *((event, "") for event in ("WorkPushed", "VerdictGiven", "LandingStarted", "Landed, which is not recorded")),
        ("DispatchStarted gate", "gate"),
    ],
)
def test_another_host_continues_the_attempt(tmp_path: Path, event: str, repeated: str) -> None:
    event, _, is_lost = event.partition(", ")
    fleet = Fleet(tmp_path, work())
    events = fleet.move(event, without=event if is_lost else "")
    assert fleet.remote.git("show", "main:1.txt") == "1"
    once = Counter(["baseline", "implement", "gate", "verify"])
    assert list((Counter(fleet.b.project.dispatched()) - once).elements()) == repeated.split()
    (moved,) = of(events, "HostChanged")
    assert (moved["host"], moved["before"]) == ("beta", "alpha")
    is_reported = "the host beta continued what alpha had begun" in fleet.remote.git("show", "main:reports/plan-x.md")
    assert is_reported or event in ("LandingStarted", "Landed")


def test_files_that_a_crashed_agent_left_reach_its_successor_on_another_host(tmp_path: Path) -> None:
    crash = once(tmp_path, 'write = "half.txt"\ntext = "half\\n"', "exit = 1")
    fleet = Fleet(tmp_path, steps(*crash, 'append = "half.txt"\ntext = "whole\\n"'))
    fleet.move("WorkPushed")
    assert fleet.remote.git("show", "main:half.txt") == "half\nwhole"
    assert "Uncommitted" not in fleet.remote.git("log", "--format=%s", "main")


def test_a_handed_over_secret_stays_on_its_host_and_the_next_one_begins_again(tmp_path: Path) -> None:
    half = "QYLPMN5HHHFPZAM2"
    full = ("tell = {context = 130000, window = 200000}", "sleep = 60")
    fleet = Fleet(tmp_path, steps(*once(tmp_path, f"run = \"echo AKIA''{half} >key.txt\"", *full)) + work())
    events = fleet.move("WorkKept")
    assert of(events, "WorkKept")[0]["why"].startswith("key.txt: seems to contain")
    assert of(events, "HostChanged")[0]["is_restarted"]
    assert "lacked its newest work, so the attempt began again" in fleet.remote.git("show", "main:reports/plan-x.md")
    assert f"AKIA{half}" not in fleet.remote.git("log", "-p", "--all", "--reflog")


def test_a_refused_push_fails_no_phase_and_is_tried_again_with_the_next_work(tmp_path: Path) -> None:
    agent = work() + verify("pass_all = true", *once(tmp_path, 'fail = ["W1"]')) + fix('write = "2.txt"')
    fleet = Fleet(tmp_path, agent)
    fleet.hook(f"[ -e {tmp_path}/away ] || {{ touch {tmp_path}/away; echo gone >&2; exit 1; }}")
    events = fleet.move("WorkPushed")
    assert [body["host"] for body in of(events, "WorkKept")] == ["alpha"]
    assert fleet.b.project.dispatched().count("fix") == fleet.b.project.dispatched().count("implement") == 1


def test_a_host_that_gets_its_run_back_keeps_its_own_work_apart(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, work())
    assert not fleet.a.work_on_plan(landing="direct", dies_at="WorkTaken")
    own = of(fleet.a.project.events(), "WorkTaken")[0]["head"]
    fleet.lose(fleet.a, fleet.b)
    assert not fleet.b.work_on_plan(dies_at="CandidateBuilt")
    fleet.lose(fleet.b, fleet.a)
    assert fleet.a.work_on_plan()
    assert [body["host"] for body in of(fleet.a.project.events(), "HostChanged")] == ["beta", "alpha"]
    assert (list(fleet.landings().values()), fleet.wip()) == ([1], [])
    assert fleet.a.project.dispatched().count("implement") == 2
    assert fleet.a.project.repo.head("refs/runplan/parked/x/1/1") == own


def test_the_work_before_a_conflict_is_at_hand_on_another_host(tmp_path: Path) -> None:
    """Someone else pushes the same file while the agent works."""
    other = tmp_path / "other"
    agent = work(f'run = "git -C {other} push -q origin main"') + fix('write = "1.txt"\ntext = "both\\n"')
    fleet = Fleet(tmp_path, agent)
    fleet.remote.git("clone", "-q", str(fleet.remote.path), str(other))
    person = {f"GIT_{who}_{what}": "p@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    Repo(path=other, env={**fleet.a.project.repo.env, **person}).commit("Other", **{"1.txt": "other\n"})
    events = fleet.move("BranchRebuilt")
    (rebuilt,) = of(events, "BranchRebuilt")
    assert fleet.b.project.repo.head(rebuilt["parked"]) == of(events, "WorkTaken")[0]["head"]
    assert fleet.b.project.dispatched().count("implement") == 1
    assert fleet.remote.git("show", "main:1.txt") == "both"


def test_a_retry_on_another_host_continues_the_pushed_work(tmp_path: Path) -> None:
    agent = work() + verify("pass_all = true", *once(tmp_path, 'fail = ["W1"]'))
    fleet = Fleet(tmp_path, agent, f"{GATED}[run]\nmax_fix_cycles = 0\n")
    assert fleet.a.work_on_plan(landing="direct")
    assert of(fleet.a.project.events(), "RunEnded")[0]["reason"] == "verification-failed"
    assert fleet.wip() == ["refs/runplan/wip/x/1"]
    fleet.lose(fleet.a, fleet.b)
    assert fleet.b.work_on_plan(landing="direct")
    kept = [body["kept"] for body in of(fleet.b.project.events(), "Leased")]
    assert kept[1]["head"] == of(fleet.b.project.events(), "PhaseFailed")[0]["head"]
    assert of(fleet.b.project.events(), "WorkKept") == []
    assert (list(fleet.landings().values()), fleet.wip()) == ([1], [])


def test_an_attempt_that_begins_anew_takes_over_nothing_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "verify").mkdir()
    agent = steps(*once(tmp_path, 'write = "old.txt"')) + work()
    agent += verify("pass_all = true", *once(tmp_path / "verify", 'fail = ["W1"]'))
    fleet = Fleet(tmp_path, agent, f"{GATED}[run]\nmax_fix_cycles = 0\n")
    assert fleet.a.work_on_plan(landing="direct")
    assert fleet.remote.git("ls-tree", "--name-only", "refs/runplan/wip/x/1", "old.txt")
    assert not fleet.a.work_on_plan(landing="direct", anew=True, dies_at="DispatchStarted implement")
    fleet.lose(fleet.a, fleet.b)
    assert fleet.b.work_on_plan()
    assert of(fleet.b.project.events(), "WorkKept") == []
    assert (list(fleet.landings().values()), fleet.wip()) == ([1], [])
    assert fleet.remote.git("ls-tree", "--name-only", "main", "--", "old.txt", "1.txt") == "1.txt"


def test_gc_removes_pushed_work_and_logs_of_landed_phases_alone(tmp_path: Path) -> None:
    """On a database, as both hosts use the same journal there."""
    logs: list[Removed | Kept] = []
    agent = work() + verify("pass_all = true", *once(tmp_path, 'fail = ["W1"]'))
    fleet = Fleet(tmp_path, agent, f"{GATED}[run]\nmax_fix_cycles = 0\n")
    fleet.a.location = fleet.b.location = a_location()

    def collect(*, dry_run: bool = False) -> list[Removed | Kept]:
        nonlocal logs
        with fleet.b.opened() as context:
            found, logs = collect_leftovers(context, dry_run=dry_run)
        return [answer for answer in found if "refs/runplan/wip/" in answer.what]

    def list_logs_of_first() -> list[Path]:
        """After a run on the first host has ended."""
        with fleet.a.opened() as context:
            remove_dropped_logs(context, context.store())
            return [path for path in (context.state / "dispatch").iterdir() if path.is_dir()]

    assert fleet.a.work_on_plan(landing="direct")
    ref = "refs/runplan/wip/x/1"
    assert collect() == [Kept(what=f"{ref} on origin", why="its phase has not landed")]
    fleet.hook("grep -q ' 0000' || exit 0; exit 1")  # it refuses to delete a ref
    assert fleet.b.work_on_plan(landing="direct")
    assert (list(fleet.landings().values()), fleet.wip()) == ([1], [ref])
    fleet.hook("exit 0")
    assert collect(dry_run=True) == [Removed(what=f"{ref} on origin")]
    of_first = list_logs_of_first()
    assert of_first
    assert {f"the database/{path.name}" for path in of_first} < {log.what for log in logs}
    assert collect() == [Removed(what=f"{ref} on origin")]
    assert (fleet.wip(), list_logs_of_first()) == ([], [])
