"""Dispatches outlive the runner that started them, and a later runner takes them up."""

import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan import processes
from runplan.run.dispatch import Ending, NeverStarted, Outcome, Running
from tests.support.dispatching import PATIENCE_S, Stage, gone, pid_in, stage, until, with_killed_runner

WAITS = "echo $$ >agent; echo before; while test ! -e go; do sleep 0.005; done; echo after; exit 7"


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def test_the_agent_of_a_killed_runner_finishes_and_is_adopted(on: Stage) -> None:
    dispatch = with_killed_runner(on, WAITS)
    pid_in(on.path / "agent")
    assert on.dispatches.standing(dispatch) == Running()

    (on.path / "go").touch()

    outcome = on.outcome(dispatch)
    assert (outcome.ending, outcome.code, outcome.message) == (Ending.EXITED, 7, "before\nafter\n")


def test_the_agent_of_a_killed_runner_can_be_ended_by_the_next(on: Stage) -> None:
    dispatch = with_killed_runner(on, WAITS)
    agent = pid_in(on.path / "agent")

    on.dispatches.end([dispatch], grace_s=5)

    assert on.outcome(dispatch).ending is Ending.ENDED
    assert gone(agent)


def test_the_agent_does_not_inherit_the_lock(on: Stage) -> None:
    dispatch = on.sh("ls -l /proc/self/fd; ls -l /proc/$$/fd")

    assert "/lock" not in on.outcome(dispatch).message


def test_closing_the_runners_end_leaves_dispatches_running(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        dispatch = on.sh(WAITS)
        on.dispatches.close()
        assert on.dispatches.standing(dispatch) == Running()
        (tmp_path / "go").touch()
        assert on.outcome(dispatch).code == 7


def test_a_killed_shim_loses_its_dispatch_and_the_sweep_ends_the_agent(on: Stage) -> None:
    dispatch = on.sh(WAITS)
    agent = pid_in(on.path / "agent")
    assert on.dispatches.sweep([dispatch]) == 0

    os.kill(on.shim(dispatch), signal.SIGKILL)

    assert on.outcome(dispatch) == Outcome(ending=Ending.LOST, code=None, signal=None, message="")
    assert not gone(agent)
    assert on.dispatches.sweep([dispatch]) >= 1
    assert gone(agent)
    assert on.dispatches.sweep([dispatch]) == 0


def test_a_dead_spawner_is_replaced_at_the_next_start(on: Stage) -> None:
    first = on.sh(WAITS)
    spawner = on.dispatches._spawner
    assert spawner
    spawner.kill()
    spawner.wait()

    second = on.sh("exit 3")

    assert on.outcome(second).code == 3
    assert on.dispatches.standing(first) == Running()
    (on.path / "go").touch()
    assert on.outcome(first).code == 7


def test_the_next_dispatch_reuses_the_shim_and_a_dead_one_is_replaced(on: Stage) -> None:
    first = on.sh("exit 1")
    assert on.outcome(first).code == 1

    second = on.sh("exit 2")

    assert on.outcome(second).code == 2
    assert on.shim(second) == on.shim(first)
    os.kill(on.shim(second), signal.SIGKILL)
    third = on.sh("exit 3")
    assert on.outcome(third).code == 3
    assert on.shim(third) != on.shim(second)


def test_a_lock_without_a_shim_is_running_until_it_is_let_go(on: Stage) -> None:
    """As when the runner died after it sent the lock and before the spawner forked."""
    dispatch = on.launch("true").id
    lock = os.open(on.dispatches.directory(dispatch) / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert on.dispatches.standing(dispatch) == Running()
    on.dispatches.wait([dispatch], timeout_s=0.02)
    assert on.dispatches.standing(dispatch) == Running()

    threading.Timer(0.02, os.close, [lock]).start()
    on.dispatches.wait([dispatch], timeout_s=None)

    assert on.dispatches.standing(dispatch) == NeverStarted()


def test_waiting_costs_no_wakeup_and_ends_at_once(on: Stage) -> None:
    dispatch, other = on.sh(WAITS), on.sh("echo $$ >other; sleep 30")
    pid_in(on.path / "agent")
    pid_in(on.path / "other")
    waiter = threading.Thread(target=on.dispatches.wait, args=([other, dispatch],), kwargs={"timeout_s": None})
    waiter.start()
    sleepers = waiter.native_id, on.shim(other)

    def at_rest() -> bool:
        """A process that polls never is."""
        before = sum(map(switches, sleepers))
        time.sleep(0.3)
        return sum(map(switches, sleepers)) == before

    until(at_rest)  # the last steps to bed may take a while
    (on.path / "go").touch()
    waiter.join(timeout=PATIENCE_S)
    assert not waiter.is_alive()
    assert on.dispatches.standing(other) == Running()


def test_waiting_ends_on_a_wakeup_and_on_time(tmp_path: Path) -> None:
    readable, writable = os.pipe()
    with stage(tmp_path, wakeup=readable) as on:
        dispatch = on.sh("sleep 30")
        on.dispatches.wait([dispatch], timeout_s=0.01)
        os.write(writable, b"!")
        on.dispatches.wait([dispatch], timeout_s=None)
        assert on.dispatches.standing(dispatch) == Running()
    os.close(readable)
    os.close(writable)


def test_a_process_that_probes_the_lock_is_not_its_holder(on: Stage) -> None:
    dispatch = on.sh("exit 0")
    over = on.outcome(dispatch)

    with (on.dispatches.directory(dispatch) / "lock").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert on.dispatches.standing(dispatch) == over


def test_many_dispatches_run_side_by_side(on: Stage) -> None:
    started = [on.sh(f"exit {number}") for number in range(20)]

    assert [on.outcome(dispatch).code for dispatch in started] == list(range(20))


def test_no_shim_stays_behind_as_a_zombie(on: Stage) -> None:
    dispatch = on.sh("exit 0")
    shim = on.shim(dispatch)
    on.outcome(dispatch)
    on.dispatches.close()

    until(lambda: not Path(f"/proc/{shim}").exists())
    assert processes.family(dispatch) == []


def switches(thread: int | None) -> int:
    text = Path(f"/proc/{thread}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
