"""Repositories to measure in: a plan of phases that do next to nothing, and as many files as asked for."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

AGENT = """\
#!/bin/sh
case "$RUNPLAN_ROLE" in
implement)
    echo "$RUNPLAN_PHASE" >>work.txt && git add work.txt && git commit -q -m "Phase $RUNPLAN_PHASE" ;;
verify)
    items=$(sed -n '/^## Items$/,/^## What/s/^- \\([A-Z][0-9]*\\): .*/\\1/p' "$RUNPLAN_PROMPT")
    set -- $items
    printf '{"status":"done","summary":"seen","items":[' >"$RUNPLAN_RETURN"
    printf '{"item":"%s","result":"pass","evidence":"work.txt"},' "$@" >>"$RUNPLAN_RETURN"
    printf '{"item":"end","result":"pass","evidence":"work.txt"}]}' >>"$RUNPLAN_RETURN" ;;
esac
"""
SETTINGS = """\
[agents]
implementer = "noop"
verifier = "noop"
sandbox = "none"
[agents.noop]
kind = "command"
argv = ["sh", "{agent}"]
"""


def environment(home: Path) -> dict[str, str]:
    """Isolated from the user's git settings and daemon, and from what would let Python forget its compiled modules."""
    foreign = ("GIT_", "RUNPLAN_", "PYTHON", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"HOME": str(home), "GIT_CONFIG_GLOBAL": str(home / "gitconfig"), "GIT_CONFIG_NOSYSTEM": "1"}


def plan(phases: int) -> str:
    rows = "".join(f"| {n} — Step {n} | ⬚ | | |\n" for n in range(1, phases + 1))
    sections = "".join(f"\n## Phase {n} — Step {n}\n\nAdd a line to work.txt.\n" for n in range(1, phases + 1))
    table = f"| Phase | Status | Commit | Notes |\n|---|---|---|---|\n{rows}"
    return f"---\ntitle: X\nstatus: active\n---\n# Plan: X\n\n## Progress Tracker\n\n{table}{sections}"


def make(place: Path, *, files: int, phases: int) -> Path:
    """A repository with `files` small files in folders of a hundred, the plan, and its agent."""
    home, root = place / "home", place / "repo"
    home.mkdir(parents=True)
    (home / "gitconfig").write_text("[user]\n\tname = Bench\n\temail = bench@example.org\n")
    agent = place / "agent.sh"
    agent.write_text(AGENT)
    for number in range(files):
        path = root / f"src/{number // 100}/file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * (20 + number % 50))
    (root / "plans").mkdir(parents=True)
    (root / "plans/X.md").write_text(plan(phases), encoding="utf-8")
    (root / "runplan.toml").write_text(SETTINGS.format(agent=agent))
    env = environment(home)
    for words in (["-c", "init.defaultBranch=main", "init", "-q"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=root, env=env, check=True)
    return root
