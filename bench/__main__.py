"""`make bench`: a no-op phase against a plain shell script, start-up, git and disk of a phase, a plan, daemon, page."""

from __future__ import annotations

import compileall
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import daemon
from bench.growth import growth
from bench.pace import pace
from bench.projects import environment, make
from bench.recovery import recovery
from bench.sandboxes import starts
from bench.web import web

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = Path(__file__).parent.parent / "runplan"
RUNPLAN = str(Path(sys.executable).with_name("runplan"))
FLOOR = str(Path(__file__).with_name("floor.sh"))
START = [RUNPLAN, "start", "X", "finish", "auto", "--foreground"]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    compileall.compile_dir(PACKAGE, quiet=1)  # as an installed package is
    with tempfile.TemporaryDirectory() as place:
        phase_costs(Path(place), files=100, phases=10, rounds=rounds, target=2.8)
        phase_costs(Path(place), files=100, phases=20, rounds=rounds, target=2.4)
        phase_costs(Path(place), files=10_000, phases=10, rounds=max(2, rounds // 2), target=0.5)
        phase_costs(Path(place), files=100_000, phases=10, rounds=1, target=0.4)
        git_processes(Path(place))
        transactions(Path(place))
        turns(Path(place))
        recovery(Path(place), START, rounds=rounds)
        start_up(Path(place), rounds=rounds * 3)
        starts(Path(place) / "starts", rounds=rounds * 2)
        pace(Path(place), [0, 1])
        growth(Path(place), phases=200, rounds=2)
        daemon.busy(Path(place), plans=50, repositories=20)
        daemon.idle(Path(place), schedules=100, seconds=60)
        web(Path(place), rounds=rounds * 6)


def phase_costs(place: Path, *, files: int, phases: int, rounds: int, target: float) -> None:
    """Wall and CPU time per phase of the whole command, start-up included, interleaved with the floor."""
    ours, floor = [], []
    for number in range(rounds):
        here = place / f"{files}-{phases}-{number}"
        floor.append(
            timed(lambda at: [FLOOR, str(at), str(at.parent / "trees"), str(phases)], here / "f", files, phases)
        )
        ours.append(timed(lambda _: START, here / "o", files, phases))
        shutil.rmtree(here)
    parts = [compared(name, column(ours, at), column(floor, at), phases) for at, name in enumerate(("wall", "CPU"))]
    print(f"no-op phase, {files} files, {phases} phases: {'; '.join(parts)} (target {target})", flush=True)


def compared(name: str, ours: list[float], floor: list[float], phases: int) -> str:
    a, b = statistics.median(ours) / phases, statistics.median(floor) / phases
    ratios = sorted(one / other for one, other in zip(ours, floor, strict=True))
    return f"{name} {a * 1000:.0f} ms, script {b * 1000:.0f} ms, ratio {a / b:.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"


def column(pairs: list[tuple[float, float]], at: int) -> list[float]:
    return [pair[at] for pair in pairs]


def timed(command: Callable[[Path], list[str]], place: Path, files: int, phases: int) -> tuple[float, float]:
    """Wall and CPU seconds. The CPU time of shims is not in it: they outlive the process that started them."""
    root = make(place, files=files, phases=phases)
    env = environment(place / "home")
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command(root), cwd=root, env=env, check=True, capture_output=True)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def git_processes(place: Path) -> None:
    """Git processes of one phase, without the agent's: the difference between plans of two and of six phases."""
    real = shutil.which("git") or "git"
    counts = []
    for phases in (2, 6):
        root = make(place / f"count-{phases}", files=100, phases=phases)
        home = root.parent / "home"
        calls, tools = home / "calls", home / "counting"
        tools.mkdir()
        (tools / "git").write_text(f"#!/bin/sh\ntest -n \"$RUNPLAN_AGENT\" || echo >>'{calls}'\nexec '{real}' \"$@\"\n")
        (tools / "git").chmod(0o755)
        env = environment(home)
        subprocess.run(START, cwd=root, env=env | {"PATH": f"{tools}:{env['PATH']}"}, check=True, capture_output=True)
        counts.append(len(calls.read_text().splitlines()))
    per_phase = (counts[1] - counts[0]) / 4
    print(f"git processes: {per_phase:.1f} per one-commit phase (target 16), {counts[0] - 2 * per_phase:.0f} per run")


#: The command in a Python that counts the transactions that SQLite commits.
COUNTED = """
import sqlite3, sys
connect, count = sqlite3.connect, [0]
def counting(*args, **options):
    db = connect(*args, **options)
    db.set_trace_callback(lambda sql: count.__setitem__(0, count[0] + sql.startswith("COMMIT")))
    return db
sqlite3.connect = counting
from runplan.interfaces.cli.main import main
main(sys.argv[1:])
print(count[0])
"""


def transactions(place: Path) -> None:
    """Journal transactions of one phase: the difference between plans of two and of six phases."""
    counts = []
    for phases in (2, 6):
        root = make(place / f"commits-{phases}", files=100, phases=phases)
        command = [sys.executable, "-c", COUNTED, *START[1:]]
        env = environment(root.parent / "home")
        ran = subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, text=True)
        counts.append(int(ran.stdout.split()[-1]))
    per_phase = (counts[1] - counts[0]) / 4
    print(f"transactions: {per_phase:.1f} per one-commit phase (target 4), {counts[0] - 2 * per_phase:.0f} per run")


def turns(place: Path) -> None:
    """How long after a landing the next phase's agent runs, and how long after the start the first one does.

    Each implementer leaves a file when it begins, and a copy of the branch's file with the moment it was moved.
    """
    root = make(place / "turns", files=100, phases=10)
    stamps, agent = root.parent / "stamps", root.parent / "agent.sh"
    stamps.mkdir()
    stamp = f'[ "$RUNPLAN_ROLE" = implement ] && : >"{stamps}/$RUNPLAN_PHASE"'
    moved = f'cp -p "{root}/.git/refs/heads/main" "{stamps}/$RUNPLAN_PHASE.main"'
    agent.write_text(f"{stamp} && {moved}\n{agent.read_text()}")
    began = time.time()
    subprocess.run(START, cwd=root, env=environment(root.parent / "home"), check=True, capture_output=True)
    begun = [(stamps / str(phase)).stat().st_mtime for phase in range(1, 11)]
    landed = [(stamps / f"{phase}.main").stat().st_mtime for phase in range(1, 11)]
    gaps = sorted(begin - land for begin, land in zip(begun[1:], landed[1:], strict=True))
    print(
        f"next agent {statistics.median(gaps) * 1000:.0f} ms after a landing (target 50), "
        f"{gaps[0] * 1000:.0f}..{gaps[-1] * 1000:.0f}; first agent {(begun[0] - began) * 1000:.0f} ms after the start"
    )


def start_up(place: Path, *, rounds: int) -> None:
    """Wall time of the quickest commands, as multiples of `python -c pass`."""
    root = make(place / "start-up", files=100, phases=2)
    env = environment(root.parent / "home")
    subprocess.run(START, cwd=root, env=env, check=True, capture_output=True)
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "runplan --version": [RUNPLAN, "--version"],
        "runplan --help": [RUNPLAN, "--help"],
        "runplan status": [RUNPLAN, "status"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, cwd=root, env=env, check=True, capture_output=True)
            times[name].append(time.perf_counter() - began)
    bare = statistics.median(times["python -c pass"])
    for name, target in (("runplan --version", 4), ("runplan --help", 4), ("runplan status", 6)):
        took = statistics.median(times[name])
        print(f"{name:<18} {took * 1000:5.0f} ms, {took / bare:.1f} times python -c pass (target {target})")


if __name__ == "__main__":
    main()
