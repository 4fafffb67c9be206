"""A process is known by pid and start time; those of a dispatch are found and ended."""

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.adapters import processes
from runplan.adapters.processes import MARK, Process
from runplan.adapters.supervise.shim import ProcessActivity, activity
from tests.support.dispatching import until


@pytest.fixture
def mark() -> str:
    return f"r{uuid.uuid4().hex}.1.1.implement.1"


@pytest.fixture
def child(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {"PATH": os.environ["PATH"], MARK: mark}
    with subprocess.Popen(["sleep", "30"], env=env, start_new_session=True) as made:
        # A moment after the fork the child is still a copy of this process.
        until(lambda: processes.variable(made.pid, MARK) == mark)
        yield made
        made.kill()


def seen(pid: int) -> Process:
    found = processes.process(pid)
    assert found
    return found


def test_an_identity_names_a_process_until_it_ends(child: subprocess.Popen[bytes]) -> None:
    name = processes.identity(child.pid)

    assert name
    assert name == processes.identity(child.pid)
    assert name.startswith(f"{child.pid}:")
    assert processes.alive(name)
    child.kill()
    child.wait()
    assert not processes.alive(name)
    assert processes.identity(child.pid) is None


@pytest.mark.parametrize("name", ["", "x", "-1:2:3", "²:1:1", "999999999:1:1", "{pid}:1:{boot}", "{pid}:{started}:1"])
def test_an_invalid_identity_is_dead(name: str) -> None:
    mine = processes.identity(os.getpid())
    assert mine
    pid, started, boot = mine.split(":")

    assert processes.alive(f"{pid}:{started}:{boot}")
    assert not processes.alive(name.format(pid=pid, started=started, boot=boot))


def test_psutil_gives_the_same_facts_without_proc(child: subprocess.Popen[bytes]) -> None:
    running, parent, started = processes.stat_by_psutil(child.pid)
    assert (running, parent) == ("R", os.getpid())
    child.send_signal(signal.SIGSTOP)
    until(lambda: processes.stopped(child.pid))
    assert processes.stat_by_psutil(child.pid) == ("T", parent, started)
    child.kill()
    until(lambda: not processes.process(child.pid))
    assert processes.stat_by_psutil(child.pid) == ("Z", parent, started)
    child.wait()
    assert processes.stat_by_psutil(child.pid) == ("", 0, "")


def test_processor_time_and_bytes_grow_with_work_and_count_children(tmp_path: Path) -> None:
    me = [seen(os.getpid())]
    before = activity(me, now=1.0)
    (tmp_path / "own").write_bytes(bytes(300_000))
    subprocess.run(["cp", tmp_path / "own", tmp_path / "copy"], check=True)
    subprocess.run(["sh", "-c", "i=0; while test $i -lt 30000; do i=$((i+1)); done"], check=True)

    after = activity(me, now=2.0)
    assert after.cpu_s > before.cpu_s
    assert after.moved >= before.moved + 900_000
    assert activity([Process(pid=999_999_999, started="1")], now=1.0) == ProcessActivity(at=1.0, cpu_s=0.0, moved=0)


def test_a_variable_is_read_as_the_process_was_started(child: subprocess.Popen[bytes]) -> None:
    assert processes.variable(child.pid, "PATH") == os.environ["PATH"]
    assert processes.variable(child.pid, "ATH") == ""
    assert processes.variable(999_999_999, "PATH") == ""


def test_the_family_is_mark_session_and_descendants_without_the_root(child: subprocess.Popen[bytes], mark: str) -> None:
    with subprocess.Popen(["sleep", "30"]) as stranger:
        by_mark = list(processes.family(mark, shim=stranger.pid))
        by_session = list(processes.family("r0", shim=stranger.pid, leader=child.pid))
        stranger.kill()
    by_descent = list(processes.family("r0", shim=os.getpid()))

    assert [found.pid for found in by_mark] == [child.pid]
    assert [found.pid for found in by_session] == [child.pid]
    assert child.pid in {found.pid for found in by_descent}
    assert os.getpid() not in {found.pid for found in by_descent}


def test_a_stopped_process_is_killed_after_the_grace(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGSTOP)

    found = seen(child.pid)
    assert processes.end_all(lambda: filter(processes.lives, [found]), grace_s=0.02) == (1, [])
    assert child.wait() < 0  # by either: the kernel may hand out the waiting SIGTERM first


def test_a_process_that_was_given_the_pid_later_is_never_signalled(child: subprocess.Popen[bytes]) -> None:
    earlier = Process(pid=child.pid, started="1")

    assert not processes.send(earlier, signal.SIGKILL)
    assert processes.kill_all(lambda: [earlier], within_s=0.01) == (set(), [earlier])
    assert child.poll() is None
