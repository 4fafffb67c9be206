"""A control group holds every process of an agent, also those without mark, session and parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runplan import processes
from runplan.run.dispatch import Ending, Outcome
from runplan.supervise import cgroups
from runplan.supervise.cgroups import Cgroup
from runplan.supervise.files import DispatchFiles
from tests.support.dispatching import PATIENCE_S, Stage, gone, pid_in, stage, until

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = cgroups.own_place()
needs_groups = pytest.mark.skipif(not HOME, reason="this process is in no control group (v2) that it may divide")

#: Without the mark, in a session of its own, with a parent that has gone.
HIDES = "(env -i setsid sh -c '{words}' </dev/null >/dev/null 2>&1 &)\nwhile test ! -s child; do :; done"
HIDDEN = HIDES.format(words="echo $$ >child; exec sleep 30")
DEAF = HIDES.format(words='trap "" TERM; echo $$ >child; while :; do sleep 0.01; done')


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def group_of(on: Stage, dispatch: str) -> Path:
    files = DispatchFiles(on.dispatches.directory(dispatch))
    until(lambda: files.shim().cgroup)
    return Path(files.shim().cgroup)


def where(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("0::"))


# --- who is in it -------------------------------------------------------------------------------------------


@needs_groups
def test_an_agent_is_in_the_group_of_its_dispatch_from_its_first_instant_and_its_shim_is_not(on: Stage) -> None:
    dispatch = on.sh("cat /proc/self/cgroup; echo $$ >agent; exec sleep 30")
    pid_in(on.path / "agent")
    group = group_of(on, dispatch)

    assert [process.pid for process in Cgroup(str(group)).members()] == [pid_in(on.path / "agent")]
    assert where(on.shim(dispatch)) == where(os.getpid())
    assert dispatch in group.name
    on.dispatches.end([dispatch], grace_s=5)
    assert f"/{group.name}\n" in on.outcome(dispatch).message
    assert not group.exists()


@needs_groups
def test_a_program_that_cannot_be_started_leaves_no_group(on: Stage) -> None:
    dispatch = on.start("/no/such/program")

    outcome = on.outcome(dispatch)

    assert outcome.ending is Ending.MISSING
    assert outcome.message == "cannot start '/no/such/program': [Errno 2] No such file or directory: '/no/such/program'"
    assert not group_of(on, dispatch).exists()


# --- the end of a dispatch ----------------------------------------------------------------------------------

#: A shim to which orphans are not given, as where the kernel knows no subreapers.
SHIM = """
import os, sys
from pathlib import Path
from runplan import processes
from runplan.supervise.files import DispatchFiles
from runplan.supervise.shim import supervise
from runplan.run.dispatch import Launch
launch = Launch(id=sys.argv[2], argv=("sh", "-c", sys.argv[3]), cwd=sys.argv[4], env={"PATH": os.environ["PATH"]},
                stdin="", reader="command", wall_s=30, silence_s=0, grace_s=0.2)
supervise(launch, DispatchFiles(Path(sys.argv[1])), me=processes.identity(os.getpid()), subreaper=False)
"""


@needs_groups
@pytest.mark.parametrize("leave", [HIDDEN, DEAF], ids=["hidden", "hidden and deaf"])
def test_a_process_without_mark_session_and_parent_is_ended_by_its_group(on: Stage, leave: str) -> None:
    launch = on.launch("unused")
    directory = on.dispatches.directory(launch.id)

    words = [str(directory), launch.id, f"{leave}\necho end", str(on.path)]
    subprocess.run([sys.executable, "-c", SHIM, *words], check=True, timeout=PATIENCE_S)

    outcome = DispatchFiles(directory).standing()
    assert isinstance(outcome, Outcome)
    assert (outcome.code, outcome.message) == (0, "end\n")
    assert outcome.leftovers >= 1
    assert gone(pid_in(on.path / "child"))
    assert not group_of(on, launch.id).exists()


@needs_groups
def test_groups_that_an_agent_makes_below_its_own_go_with_it(on: Stage) -> None:
    place = f"{Path(HOME)}$(sed -n s,^0::,,p /proc/self/cgroup | sed s,^{where(os.getpid())[3:].rstrip('/')},,)"
    move = f'g="{place}"; mkdir -p "$g/a/b" && echo $$ >"$g/a/b/cgroup.procs" && echo $$ >child && exec sleep 30'
    dispatch = on.start("sh", "-c", 'sh -c "$0" & while test ! -s child; do :; done', move)

    assert on.outcome(dispatch).leftovers >= 1
    assert gone(pid_in(on.path / "child"))
    assert not group_of(on, dispatch).exists()


#: Each process exits before it can be killed, and its child ignores signals too.
RUNS_AWAY = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for turn in range(20_000):
    if os.fork():
        os._exit(0)
    if turn == 10:
        open("off", "w").write("x")
"""


@needs_groups
def test_a_family_that_forks_faster_than_it_can_be_counted_is_ended_at_once(on: Stage) -> None:
    dispatch = on.start("sh", "-c", '"$0" -I -S -c "$1" & while test ! -s off; do :; done', sys.executable, RUNS_AWAY)

    began = time.monotonic()
    assert on.outcome(dispatch).ending is Ending.EXITED

    assert time.monotonic() - began < PATIENCE_S / 2
    assert not group_of(on, dispatch).exists()


# --- after a killed shim ------------------------------------------------------------------------------------


def lost(on: Stage) -> tuple[str, int]:
    """A dispatch whose shim was killed while a process of its agent was in hiding, and that process."""
    dispatch = on.sh(f"{HIDDEN}\nexec sleep 30")
    child = pid_in(on.path / "child")
    os.kill(on.shim(dispatch), signal.SIGKILL)
    assert on.outcome(dispatch).ending is Ending.LOST
    assert not gone(child)
    return dispatch, child


@needs_groups
def test_the_sweep_finds_a_hidden_process_by_its_group(on: Stage) -> None:
    dispatch, child = lost(on)

    assert on.dispatches.sweep([dispatch]) >= 2

    assert gone(child)
    assert not group_of(on, dispatch).exists()
    assert on.dispatches.sweep([dispatch]) == 0


# --- older kernels, and none --------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "forced"), [("", 0), ("trap '' TERM;", 1)], ids=["obeys", "deaf"])
def test_only_processes_that_ignore_the_request_are_killed(word: str, forced: int) -> None:
    child = subprocess.Popen(["sh", "-c", f"{word} echo; while :; do sleep 0.01; done"], stdout=subprocess.PIPE)
    with child:
        assert child.stdout
        child.stdout.readline()
        found = processes.process(child.pid)
        assert found
        calls: list[int] = []

        processes.end_all(lambda: [found], grace_s=0.1 if forced else PATIENCE_S, force=lambda: calls.append(1))

        assert len(calls) == forced
        assert child.wait(PATIENCE_S) == -(signal.SIGKILL if forced else signal.SIGTERM)


def test_without_the_kernels_own_way_its_processes_are_killed_one_by_one(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "30"])
    (tmp_path / "cgroup.procs").write_text(f"{child.pid}\n{os.getpid()}\n0\n", encoding="utf-8")

    Cgroup(str(tmp_path)).kill()

    assert child.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_group_that_vanished_is_empty_and_gone(tmp_path: Path) -> None:
    group = Cgroup(str(tmp_path / "none/gone"))

    group.kill()

    assert (group.members(), group.make(), group.remove(within_s=0)) == ([], False, True)


def test_a_group_that_is_still_in_use_is_left_after_a_while(tmp_path: Path) -> None:
    (tmp_path / "busy").touch()

    assert Cgroup(str(tmp_path)).remove(within_s=0.01) is False


@pytest.mark.skipif(os.geteuid() != 0 or not HOME, reason="only root may take a mount away, and there has to be one")
def test_dispatches_work_without_control_groups(tmp_path: Path) -> None:
    play = """
import sys
from pathlib import Path
from runplan import processes; from runplan.supervise import cgroups
from tests.support.dispatching import gone, pid_in, stage
with stage(Path(sys.argv[1])) as on:
    assert cgroups.own_place() == "", cgroups.own_place()
    outcome = on.outcome(on.sh(sys.argv[2]))
    assert (outcome.code, outcome.leftovers) == (0, 1), outcome
    assert gone(pid_in(on.path / "child"))
"""
    words = [sys.executable, "-c", play, str(tmp_path), HIDDEN]
    mount = HOME if where(os.getpid()) == "0::/" else HOME.removesuffix(where(os.getpid())[3:])
    subprocess.run(
        ["unshare", "--mount", "sh", "-c", 'umount "$0" && exec "$@"', mount, *words],
        check=True,
        timeout=PATIENCE_S,
        cwd=Path(__file__).parents[2],
    )
