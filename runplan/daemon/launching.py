"""Connects to the user's daemon; starts one if none runs, and replaces an older one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from runplan import __version__
from runplan.adapters import processes
from runplan.adapters.ancestry import agent_above
from runplan.adapters.callerenv import for_the_daemon
from runplan.adapters.places import OUTPUT, own_directory, state_directory
from runplan.adapters.polling import until
from runplan.core.errors import RefusedEarly, Unreachable
from runplan.core.resources import refused_by_system
from runplan.daemon import service
from runplan.daemon.client import Client, NotRunning, find_socket, reached
from runplan.daemon.protocol import is_older

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

LARGEST_OUTPUT = 1024 * 1024

READY_S = 10.0

#: An older daemon ends after its landings; its agents survive.
DRAIN_S = 120.0

LAST_LINES = 5
NOTICE_S = 1.0  #: a longer wait is explained


def reach(
    env: Mapping[str, str],
    *,
    version: str = __version__,
    argv: Sequence[str] = service.DAEMON,
    ready_s: float = READY_S,
    drain_s: float = DRAIN_S,
    say: Callable[[str], None] = lambda _: None,
) -> Client:
    """A connection to a daemon of this version or a compatible one; `say` explains long waits."""
    try:
        client = reached(env)
    except NotRunning:
        return _started(env, version, argv, ready_s)
    with contextlib.ExitStack() as stack:
        stack.enter_context(client)
        if is_older(client.hello.version, version):
            _replace(client, drain_s, say)
            return _started(env, version, argv, ready_s)
        if not client.understood:
            raise RefusedEarly(
                f"a newer daemon runs (runplan {client.hello.version}, process {client.hello.pid}), which does not "
                f"understand version {version}; use that version, or end it: kill {client.hello.pid}"
            )
        stack.pop_all()
    return client


def _replace(client: Client, drain_s: float, say: Callable[[str], None]) -> None:
    """End an older daemon, and wait for that."""
    old = processes.identity(client.hello.pid)
    client.call("drain", within_s=drain_s)
    process = processes.living(old) if old else None
    if not process or not processes.await_gone([process], timeout_s=min(NOTICE_S, drain_s)):
        return
    who = f"the older daemon (runplan {client.hello.version}, process {process.pid})"
    say(f"{who} waits for its agents to finish, at most daemon.grace; then this version takes over")
    if processes.await_gone([process], timeout_s=drain_s):
        raise Unreachable(f"{who} has not ended yet; try again, or use that version")


def _started(env: Mapping[str, str], version: str, argv: Sequence[str], ready_s: float) -> Client:
    if agent := agent_above(os.getpid()):
        raise RefusedEarly(f"no daemon is started from inside an agent ({agent})")
    if not service.start(env):
        return _start(env, argv, ready_s)
    client = Client(find_socket(env))
    if is_older(client.hello.version, version):
        client.close()
        raise RefusedEarly(
            f"the service starts runplan {client.hello.version}, older than this {version}; "
            "write it anew: runplan service install"
        )
    return client


def _start(env: Mapping[str, str], argv: Sequence[str], ready_s: float) -> Client:
    output = own_directory(state_directory(env)) / OUTPUT
    daemon, said_before = _detached(argv, env, output)

    def answering() -> Client | None:
        with contextlib.suppress(NotRunning):
            return Client(find_socket(env), answer_s=ready_s)
        if daemon.poll():  # exit code 0: another daemon was faster
            raise _start_failed(daemon, output, said_before, ready_s)
        return None

    client = until(answering, within_s=ready_s)
    if client is None:
        raise _start_failed(daemon, output, said_before, ready_s)
    daemon.returncode = 0  # it outlives us; Popen must not wait for it
    return client


def _detached(argv: Sequence[str], env: Mapping[str, str], output: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process without a terminal; the process, and where its output begins.

    It keeps the umask of the user, since it writes into checkouts.
    """
    large = output.exists() and output.stat().st_size > LARGEST_OUTPUT
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if large else os.O_APPEND)
    with open(os.open(output, flags, 0o600), "wb") as file:
        said_before = os.fstat(file.fileno()).st_size
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd="/",
            env=for_the_daemon(env),
            start_new_session=True,
        )
    return process, said_before


def _start_failed(daemon: subprocess.Popen[bytes], output: Path, said_before: int, ready_s: float) -> Unreachable:
    code = daemon.poll()
    daemon.returncode = code or 0  # it may still come up, and is left to itself
    what = f"did not answer within {ready_s:.0f} s" if code is None else f"ended with code {code}"
    with open(output, "rb") as file:
        file.seek(max(said_before, output.stat().st_size - 4096))
        last = file.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]
    said = " | ".join(line.strip() for line in last if line.strip())
    if not said and (why := _unwritable(output.parent)):
        return Unreachable(f"the daemon {what}: {why}")
    said = said or "nothing"
    return Unreachable(f"the daemon {what}; last output: {said}; full output: {output}")


def _unwritable(state: Path) -> str:
    """Why nothing can be said there, as on a full disk, and what helps; "" when that is not the reason."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=state, buffering=0) as file:
            file.write(b" " * 4096)
    except OSError as error:
        return refused_by_system(OSError(error.errno, error.strerror, str(state)))
    return ""
