"""A daemon of another version, or none that can be begun: whoever asks is told what is waited for, or what is wrong."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

from runplan.settings.places import state_directory
from tests.support.cli import until
from tests.support.daemons import answering, daemon_of, until_runs_are
from tests.support.doors import ROOT
from tests.support.mounts import fill, inside, make_room, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.cli import Project


@contextlib.contextmanager
def older_daemon(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """One that does not let go before it is ended, as with an agent that takes its time."""
    words = [sys.executable, "-m", "tests.support.doors", "0.0.1", "stays"]
    with subprocess.Popen(words, env={**project.env, "PYTHONPATH": str(ROOT)}) as older:
        try:
            until(lambda: answering(project) == older.pid)
            yield older
        finally:
            older.kill()


def test_whoever_waits_for_an_older_daemon_is_told_so(project: Project) -> None:
    with older_daemon(project) as older, project.running("start", "X", "1", "auto") as start:
        assert start.stderr is not None
        assert start.stderr.readline().decode() == (
            f"runplan: the other daemon (runplan 0.0.1, process {older.pid}) waits for its agents to finish, "
            "at most daemon.grace; then this version takes over\n"
        )
        older.terminate()
        _, err = start.communicate(timeout=60)
        assert start.returncode == 0, err
    until_runs_are(project, "done")
    assert daemon_of(project) != older.pid


def test_a_daemon_that_cannot_be_begun_for_want_of_room_is_told_with_that_reason(project: Project) -> None:
    state = state_directory(project.env)
    with inside(project) as there:
        small_disk(there, state)
        fill(there, state)
        ran = there.runplan("start", "X", "1", "auto")
        why = f"{state}: No space left on device; make room on the disk, then try again"
        assert (ran.code, ran.last) == (5, f"runplan: the daemon ended with code 5: {why}")
        make_room(there, state)
        assert there.runplan("start", "X", "1", "auto", "--wait").code == 0
