"""The clock on the wall jumps under a daemon that runs: no slot fires twice, and none goes without a record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from runplan.daemon.client import Client
from runplan.daemon.protocol import DaemonStatus, Status
from tests.support.cli import a_plan, until
from tests.support.clocks import Wall
from tests.support.daemons import (
    firings,
    in_foreground,
    log_of,
    socket_of,
    states,
    until_runs_are,
)
from tests.support.scripts import work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile

HOUR = 3600


@pytest.fixture
def wall(project: Project, tmp_path: Path) -> Iterator[Wall]:
    """A daemon that goes by a clock of its own."""
    made = Wall(tmp_path)
    with in_foreground(project, **made.env):
        yield made


def scheduled(project: Project, *words: str) -> None:
    ran = project.runplan("start", "X", "auto", "every", "4h", *words)
    assert ran.code == 0, ran.err


def jump(project: Project, wall: Wall, hours: float) -> None:
    """Let the clock be so far ahead of the real one; the daemon sees it within a minute, or when somebody asks it."""
    wall.jump_to(int(hours * HOUR))
    with Client(socket_of(project)) as client:
        client.call(Status(), DaemonStatus)


def also_another(project: Project) -> None:
    """A plan with a slot every half hour: what the daemon answers of it shows how far it has come with the others."""
    project.plan(a_plan("9"), name="plans/Y.md")
    assert project.runplan("start", "Y", "auto", "every", "30m").code == 0


def jump_and_wait(project: Project, wall: Wall, hours: float) -> None:
    """The same, until what is due of all plans has been answered; to where the clock has never been before."""
    before = len(firings(project, "plans/Y.md"))
    jump(project, wall, hours)
    until(lambda: len(firings(project, "plans/Y.md")) > before)


def answers(project: Project) -> list[str]:
    return [answer for answer, _ in firings(project)]


def slots(project: Project) -> list[str]:
    """The moments of what was answered, in that order."""
    found = project.rows("SELECT slot FROM firings WHERE plan='plans/X.md' ORDER BY rowid")
    return [json.loads(slot)[0] for (slot,) in found]


@pytest.mark.parametrize(("misfire", "told"), [("run-once", ["missed", "fired"])], ids=["run-once"])
def test_a_jump_forwards_is_one_run_or_none_and_every_slot_is_recorded(
    project: Project, wall: Wall, misfire: str, told: list[str]
) -> None:
    project.settings(f'[run]\nmisfire = "{misfire}"\n')
    scheduled(project)
    jump(project, wall, 9)
    until(lambda: answers(project) == told)
    until_runs_are(project, *(["done"] if misfire == "run-once" else []))
    jump(project, wall, 9.5)
    jump(project, wall, 13)
    until(lambda: len(answers(project)) == 3)
    assert slots(project) == sorted({*slots(project)}), "each of them once, in their order"


def test_a_jump_backwards_fires_nothing_again(project: Project, wall: Wall) -> None:
    also_another(project)
    scheduled(project)
    jump(project, wall, 5)
    until_runs_are(project, "done")
    for hours in (0, 4.5, 1):
        jump(project, wall, hours)
    jump_and_wait(project, wall, 7.9)
    assert (answers(project), states(project)) == (["fired"], ["done"])
    jump(project, wall, 9)
    until_runs_are(project, "done", "done")
    assert (answers(project), project.landed()) == (["fired", "fired"], ["1", "2"])


def test_an_agent_at_work_lives_through_a_night_of_sleep(project: Project, wall: Wall, meanwhile: Meanwhile) -> None:
    """It may run for two hours by its own clock, which stood still; the slots of the night are recorded."""
    project.agent(work(*meanwhile.pause("agent")) + work(phase="2"))
    scheduled(project, "now")
    meanwhile.reached("agent")
    jump(project, wall, 9)
    until(lambda: len(answers(project)) == 2)
    assert firings(project)[-1] == ("skipped", "the plan is in flight")
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    assert (project.landed(), project.dispatched()) == (["1"], ["implement", "verify"])
    assert log_of(project, "trouble") == []
