"""`python -m bench.sandboxes`: the start of an empty process of an agent in each sandbox that works here, in turn.

Containers need the image of `make test-container`.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runplan.adapters.sandbox.engines import is_used, open_sandbox
from runplan.adapters.sandbox.view import Places, View
from runplan.domain.run.dispatch import TEMPORARY
from runplan.domain.settings.schema import ContainerSettings
from tests.container.image import ENV, find_image, list_engines


def starts(place: Path, *, rounds: int) -> None:
    worktree, home, scratch = place / "worktree", place / "home", place / "scratch"
    for path in (worktree, home, *(scratch / name for name in TEMPORARY.values())):
        path.mkdir(parents=True)
    env, homes = ENV | {"HOME": str(home)}, place / "homes"
    kinds = {name: (name, "", "auto") for name in ("none", "bwrap") if name == "none" or is_used("auto", env)}
    images = {engine.name: find_image(engine) for engine in list_engines()}
    kinds |= {name: ("container", image, name) for name, image in images.items() if image}
    boxes = {
        name: open_sandbox(mode, env, Places(homes, (worktree,), image=image), ContainerSettings(engine=engine))
        for name, (mode, image, engine) in kinds.items()
    }
    times: dict[str, list[float]] = {name: [] for name in boxes}
    for number in range(rounds):
        view = View(cwd=worktree, dispatch=f"bench.{number}", writable=(worktree,), home=homes / "1", scratch=scratch)
        for name, box in boxes.items():
            began = time.perf_counter()
            subprocess.run(box.wrap(("sh", "-c", ":"), view), cwd=worktree, env=env, check=True)
            times[name].append(time.perf_counter() - began)
    base = statistics.median(times.get("bwrap", times["none"]))
    for name, taken in times.items():
        took = statistics.median(taken)
        print(f"start of a process, {name:<6} {took * 1000:5.0f} ms, {took / base:5.2f} times bwrap", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        starts(Path(folder), rounds=int(sys.argv[1]) if len(sys.argv) > 1 else 12)
