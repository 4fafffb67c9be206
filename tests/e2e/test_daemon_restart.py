"""A daemon that is killed, or whose repository is away for a while, loses nothing and starts nothing twice."""

import json
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runplan.adapters.configuration.places import socket_path
from runplan.domain.times import iso
from runplan.hosts.daemon.client import Client
from runplan.hosts.daemon.protocol import Done, Wake
from runplan.hosts.daemon.state import Known
from tests.support.cli import Meanwhile, Project, set_up, until, verify, work
from tests.support.daemons import (
    in_foreground,
    kill_daemon,
    log_of,
    run_of,
    states,
    until_runs_are,
)


def later(**span: int) -> str:
    return iso(datetime.now(UTC) + timedelta(**span))


@pytest.mark.promise
def test_a_landing_held_by_an_edited_file_is_retried_by_the_daemon(project: Project) -> None:
    """Like an approval it waits for a person; unlike one it goes on by itself when that is settled."""
    project.commit_file("1.txt", "before\n")
    project.repo.write("1.txt", "edited\n")
    ran = project.runplan("start", "X", "1", "auto", "--wait")
    assert (ran.code, "runplan retry plans/X.md" in ran.last, "continues by itself" in ran.last) == (4, True, True)
    view = run_of(project)
    assert view["waiting_for"] == "checkout"
    assert later() < view["wake"] <= later(minutes=2), "it is looked at again in a minute"
    kill_daemon(project)
    project.repo.git("checkout", "-q", "--", "1.txt")
    with in_foreground(project, TEST_NOW=later(minutes=3)):
        until_runs_are(project, "done")
    assert project.landed() == ["1"]
    assert project.repo.status() == ""


def test_an_agent_that_ended_while_its_repository_was_away_is_not_started_again(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    meanwhile.start(project)
    away = project.path.rename(tmp_path / "away")
    meanwhile.let_on("agent")
    until(lambda: list(away.glob(".git/runplan/dispatch/*/exit.json")))
    with Client(socket_path(project.env)) as client:  # the daemon looks at its runs, and finds that it cannot
        client.call(Wake(repository=Known(root=str(project.path), common=f"{project.path}/.git")), Done)
        until(lambda: log_of(project, "closed"))
    assert not project.path.exists(), "in its place nothing is made"
    away.rename(project.path)
    project.runplan("retry", "X").exits(0)
    until_runs_are(project, "done")
    assert (project.dispatched(), project.landed()) == (["implement", "verify"], ["1"])


KEY = "k-5f1c9e-never-written"


def found_in_files(*places: Path) -> list[Path]:
    """The files that hold the key."""
    files = (path for place in places for path in place.rglob("*") if path.is_file())
    return [path for path in files if KEY.encode() in path.read_bytes()]


def start_with_key(project: Project, meanwhile: Meanwhile) -> None:
    """Start an agent that is allowed to see ROBOT_KEY, and does not work without it."""
    knows = f"test ${{#ROBOT_KEY}} = {len(KEY)}"
    agent = work(f'run = "{knows}"', *meanwhile.pause("agent")) + verify(f'run = "{knows}"', "pass_all = true")
    set_up(project, agent=agent, settings='env = ["ROBOT_KEY"]\n')
    assert project.runplan("start", "X", "1", "auto", ROBOT_KEY=KEY).code == 0
    meanwhile.reached("agent")


@pytest.mark.promise
def test_a_key_of_the_caller_reaches_agents_and_no_file(project: Project, meanwhile: Meanwhile) -> None:
    start_with_key(project, meanwhile)
    assert found_in_files(project.home, project.path) == []
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    assert found_in_files(project.home, project.path) == []


def test_a_run_that_lost_its_key_waits_and_names_it(project: Project, meanwhile: Meanwhile) -> None:
    start_with_key(project, meanwhile)
    kill_daemon(project)
    with in_foreground(project):
        meanwhile.let_on("agent")
        until(lambda: states(project) == ["waiting"])
        view = run_of(project)
        assert view["waiting_for"] == "key"
        assert "ROBOT_KEY" in view["about"]
        assert project.dispatched() == ["implement"]
        without = project.runplan("resume", "X")
        assert (without.code, "the daemon restarted and lost $ROBOT_KEY" in without.last) == (2, True), without.err
        project.runplan("resume", "X", ROBOT_KEY=KEY).exits(0)
        until_runs_are(project, "done")
    assert found_in_files(project.home, project.path) == []


VERBS = (
    *("start Y auto", "approve X", "reject X", "answer X y", "edit X", "plan goal", "undo X 1", "stop", "retry X"),
    *("pause X", "resume X", "now", "daemon", "gc", "init", "demo", "service install", "notify --test", "mcp"),
)

#: Calls the command with each of these lines, in one process.
CALLS = """\
import json, sys
from runplan.interfaces.cli.main import main
for line in json.loads(sys.argv[1]):
    print("code", main(line.split()), flush=True)
"""


@pytest.mark.promise
def test_processes_of_an_agent_cannot_start_approve_or_stop_runs(project: Project, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    calls = f"{shlex.quote(sys.executable)} -c {shlex.quote(CALLS)} {shlex.quote(json.dumps(VERBS))} >{printed} 2>&1"
    project.plan((project.path / "plans/X.md").read_text(), name="plans/Y.md")
    detached = f"(cd {project.path} && setsid sh -c {shlex.quote(f'{calls}; touch {tmp_path}/over')} </dev/null &)"
    project.agent(work(f"run = '''{detached}'''", f'wait_for = "{tmp_path}/over"'))
    assert project.runplan("start", "X", "1", "auto").code == 0
    until_runs_are(project, "done")
    answers = printed.read_text()
    assert answers.count("code ") == len(VERBS)
    assert "code 0\n" not in answers, answers
    assert answers.count("does not run inside an agent") == len(VERBS), answers
    assert states(project, "plans/Y.md") == []
    assert project.landed() == ["1"]
