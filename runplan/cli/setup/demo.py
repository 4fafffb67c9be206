"""runplan demo: a whole plan, worked to its end by the real command in a repository that is thrown away."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.cli.setup.demoproject import PLAN, files
from runplan.errors import Exit, Unreachable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

EXAMPLES = """\
  runplan demo             three phases, one of them mended on the way; leaves nothing behind
  runplan demo --keep      keep the repository, to look around in it"""

INTRODUCTION = """\
A small shop adds up prices; the plan {plan} teaches it discounts in three phases.
The agent plays a script: no model, no network. Worktrees, tests, commits and landings are real."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="keep the repository and say where it is")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import refuse_under_agent

    refuse_under_agent("demo")
    with _place(keep=args.keep) as place:
        env = _environment(place)
        repository = place / "shop"
        _make(repository, env)
        _say(INTRODUCTION.format(plan=PLAN))
        code = _runplan(repository, env, "start", PLAN, "finish", "auto", "--foreground")
        if code is Exit.DONE:
            _show(repository, env)
        if args.keep:
            _say(f"\nThe repository is kept: {repository}")
    if code is Exit.DONE and not args.keep:
        _say("\nThe repository is gone again; runplan demo --keep leaves it. In one of your own: runplan init")
    return code


@contextlib.contextmanager
def _place(*, keep: bool) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="runplan-demo-")).resolve()
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def _environment(place: Path) -> dict[str, str]:
    """Neither the user's settings of runplan nor those of git reach the demo, and it reaches none of theirs."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("RUNPLAN_", "GIT_"))}
    isolated = {
        "XDG_CONFIG_HOME": str(place / "config"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return own | isolated


def _make(repository: Path, env: Mapping[str, str]) -> None:
    for name, text in files(sys.executable).items():
        file = repository / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    _git(repository, env, "-c", "init.defaultBranch=main", "init", "-q", "--template=")
    for key, value in (("user.name", "You"), ("user.email", "you@example.org"), ("commit.gpgsign", "false")):
        _git(repository, env, "config", key, value)
    _git(repository, env, "add", ".")
    _git(repository, env, "commit", "-q", "-m", "A shop that adds up prices, and a plan")


def _show(repository: Path, env: Mapping[str, str]) -> None:
    """The account first, then what it is about; what a person sees last is short."""
    _runplan(repository, env, "report", PLAN)
    _say(f"\n$ git show main:{PLAN}      (its tracker)")
    text = _git(repository, env, "show", f"main:{PLAN}")
    _say("\n".join(line for line in text.splitlines() if line.startswith("|")))
    _say("\n$ git log --oneline --graph main")
    _say(_git(repository, env, "log", "--oneline", "--graph", "--no-decorate", "main"))


def _runplan(repository: Path, env: Mapping[str, str], *words: str) -> Exit:
    """The real command, its output as it comes; interrupted, it is given the time to end its agents."""
    _say(f"\n$ runplan {' '.join(words)}")
    with subprocess.Popen([sys.executable, "-m", "runplan", *words], cwd=repository, env=env) as command:
        try:
            code = command.wait()
        except KeyboardInterrupt:
            command.wait()
            raise
    return Exit(code) if code in set(Exit) else Exit.FAILED


def _git(repository: Path, env: Mapping[str, str], *words: str) -> str:
    try:
        ran = subprocess.run(["git", *words], cwd=repository, env=env, capture_output=True, check=True)
    except FileNotFoundError:
        raise Unreachable("git was not found; install git 2.38 or newer") from None
    except subprocess.CalledProcessError as error:
        raise Unreachable(f"git {words[0]}: {error.stderr.decode('utf-8', 'replace').strip()}") from None
    return ran.stdout.decode("utf-8", "replace").rstrip()


def _say(text: str) -> None:
    """At once, so that it stands in order with what the command says."""
    print(text, flush=True)
