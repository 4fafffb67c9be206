"""Starts the command by a fork of a process that has it imported: the same `main`, without 0.1 s of imports each time.

`python -m tests.chaos.forks` reads one request a line and answers twice: the pid, then how it ended.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "adapters", "app", "wiring", "cli")


@dataclass
class Started:
    """A command under way."""

    pid: int
    starter: Starter

    def wait(self) -> int:
        """Its exit code; minus the signal that ended it."""
        return int(self.starter.answer()["code"])


class Starter:
    """One forking process; it starts one command at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.forks"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("RUNPLAN")},
        )

    def start(self, argv: list[str], *, cwd: Path, env: Mapping[str, str], err: Path) -> Started:
        assert self._process.stdin is not None
        request = {"argv": argv, "cwd": str(cwd), "env": dict(env), "err": str(err)}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return Started(pid=int(self.answer()["pid"]), starter=self)

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def serve() -> None:
    """Answer until nobody asks any more."""
    _import_everything()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
        _say({"pid": pid})
        _, status = os.waitpid(pid, 0)
        _say({"code": os.waitstatus_to_exitcode(status)})


def _say(answer: dict[str, int]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def _import_everything() -> None:
    """What the command imports on its way; programs of their own do not import."""
    for package in PACKAGES:
        for path in sorted((ROOT / "runplan" / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def _become(request: dict[str, Any]) -> NoReturn:
    """The command itself, from here on like one that was started by its name."""
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDWR)
        err = os.open(request["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for source, goal in ((nothing, 0), (nothing, 1), (err, 2)):
            os.dup2(source, goal)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"], PYTHONPATH=str(ROOT))  # for the spawner, too
        from runplan.cli.main import main

        code = main(request["argv"])
    except BaseException:  # noqa: BLE001 - the edge of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
