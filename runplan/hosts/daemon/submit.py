"""The caller's side of the queue: stores commands, has the daemon execute them, and waits for their answers."""

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from msgspec.structs import replace

from runplan.adapters.agents.environment import for_a_run
from runplan.adapters.clock import SystemClock
from runplan.adapters.configuration.places import state_directory
from runplan.adapters.store.protocol import open_store
from runplan.adapters.store.sql import LONGEST_S
from runplan.domain.errors import Unreachable
from runplan.domain.run.rows import Answer, Command
from runplan.domain.times import iso
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.repository import ENVIRONMENT, open_repository
from runplan.hosts.commands import BEGINNING
from runplan.hosts.daemon.client import Client, HungUp, NotRunning, Silent, connect_daemon, reach_daemon
from runplan.hosts.daemon.protocol import Done, Environment, Hello, Ping, Wake
from runplan.hosts.daemon.state import Known, read_holder, remember_repository, wake_daemon
from runplan.hosts.foreground import ForegroundHost, Interruption

BUSY = "daemon busy (git or network); request queued, you can quit now"
BUSY_S = 3.0  #: a worker that is not in a long step has executed a command by then
FLEET_BUSY = "no host has executed the request yet; it stays queued, you can quit now. See: runplan fleet status"
NO_WORKER = "the request is queued, and no worker of the fleet is running; start one on any host: runplan worker"


class StillQueued(Unreachable):
    """The command is stored; the daemon executes it when it responds."""


def submit_commands(
    context: RepositoryContext,
    commands: Sequence[Command],
    *,
    say: Callable[[str], None],
    wait: bool = False,
    limit_s: float = math.inf,
) -> list[Answer | None]:
    """Have the daemon, or the fleet, execute the commands; the daemon is started for those that begin something.

    Without a daemon the others are executed here. An answer is None while the daemon is busy, unless `wait`, which has
    its limit. `say` explains a long wait.
    """
    if context.fleet is not None:
        stored = _store_commands(context, commands)
        if not context.store().list_host_labels():
            raise StillQueued(NO_WORKER)
        return _await_answers(context, stored, say if wait else None, limit_s)
    begins = any(command.verb in BEGINNING for command in commands)
    repository = Known(common=str(context.common_dir), root=str(context.root))
    try:
        client = reach_daemon(context.env) if begins else connect_daemon(context.env)
    except NotRunning:
        if begins:
            raise
        return _execute_here(context, _store_commands(context, commands))
    except Silent as silent:
        _store_commands(context, commands)
        remember_repository(state_directory(context.env), repository)
        wake_daemon(context.env)
        raise StillQueued(f"the request is queued and takes effect when the daemon responds; {silent}") from silent
    with client:
        if begins and client.hello.draining:
            raise Unreachable(client.hello.draining)
        # Sent before the commands are stored, since a running worker executes them at once.
        sent = [_with_environment(client, context, repository, command) for command in commands]
        stored = _store_commands(context, sent)
        with suppress(HungUp):
            client.call(Wake(repository=repository), Done)
            answers = _await_answers(context, stored, say if wait else None, limit_s)
            if None not in answers or wait:
                return answers
            closed = client.call(Ping(), Hello).closed
            if error := next((trouble.error for trouble in closed if trouble.root == repository.root), ""):
                raise StillQueued(f"{error}; the request stays queued")
            return answers
    if begins:
        raise StillQueued("the daemon has ended; the request is queued, and the next daemon executes it")
    return _execute_here(context, stored)


def _await_answers(
    context: RepositoryContext, commands: Sequence[Command], say: Callable[[str], None] | None, limit_s: float
) -> list[Answer | None]:
    """The answers of the daemon or a worker; with `say` until the limit."""
    deadline = time.monotonic() + BUSY_S
    is_told = False
    with closing(open_store(context.journal, writable=False)) as store:
        while True:
            is_alive = context.fleet is not None or read_holder(state_directory(context.env)) is not None
            answers = [store.get_answer(command.seq) for command in commands]
            if None not in answers:
                return answers
            if not is_alive:
                raise HungUp("the daemon has ended")
            if (left_s := deadline - time.monotonic()) > 0:
                store.await_change(every_s=0.01, within_s=min(left_s, LONGEST_S))
            elif say is None:
                return answers
            elif is_told:
                raise StillQueued(f"no answer within {limit_s:.0f} s; the request stays queued. See: runplan status")
            else:
                say(FLEET_BUSY if context.fleet else BUSY)
                is_told = True
                deadline += limit_s - BUSY_S


def _with_environment(client: Client, context: RepositoryContext, repository: Known, command: Command) -> Command:
    """Send the environment of this caller; the command with the name of it."""
    if command.verb not in BEGINNING:
        return command
    name = os.urandom(8).hex()
    forge = context.settings.run.concludes or bool(context.settings.issues.claim)
    if not forge:  # `resume` and `now` do not say how the newest run or the schedule of the plan lands
        store = context.store()
        newest = store.get_newest_run(command.plan)
        row = store.get_schedule(command.plan)
        forge = bool((newest and newest.concludes) or (row and json.loads(row.request).get("concludes")))
    env = for_a_run(context.env, context.settings.agents, forge=forge, checks=context.settings.tests.env)
    client.call(Environment(repository=repository, name=name, env=env), Done)
    return replace(command, arguments={**command.arguments, ENVIRONMENT: name})


def _store_commands(context: RepositoryContext, commands: Sequence[Command]) -> list[Command]:
    now = iso(SystemClock().now())
    with closing(open_store(context.journal)) as store:
        dated = [replace(command, at=command.at or now) for command in commands]
        return [replace(command, seq=store.add_command(command)) for command in dated]


def _execute_here(context: RepositoryContext, commands: list[Command]) -> list[Answer | None]:
    """Execute commands in this process; stopped runs are worked to their end."""
    with Interruption(0.0) as interruption, open_repository(context, wakeup=interruption.wakeup) as repository:
        host = ForegroundHost(interruption, context.env)
        host.owner.open(context, repository)
        answers = host.execute(commands)
    if None in answers:  # a daemon has come up meanwhile, and owns the run
        wake_daemon(context.env)
    return answers
