"""A project with a plan and a scripted agent, run by the installed command."""

import atexit
import contextlib
import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.support import forks, inject
from tests.support.repos import Repo, init_repo

#: So that the tests test the same on every machine; those of the sandbox set another value in `extra`.
NO_SANDBOX = {"RUNPLAN_AGENTS_SANDBOX": "none"}
RUNPLAN = Path(sys.executable).with_name("runplan")

SETTINGS = """\
[agents]
implementer = "robot"
verifier = "robot"
[agents.robot]
kind = "script"
script = "agent.toml"
"""


@dataclass(frozen=True)
class Ran:
    """How the command ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line of standard error."""
        return self.err.rstrip().rpartition("\n")[2]

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def exits(self, code: int, *said: str) -> Self:
        """The same, if it ended with this code and said this on standard error."""
        assert (self.code, [text for text in said if text not in self.err]) == (code, []), self.err
        return self

    def ends(self, code: int, last: str, *said: str) -> Self:
        """The same, if it ended with this code, and with this line on standard error; it also said this there."""
        assert self.last == last, self.err
        return self.exits(code, *said)


@dataclass
class Project:
    """A repository with runplan.toml, plans/ and agent.toml, all committed."""

    repo: Repo
    home: Path
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.repo.path

    @property
    def env(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config")}
        return {**self.repo.env, **own, **NO_SANDBOX, **self.extra}

    @property
    def worked(self) -> Repo:
        """The repository in which runplan works."""
        return self.repo

    @property
    def worktrees(self) -> Path:
        """The directory of the worktrees; it is there only while a run has one."""
        return self.path.with_name(f"{self.path.name}.runplan")

    def runplan(self, *args: str, **env: str) -> Ran:
        return self.runplan_in(self.path, *args, **env)

    def runplan_in(self, cwd: Path, *args: str, **env: str) -> Ran:
        return run_command(*args, cwd=cwd, env={**self.env, **env})

    def runplan_from(self, script: str, *args: str, cwd: Path | None = None) -> Ran:
        """Let a shell start the command, as "$@"."""
        return run_program(["sh", "-c", script, "sh", RUNPLAN, *args], cwd or self.path, self.env)

    def run_program(self, *argv: str | Path) -> Ran:
        """Run another program as the user."""
        return run_program(argv, self.path, self.env)

    def go_on(self, ran: Ran) -> Ran:
        """Run the command that continues a waiting run: the first one of its last line that does not only show it."""
        commands = [shlex.split(part.partition(": runplan ")[2]) for part in ran.last.split(";")]
        words = next((words for words in commands if words and words[0] not in ("diff", "explain")), None)
        assert words, ran.err
        return self.runplan(*words)

    def events(self, plan: str = "plans/X.md") -> list[tuple[str, dict[str, Any]]]:
        """(type, fields) of everything the journal holds on the plan, in order."""
        query = "SELECT type, body FROM events WHERE run IN (SELECT id FROM runs WHERE plan=?) ORDER BY seq"
        return [(kind, json.loads(body)) for kind, body in self.rows(query, plan)]

    def bodies(self, kind: str, plan: str = "plans/X.md") -> list[dict[str, Any]]:
        """The fields of the plan's events of one type, in order."""
        return [body for type_, body in self.events(plan) if type_ == kind]

    def prompts(self, *roles: str, plan: str = "plans/X.md") -> list[str]:
        """The prompts of the plan's agents, or of those in some roles, in order."""
        started = [body for body in self.bodies("DispatchStarted", plan) if not roles or body["role"] in roles]
        files = (self.path / ".git/runplan/dispatch" / body["id"] / "prompt.md" for body in started)
        return [file.read_text(encoding="utf-8") for file in files if file.exists()]

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the journal; none while there is no journal, or nothing in it yet."""
        place = self.path / ".git/runplan/journal.db"
        try:
            # Reading creates no file.
            with contextlib.closing(sqlite3.connect(f"{place.as_uri()}?mode=rw", uri=True)) as journal:
                return journal.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            if str(error).startswith(("unable to open database file", "no such table")):
                return []
            raise

    def dispatched(self, plan: str = "plans/X.md") -> list[str]:
        """The roles that were dispatched for the plan, in order."""
        return [body["role"] for body in self.bodies("DispatchStarted", plan)]

    def start(self, *words: str, **env: str) -> Ran:
        return self.runplan("start", "X", *words, "--foreground", **env)

    def popen(self, *args: str, **env: str) -> forks.Process:
        """The command in the background; the caller waits for it."""
        given = {**self.env, **env}
        if forks.serves(given):
            read_end, write_end = os.pipe()
            with open(os.devnull, "wb") as nothing, open(write_end, "wb") as err:
                started = forks.starter().start(args, cwd=self.path, env=given, out=nothing.fileno(), err=err.fileno())
            return forks.Program(started, open(read_end, "rb"))
        injected = any(name in given for name in inject.VARIABLES)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", inject.RUN, *args] if injected else [RUNPLAN, *args],
            cwd=self.path,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    @contextlib.contextmanager
    def running(self, *args: str, **env: str) -> Iterator[forks.Process]:
        """The same, ended with the block if it has not ended by itself."""
        with self.popen(*args, **env) as process:
            try:
                yield process
            finally:
                process.kill()

    def commit_file(self, name: str, text: str) -> None:
        self.repo.write(name, text)
        self.repo.git("add", "--", name)
        self.repo.git("commit", "-qm", f"Set {name}")

    def agent(self, text: str) -> None:
        """Set the script of the agent."""
        self.commit_file("agent.toml", text)

    def plan(self, text: str, name: str = "plans/X.md") -> None:
        self.commit_file(name, text)

    def settings(self, more: str) -> None:
        """Further settings, below the ones every project has."""
        self.commit_file("runplan.toml", SETTINGS + more)

    def shell_agent(self, script: str, more: str = "") -> None:
        """A shell script implements; the scripted agent still verifies. `more` are further settings."""
        (self.home / "agent.sh").write_text(script)
        text = SETTINGS.replace('implementer = "robot"', 'implementer = "sh"')
        agent = f'[agents.sh]\nkind = "command"\nargv = ["sh", "{self.home / "agent.sh"}"]\n'
        self.commit_file("runplan.toml", text + agent + more)

    def show(self, what: str) -> str:
        return self.repo.git("show", what)

    def landed(self) -> list[str]:
        """The phases by the trailers of the target's code commits, oldest first."""
        log = self.repo.git(
            "log", "--reverse", "--format=%s%x00%(trailers:key=Runplan-Phase,valueonly,separator=%x20)", "main"
        )
        rows = [line.split("\0") for line in log.splitlines()]
        return [trailer for subject, trailer in rows if trailer and ": record phase" not in subject]

    def leftovers(self) -> list[str]:
        """Leftovers that a finished run must not have: refs in both repositories, worktrees, lanes."""
        tool = self.worked.path / ".git/runplan/tool.git"
        asked = ((), (f"--git-dir={tool}",)) if tool.is_dir() else ((),)
        listed = (self.worked.git(*words, "for-each-ref", "--format=%(refname)") for words in asked)
        refs = sorted(ref for refs in listed for ref in refs.split() if "runplan" in ref)
        trees = self.worked.git("worktree", "list", "--porcelain").count("worktree ") - 1
        lanes = [*tool.parent.glob("lanes/*"), *tool.glob("worktrees/*")]
        there = [str(self.worktrees), *map(str, self.worktrees.iterdir())] if self.worktrees.is_dir() else []
        return [*refs, *(["a registered worktree"] if trees else []), *there, *map(str, lanes)]


def run_command(*args: str, cwd: Path, env: dict[str, str]) -> Ran:
    """By a fork where that makes no difference: most of what a short command takes is its imports."""
    if forks.serves(env):
        return _forked(cwd, args, env)
    return run_program([RUNPLAN, *args], cwd, env)


def run_program(argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> Ran:
    """Run any program to its end, without input."""
    ran = subprocess.run(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False
    )
    return Ran(code=ran.returncode, out=ran.stdout.decode(), err=ran.stderr.decode())


def _forked(cwd: Path, args: tuple[str, ...], env: dict[str, str]) -> Ran:
    with open(os.memfd_create("out"), "rb") as out, open(os.memfd_create("err"), "rb") as err:
        started = forks.starter().start(args, cwd=cwd, env=env, out=out.fileno(), err=err.fileno())
        code = started.wait(timeout_s=100)
        out.seek(0)
        err.seek(0)
        return Ran(code=code, out=out.read().decode(), err=err.read().decode())


def with_remote(project: Project, place: Path) -> Repo:
    """A bare repository that the project's origin is, holding what its main holds."""
    project.repo.git("clone", "-q", "--bare", ".", str(place))
    project.repo.git("remote", "add", "origin", str(place))
    project.repo.git("fetch", "-q", "origin")
    return Repo(path=place, env=dict(project.repo.env))


def copied(model: Project, place: Path) -> Project:
    """The same project at another place: making one takes longer than a copy."""
    home = place / "home"
    home.mkdir()
    repo = Repo(path=shutil.copytree(model.path, place / "repo", symlinks=True), env=dict(model.repo.env))
    return Project(repo=repo, home=home, extra=dict(model.extra))


def ended(process: forks.Process) -> Ran:
    """The end of a command that ran in the background."""
    _, err = process.communicate(timeout=100)
    return Ran(code=process.wait(), out="", err=err.decode())


def processes_of(home: Path) -> list[int]:
    """Every process that has this home directory: the command's own, its shims, agents and what they left."""
    mark = f"\0HOME={home}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in b"\0" + (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def end_processes_of(home: Path) -> None:
    """After a test that failed half-way; the others have left none."""
    for pid in processes_of(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def killed_at(project: Project, point: str) -> None:
    """Kill the runner there, and all that is left of it; but for its git, which has seen that and ends by itself."""
    ran = project.start("finish", "auto", TEST_KILL=point)
    assert ran.code == -signal.SIGKILL, ran.err
    until(lambda: "git" not in map(_name, processes_of(project.home)))
    end_processes_of(project.home)
    until(lambda: not processes_of(project.home))


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def until(there: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Wait for a condition that another process fulfils."""
    end, pause = time.monotonic() + seconds, 0.005
    while not there():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(pause)
        pause = min(0.05, 1.2 * pause)  # the other process needs the processor


def a_plan(
    *phases: str, depends: dict[str, str] | None = None, front: str = "status: active", is_apart: bool = False
) -> str:
    """A plan with a tracker and one section for each phase id; `is_apart`: a phase touches its own file only."""
    rows = "".join(f"| {phase} — Step {phase} | ⬚ | | |\n" for phase in phases)
    sections = "".join(
        f"\n## Phase {phase} — Step {phase}\n"
        + (f"\nTouches: {phase}.txt\n" if is_apart else "")
        + f"\n### Work Items\n\n- [ ] Write {phase}.txt\n"
        + (f"\n### Dependencies\n\n{depends[phase]}\n" if depends and phase in depends else "")
        for phase in phases
    )
    head = f"---\ntitle: X\n{front}\n---\n" if front else ""
    return (
        f"{head}# Plan: X\n\n## Progress Tracker\n\n"
        f"| Phase | Status | Commit | Notes |\n|---|---|---|---|\n{rows}{sections}"
    )


def writes(*phases: str, commit: bool = True) -> str:
    """An agent that writes `<id>.txt` for each phase and commits it."""
    steps = ""
    for phase in phases:
        steps += f'[[phase."{phase}".implement]]\nwrite = "{phase}.txt"\ntext = "{phase}\\n"\n'
        if commit:
            steps += f'[[phase."{phase}".implement]]\ncommit = "Write {phase}"\ndate = "2026-01-01T00:00:00Z"\n'
    return steps


def a_project(place: Path, *phases: str, **env: str) -> Project:
    """Phases `1` and `2` unless named, with an agent that does them well; a copy of one that was made before."""
    project = copied(_model(phases or ("1", "2")), place)
    project.repo.env.update(env)
    return project


@cache
def _model(ids: tuple[str, ...]) -> Project:
    place = Path(tempfile.mkdtemp(prefix="runplan-tests-model-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    (place / "home").mkdir()
    repo = init_repo(place / "repo")
    repo.write("runplan.toml", SETTINGS)
    repo.write("plans/X.md", a_plan(*ids))
    repo.write("agent.toml", writes(*ids))
    repo.git("add", "--", "runplan.toml", "plans/X.md", "agent.toml")
    repo.git("commit", "-qm", "Begin")
    return Project(repo=repo, home=place / "home")


def steps(*played: str, phase: str = "1", role: str = "implement") -> str:
    """The steps of one role, each as TOML lines."""
    return "".join(f'[[phase."{phase}".{role}]]\n{step}\n' for step in played)


def once(place: Path, name: str, *played: str) -> tuple[str, ...]:
    """Steps that only the first agent plays."""
    return tuple(f'{step}\nonce = "{place / name}.{number}"' for number, step in enumerate(played))


def work(*more: str, phase: str = "1") -> str:
    """An implementer that writes `<id>.txt`, commits it, and then does more."""
    return steps(f'write = "{phase}.txt"\ntext = "{phase}\\n"', f'commit = "Write {phase}"', *more, phase=phase)


def fix(*played: str, phase: str = "1") -> str:
    return steps(*played, phase=phase, role="fix")


def verify(*played: str, phase: str = "1", cycle: str = "") -> str:
    return steps(*played, phase=phase, role=f"verify{cycle}")


#: A fixer whose changes fix nothing.
BUSY_FIXER = fix('append = "1.txt"\ntext = "more\\n"')


def set_up(project: Project, **files: str) -> None:
    """Write `agent`, `settings` and `plan`, where given, and commit them at once."""
    names = {"agent": "agent.toml", "settings": "runplan.toml", "plan": "plans/X.md"}
    for kind, text in files.items():
        project.repo.write(names[kind], SETTINGS + text if kind == "settings" else text)
    project.repo.commit("Set up")


def assert_nothing_runs(project: Project) -> dict[str, Any]:
    """No claim, no candidate, no worktree; branches and parked refs may keep work. What `status` says of the plan."""
    left = project.leftovers()
    assert [one for one in left if not one.startswith(("refs/heads/runplan/", "refs/runplan/parked/"))] == []
    view: dict[str, Any] = project.runplan("status", "X", "--json").json
    assert view["claim"] is None
    return view


class Meanwhile:
    """A run that pauses in a step of its agent, so that a test can do something meanwhile."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def pause(self, name: str) -> tuple[str, str]:
        """Two steps: create the file `NAME.here`, and wait for the file `NAME.on`."""
        return f'write = "{self._place / name}.here"', f'wait_for = "{self._place / name}.on"'

    def reached(self, name: str) -> None:
        until((self._place / f"{name}.here").exists)

    def let_on(self, name: str) -> None:
        (self._place / f"{name}.on").touch()

    def start(self, project: Project, *words: str, first: str = "", last: str = "") -> None:
        """Have the daemon start X, by default its phase 1 with `auto`, until the agent waits at `agent`."""
        project.agent(work(*filter(None, (first, *self.pause("agent"), last))) + work(phase="2"))
        project.runplan("start", "X", *(words or ("1", "auto"))).exits(0)
        self.reached("agent")

    def begin(self, project: Project, name: str, *words: str) -> forks.Process:
        """Start a command in the background, until an agent has reached this."""
        process = project.popen(*words)
        self.reached(name)
        return process

    def finish(self, process: forks.Process, name: str) -> Ran:
        """Let the agent go on, until the command has ended."""
        self.let_on(name)
        return ended(process)
