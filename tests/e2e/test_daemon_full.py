"""The disk is full: a stop ends what runs all the same, says what is not recorded, and holds when there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import RUNPLAN, processes_of, until
from tests.support.daemons import answering, daemon_of, kill_daemon, shell_agent, waits
from tests.support.mounts import Inside, fill, inside, make_room, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile

#: It looks around often, and not once a minute.
DAEMON = f"WATCHDOG_USEC=500000 setsid {RUNPLAN} daemon </dev/null >/dev/null 2>&1 &"
ENDED = "runplan: Ended the agent of plans/X.md; its work is kept"


@pytest.fixture
def there(project: Project, meanwhile: Meanwhile, tmp_path: Path) -> Iterator[Inside]:
    """A place where the journal has a disk of its own, and a daemon whose agent is at work; the plan has a schedule."""
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    with inside(project) as there:
        small_disk(there, journal(project))
        there.sh(DAEMON)
        until(lambda: answering(project))
        assert there.runplan("start", "X", "auto", "every", "4h", "now").code == 0
        meanwhile.reached("agent")
        yield there


def journal(project: Project) -> Path:
    return project.path / ".git/runplan"


def full(project: Project) -> str:
    path = f"{journal(project)}/journal.db"
    return f"runplan: {path}: database or disk is full; nothing was recorded; make room on the disk, then try again"


def agent_is_gone(project: Project, tmp_path: Path) -> bool:
    return int((tmp_path / "agent.here").read_text()) not in processes_of(project.home)


def is_stopped(there: Inside) -> bool:
    seen = there.runplan("status", "X", "--json").json
    return (seen["run"]["state"], seen["schedule"]) == ("stopped", None)


@pytest.mark.parametrize("words", [("X",)], ids=" ".join)
def test_a_stop_ends_agents_and_holds_when_there_is_room(
    project: Project, there: Inside, tmp_path: Path, words: tuple[str, ...]
) -> None:
    fill(there, journal(project))
    ran = there.runplan("stop", *words)
    kept = "the daemon keeps the request and executes it when it can"
    assert (ran.code, ran.err.splitlines()) == (5, [ENDED, f"{full(project)}; {kept}"])
    assert agent_is_gone(project, tmp_path)
    (tmp_path / "agent.on").touch()
    make_room(there, journal(project))
    until(lambda: is_stopped(there))
    assert (project.landed(), len((tmp_path / "agent.here").read_text().split())) == ([], 1)


def test_without_a_daemon_agents_are_ended_and_it_is_told_to_stop_again(
    project: Project, there: Inside, tmp_path: Path
) -> None:
    kill_daemon(project)
    fill(there, journal(project))
    ran = there.runplan("stop", "X")
    assert (ran.code, ran.err.splitlines()) == (5, [ENDED, f"{full(project)}; then stop it again"])
    assert agent_is_gone(project, tmp_path)
    make_room(there, journal(project))
    assert there.runplan("stop", "X").code == 0
    assert (is_stopped(there), daemon_of(project)) == (True, 0)
