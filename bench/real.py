"""Real projects: three small phases in clones of click, express and structlog, prepared as a user does it.

`python -m bench.real DIRECTORY [NAME…] [--runplan PROGRAM] [--pipeline N] [--think SECONDS]`. DIRECTORY holds the
clones, one folder for each name. Their package managers (uv, npm, pip) are needed, with a cache or a registry. The
agents are scripted: each implementer adds a function and its test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.parts import NAMES, Parts, read_parts

RUNPLAN = str(Path(sys.executable).with_name("runplan"))
PHASES = 3
THINK_S = 2.0

AGENT = """\
import json, os, pathlib, re, shutil, subprocess, sys, time

prompt = sys.stdin.read()
phase = os.environ["RUNPLAN_PHASE"]
time.sleep({think})
if os.environ["RUNPLAN_ROLE"] == "verify":
    items = re.findall(r"^- (\\w+): ", prompt.partition("\\n## Items\\n")[2].partition("\\n## ")[0], re.MULTILINE)
    tests = {test!r}.replace("NUMBER", phase if phase.isdigit() else "1")
    evidence = [{{"kind": "file", "ref": tests, "line": 1}}]
    answers = [{{"item": item, "result": "pass", "evidence": evidence}} for item in items]
    answer = {{"status": "done", "summary": "Read the tests.", "items": answers}}
    pathlib.Path(os.environ["RUNPLAN_RETURN"]).write_text(json.dumps(answer))
else:
    shutil.copytree(pathlib.Path({edits!r}, phase), ".", dirs_exist_ok=True)
    subprocess.run(["git", "add", "--all"], check=True)
    subprocess.run(["git", "commit", "-q", "-m", "Add part " + phase], check=True)
"""
TABLE = """
[agents.scripted]
kind = "command"
argv = ["python3", "{agent}"]
"""


@dataclass(frozen=True)
class Project:
    """The files of a phase; NUMBER stands for its number."""

    code: str
    code_text: str
    test: str
    test_text: str


_PYTEST = (
    "from {package}.partNUMBER import partNUMBER\n\n\ndef test_partNUMBER():\n    assert partNUMBER(2) == 2 * NUMBER\n"
)
_PYTHON = "def partNUMBER(value: int) -> int:\n    return value * NUMBER\n"
_MOCHA = """\
'use strict'

var assert = require('node:assert')
var partNUMBER = require('../lib/partNUMBER')

describe('partNUMBER', function () {
  it('should multiply', function () {
    assert.strictEqual(partNUMBER(2), 2 * NUMBER)
  })
})
"""
_NODE = "'use strict'\n\nmodule.exports = function partNUMBER (value) {\n  return value * NUMBER\n}\n"
PROJECTS = {
    "click": Project("src/click/partNUMBER.py", _PYTHON, "tests/test_partNUMBER.py", _PYTEST.format(package="click")),
    "express": Project("lib/partNUMBER.js", _NODE, "test/partNUMBER.js", _MOCHA),
    "structlog": Project(
        "src/structlog/partNUMBER.py", _PYTHON, "tests/test_partNUMBER.py", _PYTEST.format(package="structlog")
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.real")
    parser.add_argument("directory", type=Path, help="holds the clones")
    parser.add_argument("names", nargs="*", help=f"of projects: {', '.join(PROJECTS)}; all without names")
    parser.add_argument("--runplan", default=RUNPLAN, help="the program to measure")
    parser.add_argument("--pipeline", type=int, help="run.pipeline; unset without it")
    parser.add_argument("--think", type=float, default=THINK_S, help="seconds that each agent sleeps")
    options = parser.parse_args()
    print("| project | wall | agents | set-up | tests | rest |\n|---|---|---|---|---|---|")
    for name in options.names or PROJECTS:
        parts = measure(options.directory.absolute(), name, options)
        columns = (f"{parts.seconds[part]:.0f} s ({parts.counts[part]})" for part in NAMES)
        print(f"| {name} | {parts.wall_s:.0f} s | {' | '.join(columns)} | {parts.rest_s:.0f} s |", flush=True)


def measure(directory: Path, name: str, options: argparse.Namespace) -> Parts:
    """Clone, `runplan init`, write the plan, and work it to its end."""
    place = directory / f"measured-{name}"
    shutil.rmtree(place, ignore_errors=True)
    root = place / name
    env = environment(options.pipeline)
    prepare(directory / name, root, options.runplan, PROJECTS[name], options.think, env)
    began = time.perf_counter()
    command = [options.runplan, "start", "X", "finish", "auto", "--foreground"]
    with (place / "output.log").open("w") as output:
        subprocess.run(command, cwd=root, env=env, check=True, stdout=output, stderr=output)
    return read_parts(options.runplan, "X", root, env, time.perf_counter() - began)


def environment(pipeline: int | None) -> dict[str, str]:
    """The user's, whose package managers are configured there, without settings of Python, git and runplan."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "RUNPLAN_", "PYTHON"))}
    settings = {"RUNPLAN_AGENTS_IMPLEMENTER": "scripted", "RUNPLAN_AGENTS_VERIFIER": "scripted"}
    return kept | settings | ({} if pipeline is None else {"RUNPLAN_RUN_PIPELINE": str(pipeline)})


def prepare(source: Path, root: Path, runplan: str, project: Project, think_s: float, env: dict[str, str]) -> None:
    subprocess.run(["git", "clone", "-q", str(source), str(root)], env=env, check=True)
    for key, value in (("name", "Bench"), ("email", "bench@example.org")):
        subprocess.run(["git", "config", f"user.{key}", value], cwd=root, env=env, check=True)
    edits = root.parent / "edits"
    for number in range(1, PHASES + 1):
        for path, text in ((project.code, project.code_text), (project.test, project.test_text)):
            file = edits / str(number) / path.replace("NUMBER", str(number))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("NUMBER", str(number)))
    agent = root.parent / "agent.py"
    agent.write_text(AGENT.format(think=think_s, test=project.test, edits=str(edits)))
    subprocess.run([runplan, "init"], cwd=root, env=env, check=True, capture_output=True)
    with (root / "runplan.toml").open("a") as settings:
        settings.write(TABLE.format(agent=agent))
    (root / "plans").mkdir(exist_ok=True)
    (root / "plans/X.md").write_text(plan(project), encoding="utf-8")
    for words in (["add", "plans/X.md", "runplan.toml"], ["commit", "-q", "-m", "Plan"]):
        subprocess.run(["git", *words], cwd=root, env=env, check=True)


def plan(project: Project) -> str:
    """Phases that each wait for the one before."""
    text = "# Plan: X\n"
    for number in range(1, PHASES + 1):
        depends = f"Depends: {number - 1}\n\n" if number > 1 else ""
        files = f"{project.code} and {project.test}".replace("NUMBER", str(number))
        text += (
            f"\n## Phase {number}: Part {number}\n\n{depends}**Status:** ⬚\n\n### Work Items\n\n- [ ] Write {files}\n"
        )
    return text


if __name__ == "__main__":
    main()
