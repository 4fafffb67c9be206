"""The daemon with much to do, and with nothing to do: many plans, many repositories, and a hundred idle schedules.

`python -m bench.daemon PLANS REPOSITORIES SECONDS` measures it alone.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from msgspec.structs import replace

from bench.projects import environment, make, plan
from runplan.adapters.store.sqlite import SqliteStore
from runplan.app.operations.model import Accepted, Caller
from runplan.app.operations.requests import StartRequest
from runplan.app.operations.start import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RUNPLAN = str(Path(sys.executable).with_name("runplan"))
FLOOR = str(Path(__file__).with_name("floor.sh"))
LOOK_S = 0.05
LONGEST_S = 600.0
SETTLED_S = 3.0

#: Every plan has a file of its own, so that nothing conflicts.
AGENT = """\
#!/bin/sh
file=$(basename "$RUNPLAN_PLAN" .md).txt
case "$RUNPLAN_ROLE" in
implement)
    echo "$RUNPLAN_PHASE" >>"$file" && git add "$file" && git commit -q -m "Write $file" ;;
verify)
    printf '{"status":"done","summary":"seen","items":[{"item":"P","result":"pass","evidence":"%s"}]}' "$file" \\
        >"$RUNPLAN_RETURN" ;;
esac
"""


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    plans, repositories, seconds = (*given, *(50, 20, 60)[len(given) :])
    with tempfile.TemporaryDirectory() as place:
        busy(Path(place), plans=plans, repositories=repositories)
        idle(Path(place), schedules=100, seconds=seconds)


# --- much to do -----------------------------------------------------------------------------------------------


def busy(place: Path, *, plans: int, repositories: int) -> None:
    """Plans of one phase that does next to nothing: all in one repository, then one in each of many."""
    crowd(place / "plans", [plans], f"{plans} plans in one repository")
    crowd(place / "repositories", [1] * repositories, f"{repositories} repositories with a plan each")


def crowd(place: Path, sizes: Sequence[int], called: str) -> None:
    """Hand all of them over, wait until all have landed, and compare with a script that does one after the other."""
    floor = sum(by_script(place / f"floor{number}", phases) for number, phases in enumerate(sizes))
    home = place / "home"
    home.mkdir(parents=True)
    roots = [with_plans(place / f"ours{number}", home, count) for number, count in enumerate(sizes)]
    with daemon(home) as process:
        began = time.perf_counter()
        for root, count in zip(roots, sizes, strict=True):
            hand_over(root, home, [f"P{number}" for number in range(count)])
        accepted = time.perf_counter() - began
        most, threads = watched(process.pid, lambda: all(map(all_ended, roots, sizes)))
        took = time.perf_counter() - began
    landed = [landings(root, home) for root in roots]
    assert landed == [dict.fromkeys((f"P{number}.txt" for number in range(count)), 1) for count in sizes], landed
    print(
        f"daemon, {called}: all landed once in {took:.1f} s (handed over in {accepted:.1f} s), shell script "
        f"{floor:.1f} s, ratio {took / floor:.2f}; at most {most / 1024:.0f} MiB and {threads} threads",
        flush=True,
    )


def hand_over(root: Path, home: Path, plans: Sequence[str]) -> None:
    """As `runplan start PLAN auto` does, without a process for each: starting those is measured elsewhere."""
    caller = Caller(cwd=root, env=environment(home))
    for name in plans:
        answer = start(caller, StartRequest(plan=name, options=("auto",)))
        assert isinstance(answer, Accepted), answer


def by_script(place: Path, phases: int) -> float:
    root = make(place, files=100, phases=phases)
    began = time.perf_counter()
    command = [FLOOR, str(root), str(place / "trees"), str(phases)]
    subprocess.run(command, cwd=root, env=environment(place / "home"), check=True, capture_output=True)
    return time.perf_counter() - began


def with_plans(place: Path, home: Path, count: int) -> Path:
    """A repository with plans P0, P1 and so on, for a user with this home."""
    root = make(place, files=100, phases=1)
    (place / "agent.sh").write_text(AGENT)
    (home / "gitconfig").write_text((place / "home/gitconfig").read_text())
    for number in range(count):
        (root / f"plans/P{number}.md").write_text(plan(1), encoding="utf-8")
    for words in (["add", "."], ["commit", "-q", "-m", "Plans"]):
        subprocess.run(["git", *words], cwd=root, env=environment(home), check=True)
    return root


def all_ended(root: Path, count: int) -> bool:
    with closing(sqlite3.connect(root / ".git/runplan/journal.db")) as journal:
        states = [state for (state,) in journal.execute("SELECT state FROM runs")]
    assert not {"failed", "waiting"}.intersection(states), states
    return states.count("done") == count


def landings(root: Path, home: Path) -> dict[str, int]:
    """How many commits of the target brought each agent's file."""
    command = ["git", "log", "--format=", "--name-only", "main", "--", "P*.txt"]
    names = subprocess.run(command, cwd=root, env=environment(home), check=True, capture_output=True, text=True).stdout
    found = names.split()
    return {name: found.count(name) for name in sorted(found, key=lambda name: int(name[1:-4]))}


# --- nothing to do --------------------------------------------------------------------------------------------


def idle(place: Path, *, schedules: int, seconds: int) -> None:
    """The cost of waiting for the next slot of many schedules, and for a silent agent."""
    home = place / "idle-home"
    home.mkdir()
    root = with_plans(place / "idle", home, schedules + 1)
    (root.parent / "agent.sh").write_text("exec sleep 100000\n")
    with daemon(home):
        runplan(root, home, "start", "P0", "auto", "every", "4h")
    with closing(SqliteStore(root / ".git/runplan")) as store:
        first = store.list_schedules()[0]
        for number in range(1, schedules):
            name = f"plans/P{number}.md"
            store.put_schedule(
                replace(first, plan=name, request=json.dumps(json.loads(first.request) | {"plan": name}))
            )
    with daemon(home) as process:
        waited(process.pid, seconds, f"{schedules} schedules waiting")
        silent = f"P{schedules}"
        runplan(root, home, "start", silent, "auto")
        waited(process.pid, seconds, f"{schedules} schedules waiting and an agent silent, with its shim")
        runplan(root, home, "stop", silent)


def waited(pid: int, seconds: int, called: str) -> None:
    time.sleep(SETTLED_S)
    before, began = spent(pid), time.perf_counter()
    time.sleep(seconds)
    after, took = spent(pid), time.perf_counter() - began
    memory, threads = size(pid)
    print(
        f"daemon, {called}: {after[0] - before[0]:.2f} CPU seconds and {after[1] - before[1]} wake-ups in {took:.0f} s "
        f"(target 2 a minute); {memory / 1024:.0f} MiB (target 45) and {threads} threads",
        flush=True,
    )


def spent(pid: int) -> tuple[float, int]:
    """CPU seconds so far of a process and all below it, and how often one of their threads has gone to sleep."""
    cpu, sleeps = 0.0, 0
    family = psutil.Process(pid)
    for process in (family, *family.children(recursive=True)):
        times = process.cpu_times()
        cpu += times.user + times.system
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            lines = (task / "status").read_text().splitlines()
            sleeps += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return cpu, sleeps


# --- the process ----------------------------------------------------------------------------------------------


@contextmanager
def daemon(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon of its own, once it answers."""
    socket = home / ".local/state/runplan/daemon.sock"
    process = subprocess.Popen([RUNPLAN, "daemon"], env=environment(home))
    try:
        while not socket.exists():
            assert process.poll() is None, "the daemon has ended"
            time.sleep(LOOK_S)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LONGEST_S)


def runplan(root: Path, home: Path, *words: str) -> None:
    subprocess.run([RUNPLAN, *words], cwd=root, env=environment(home), check=True, capture_output=True)


def watched(pid: int, over: Callable[[], bool]) -> tuple[int, int]:
    """The most memory in KiB and threads it had, until it is over."""
    memory, threads = size(pid)
    deadline = time.monotonic() + LONGEST_S
    while not over():
        assert time.monotonic() < deadline, "it takes too long"
        now = size(pid)
        memory, threads = max(memory, now[0]), max(threads, now[1])
        time.sleep(LOOK_S)
    return memory, threads


def size(pid: int) -> tuple[int, int]:
    """The memory it holds, in KiB, and how many threads it has."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]), int(lines["Threads"])


if __name__ == "__main__":
    main()
