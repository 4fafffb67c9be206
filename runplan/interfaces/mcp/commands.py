"""Runs the `runplan` command for a call of a tool, which can be cancelled and reports its progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.streams.text import TextReceiveStream

from runplan.app.views.commands import OWN, CommandResult, command_environment
from runplan.domain.errors import NotFound
from runplan.domain.text import command, plain

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, Process


GRACE_S = 5.0  #: for a command that is asked to end
QUIET_S = 10.0  #: between two signs of life; clients give up a call that is silent, opencode after 30 s

Report: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]


async def run_command(words: list[str], cwd: Path, report: Report, *, timeout_s: float) -> CommandResult | None:
    """Run `runplan` and report its lines meanwhile; None at the time limit. The command ends with the call."""
    try:
        process = await anyio.open_process(
            [*OWN, *words],
            cwd=os.path.expanduser(cwd),  # noqa: PTH111 - a user that is not there is a path that is not there
            env=command_environment(),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise NotFound(f"repository {cwd}: {error.strerror}") from None
    output: list[str] = []
    errors: list[str] = []
    try:
        with anyio.move_on_after(timeout_s):
            assert process.stdout is not None
            assert process.stderr is not None
            async with anyio.create_task_group() as alive:
                alive.start_soon(report_regularly, report)
                async with anyio.create_task_group() as readers:
                    readers.start_soon(_read_text, process.stdout, output, None if "--json" in words else report)
                    readers.start_soon(_read_text, process.stderr, errors, report)
                alive.cancel_scope.cancel()
            code = await process.wait()
            out = plain("".join(output))
            return CommandResult(line=command("runplan", *words), code=code, output=out, errors=plain("".join(errors)))
    finally:
        await _end_process(process)
    return None


async def report_regularly(report: Report) -> None:
    while True:
        await anyio.sleep(QUIET_S)
        await report("still at work")


async def _read_text(stream: ByteReceiveStream, parts: list[str], report: Report | None) -> None:
    """Keep the output of a command, and report its lines."""
    rest = ""
    async for part in TextReceiveStream(stream, errors="replace"):
        parts.append(part)
        if report is not None:
            *lines, rest = (rest + part).split("\n")
            for line in filter(str.strip, lines):
                await report(plain(line).strip())


async def _end_process(process: Process) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.terminate()
            with anyio.move_on_after(GRACE_S):
                await process.wait()
        if process.returncode is None:
            process.kill()
        await process.aclose()
