"""Has a run request executed, by the daemon or in this process, and prints the outcome."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.cli.control import prepare
from runplan.cli.show import progress
from runplan.cli.show.progress import summary
from runplan.daemon import submit as queue
from runplan.engine.worker import ForegroundWorker, Interruption, Outcome
from runplan.errors import Exit, Interrupted, NotFound, error_with
from runplan.landing import modes
from runplan.run.decide import ANSWERED, decide
from runplan.run.events import Approved, Rejected
from runplan.run.requests import BY_PERSON, Answer, start_arguments
from runplan.run.rows import Command
from runplan.run.state import awaiting
from runplan.settings.schedule import delay_of, parse
from runplan.text import command, in_words
from runplan.times import parse_iso, zone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runplan.engine.context import RepositoryContext
    from runplan.run.events import RunStarted
    from runplan.run.requests import RunRequest, Timing
    from runplan.run.state import RunState


def say(text: str) -> None:
    progress.say(f"runplan: {text}")


# --- commands ---------------------------------------------------------------------------------------------


def submit(
    at: RepositoryContext, plan: str, verb: str, arguments: Mapping[str, Any] | None = None, *, wait: bool = True
) -> Answer | None:
    """Submit a command; its answer, or None while the daemon is busy, unless `wait`. A refusal is raised."""
    asked = Command(plan=plan, verb=verb, arguments=arguments or {}, by=BY_PERSON, at="")
    (answer,) = queue.submit(at, [asked], say=say, wait=wait)
    if answer is not None and answer.error:
        raise error_with(answer.error, answer.exit)
    return answer


def submit_run(at: RepositoryContext, request: RunRequest, timing: Timing | None = None, *, wait: bool = False) -> Exit:
    """Have the daemon execute the run; `wait` follows it to its end."""
    plan, before = request.started.plan, prepare.interrupted_run(at, request.started.plan)
    started = replace(request.started, daemon=True, needs=needed(at, request.started))
    seen = queue.newest_event(at)
    answer = submit(at, plan, "start", start_arguments(replace(request, started=started), timing))
    assert answer is not None
    if timing is not None and answer.scheduled:
        first = parse_iso(answer.scheduled).astimezone(zone(at.settings.run.timezone))
        instead = f" instead of every {answer.instead}" if answer.instead else ""
        progress.say(f"runplan: Scheduled {plan} every {timing.every}{instead}, first at {first:%Y-%m-%d %H:%M %Z}")
        if delay := delay_of(parse(timing.every), plan):
            later = in_words(delay.total_seconds())
            progress.say(f"runplan: It starts {later} after the time, because many programs start on the hour")
        if not timing.now:
            return Exit.DONE
    if answer.declined and not answer.owner:
        return print_not_started(answer) if timing is not None else _nothing_left(request, answer.why)
    if isinstance(request.answer, Rejected) and answer.run:
        return _print_rejected(plan, answer.run)
    print_accepted(plan, answer)
    if before is not None and before.waiting_for in ANSWERED and not (started.auto or request.answer):
        progress.say(
            f"runplan: Phase {before.phase} needs your {before.waiting_for}: {command('runplan', 'approve', plan)}"
        )
    return _follow(at, plan, answer.run, after=seen) if wait and not answer.declined else Exit.DONE


def needed(at: RepositoryContext, started: RunStarted) -> tuple[str, ...]:
    """The names of the variables that the run needs."""
    from runplan.agents.environment import for_a_run, needed_by_a_run

    agents, checks = at.settings.agents, at.settings.tests.env
    pushes, forge = modes.uses_remote(started.landing), started.concludes
    sent = for_a_run(at.env, agents, forge=forge, checks=checks)
    return needed_by_a_run(sent, agents, pushes=pushes, forge=forge, checks=checks)


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
    return _print_summary(at, plan, Outcome(run=row.id, decision=decide(state), state=state))


# --- in this process --------------------------------------------------------------------------------------


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
        worker = ForegroundWorker(
            interruption, ask=lambda state: _ask(at, state), show=progress.show, warn=progress.warn
        )
        outcome = worker.run(request, repository)
    match outcome:
        case Answer(owner=""):
            return _nothing_left(request, outcome.why)
        case Answer():
            return print_declined(plan, outcome.owner)
        case Outcome() if isinstance(request.answer, Rejected):
            return _print_rejected(plan, outcome.run)
        case Outcome():
            return _print_summary(at, plan, outcome)


def _ask(at: RepositoryContext, state: RunState) -> Approved | Rejected | None:
    """Show the change and ask the person at the terminal; None when there is no terminal or no answer."""
    phase = awaiting(state)
    if phase is None or phase.candidate is None:
        return None
    candidate = phase.candidate
    diff = at.diff(candidate.onto, candidate.commits[-1]).decode("utf-8", "surrogateescape").rstrip("\n")
    question = f"Land phase {phase.read.phase} on {at.settings.run.target}? [y]es / [n]o / [l]ater: "
    try:
        print(f"\n{diff}\n", file=sys.stderr)
        while sys.stdin.isatty() and sys.stderr.isatty():
            print(question, end="", file=sys.stderr, flush=True)
            match (answer := sys.stdin.readline()).strip().lower():
                case "y" | "yes":
                    return Approved(tree=candidate.tree)
                case "n" | "no":
                    return Rejected(tree=candidate.tree)
                case "l" | "later":
                    return None
            if not answer:
                return None
    except OSError:  # the terminal is gone
        return None
    return None


# --- outcomes ---------------------------------------------------------------------------------------------


def _print_summary(at: RepositoryContext, plan: str, outcome: Outcome) -> Exit:
    code, lines = summary(plan, outcome, logs=at.state / "dispatch")
    progress.say("\n".join(["", *(f"runplan: {line}" for line in lines)]))
    return code


def _print_rejected(plan: str, run: str) -> Exit:
    progress.say(f"runplan: Rejected {run}; its work stays on its branch. See: {command('runplan', 'status', plan)}")
    return Exit.DONE


def _nothing_left(request: RunRequest, why: str) -> Exit:
    """The run has ended meanwhile: a retry is not needed, and an answer is refused."""
    if request.answer is not None:
        raise NotFound(why)
    progress.say(f"runplan: {why}")
    return Exit.DONE


def print_not_started(answer: Answer) -> Exit:
    """The plan waits for a person, so nothing was started."""
    progress.say(f"runplan: Not started: {answer.why}")
    return Exit.WAITING


def print_accepted(plan: str, answer: Answer) -> None:
    for text in answer.warnings:
        progress.warn(text)
    if answer.declined:
        print_declined(plan, answer.owner)
    elif answer.fresh:
        progress.say(f"runplan: Accepted as {answer.run}; follow it: {command('runplan', 'logs', plan, '-f')}")
    else:
        progress.say(f"runplan: {prepare.describe_running(plan, answer.run)}")


def print_declined(plan: str, owner: str) -> Exit:
    progress.say(f"runplan: {prepare.describe_owner(plan, owner)}")
    return Exit.DONE
