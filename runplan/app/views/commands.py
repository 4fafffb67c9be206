"""Runs the `runplan` command for interfaces other than the terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from runplan.adapters.configuration.load import environment
from runplan.domain.errors import Unreachable, UsageError
from runplan.domain.text import command, plain

LIMIT_S = 120.0
BACKGROUND = "--background"  #: the daemon continues the run, and the command ends
#: -P: no module of the repository is imported.
OWN = (sys.executable, "-P", "-m", "runplan")


class CommandResult(Struct, frozen=True, kw_only=True):
    line: str  #: the command, to be shown
    code: int  #: its exit code
    output: str
    errors: str  #: messages, without terminal sequences

    @property
    def last_line(self) -> str:
        """The last message; the reason of a failure."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        return lines[-1].removeprefix("runplan: ") if lines else ""


def run_command(
    words: Sequence[str], *, cwd: Path, timeout_s: float = LIMIT_S, env: Mapping[str, str] | None = None
) -> CommandResult:
    """Run `runplan` in a repository, without a terminal.

    At the time limit the command is ended; a request that it has queued stays queued.
    """
    line = command("runplan", *words)
    if any("\0" in word for word in words):
        raise UsageError("a word of the command holds a null character")
    try:
        ended = subprocess.run(
            [*OWN, *words],
            cwd=cwd,
            env=command_environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{line} took longer than {timeout_s:.0f} s and was ended; see: runplan status") from None
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise Unreachable(f"{cwd} cannot be used: {error.strerror}") from error
    output, errors = (plain(text.decode("utf-8", "replace")) for text in (ended.stdout, ended.stderr))
    return CommandResult(line=line, code=ended.returncode, output=output, errors=errors)


def command_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: that of this process, without colours and pagers."""
    own = dict(environment() if env is None else env)
    return {**own, "NO_COLOR": "1", "PAGER": "cat"}
