"""Plays a page of the documentation: writes the files it shows, runs its commands, and compares the output.

A page shows a file as a block after a line that ends with its path and a colon. It shows a command as a line of a
`console` block that begins with `$ `; the lines below it are the output. A line `…` means any lines,
and `…` in a line for any text.

`python -m tests.support.transcripts` (`make docs`) writes the output of this version into the pages.
"""

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tests.support.cli import RUNPLAN, end_processes_of, until
from tests.support.documents import ROOT, fences, read
from tests.support.environment import own_environment
from tests.support.postgres import create_database
from tests.support.tools import link_tools

LEFT_OUT = "…"
FILE = re.compile(r"`([\w./-]+)`:\s*\Z")
#: Parts of the output that differ from run to run, and the word that replaces them before a comparison.
VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z| [A-Z]+)?"), "TIME"),
    (re.compile(r"(?:\b[A-Z][a-z]{2} )?\b\d\d:\d\d(?::\d\d)?(?: [A-Z]{3,4})?"), "TIME"),
    (re.compile(r"\b(?:just now|(?:\d+[dhms] ?)+ago|in (?:\d+[dhms] ?)+)"), "AGO"),
    (re.compile(r"\b(?:\d+d ?)?(?:\d+h ?)?(?:\d+m ?)?\d+(?:\.\d+)?s\b"), "DURATION"),
    (re.compile(r"\br?[0-9a-f]{7,40}\b"), "ID"),
    (re.compile(r"\b\d[\d,]* tokens\b"), "TOKENS"),
    (re.compile(r"(?:≥ )?\$\d+\.\d\d\b"), "COST"),
)

#: A program that is called like the agent, does what the plan of both pages asks for, and prints a captured stream.
PROGRAM = r"""
import json, os, pathlib, re, sys
if "--version" in sys.argv:
    sys.exit(print(VERSION))
prompt = pathlib.Path(os.environ["RUNPLAN_PROMPT"]).read_text()
if os.environ["RUNPLAN_ROLE"] == "verify":
    names = re.findall(r"^- (\w+): ", prompt.partition("\n## Items\n")[2].partition("\n## ")[0], re.M)
    items = [{"item": name, "result": "pass", "evidence": "test_greeting.py"} for name in names]
    answer = {"status": "done", "summary": "", "items": items}
    pathlib.Path(os.environ["RUNPLAN_RETURN"]).write_text(json.dumps(answer))
else:
    for name, text in WORK[os.environ["RUNPLAN_ROLE"] + " " + os.environ["RUNPLAN_PHASE"]].items():
        pathlib.Path(name).write_text(text)
sys.stdout.write(pathlib.Path(STREAM).read_text())
"""
HELLO = 'def hello(name):\n    return f"Hello, {name}!"\n'
GOODBYE = '\n\ndef goodbye(name):\n    return f"Goodbye, {name}."\n'
TEST_HELLO = (
    "import unittest\nimport greeting\n\n\nclass Greeting(unittest.TestCase):\n"
    '    def test_hello(self):\n        self.assertEqual(greeting.hello("Uma"), "Hello, Uma!")\n'
)
TEST_GOODBYE = '\n    def test_goodbye(self):\n        self.assertEqual(greeting.goodbye("Uma"), "Goodbye, Uma.")\n'
#: The files that an agent writes, by role and phase. The implementer of phase 2 forgets the full stop.
WORK = {
    "implement 1": {"greeting.py": HELLO, "test_greeting.py": TEST_HELLO},
    "implement 2": {"greeting.py": HELLO + GOODBYE.replace('."', '"'), "test_greeting.py": TEST_HELLO + TEST_GOODBYE},
    "fix 2": {"greeting.py": HELLO + GOODBYE},
}
VERSIONS = {"claude": "2.1.197 (Claude Code)", "codex": "codex-cli 0.166.0"}


@dataclass(frozen=True)
class Step:
    """One command of a page, the output that the page shows, and the output that it had."""

    command: str
    shown: tuple[str, ...]
    printed: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether the page shows what was printed, apart from ids, times and lines that it leaves out."""
        lines = (r"(?:.*\n)*?" if line == LEFT_OUT else f"{_pattern(line)}\n" for line in self.shown)
        return re.fullmatch("".join(lines), "".join(f"{plain(line)}\n" for line in self.printed)) is not None


@dataclass
class Stage:
    """The home of a person in which commands run; `cd` lasts until the next one."""

    home: Path
    cwd: Path
    env: dict[str, str]
    at_end: contextlib.ExitStack

    def write(self, name: str, text: str) -> None:
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, command: str) -> tuple[str, ...]:
        """The output of a command, both streams as on a terminal, with the home directory as a reader has it."""
        place = self.home / ".cwd"
        ran = subprocess.run(
            ["sh", "-c", f"{command}\npwd >{place}"],
            cwd=self.cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        self.cwd = Path(place.read_text(encoding="utf-8").strip())
        return tuple(ran.stdout.rstrip().replace(str(self.home), "/home/uma").splitlines())


@contextlib.contextmanager
def a_stage(home: Path) -> Iterator[Stage]:
    """The home of a person who has git, claude and codex, and is signed in to both; there is no bubblewrap."""
    (home / "bin").mkdir(parents=True)
    for name, version in VERSIONS.items():
        constants = f"VERSION, WORK = {version!r}, {WORK!r}\nSTREAM = {str(ROOT / 'tests/samples' / name)!r}"
        program = home / "bin" / name
        program.write_text(f"#!{sys.executable}\n{constants} + '/success.jsonl'\n{PROGRAM}", encoding="utf-8")
        program.chmod(0o755)
    (home / ".gitconfig").write_text("[user]\n\tname = Uma\n\temail = uma@example.org\n", encoding="utf-8")
    path = f"{home / 'bin'}:{RUNPLAN.parent}:{link_tools(home / 'tools')}"
    keys = {"ANTHROPIC_API_KEY": "sk-of-uma", "OPENAI_API_KEY": "sk-of-uma"}
    env = {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", "TZ": "UTC", **keys}
    with contextlib.ExitStack() as at_end:
        at_end.callback(end_processes_of, home)
        yield Stage(home=home, cwd=home, env=env, at_end=at_end)


def _empty(_stage: Stage) -> None:
    """The page makes its own repository."""


def _with_makefile(stage: Stage) -> None:
    stage.run("mkdir project && cd project && git init -q -b main")
    stage.write("Makefile", "test:\n\t@python3 -m unittest -v\n")
    stage.run("git add . && git commit -qm Start")


def _with_planner(stage: Stage) -> None:
    """The project of the demo, without its plan."""
    stage.run(f"cp -r {ROOT}/config/demo shop && cd shop && rm plans/*.md && git init -q -b main")
    stage.write("check", "exec python3 -m unittest discover -v -s tests\n")
    stage.run("git add . && git commit -qm Start")


def _with_plan(stage: Stage) -> None:
    """A repository with the plan X, whose phases a script agent works on."""
    stage.run("mkdir project && cd project && git init -q -b main")
    stage.write("plans/X.md", "# Plan: Notes\n\n- [ ] Write notes.txt\n- [ ] Write more.txt\n")
    stage.write("runplan.toml", AGENTS)
    work = "".join(f'[[phase."{n}".implement]]\nwrite = "{f}"\n' for n, f in NOTES.items())
    stage.write("actor.toml", f'{work}[[phase."2".fix]]\nappend = "more.txt"\ntext = "longer"\n')
    stage.run("git add . && git commit -qm Start")


def _with_fleet(stage: Stage) -> None:
    """The same plan in a clone with a remote, and two hosts of a fleet."""
    _with_plan(stage)
    stage.run(f"git init -q --bare -b main {stage.home}/app.git && git remote add origin {stage.home}/app.git")
    stage.run("git push -qu origin main")
    stage.env["RUNPLAN_FLEET_DSN"] = create_database()
    stage.run("runplan fleet init")
    for host in ("alpha", "beta"):
        home = stage.home / host
        home.mkdir()
        words = [str(RUNPLAN), "worker", "--host", host, "--slots", "2"]
        shutil.copy(stage.home / ".gitconfig", home)
        process = subprocess.Popen(words, cwd=home, env={**stage.env, "HOME": str(home)})
        stage.at_end.callback(process.wait)
        stage.at_end.callback(end_processes_of, home)

    until(lambda: " ".join(stage.run("runplan fleet status")).count(" up ") == 2)


NOTES = {"1": "notes.txt", "2": "more.txt"}
AGENTS = """\
[agents]
implementer = "actor"
verifier = "actor"
sandbox = "none"

[agents.actor]
kind = "script"
script = "actor.toml"
"""
#: The pages that are played, each with the repository in which its commands run.
PAGES: dict[str, Callable[[Stage], None]] = {
    "README.md": _with_makefile,
    "docs/tutorial.md": _empty,
    "docs/planning.md": _with_planner,
    "docs/trial.md": _empty,
    "docs/daemon.md": _with_plan,
    "docs/landing.md": _with_plan,
    "docs/fleet.md": _with_fleet,
}


def play(name: str, home: Path) -> list[Step]:
    """The commands of a page, played in this home."""
    with a_stage(home) as stage:
        PAGES[name](stage)
        return play_commands(read(name), stage)


def play_commands(text: str, stage: Stage) -> list[Step]:
    lines = text.splitlines()
    played: list[Step] = []
    for fence in fences(text):
        named = FILE.search("\n".join(lines[max(fence.line - 3, 0) : fence.line - 1]))
        if fence.language == "console":
            for part in re.split(r"^\$ ", fence.text, flags=re.MULTILINE)[1:]:
                command, *shown = part.rstrip().splitlines()
                played.append(Step(command=command, shown=tuple(shown), printed=stage.run(command)))
        elif named is not None:
            stage.write(named[1], fence.text)
    return played


def _pattern(line: str) -> str:
    return ".*".join(map(re.escape, plain(line).split(LEFT_OUT)))


def plain(line: str) -> str:
    for varying, word in VARYING:
        line = varying.sub(word, line)
    return line.rstrip()


def captured(text: str, played: list[Step], *, figures: bool = False) -> str:
    """The page with the output that was printed; of output that it shows in part, the lines that are most alike.

    Output that differs in ids, times and figures alone stays as it is, unless the figures are wanted.
    """
    done = ""
    for step in played:
        alike = [line if line == LEFT_OUT else _most_alike(line, step.printed) for line in step.shown]
        printed = alike if LEFT_OUT in step.shown else step.printed
        old, new = ("\n".join((f"$ {step.command}", *lines)) for lines in (step.shown, printed))
        before, _, text = text.partition(old)
        done += before + (old if step.agrees and not figures else new)
    return done + text


def _most_alike(line: str, printed: tuple[str, ...]) -> str:
    if LEFT_OUT in line and any(re.fullmatch(_pattern(line), plain(one)) for one in printed):
        return line
    return next(iter(get_close_matches(line, printed, n=1, cutoff=0.3)), line)


def main() -> None:
    with own_environment():
        for name in PAGES:
            with tempfile.TemporaryDirectory() as place:
                played = play(name, Path(place) / "uma")
            (ROOT / name).write_text(captured(read(name), played), encoding="utf-8")


if __name__ == "__main__":
    main()
