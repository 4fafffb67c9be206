"""One process at a time runs a plan, and every phase is dispatched once."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from runplan.adapters.processes import identity
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.run.rows import ClaimRow
from tests.support.cli import Project, ended, steps, until
from tests.support.forks import Process

pytestmark = pytest.mark.promise
PHASES = ("1",)


def test_of_two_simultaneous_starts_one_runs_and_the_other_declines(project: Project, tmp_path: Path) -> None:
    """The agent does not end before both have answered."""
    go = tmp_path / "go"
    project.agent(
        f'[[phase."*".implement]]\nwait_for = "{go}"\n[[phase."*".implement]]\nappend = "log"\ntext = "x\\n"\n'
    )
    pair = [project.popen("start", "X", "auto", "--foreground") for _ in range(2)]
    loser, winner = first_to_end(pair)
    assert winner.poll() is None, "both have ended, and the agent has not"
    declined = ended(loser)
    go.touch()
    worked = ended(winner)
    assert (worked.code, declined.code) == (0, 0), worked.err + declined.err
    assert "plans/X.md is already running in another process" in declined.err
    assert "1 phase landed" in worked.err
    assert project.landed() == ["1"]
    assert project.dispatched() == ["implement", "verify"]
    assert len(project.bodies("ClaimTaken")) == 1
    assert project.leftovers() == []


def first_to_end(pair: list[Process]) -> tuple[Process, Process]:
    one, other = pair
    until(lambda: one.poll() is not None or other.poll() is not None)
    return (one, other) if one.poll() is not None else (other, one)


def test_an_agent_that_outlives_its_runner_is_adopted_and_not_started_again(project: Project, tmp_path: Path) -> None:
    count, go = tmp_path / "count", tmp_path / "go"
    project.agent(steps(f'append = "{count}"\ntext = "x"', f'wait_for = "{go}"', 'write = "1.txt"'))
    first = project.popen("start", "X", "finish", "auto", "--foreground")
    until(count.exists)
    first.send_signal(signal.SIGKILL)
    ended(first)
    second = project.popen("start", "X", "finish", "auto", "--foreground")
    third = project.popen("start", "X", "finish", "auto", "--foreground")
    loser, winner = first_to_end([second, third])
    assert winner.poll() is None
    go.touch()
    ran, declined = ended(winner), ended(loser)
    assert ran.code == 0, ran.err
    assert (declined.code, "is already running in another process" in declined.err) == (0, True)
    assert "resumed the run of process" in ran.err
    assert count.read_text() == "x"
    assert project.dispatched() == ["implement", "verify"]
    assert project.landed() == ["1"]
    taken = [bool(body["took_over"]) for body in project.bodies("ClaimTaken")]
    assert taken == [False, True]
    assert project.leftovers() == []


def test_a_runner_whose_plan_was_taken_over_lands_nothing_and_stops(project: Project, tmp_path: Path) -> None:
    here, go = tmp_path / "here", tmp_path / "go"
    project.agent(steps(f'write = "{here}"', f'wait_for = "{go}"', 'write = "1.txt"'))
    process = project.popen("start", "X", "finish", "auto", "--foreground")
    until(here.exists)
    me = identity(os.getpid()) or ""
    with contextlib.closing(SqliteStore(project.path / ".git/runplan")) as store, store.transaction():
        store.set_claim("plan", "plans/X.md", run="r-theirs", owner=me)
    recorded = project.events()
    go.touch()
    ended(process).ends(5, "runplan: another process has taken over plans/X.md; this one stops")
    assert project.events() == recorded
    assert project.landed() == []
    with contextlib.closing(SqliteStore(project.path / ".git/runplan")) as store:
        assert store.get_claim("plan", "plans/X.md") == ClaimRow(run="r-theirs", owner=me, fence=2)
