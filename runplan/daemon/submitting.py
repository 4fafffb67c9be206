"""Hands commands to the daemon: stores them, wakes it, and waits for the answers."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from runplan.adapters import processes
from runplan.adapters.callerenv import for_a_run, needed_by_a_run
from runplan.adapters.clock import SystemClock
from runplan.adapters.places import state_directory
from runplan.adapters.settings import environment
from runplan.core.errors import Unreachable
from runplan.core.eventtext import recorded_as
from runplan.core.quickclass import dataclass
from runplan.core.requests import Answer, read_answer_fields
from runplan.core.times import iso
from runplan.daemon import client as clients, singleton
from runplan.daemon.client import HungUp, NotRunning, Silent
from runplan.daemon.launching import reach
from runplan.daemon.repositories import Repositories
from runplan.engine.commands import BEGINNING
from runplan.engine.environments import NAME
from runplan.landing import modes
from runplan.store.commands import Commands
from runplan.store.sqlite import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from runplan.core.events import Fact, RunStarted
    from runplan.core.rows import Command
    from runplan.daemon.client import Client
    from runplan.engine.context import RepositoryContext


class Queued(Unreachable):
    """The command is stored; the daemon executes it when it responds."""


class Unstored(Unreachable):
    """The command could not be stored, as on a full disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
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
        unstored = [asdict(replace(command, at=now)) for command in commands if command.verb not in BEGINNING]
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
    from runplan.adapters.interrupting import Interruption
    from runplan.engine.commands import Executor
    from runplan.engine.environments import Environments
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
