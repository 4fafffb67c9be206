"""A control group holds whatever an agent starts, also what no mark, no session and no parent tells of."""

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
from runplan.run.dispatch import Ending, Outcome, Running
from runplan.supervise import cgroups
from runplan.supervise.cgroups import Cgroup
from runplan.supervise.dispatches import Dispatches
from runplan.supervise.files import DispatchFiles
from tests.support.dispatching import PATIENCE_S, Stage, gone, pid_in, stage

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = cgroups.home()
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
    found = cgroups.planned(on.dispatches.directory(dispatch))
    assert found
    return Path(found.path)


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


@needs_groups
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cwd": "/no/such/place"}, "[Errno 2] No such file or directory: '/no/such/place'"),
        ({"argv": ("/",)}, "[Errno 13] Permission denied: '/'"),
        ({"argv": ("sh", "a\0b")}, "embedded null byte"),
    ],
    ids=["directory", "permission", "null"],
)
def test_why_nothing_was_started_is_told_as_ever(on: Stage, changes: dict[str, object], why: str) -> None:
    launch = on.launch("sh", **changes)
    on.dispatches.start(launch)

    assert on.outcome(launch.id).message == f"cannot start {launch.argv[0]!r}: {why}"


@needs_groups
def test_an_agent_gets_three_descriptors_its_own_session_and_the_usual_signals(on: Stage) -> None:
    look = "import os, sys; print(sorted(map(int, os.listdir('/proc/self/fd')))[:3], os.getsid(0) == os.getpid())"
    signals = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('SigIgn')])"
    dispatch = on.python(f"{look}\n{signals}\nprint(len(os.listdir('/proc/self/fd')))")
    pythons = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)  # Python itself ignores these
    # Whoever is started with a signal ignored, as by nohup, passes that on; but a spawner hears Ctrl-C again.
    given = ignored() & ~pythons & ~(1 << signal.SIGINT - 1)

    assert on.outcome(dispatch).message == f"[0, 1, 2] True\n['{given | pythons:016x}']\n4\n"
    assert on.outcome(on.sh("grep SigIgn /proc/self/status")).message.split() == ["SigIgn:", f"{given:016x}"]


def ignored() -> int:
    """The signals this process ignores, as a mask."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))


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
def test_who_hides_from_mark_session_and_parents_is_ended_by_the_group_alone(on: Stage, leave: str) -> None:
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
    move = 'mkdir -p "$0/a/b" && echo $$ >"$0/a/b/cgroup.procs" && echo $$ >child && exec sleep 30'
    launch = on.launch("unused")
    group = group_of(on, launch.id)
    dispatch = on.start("sh", "-c", f"sh -c '{move}' {group} & while test ! -s child; do :; done", id=launch.id)

    assert on.outcome(dispatch).leftovers >= 1
    assert gone(pid_in(on.path / "child"))
    assert not group.exists()


#: Whoever is found has gone before it can be killed, and its child is deaf, too.
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
def test_the_sweep_finds_who_hid_from_everything_but_the_group(on: Stage) -> None:
    dispatch, child = lost(on)

    assert on.dispatches.sweep([dispatch]) >= 2

    assert gone(child)
    assert not group_of(on, dispatch).exists()
    assert on.dispatches.sweep([dispatch]) == 0


@needs_groups
def test_the_next_runner_ends_what_is_left_in_groups_of_dispatches_that_are_over_and_nobody_else(on: Stage) -> None:
    dispatch, child = lost(on)
    (on.dispatches.directory(dispatch) / "shim.json").unlink()  # who it was need not be known any more
    runs = on.sh("echo $$ >running; exec sleep 30")
    running = pid_in(on.path / "running")

    with Dispatches(on.path / "dispatch"):
        assert gone(child)
        assert not group_of(on, dispatch).exists()

    assert not gone(running)
    assert on.dispatches.standing(runs) == Running()


@needs_groups
def test_a_group_in_another_place_is_found_by_what_the_shim_told(on: Stage) -> None:
    """As when it ran below a terminal that is closed now, and a service sweeps."""
    outer = Path(HOME) / f"other-{on.launch('unused').id}"
    outer.mkdir()
    dispatch = on.launch("unused").id
    inner = Cgroup(f"{outer}/{group_of(on, dispatch).name}")
    assert inner.make()
    DispatchFiles(on.dispatches.directory(dispatch)).write_shim("1:1:1", cgroup=inner.path)
    child = started_in(inner)
    try:
        assert on.dispatches.sweep([dispatch]) == 1
        assert child.wait(PATIENCE_S) == -signal.SIGTERM
        assert not Path(inner.path).exists()
    finally:
        Cgroup(str(outer)).kill()
        assert Cgroup(str(outer)).remove()


def started_in(group: Cgroup) -> subprocess.Popen[bytes]:
    """A process that is in the group before this returns."""
    child = subprocess.Popen(["sleep", "30"])
    Path(group.path, "cgroup.procs").write_text(str(child.pid), encoding="utf-8")
    return child


# --- strangers ----------------------------------------------------------------------------------------------


@needs_groups
@pytest.mark.parametrize("whose", ["somebody's", "another dispatch's", "a copy's"])
def test_the_group_of_a_stranger_is_not_touched_whatever_is_told_of_it(on: Stage, whose: str) -> None:
    dispatch = on.launch("unused").id
    ours = group_of(on, dispatch).name
    number = ours.split("-")[2]
    names = {
        "somebody's": f"stranger-{dispatch}",
        "another dispatch's": f"{ours}0",
        "a copy's": ours.replace(f"-{number}-", f"-{number}0-"),
    }
    group = Cgroup(f"{HOME}/{names[whose]}")
    assert group.make()
    stranger = started_in(group)
    try:
        DispatchFiles(on.dispatches.directory(dispatch)).write_shim("1:1:1", cgroup=group.path)
        assert on.dispatches.sweep([dispatch]) == 0
        if whose != "another dispatch's":  # which would be over
            with Dispatches(on.path / "dispatch"):
                pass
        assert stranger.poll() is None
    finally:
        group.kill()
        stranger.wait()
        assert group.remove()


# --- older kernels, and none --------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "forced"), [("", 0), ("trap '' TERM;", 1)], ids=["obeys", "deaf"])
def test_force_is_for_those_who_do_not_go_when_they_are_asked(word: str, forced: int) -> None:
    child = subprocess.Popen(["sh", "-c", f"{word} echo; while :; do sleep 0.01; done"], stdout=subprocess.PIPE)
    with child:
        assert child.stdout
        child.stdout.readline()
        found = processes.process(child.pid)
        assert found
        calls: list[int] = []

        processes.end_all([found], grace_s=0.1 if forced else PATIENCE_S, force=lambda: calls.append(1))

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

    assert (group.members(), group.make(), group.remove(patience_s=0)) == ([], False, True)


def test_a_group_that_is_still_in_use_is_left_after_a_while(tmp_path: Path) -> None:
    (tmp_path / "busy").touch()

    assert Cgroup(str(tmp_path)).remove(patience_s=0.01) is False


@pytest.mark.skipif(os.geteuid() != 0 or not HOME, reason="only root may take a mount away, and there has to be one")
def test_without_control_groups_everything_is_as_ever(tmp_path: Path) -> None:
    play = """
import sys
from pathlib import Path
from runplan import processes; from runplan.supervise import cgroups
from tests.support.dispatching import gone, pid_in, stage
with stage(Path(sys.argv[1])) as on:
    assert cgroups.own_home() == "", cgroups.own_home()
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
