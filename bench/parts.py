"""How the time of a run is spent, from the journal of any version: `runplan logs PLAN --json`."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: The part of a run that each role belongs to. Other roles are agents.
PARTS = {"setup": "set-up", "baseline": "tests", "gate": "tests", "prove": "tests"}
NAMES = ("agents", "set-up", "tests")


@dataclass
class Parts:
    """Processes of a run by part. With a pipeline some run at the same time, so that the sum may exceed `wall_s`."""

    wall_s: float
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    roles: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    busy_s: float = 0.0  #: while at least one of them runs

    @property
    def rest_s(self) -> float:
        """Time in which no agent, set-up or test runs: the work of runplan itself."""
        return self.wall_s - self.busy_s

    def in_words(self) -> str:
        parts = (f"{name} {self.counts[name]} in {self.seconds[name]:.1f} s" for name in NAMES)
        roles = ", ".join(f"{role} {count}" for role, count in sorted(self.roles.items()))
        return f"{', '.join(parts)}, rest {self.rest_s:.1f} s ({roles})"


def read_parts(runplan: str, plan: str, root: Path, env: Mapping[str, str], wall_s: float) -> Parts:
    """The parts of the newest run of a plan, which took so many seconds."""
    command = [runplan, "logs", plan, "--json"]
    lines = subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, text=True).stdout.splitlines()
    parts = Parts(wall_s)
    spans = []
    for event in map(json.loads, lines):
        if event["type"] != "DispatchEnded":
            continue
        # The journal has whole seconds, the record of the process has fractions. A process that never began has none.
        record = root / ".git/runplan/dispatch" / event["id"] / "exit.json"
        if not record.exists():
            continue
        ended = json.loads(record.read_text())
        name = PARTS.get(event["role"], "agents")
        parts.seconds[name] += ended["seconds"]
        parts.counts[name] += 1
        parts.roles[event["role"]] += 1
        spans.append((ended["ended_at"] - ended["seconds"], ended["ended_at"]))
    parts.busy_s = covered(spans)
    return parts


def covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of these spans."""
    length = 0.0
    reached = 0.0
    for begin, end in sorted(spans):
        length += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return length
