"""The daemon's log while many write to it and its files are turned over: no line is lost or torn, and none too many."""

from __future__ import annotations

import fcntl
import json
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.logs import open_log

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """\
import sys, threading
from pathlib import Path
from runplan.adapters.logs import open_log

log = open_log(Path(sys.argv[1]), files=int(sys.argv[3]), file_bytes=100_000)
sys.stdin.readline()

def write(name):
    for number in range(250):
        log.info("told", by=name, number=number, **{f"filler{n}": "x" * 3000 for n in range(number % 5)})

threads = [threading.Thread(target=write, args=(f"{sys.argv[2]}-{n}",)) for n in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def written(place: Path, *, processes: int, files: int) -> list[dict[str, object]]:
    """What so many processes with four threads each have written, file by file; each line is read whole."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, place, f"p{n}", str(files)], stdin=subprocess.PIPE)
        for n in range(processes)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.close()
    assert [writer.wait(timeout=60) for writer in writers] == [0] * processes
    return [json.loads(line) for file in place.parent.iterdir() for line in file.read_text().splitlines()]


@pytest.mark.parametrize("processes", [1, 3])
def test_every_line_is_there_once_and_whole(tmp_path: Path, processes: int) -> None:
    """Two daemons write for a moment, when one hands over to the other."""
    place = tmp_path / "state/daemon.log"
    told = written(place, processes=processes, files=1000)
    assert len(list(place.parent.iterdir())) > 10, "it was turned over, and often"
    wanted = {(f"p{n}-{thread}", number) for n in range(processes) for thread in range(4) for number in range(250)}
    assert len(told) == len(wanted)
    assert {(line["by"], line["number"]) for line in told} == wanted


def test_it_stays_as_small_as_it_should(tmp_path: Path) -> None:
    place = tmp_path / "state/daemon.log"
    written(place, processes=3, files=3)
    kept = list(place.parent.iterdir())
    assert {file.name for file in kept} <= {"daemon.log", "daemon.log.1", "daemon.log.2"}
    # Who did not get the lock for long has written all the same: a line of each thread, at the most.
    assert sum(file.stat().st_size for file in kept) <= 3 * 100_000 + 12 * 13_000


def events(file: Path) -> list[str]:
    return [json.loads(line)["event"] for line in file.read_text().splitlines()]


def test_a_file_that_somebody_else_turned_over_is_left_to_them(tmp_path: Path) -> None:
    place = tmp_path / "daemon.log"
    log = open_log(place)
    log.info("before")
    place.rename(tmp_path / "daemon.log-20260101")
    log.info("after")
    place.unlink()
    log.info("anew")
    log.close()
    assert (events(tmp_path / "daemon.log-20260101"), events(place)) == (["before"], ["anew"])


def test_a_lock_whose_holder_is_stopped_is_not_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "daemon.log"
    log = open_log(place)
    log.info("before")
    with place.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        log.info("meanwhile")
    log.info("after")
    log.close()
    assert events(place) == ["before", "meanwhile", "after"]


def test_a_disk_that_is_full_in_the_middle_of_a_line_costs_that_line_and_no_other(tmp_path: Path) -> None:
    """A file that may not grow further stands for it."""
    place = tmp_path / "daemon.log"
    log = open_log(place)
    log.info("before")
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (place.stat().st_size + 100, allowed[1]))
        log.info("lost", filler="x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
        signal.signal(signal.SIGXFSZ, ignored)
    log.info("after")
    log.close()
    assert events(place) == ["before", "after"]
