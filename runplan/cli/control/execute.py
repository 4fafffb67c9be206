"""Has a run request executed, by the daemon or in this process, and prints the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.cli.control import prepare
from runplan.cli.show import progress
from runplan.daemon import submit as queue
from runplan.engine.worker import ForegroundWorker, Interruption, Outcome
from runplan.errors import Exit, Interrupted, NotFound, error_with
from runplan.landing import modes
from runplan.names import WATCH
from runplan.run.decide import decide
from runplan.run.events import Rejected
from runplan.run.requests import BY_PERSON, Answer, start_arguments
from runplan.run.rows import Command
from runplan.text import command
from runplan.times import parse_iso, zone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runplan.engine.context import RepositoryContext
    from runplan.run.events import RunStarted
    from runplan.run.requests import RunRequest, Timing


def submit(
    at: RepositoryContext, plan: str, verb: str, arguments: Mapping[str, Any] | None = None, *, wait: bool = True
) -> Answer | None:
    """Submit a command; its answer, or None while the daemon is busy, unless `wait`. A refusal is raised."""
    asked = Command(plan=plan, verb=verb, arguments=arguments or {}, by=BY_PERSON, at="")
    (answer,) = queue.submit(at, [asked], say=progress.say, wait=wait)
    if answer is not None and answer.error:
        raise error_with(answer.error, answer.exit)
    return answer


def submit_run(at: RepositoryContext, request: RunRequest, timing: Timing | None = None, *, wait: bool = False) -> Exit:
    """Have the daemon execute the run; `wait` follows it to its end."""
    plan = request.started.plan
    started = replace(request.started, daemon=True, needs=needed(at, request.started))
    seen = queue.newest_event(at)
    answer = submit(at, plan, "start", start_arguments(replace(request, started=started), timing))
    assert answer is not None
    if timing is not None and answer.scheduled:
        first = parse_iso(answer.scheduled).astimezone(zone(at.settings.run.timezone))
        instead = f" instead of every {answer.instead}" if answer.instead else ""
        progress.say(f"Scheduled {plan} every {timing.every}{instead}, first at {first:%Y-%m-%d %H:%M %Z}")
        if not timing.now:
            return Exit.DONE
    code = print_answer(plan, answer, None if timing else request)
    return _follow(at, plan, answer.run, after=seen) if wait and not answer.declined else code


def needed(at: RepositoryContext, started: RunStarted) -> tuple[str, ...]:
    """The names of the variables that the run needs."""
    from runplan.agents.environment import for_a_run, needed_by_a_run

    agents, checks = at.settings.agents, at.settings.tests.env
    pushes, forge = modes.uses_remote(started.landing), started.concludes
    sent = for_a_run(at.env, agents, forge=forge, checks=checks)
    return needed_by_a_run(sent, agents, pushes=pushes, forge=forge, checks=checks)


def follow_running(at: RepositoryContext, plan: str) -> Exit:
    """Follow the run that the daemon works on already, if there is one."""
    store, row = at.store(), prepare.interrupted_run(at, plan)
    if store is None or row is None or not store.is_daemons(plan):
        return Exit.DONE
    return _follow(at, plan, row.id, after=queue.newest_event(at))


def _follow(at: RepositoryContext, plan: str, run: str, *, after: int) -> Exit:
    """Print the events of the run until it ends or waits for a person; Ctrl-C only detaches."""
    try:
        with progress.live():
            for event in queue.follow(at, plan, run, after=after):
                progress.show(event)
    except KeyboardInterrupt:
        again, stop = command("runplan", "logs", plan, "-f"), command("runplan", "stop", plan)
        raise Interrupted(f"detached; {run} continues. Follow it: {again}; stop it: {stop}") from None
    store = at.store()
    row = store.row(run) if store is not None else None
    if store is None or row is None:
        raise NotFound(f"no run of {plan} is recorded here")
    state = prepare.state_of(store, row)
    return progress.show_end(plan, Outcome(run=row.id, decision=decide(state), state=state), at.state)


def admit_agents(at: RepositoryContext) -> None:
    """Refuse agents that cannot run, and warn when they run without a sandbox."""
    from runplan.engine.preflight import require_agents

    if warning := require_agents(at):
        progress.warn(warning)


def run_here(at: RepositoryContext, request: RunRequest) -> Exit:
    from runplan.engine.repository import open_repository
    from runplan.settings.load import load_user

    if request.started.mode != "undo":
        admit_agents(at)
    plan = request.started.plan
    with (
        progress.live(),
        Interruption(load_user(at.env).daemon.grace_s) as interruption,
        open_repository(at, wakeup=interruption.wakeup) as repository,
        prepare.retry_hint(plan),
    ):
        worker = ForegroundWorker(interruption, show=progress.show, warn=progress.warn)
        outcome = worker.run(request, repository)
    if isinstance(outcome, Answer):
        return print_answer(plan, outcome, request)
    if isinstance(request.answer, Rejected):
        return _print_rejected(plan, outcome.run)
    return progress.show_end(plan, outcome, at.state)


def _print_rejected(plan: str, run: str) -> Exit:
    progress.say(f"Rejected {run}; its work stays on its branch. See: {command('runplan', 'status', plan)}")
    return Exit.DONE


def print_answer(plan: str, answer: Answer, request: RunRequest | None = None) -> Exit:
    """Print what became of a request; None is that of a schedule."""
    is_watch, plan = plan.startswith(WATCH), answer.plan or plan
    for text in answer.warnings:
        progress.warn(text)
    if answer.declined and answer.owner:
        progress.say(prepare.describe_owner(plan, answer.owner))
    elif answer.declined and request is None:
        progress.say(f"Not started: {answer.why}")
        return Exit.DONE if is_watch else Exit.WAITING
    elif answer.declined and request is not None and request.answer is not None:
        raise NotFound(answer.why)
    elif answer.declined:
        progress.say(answer.why)
    elif request is not None and isinstance(request.answer, Rejected) and answer.run:
        return _print_rejected(plan, answer.run)
    elif answer.fresh:
        progress.say(f"Accepted as {answer.run}; follow it: {command('runplan', 'logs', plan, '-f')}")
    else:
        progress.say(prepare.describe_running(plan, answer.run))
    return Exit.DONE
