"""runplan demo: work on a whole plan in a temporary repository, with the real command and a scripted agent."""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from runplan.domain.errors import Exit, RefusedEarly, Unreachable
from runplan.domain.run.kinds import UNFINISHED, RunStatus
from runplan.domain.text import command

#: The command; -P: no module of the repository is imported.
OWN = (sys.executable, "-P", "-m", "runplan")
PLAN = "plans/DISCOUNT.md"
GOAL = "Give discounts"
PLANNED = "plans/give-discounts.md"  #: the plan that is written for the goal

INTRODUCTION = """\
A small shop adds up prices; {task}.
The agent plays a script: no model, no network. Worktrees, tests, commits and landings are real."""
TASK = f"the plan {PLAN} teaches it discounts in three phases"
SCRIPTS = ("agent.toml", "planner.toml")
PAUSE_S = 2.5  #: before each step of the script, while a person looks at the page
LOOK_S = 1.0  #: between two looks at a change that waits
PATIENCE = 6  #: pauses in which a person may approve the first phase on the page
FAREWELL = 5  #: pauses until the page is closed
PLANNING_TASK = "agents write a plan for discounts, you approve it, and agents work on it"


def run_demo(args: argparse.Namespace) -> Exit:
    directory = Path(tempfile.mkdtemp(prefix="runplan-demo-")).resolve()
    with contextlib.ExitStack() as after:
        if not args.keep:
            after.callback(shutil.rmtree, directory, ignore_errors=True)
        # The user's settings of runplan and of git have no effect on the demo.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("RUNPLAN_", "GIT_"))}
        env |= {
            "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_STATE_HOME": str(directory / "state"),
            "PAGER": "cat",
        }
        env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_DEFAULT_REF_FORMAT": "files"}
        repository = directory / "shop"
        pause_s = args.pause if args.pause is not None else PAUSE_S if args.web else 0.0
        make_repository(repository, env, is_planned=not args.plan, pause_s=pause_s)
        print(INTRODUCTION.format(task=PLANNING_TASK if args.plan else TASK), flush=True)
        if args.web:
            after.enter_context(_serve_page(repository, env))
        plan = PLANNED if args.plan else PLAN
        code = Exit.DONE
        if args.plan:  # from a goal to a plan on the target
            code = _run_runplan(repository, env, "plan", GOAL, "--foreground")
            if code is Exit.WAITING:
                print("\nNothing in the repository has changed. This is what waits for you:", flush=True)
                _run_runplan(repository, env, "diff", plan)
                code = _run_runplan(repository, env, "approve", plan)
        if code is Exit.DONE and args.web:
            _land_first_phase(repository, env, plan, pause_s=pause_s)
        if code is Exit.DONE:
            code = _run_runplan(repository, env, "start", plan, "finish", "auto", "--foreground")
        if code is Exit.DONE:
            _run_runplan(repository, env, "report", plan)
            print(f"\n$ git show main:{plan}      (its tracker)")
            text = _run_git(repository, env, "show", f"main:{plan}")
            print("\n".join(line for line in text.splitlines() if line.startswith("|")))
            print("\n$ git log --oneline --graph main")
            print(_run_git(repository, env, "log", "--oneline", "--graph", "--no-decorate", "main"), flush=True)
        if args.web:
            print(f"\nThe page is closed in {FAREWELL * pause_s:.0f} seconds, or with Ctrl-C.", flush=True)
            time.sleep(FAREWELL * pause_s)
        if args.keep:
            print(f"\nThe repository is kept: {repository}", flush=True)
    if code is Exit.DONE and not args.keep:
        # The words that run this runplan from another directory; a virtual environment need not be on PATH.
        program = Path(sys.executable).with_name("runplan")
        absolute = command(str(program)) if program.is_file() else command(sys.executable, "-m", "runplan")
        name = "runplan" if shutil.which("runplan") else absolute
        print(f"\nThe repository was removed; to keep it: {name} demo --keep", flush=True)
        print(f"In one of your own: {name} init", flush=True)
    return code


@contextlib.contextmanager
def _serve_page(repository: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Show the address of the page of this repository, which is served meanwhile."""
    argv = [*OWN, "web", "--port", "0"]
    with subprocess.Popen(argv, cwd=repository, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().decode()
            if not address:
                raise RefusedEarly("the page cannot be served, for the reason above; without it: runplan demo")
            print(f"\nOpen this page in a browser and look on: {address.rstrip()}", flush=True)
            yield
        finally:
            server.terminate()
            server.wait()
            # An answer on the page has started a daemon.
            subprocess.run([*OWN, "daemon", "stop"], cwd=repository, env=env, capture_output=True, check=False)


def _land_first_phase(repository: Path, env: Mapping[str, str], plan: str, *, pause_s: float) -> None:
    """Have a person approve the first phase on the page; without an answer it is approved here."""
    _run_runplan(repository, env, "start", plan, "--foreground")
    print(f"\nApprove it on the page; in {PATIENCE * pause_s:.0f} seconds it is approved here.", flush=True)
    deadline = time.monotonic() + PATIENCE * pause_s
    argv = [*OWN, "status", plan, "--json"]
    while True:
        status = subprocess.run(argv, cwd=repository, env=env, capture_output=True, check=True)
        state = json.loads(status.stdout)["run"]["state"]
        if state not in UNFINISHED:
            return
        if time.monotonic() >= deadline and state == RunStatus.WAITING:
            _run_runplan(repository, env, "approve", plan)
            return
        time.sleep(LOOK_S)


def make_repository(repository: Path, env: Mapping[str, str], *, is_planned: bool, pause_s: float) -> None:
    package = Path(__file__).parents[3]
    # Installed, the project is inside the package; in a checkout, next to it.
    project = next(folder for base in (package, package.parent) if (folder := base / "config/demo").is_dir())
    shutil.copytree(project, repository)
    if not is_planned:
        (repository / PLAN).unlink()
    for name in SCRIPTS if pause_s else ():
        script = (repository / name).read_text(encoding="utf-8")
        slow = re.sub(r"^(\[\[phase.*\]\])$", rf"\1\nsleep = {pause_s}\n\n\1", script, flags=re.MULTILINE)
        (repository / name).write_text(slow, encoding="utf-8")
    check = f"exec {shlex.quote(sys.executable)} -m unittest discover -v -s tests\n"
    (repository / "check").write_text(check, encoding="utf-8")
    (repository / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    _run_git(repository, env, "-c", "init.defaultBranch=main", "init", "-q", "--template=")
    for key, value in (("user.name", "You"), ("user.email", "you@example.org"), ("commit.gpgsign", "false")):
        _run_git(repository, env, "config", key, value)
    _run_git(repository, env, "add", ".")
    _run_git(repository, env, "commit", "-q", "-m", f"A shop that adds up prices{', and a plan' if is_planned else ''}")


def _run_runplan(repository: Path, env: Mapping[str, str], *words: str) -> Exit:
    """Run the real command. After an interrupt it has time to end its agents."""
    print(f"\n$ runplan {shlex.join(words)}", flush=True)  # in order with the output of the command
    argv = [sys.executable, "-m", "runplan", *words]
    with subprocess.Popen(argv, cwd=repository, env=env, stdin=subprocess.DEVNULL) as command:  # it asks nobody
        try:
            code = command.wait()
        except KeyboardInterrupt:
            command.wait()
            raise
    return Exit(code) if code in set(Exit) else Exit.FAILED


def _run_git(repository: Path, env: Mapping[str, str], *words: str) -> str:
    try:
        ran = subprocess.run(["git", *words], cwd=repository, env=env, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise Unreachable(f"git {words[0]} failed: {error}; install git 2.38 or newer") from None
    return ran.stdout.decode("utf-8", "replace").rstrip()
