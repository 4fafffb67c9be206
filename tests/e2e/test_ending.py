"""Agents that do not listen are ended at the same time, whoever ends them: it takes as long as with one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_project, processes_of, until
from tests.support.daemons import daemon_of, none_left, shell_agent, until_runs_are

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


def test_by_stop(project: Project, tmp_path: Path) -> None:
    project.plan(a_plan(*IDS))
    assert project.runplan("start", "X", "finish", "auto").code == 0
    all_there(tmp_path)
    assert project.runplan("stop", "X").code == 0
    until_runs_are(project, "stopped")
    assert_ended_together(project, tmp_path, "plans/X.md")
