"""What every table of processes must answer, whether it is read from /proc or through psutil."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runplan.adapters import processes
from runplan.adapters.processtable import Process, ProcessTable, ProcTable, this_table
from runplan.adapters.processtable_psutil import PsutilTable
from tests.support.dispatching import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def mark() -> str:
    return f"r{uuid.uuid4().hex}.1.1.implement.1"


@pytest.fixture
def child(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {"PATH": os.environ["PATH"], "RUNPLAN_DISPATCH": mark}
    with subprocess.Popen(["sleep", "30"], env=env, start_new_session=True) as made:
        # A moment after the fork the child is still a copy of this process.
        until(lambda: this_table().mark(made.pid) == mark)
        yield made
        made.kill()


class ProcessTableContract:
    table: ProcessTable

    def seen(self, pid: int) -> Process:
        found = self.table.process(pid)
        assert found
        return found

    def test_an_identity_names_a_process_until_it_ends(self, child: subprocess.Popen[bytes]) -> None:
        name = processes.identity(child.pid, table=self.table)

        assert name
        assert name == processes.identity(child.pid, table=self.table)
        assert name.startswith(f"{child.pid}:")
        assert name.endswith(f":{self.table.boot()}")
        assert processes.alive(name, table=self.table)
        child.kill()
        child.wait()
        assert not processes.alive(name, table=self.table)
        assert processes.identity(child.pid, table=self.table) is None

    def test_a_zombie_is_dead(self, child: subprocess.Popen[bytes]) -> None:
        name = processes.identity(child.pid, table=self.table)
        assert name
        child.kill()

        until(lambda: not processes.alive(name, table=self.table))

        assert Path(f"/proc/{child.pid}").exists()

    def test_a_process_is_stopped_until_it_goes_on(self, child: subprocess.Popen[bytes]) -> None:
        assert not self.table.stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        until(lambda: self.table.stopped(child.pid))
        child.send_signal(signal.SIGCONT)
        until(lambda: not self.table.stopped(child.pid))
        child.kill()
        child.wait()
        assert not self.table.stopped(child.pid)

    @pytest.mark.parametrize("name", ["", "x", "-1:2:3", "²:1:1", "999999999:1:1", "{pid}:1:{boot}", "{pid}:{start}:1"])
    def test_what_is_no_identity_of_a_living_process_is_dead(self, name: str) -> None:
        start = self.seen(os.getpid()).started
        name = name.format(pid=os.getpid(), start=start, boot=self.table.boot())

        assert not processes.alive(name, table=self.table)

    def test_parent_and_session_are_seen(self, child: subprocess.Popen[bytes]) -> None:
        found = self.seen(child.pid)

        assert (found.parent, found.session) == (os.getpid(), child.pid)
        assert found.pid in {process.pid for process in self.table.processes()}

    def test_processor_time_grows_with_work_and_counts_children(self) -> None:
        before = self.seen(os.getpid()).cpu_s
        subprocess.run(["sh", "-c", "i=0; while test $i -lt 30000; do i=$((i+1)); done"], check=True)
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass

        assert self.seen(os.getpid()).cpu_s > before

    def test_bytes_grow_with_what_is_read_and_written_and_count_children(self, tmp_path: Path) -> None:
        before = self.table.moved(os.getpid())
        (tmp_path / "own").write_bytes(bytes(300_000))
        own = self.table.moved(os.getpid())
        subprocess.run(["cp", tmp_path / "own", tmp_path / "copy"], check=True)

        assert own >= before + 300_000
        assert self.table.moved(os.getpid()) >= own + 600_000

    def test_nobody_tells_what_a_process_moved_that_is_not_there(self) -> None:
        assert self.table.moved(999_999_999) == 0

    def test_the_mark_is_read_whole(self, child: subprocess.Popen[bytes], mark: str) -> None:
        assert self.table.mark(child.pid) == mark
        assert self.table.mark(os.getpid()) == os.environ.get("RUNPLAN_DISPATCH", "")
        assert self.table.mark(999_999_999) == ""

    def test_a_variable_and_the_command_are_read_as_it_was_started(self, child: subprocess.Popen[bytes]) -> None:
        assert self.table.variable(child.pid, "PATH") == os.environ["PATH"]
        assert self.table.variable(child.pid, "ATH") == ""
        assert self.table.command(child.pid) == ("sleep", "30")
        assert self.table.variable(999_999_999, "PATH") == ""
        assert self.table.command(999_999_999) == ()

    def test_marked_finds_the_processes_of_a_dispatch_and_no_other(
        self, child: subprocess.Popen[bytes], mark: str
    ) -> None:
        assert [found.pid for found in processes.marked(mark, table=self.table)] == [child.pid]
        assert processes.marked(mark[:-1], table=self.table) == []

    def test_the_family_is_the_marked_the_session_and_the_descendants_without_the_root(
        self, child: subprocess.Popen[bytes], mark: str
    ) -> None:
        by_mark = processes.family(mark, root=-1, session=-1, table=self.table)
        by_session = processes.family("r0", root=-1, session=child.pid, table=self.table)
        by_descent = processes.family("r0", root=os.getpid(), session=-1, table=self.table)

        assert [found.pid for found in by_mark] == [child.pid]
        assert [found.pid for found in by_session] == [child.pid]
        assert child.pid in {found.pid for found in by_descent}
        assert os.getpid() not in {found.pid for found in by_descent}

    def test_a_process_is_ended_by_request(self, child: subprocess.Popen[bytes]) -> None:
        assert processes.end_all([self.seen(child.pid)], grace_s=10, table=self.table) == 1
        assert child.wait() == -signal.SIGTERM

    def test_a_stopped_process_is_killed_after_the_grace(self, child: subprocess.Popen[bytes]) -> None:
        child.send_signal(signal.SIGSTOP)

        assert processes.end_all([self.seen(child.pid)], grace_s=0.02, table=self.table) == 1
        assert child.wait() < 0  # by either: the kernel may hand out the waiting SIGTERM first

    def test_a_process_that_was_given_the_pid_later_is_never_signalled(self, child: subprocess.Popen[bytes]) -> None:
        found = self.seen(child.pid)
        earlier = Process(pid=found.pid, parent=found.parent, session=found.session, started="1", cpu_s=0.0)

        assert not processes.send(earlier, signal.SIGKILL, table=self.table)
        assert processes.end_all([earlier], grace_s=0, table=self.table) == 0
        assert child.poll() is None


class TestProcTable(ProcessTableContract):
    table = ProcTable()


class TestPsutilTable(ProcessTableContract):
    table = PsutilTable()


class TestWithoutProcessDescriptors(ProcessTableContract):
    """As on kernels that cannot wait for a process through a descriptor."""

    table = PsutilTable()

    @pytest.fixture(autouse=True)
    def old_kernel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "pidfd_open")
