"""`python -m bench.fixed OTHER_CHECKOUT [ROUNDS]`: the fixed cost of a run, here and in another checkout.

A plan of one phase that does nothing, from `start` to the first agent and to the end, in interleaved rounds.
"""

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

from bench.projects import environment, make

START = ("start", "X", "finish", "auto", "--foreground")
FIGURES = ("first agent, wall", "end, wall", "end, CPU")
HERE = Path(__file__).parent.parent


def main() -> None:
    checkouts = {"other": Path(sys.argv[1]).resolve(), "here": HERE}
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    for checkout in checkouts.values():
        compileall.compile_dir(checkout / "runplan", quiet=1)  # as an installed package is
    seconds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory() as place:
        for number in range(rounds + 1):
            for name, checkout in checkouts.items():
                took = measure(checkout / ".venv/bin/runplan", Path(place) / f"{name}-{number}")
                if number:  # the first round fills the page cache
                    seconds[name].append(took)
    for at, figure in enumerate(FIGURES):
        other, here = (statistics.median(took[at] for took in seconds[name]) for name in checkouts)
        print(f"{figure:<18} {other * 1000:5.0f} ms in the other, {here * 1000:5.0f} ms here, ratio {here / other:.2f}")


def measure(runplan: Path, place: Path) -> tuple[float, float, float]:
    """Wall seconds to the first agent and to the end, and CPU seconds of all processes but shims."""
    root = make(place, files=100, phases=1)
    stamp, agent = place / "stamp", place / "agent.sh"
    agent.write_text(f'test -e "{stamp}" || : >"{stamp}"\n{agent.read_text()}')
    began, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([runplan, *START], cwd=root, env=environment(place / "home"), check=True, capture_output=True)
    ended, after = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    first = stamp.stat().st_mtime
    shutil.rmtree(place)
    return first - began, ended - began, cpu


if __name__ == "__main__":
    main()
