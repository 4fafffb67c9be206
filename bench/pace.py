"""A plan as people have it: six dependent phases whose set-up, tests, implementer and verifier take their time.

`python -m bench.pace [--runplan PROGRAM] [--pipeline N]… [--scale FACTOR]` measures it alone, with any version.
The floor is the time of all implementers, one after the other, and of the last proof.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.parts import read_parts
from bench.projects import environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUNPLAN = str(Path(sys.executable).with_name("runplan"))
PHASES = 6
SETUP_S = 2.0
TESTS_S = 3.0
IMPLEMENT_S = 6.0
VERIFY_S = 3.0
FLOOR_S = PHASES * IMPLEMENT_S + TESTS_S + VERIFY_S

AGENT = """\
#!/bin/sh
case "$RUNPLAN_ROLE" in
implement)
    sleep {implement}
    echo "$RUNPLAN_PHASE" >"part$RUNPLAN_PHASE.txt"
    git add . && git commit -q -m "Write part $RUNPLAN_PHASE" ;;
verify)
    sleep {verify}
    items=$(sed -n '/^## Items$/,/^## [^I]/s/^- \\([A-Z][A-Z0-9]*\\): .*/\\1/p' "$RUNPLAN_PROMPT")
    answers=
    for item in $items; do
        [ "$RUNPLAN_PHASE" = all ] && part=${{item#F}} || part=$RUNPLAN_PHASE
        answer="\\"item\\":\\"$item\\",\\"result\\":\\"pass\\",\\"evidence\\":\\"part$part.txt\\""
        answers="$answers${{answers:+,}}{{$answer}}"
    done
    echo "{{\\"status\\":\\"done\\",\\"summary\\":\\"seen\\",\\"items\\":[$answers]}}" >"$RUNPLAN_RETURN" ;;
esac
"""
#: Prints TAP, which names the tests. They need the product of the set-up.
TESTS = """\
#!/bin/sh
sleep {tests}
test -f build/product || exit 1
echo "1..2"
echo "ok 1 - parts are text"
echo "ok 2 - parts are numbered"
"""
SETTINGS = """\
[run]
setup = "sleep {setup} && mkdir -p build && date >build/product"
{pipeline}
[tests]
command = "sh tests/run.sh"
[agents]
implementer = "sleeper"
verifier = "sleeper"
[agents.sleeper]
kind = "command"
argv = ["sh", "{agent}"]
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pace")
    parser.add_argument("--runplan", default=RUNPLAN, help="the program to measure")
    parser.add_argument("--pipeline", type=int, action="append", help="run.pipeline; unset without it; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every sleep")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        pace(Path(place), options.pipeline or [None], runplan=options.runplan, scale=options.scale)


def pace(place: Path, pipelines: Sequence[int | None], *, runplan: str = RUNPLAN, scale: float = 1.0) -> None:
    """Print one line for each value of `run.pipeline`; None leaves it unset, for versions that do not know it."""
    for number, pipeline in enumerate(pipelines):
        root = make(place / f"pace{number}", pipeline=pipeline, scale=scale)
        env = environment(root.parent / "home")
        began = time.perf_counter()
        command = [runplan, "start", "X", "finish", "auto", "--foreground"]
        subprocess.run(command, cwd=root, env=env, check=True, capture_output=True)
        took = time.perf_counter() - began
        floor = FLOOR_S * scale
        called = "" if pipeline is None else f", pipeline {pipeline}"
        print(
            f"{PHASES} dependent phases{called}: {took:.1f} s, floor {floor:.1f} s, ratio {took / floor:.2f}; "
            f"{read_parts(runplan, 'X', root, env, took).in_words()}; sandbox {sandbox(runplan, root, env)}",
            flush=True,
        )


def sandbox(runplan: str, root: Path, env: Mapping[str, str]) -> str:
    found = subprocess.run(
        [runplan, "doctor", "--json"], cwd=root, env=env, check=False, capture_output=True, text=True
    )
    checks = {check["name"]: str(check["detail"]) for check in json.loads(found.stdout)}
    return checks["sandbox"].partition(".")[0]


def make(place: Path, *, pipeline: int | None, scale: float) -> Path:
    """A repository with the plan, its tests and a manifest, and its agent beside it."""
    home, root = place / "home", place / "repo"
    home.mkdir(parents=True)
    (home / "gitconfig").write_text("[user]\n\tname = Bench\n\temail = bench@example.org\n")
    agent = home / "agent.sh"  # in the sandbox, nothing else beside the repository is there
    agent.write_text(AGENT.format(implement=IMPLEMENT_S * scale, verify=VERIFY_S * scale))
    for folder in ("plans", "tests", "src"):
        (root / folder).mkdir(parents=True)
    (root / "plans/X.md").write_text(plan(), encoding="utf-8")
    (root / "tests/run.sh").write_text(TESTS.format(tests=TESTS_S * scale))
    (root / "requirements.txt").write_text("attrs==25.1.0\n")
    (root / ".gitignore").write_text("/build/\n")
    for number in range(100):
        (root / f"src/file{number}.txt").write_text(f"{number}\n" * 40)
    key = "" if pipeline is None else f"pipeline = {pipeline}"
    (root / "runplan.toml").write_text(SETTINGS.format(setup=SETUP_S * scale, pipeline=key, agent=agent))
    env = environment(home)
    for words in (["-c", "init.defaultBranch=main", "init", "-q"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=root, env=env, check=True)
    return root


def plan() -> str:
    """Phases that each wait for the one before."""
    rows = "".join(f"| {n} — Part {n} | ⬚ | | |\n" for n in range(1, PHASES + 1))
    table = f"| Phase | Status | Commit | Notes |\n|---|---|---|---|\n{rows}"
    return f"# Plan: X\n\n## Progress Tracker\n\n{table}" + "".join(map(section, range(1, PHASES + 1)))


def section(number: int) -> str:
    depends = f"Depends: {number - 1}\n" if number > 1 else ""
    items = f"### Work Items\n\n- [ ] Write part{number}.txt\n"
    return f"\n## Phase {number} — Part {number}\n\n{depends}Touches: part{number}.txt\n\n{items}"


if __name__ == "__main__":
    main()
