"""Agents that do not listen are ended at the same time, whoever ends them: it takes as long as with one of them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_project, ended, processes_of, until
from tests.support.daemons import daemon_of, none_left, shell_agent, states, until_runs_are

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project

IDS = ("1", "2", "3")
#: Deaf until every one of them was asked to end; whoever is killed before that has not met the others.
DEAF = """\
trap 'touch "{place}/$RUNPLAN_PHASE.asked"' TERM INT
    touch "{place}/$RUNPLAN_PHASE.here"
    until [ -e "{place}/1.asked" ] && [ -e "{place}/2.asked" ] && [ -e "{place}/3.asked" ]; do sleep 0.02 || :; done
    touch "{place}/$RUNPLAN_PHASE.met"
    exit 9"""
FIRST_HEARD = b"runplan: what runs gets 30s to end; once more ends it now\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        made = a_project(tmp_path)
        shell_agent(made, tmp_path, DEAF.format(place=tmp_path))
        made.commit_file("runplan.toml", (made.path / "runplan.toml").read_text() + "[run]\nparallel = 3\n")
        yield made


def a_plan(*ids: str) -> str:
    """Phases that may go side by side."""
    rows = "".join(f"| {id_} — Step {id_} | ⬚ | | |\n" for id_ in ids)
    sections = "".join(f"\n## Phase {id_} — Step {id_}\n\nTouches: {id_}.txt\n" for id_ in ids)
    return (
        f"# Plan: X\n\n## Progress Tracker\n\n| Phase | Status | Commit | Notes |\n|---|---|---|---|\n{rows}{sections}"
    )


def all_there(place: Path) -> None:
    until(lambda: all((place / f"{id_}.here").exists() for id_ in IDS))


def assert_ended_together(project: Project, place: Path, *plans: str) -> None:
    until(lambda: not any(pid != daemon_of(project) for pid in processes_of(project.home)))
    assert [id_ for id_ in IDS if (place / f"{id_}.met").exists()] == list(IDS), "all asked before the first was killed"
    bodies = [body for plan in plans for kind, body in project.events(plan) if kind == "DispatchEnded"]
    assert [body["ending"] for body in bodies] == ["ended"] * len(IDS)


def test_by_the_second_ctrl_c(project: Project, tmp_path: Path) -> None:
    project.plan(a_plan(*IDS))
    with project.popen("start", "X", "finish", "auto", "--foreground") as running:
        all_there(tmp_path)
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert FIRST_HEARD in iter(running.stderr.readline, b"")
        running.send_signal(signal.SIGINT)
        assert ended(running).code == 130
    assert_ended_together(project, tmp_path, "plans/X.md")


def test_by_stop(project: Project, tmp_path: Path) -> None:
    project.plan(a_plan(*IDS))
    assert project.runplan("start", "X", "finish", "auto").code == 0
    all_there(tmp_path)
    assert project.runplan("stop", "X").code == 0
    until_runs_are(project, "stopped")
    assert_ended_together(project, tmp_path, "plans/X.md")


def test_by_the_second_word_to_the_daemon(project: Project, tmp_path: Path) -> None:
    project.plan(a_plan("1", "2"))
    project.plan(a_plan("3"), name="plans/Y.md")
    for plan in ("X", "Y"):
        assert project.runplan("start", plan, "finish", "auto").code == 0
    all_there(tmp_path)
    daemon = daemon_of(project)
    os.kill(daemon, signal.SIGTERM)
    until(lambda: "is draining" in project.runplan("status").out)
    os.kill(daemon, signal.SIGTERM)
    until(lambda: daemon not in processes_of(project.home))
    assert_ended_together(project, tmp_path, "plans/X.md", "plans/Y.md")
    assert (states(project), states(project, "plans/Y.md")) == (["running"], ["running"]), "the next daemon goes on"
