"""The end of a daemon in two steps: agents may end, then they are ended; the next daemon goes on where it stood."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import processes_of, until
from tests.support.daemons import (
    daemon_of,
    in_foreground,
    log_of,
    states,
    until_runs_are,
    user_settings,
)
from tests.support.scripts import Meanwhile, steps, verify, work

if TYPE_CHECKING:
    from tests.support.cli import Project

LONG = '[daemon]\ngrace = "10m"\n'


def told_to_end(project: Project, number: int = signal.SIGTERM) -> int:
    """The daemon, which drains now."""
    daemon, before = daemon_of(project), len(log_of(project, "draining"))
    os.kill(daemon, number)
    until(lambda: len(log_of(project, "draining")) > before)
    return daemon


def gone(project: Project, daemon: int) -> bool:
    return daemon not in processes_of(project.home)


def in_flight(project: Project, meanwhile: Meanwhile, *words: str) -> None:
    """A run whose implementer does not end before it is let on."""
    user_settings(project, LONG)
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"') + work(phase="2"))
    assert project.runplan("start", "X", *(words or ("1", "auto"))).code == 0
    meanwhile.reached("agent")


@pytest.mark.parametrize("number", [signal.SIGTERM], ids=["SIGTERM"])
def test_the_first_word_begins_nothing_new_and_lets_agents_end(
    project: Project, meanwhile: Meanwhile, number: int
) -> None:
    in_flight(project, meanwhile)
    daemon = told_to_end(project, number)
    assert states(project) == ["running"]
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


def test_what_is_past_its_last_agent_is_landed_before_the_end(project: Project, meanwhile: Meanwhile) -> None:
    user_settings(project, LONG)
    project.agent(work() + verify(*meanwhile.pause("verifier"), "pass_all = true"))
    assert project.runplan("start", "X", "finish", "auto").code == 0
    meanwhile.reached("verifier")
    daemon = told_to_end(project)
    meanwhile.let_on("verifier")
    until(lambda: gone(project, daemon))
    assert project.landed() == ["1"]
    assert project.dispatched() == ["implement", "verify"], "the second phase is the next daemon's"
    assert states(project) == ["running"]


def test_a_daemon_at_which_nothing_runs_ends_at_once(project: Project) -> None:
    user_settings(project, LONG)
    assert project.runplan("start", "X", "1", "--wait").code == 4, "it waits for a person"
    daemon = daemon_of(project)
    until(lambda: processes_of(project.home) == [daemon])
    os.kill(daemon, signal.SIGTERM)
    until(lambda: gone(project, daemon))  # long before the grace is over
    assert states(project) == ["waiting"]


def test_the_second_word_ends_agents_and_charges_nobody(project: Project, meanwhile: Meanwhile) -> None:
    in_flight(project, meanwhile)
    daemon = told_to_end(project)
    os.kill(daemon, signal.SIGTERM)
    until(lambda: processes_of(project.home) == [])
    (ended,) = [body for kind, body in project.events() if kind == "DispatchEnded"]
    assert (ended["ending"], ended["role"]) == ("ended", "implement")
    assert states(project) == ["running"], "the run itself goes on with the next daemon"
    meanwhile.let_on("agent")
    with in_foreground(project):
        until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "implement", "verify"]
    attempts = [body["attempt"] for kind, body in project.events() if kind == "Leased"]
    assert attempts == [1]
    assert project.landed() == ["1"]


# --- asked while it drains ------------------------------------------------------------------------------------


def test_while_it_drains_status_says_so_and_a_start_is_told_when_to_ask_again(
    project: Project, meanwhile: Meanwhile
) -> None:
    in_flight(project, meanwhile)
    assert "draining" not in project.runplan("status").out
    daemon = told_to_end(project)
    assert f"The daemon (process {daemon}) is draining" in project.runplan("status").out
    assert project.runplan("status", "X", "--json").json["daemon"]["state"] == "draining"
    project.plan((project.path / "plans/X.md").read_text(), name="plans/Y.md")
    for words in (("start", "Y", "1", "auto"), ("resume", "X"), ("retry", "X")):
        ran = project.runplan(*words)
        assert ran.code == 5, ran.err
        assert "the daemon is shutting down and starts nothing new; try again in " in ran.last
    assert states(project, "plans/Y.md") == []
    ran = project.runplan("stop", "X")
    assert (ran.code, "Stopping plans/X.md" in ran.err) == (0, True), "to end something is always possible"
    until(lambda: gone(project, daemon))
    assert states(project) == ["stopped"]
