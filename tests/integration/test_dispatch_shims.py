"""Who the shim of a dispatch is, no agent says: nobody else is signalled, and what a dead one left is found."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from runplan.adapters import cgroups, processes
from runplan.core.dispatch import Ending, NeverStarted, Outcome, Running
from tests.support.dispatching import Stage, gone, pid_in, stage, until, with_killed_runner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Leaves its control group, where it has one and may: the others are to be as good without.
LEAVES = f"echo $$ >{cgroups.home()}/cgroup.procs; " if cgroups.home() else ""
#: Without the mark, in a session of its own, and with a child that has no parent any more but those who adopt it.
ESCAPES = (
    f"env -i setsid sh -c '{LEAVES}(sleep 30 & echo $! >grandchild); echo $$ >child; exec sleep 30' "
    "</dev/null >/dev/null 2>&1 &\nuntil test -s child; do sleep 0.002; done\n"
)
FORGES = """
start=$(sed 's/.*) //' /proc/$STRANGER/stat | cut -d' ' -f20)
boot=$(cat /proc/sys/kernel/random/boot_id)
rm -f "$D/shim.json"
echo "{\\"identity\\": \\"$STRANGER:$start:$boot\\", \\"reader\\": \\"\\"}" >"$D/shim.json"
"""
SPOILS = {
    "names a stranger": FORGES,
    "takes it away": 'rm -f "$D/shim.json"',
    "writes rubbish": 'echo x >"$D/shim.json"',
}


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


@pytest.fixture
def stranger(on: Stage) -> Iterator[int]:
    """A process of the user's, who has just gone where the agents work."""
    with subprocess.Popen(["sleep", "30"], cwd=on.path) as made:
        yield made.pid
        assert made.poll() is None, "it was ended"
        made.kill()


def started_here(on: Stage, text: str) -> str:
    launch = on.launch("true")
    return on.sh(f"D='{on.dispatches.directory(launch.id)}'\n{text}", id=launch.id)


WAYS = {"started here": started_here, "taken up": with_killed_runner}


# --- who it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spoil", SPOILS)
def test_whatever_an_agent_makes_of_its_shims_record_it_is_ended_and_nobody_else(
    on: Stage, stranger: int, way: str, spoil: str
) -> None:
    dispatch = WAYS[way](on, f"STRANGER={stranger}\n{SPOILS[spoil]}\necho $$ >agent; sleep 30")
    agent = pid_in(on.path / "agent")

    on.dispatches.end([dispatch], grace_s=10)

    outcome = on.dispatches.standing(dispatch)
    assert isinstance(outcome, Outcome)
    assert outcome.ending is Ending.ENDED
    assert gone(agent)


@pytest.mark.parametrize("way", WAYS)
def test_whatever_an_agent_makes_of_its_shims_record_its_end_is_waited_for(on: Stage, stranger: int, way: str) -> None:
    text = f"STRANGER={stranger}\n{FORGES}\necho $$ >agent; until test -e go; do sleep 0.005; done; exit 7"
    dispatch = WAYS[way](on, text)
    pid_in(on.path / "agent")
    on.dispatches.wait([dispatch], timeout_s=0.02)
    assert on.dispatches.standing(dispatch) == Running()

    (on.path / "go").touch()

    assert on.outcome(dispatch).code == 7


def test_the_shim_that_was_seen_once_is_known_whatever_its_agent_writes_later(on: Stage, stranger: int) -> None:
    dispatch = with_killed_runner(
        on, f"until test -e go; do sleep 0.005; done\nSTRANGER={stranger}\n{FORGES}\nsleep 30"
    )
    shim = on.shim(dispatch)
    on.dispatches.wait([dispatch], timeout_s=0)
    (on.path / "go").touch()
    record = on.dispatches.directory(dispatch) / "shim.json"
    until(lambda: record.exists() and f'"{stranger}:' in record.read_text())

    on.dispatches.end([dispatch], grace_s=10)

    assert on.outcome(dispatch).ending is Ending.ENDED
    assert gone(shim)


def test_an_agent_that_takes_the_lock_away_runs_on_and_ends_as_ever(on: Stage) -> None:
    dispatch = started_here(on, 'rm "$D/lock"; echo $$ >agent; until test -e go; do sleep 0.005; done; exit 7')
    pid_in(on.path / "agent")
    on.dispatches.wait([dispatch], timeout_s=0.02)
    assert on.dispatches.standing(dispatch) == Running()

    (on.path / "go").touch()

    assert on.outcome(dispatch).code == 7


def test_of_one_that_was_taken_up_and_has_no_lock_the_shim_is_ended_too(on: Stage) -> None:
    dispatch = with_killed_runner(on, 'until test -e go; do sleep 0.005; done; rm "$D/lock"; echo $$ >agent; sleep 30')
    (on.path / "go").touch()
    agent = pid_in(on.path / "agent")
    shim = on.shim(dispatch)
    standing = on.dispatches.standing(dispatch)
    assert isinstance(standing, Outcome)
    assert standing.ending is Ending.LOST

    on.dispatches.sweep([dispatch])

    assert gone(agent)
    assert gone(shim)


def test_who_holds_another_lock_in_its_place_does_not_make_a_dead_shim_live(on: Stage) -> None:
    dispatch = started_here(on, 'rm "$D/lock"; echo $$ >agent; sleep 30')
    pid_in(on.path / "agent")
    lock = os.open(on.dispatches.directory(dispatch) / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)

    os.kill(on.shim(dispatch), signal.SIGKILL)

    assert on.outcome(dispatch).ending is Ending.LOST
    os.close(lock)


def test_one_that_was_started_and_has_no_records_is_lost(on: Stage) -> None:
    dispatch = started_here(on, 'rm -rf "$D"; exit 1')

    assert on.outcome(dispatch).ending is Ending.LOST
    with stage(on.path) as other:
        assert other.dispatches.standing(dispatch) == NeverStarted()


# --- what it leaves --------------------------------------------------------------------------------------


def test_what_an_agent_hid_before_it_killed_its_shim_is_ended_and_nobody_else(on: Stage, stranger: int) -> None:
    beside = on.sh("echo $$ >beside; until test -e go; do sleep 0.005; done; exit 7")
    pid_in(on.path / "beside")
    dispatch = on.sh(f"{ESCAPES}kill -9 $PPID; sleep 30")
    child, grandchild = pid_in(on.path / "child"), pid_in(on.path / "grandchild")
    assert on.outcome(dispatch).ending is Ending.LOST
    assert not gone(child)

    assert on.dispatches.sweep([dispatch]) >= 2

    assert gone(child)
    assert gone(grandchild)
    assert not gone(stranger)
    assert on.dispatches.standing(beside) == Running()
    assert on.outcome(on.sh("exit 3")).code == 3, "the shim that waits for the next is none of them"
    (on.path / "go").touch()
    assert on.outcome(beside).code == 7


def test_what_a_killed_shim_leaves_is_ended_with_it(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runplan.adapters.dispatches.FORCED_S", 0.05)
    dispatch = on.sh(f"trap '' TERM\n{ESCAPES}while :; do kill -STOP $PPID; done")
    child = pid_in(on.path / "child")

    on.dispatches.end([dispatch], grace_s=0.05)

    assert on.dispatches.standing(dispatch) != Running()
    assert gone(child)
    assert processes.marked(dispatch) == []


# --- how long it has -------------------------------------------------------------------------------------


def test_waiting_ends_when_one_is_overdue(on: Stage) -> None:
    dispatch = on.sh("sleep 30")
    begun = time.monotonic()
    assert not on.dispatches.overdue(dispatch, left_s=0.05)

    on.dispatches.wait([dispatch], timeout_s=None)

    assert 0.05 <= time.monotonic() - begun < 20
    assert on.dispatches.overdue(dispatch, left_s=0.05)
    assert on.dispatches.standing(dispatch) == Running()


def test_a_limit_of_years_is_waited_for_like_any_other(on: Stage) -> None:
    dispatch = on.sh("sleep 0.05; exit 4")
    assert not on.dispatches.overdue(dispatch, left_s=1e9)

    assert on.outcome(dispatch).code == 4
