"""The caller's side: reaches or starts the daemon, stores commands, and waits for their answers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from runplan import __version__, processes
from runplan.agents.environment import for_a_run, for_the_daemon, needed_by_a_run
from runplan.clock import SystemClock
from runplan.daemon import client as clients, service, singleton
from runplan.daemon.client import Client, HungUp, NotRunning, Silent, find_socket, reached
from runplan.daemon.protocol import is_older
from runplan.daemon.repositories import Repositories
from runplan.engine.commands import BEGINNING
from runplan.engine.environments import NAME
from runplan.errors import RefusedEarly, Unreachable
from runplan.landing import modes
from runplan.polling import until
from runplan.resources import refused_by_system
from runplan.run.events import recorded_as
from runplan.run.requests import Answer, read_answer_fields
from runplan.settings.load import environment
from runplan.settings.places import OUTPUT, own_directory, state_directory
from runplan.store.commands import Commands
from runplan.store.sqlite import Store
from runplan.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from runplan.engine.context import RepositoryContext
    from runplan.run.events import Fact, RunStarted
    from runplan.run.rows import Command


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
    if agent := processes.agent_above(os.getpid()):
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


class Queued(Unreachable):
    """The command is stored; the daemon executes it when it responds."""


class Unstored(Unreachable):
    """The command could not be stored, as on a full disk."""


class Talk(Struct, frozen=True, kw_only=True):
    """Callbacks for messages while the caller waits."""

    notice: Callable[[], None]  #: the daemon is busy
    say: Callable[[str], None]  #: the daemon itself cannot be used yet


def submit(
    at: RepositoryContext, commands: Sequence[Command], *, talk: Talk, wait: bool = False
) -> list[Answer | None]:
    """Have the daemon execute the commands; it is started for those that begin something.

    Without a daemon the others are executed here. An answer is None while the daemon is busy, unless `wait`.
    """
    begins = any(command.verb in BEGINNING for command in commands)
    try:
        client = reach(at.env, say=talk.say) if begins else clients.reached(at.env)
    except NotRunning:
        if begins:
            raise
        return _execute_here(at, _stored(at, commands))
    except Silent as silent:
        _stored(at, commands)
        Repositories(state_directory(at.env)).add(
            common=at.repository.common_dir, root=at.repository.root, at=iso(SystemClock().now())
        )
        clients.wake(at.env)
        raise Queued(f"the request is queued and takes effect when the daemon responds; {silent}") from silent
    with client:
        if begins and client.hello.draining:
            raise Unreachable(client.hello.draining)
        return _submitted(client, at, commands, talk, wait=wait)


def _submitted(
    client: Client, at: RepositoryContext, commands: Sequence[Command], talk: Talk, *, wait: bool
) -> list[Answer | None]:
    root = str(at.repository.root)
    # Sent before the commands are stored, since a running worker executes them at once.
    commands = [_with_environment(client, at, command) for command in commands]
    try:
        stored = _stored(at, commands)
    except Unreachable as error:
        now = iso(SystemClock().now())
        unstored = [to_builtins(replace(command, at=now)) for command in commands if command.verb not in BEGINNING]
        if not unstored:
            raise
        client.call("submit", root=root, unstored=unstored)
        raise Unstored(f"{error}; the daemon keeps the request and executes it when it can") from error
    fields: dict[str, Any] = {"root": root, "commands": [command.seq for command in stored]}
    try:
        reply = (
            client.await_answer("submit", talk.notice, **fields, wait=True) if wait else client.call("submit", **fields)
        )
    except HungUp as gone:
        if any(command.verb in BEGINNING for command in stored):
            raise Queued(f"{gone}; the request is queued, and the next daemon executes it") from gone
        return _execute_here(at, stored)
    return [read_answer_fields(one) if one is not None else None for one in reply["answers"]]


def _with_environment(client: Client, at: RepositoryContext, command: Command) -> Command:
    """Send the environment of this caller; the command with the name of it."""
    if command.verb not in BEGINNING:
        return command
    name = os.urandom(8).hex()
    env = for_a_run(at.env, at.settings.agents, checks=at.settings.tests.env)
    client.call("lend", root=str(at.repository.root), name=name, env=env)
    return replace(command, arguments={**command.arguments, NAME: name})


def _stored(at: RepositoryContext, commands: Sequence[Command]) -> list[Command]:
    now = iso(SystemClock().now())
    with closing(Store(at.state)) as store:
        table = Commands(store)
        numbers = [table.add(one.plan, one.verb, one.arguments, by=one.by, at=one.at or now) for one in commands]
    return [replace(one, seq=number) for one, number in zip(commands, numbers, strict=True)]


def _execute_here(at: RepositoryContext, commands: list[Command]) -> list[Answer | None]:
    """Execute commands in this process; stopped runs are worked to their end."""
    from runplan.engine.commands import Executor
    from runplan.engine.environments import Environments
    from runplan.engine.interrupting import Interruption
    from runplan.engine.repository import open_repository
    from runplan.engine.runs import ActiveRuns
    from runplan.engine.worker import LocalWorker

    with Interruption(0.0) as interruption, open_repository(at, wakeup=interruption.wakeup) as repository:
        worker = LocalWorker()
        runs = ActiveRuns(repository, worker)
        answers = worker.run(commands, Executor(repository, runs, Environments(at.env)), repository, runs)
    if None in answers:  # a daemon has come up meanwhile, and owns the run
        clients.wake(at.env)
    return answers


def needed(at: RepositoryContext, started: RunStarted) -> tuple[str, ...]:
    """The names of the variables that the run needs."""
    agents, checks = at.settings.agents, at.settings.tests.env
    sent = for_a_run(at.env, agents, checks=checks)
    return needed_by_a_run(sent, agents, pushes=modes.uses_remote(started.landing), checks=checks)


def follow(at: RepositoryContext, plan: str, run: str) -> Iterator[Fact]:
    """The events of that run of the plan, until it ends or waits for a person."""
    with reach(at.env) as client:
        for event in client.stream("follow", root=str(at.repository.root), plan=plan, run=run):
            fact = recorded_as(str(event.get("type")), str(event.get("body")))
            if fact is not None:
                yield fact


def foreground_owner(owner: str) -> bool:
    """Whether the owner of a claim is a living foreground process: neither the daemon nor this one."""
    daemon = singleton.holder(state_directory(environment()))
    own = owner == processes.identity(os.getpid())
    return processes.living(owner) is not None and not own and (daemon is None or daemon.identity != owner)


def end_foreground(owner: str, *, force: bool, within_s: float) -> bool:
    """End a foreground run as Ctrl-C twice does; False when its process is still there after that time."""
    process = processes.living(owner)
    if process is None:
        return True
    # The second signal ends the agents; the same signal twice could be delivered once.
    for number in (signal.SIGKILL,) if force else (signal.SIGTERM, signal.SIGINT):
        processes.send(process, number)
    return not processes.await_gone([process], timeout_s=within_s)
