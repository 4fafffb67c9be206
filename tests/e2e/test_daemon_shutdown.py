"""The daemon stops in two steps: the first signal lets agents finish, the second ends them."""

import os
import signal

import pytest

from tests.support.cli import Meanwhile, Project, ended, processes_of, until
from tests.support.daemons import a_manager, daemon_of, in_foreground, log_of, states, until_runs_are, user_settings

LONG = '[daemon]\ngrace = "10m"\n'


def drain(project: Project) -> int:
    """Send the first signal; return the daemon."""
    daemon, before = daemon_of(project), len(log_of(project, "draining"))
    os.kill(daemon, signal.SIGTERM)
    until(lambda: len(log_of(project, "draining")) > before)
    return daemon


def gone(project: Project, daemon: int) -> bool:
    return daemon not in processes_of(project.home)


def in_flight(project: Project, meanwhile: Meanwhile, settings: str = LONG) -> None:
    """A run whose implementer does not end before it is let on."""
    user_settings(project, settings)
    meanwhile.start(project)


@pytest.mark.promise
def test_the_first_signal_starts_nothing_new_and_lets_agents_finish(project: Project, meanwhile: Meanwhile) -> None:
    in_flight(project, meanwhile)
    daemon = drain(project)
    assert states(project) == ["running"]
    says = "the daemon is shutting down; the next one continues plans/X.md. Start it: runplan daemon restart"
    until(lambda: says in project.runplan("start", "X", "1", "auto").exits(0).err)  # a busy one is not waited for
    meanwhile.let_on("agent")
    until(lambda: gone(project, daemon))
    assert project.dispatched() == ["implement"], "the verifier would be something new"
    kinds = [kind for kind, _ in project.events()]
    assert "WorkTaken" in kinds, "what the agent did is recorded"
    assert states(project) == ["running"]
    until(lambda: processes_of(project.home) == [])
    with in_foreground(project):
        until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "verify"]
    assert project.landed() == ["1"]


@pytest.mark.promise
def test_daemon_restart_drains_and_the_new_daemon_takes_up_the_agents(project: Project, meanwhile: Meanwhile) -> None:
    in_flight(project, meanwhile, '[daemon]\ngrace = "1s"\n')
    before = daemon_of(project)
    follower = project.popen("start", "X", "1", "auto", "--wait")
    assert follower.stderr is not None
    assert b"plans/X.md is already running" in follower.stderr.readline()
    ran = project.runplan("daemon", "restart")
    assert (ran.code, ran.err.splitlines()) == (
        0,
        [
            f"runplan: Stopping the daemon (process {before}); agents have daemon.grace to finish, and survive it",
            f"runplan: the daemon runs as process {daemon_of(project)}",
        ],
    )
    assert daemon_of(project) != before
    meanwhile.finish(follower, "agent").exits(0)
    until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "verify"]


@pytest.mark.promise
def test_daemon_stop_gives_agents_the_grace_once(project: Project, meanwhile: Meanwhile) -> None:
    project.runplan("daemon", "stop").ends(
        0, "runplan: The daemon is not running. Start it with: runplan daemon restart"
    )
    in_flight(project, meanwhile)
    project.extra["PATH"] = f"{a_manager(project.home / 'bin')}:{project.env['PATH']}"
    assert project.runplan("service", "install").code == 0
    drain(project)
    with project.running("daemon", "stop") as stop:
        assert stop.stderr is not None
        assert b"Stopping the daemon" in stop.stderr.readline()
        meanwhile.let_on("agent")  # a second signal would have ended it
        ran = ended(stop)
    again = "Start it at the next login, or with: runplan daemon restart"
    assert (ran.code, ran.last, daemon_of(project)) == (0, f"runplan: The daemon has ended. {again}", 0)
    assert [body["ending"] for body in project.bodies("DispatchEnded")] == ["exited"]


def test_the_second_signal_ends_agents_without_charging_an_attempt(project: Project, meanwhile: Meanwhile) -> None:
    in_flight(project, meanwhile)
    daemon = drain(project)
    os.kill(daemon, signal.SIGTERM)
    until(lambda: processes_of(project.home) == [])
    (ended,) = project.bodies("DispatchEnded")
    assert (ended["ending"], ended["role"]) == ("ended", "implement")
    assert states(project) == ["running"], "the run itself goes on with the next daemon"
    meanwhile.let_on("agent")
    with in_foreground(project):
        until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "implement", "verify"]
    attempts = [body["attempt"] for body in project.bodies("Leased")]
    assert attempts == [1]
    assert project.landed() == ["1"]
