"""Submits commands to the daemon, prints the answers, and maps them to exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.cli.control import prepare
from runplan.cli.show import progress
from runplan.daemon import submitting
from runplan.daemon.submitting import Talk
from runplan.engine.acquire import Declined
from runplan.errors import Exit, Interrupted, error_with
from runplan.run.events import Rejected
from runplan.run.requests import BY_PERSON, Timing, start_arguments
from runplan.run.rows import Command
from runplan.settings import options as words_of
from runplan.settings.load import variables
from runplan.settings.schedule import parse, spell
from runplan.text import command
from runplan.times import parse_iso, zone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.engine.context import RepositoryContext
    from runplan.run.events import RunStarted
    from runplan.run.requests import Answer, RunRequest

BUSY = "daemon busy (git or network); request queued, you can quit now"
#: The settings of a schedule that a caller may override, and their variables.
TIMED = {"zone": "RUNPLAN_RUN_TIMEZONE", "misfire": "RUNPLAN_RUN_MISFIRE"}


def start(
    at: RepositoryContext,
    plan_word: str,
    words: Sequence[str],
    *,
    wait: bool,
    again: bool = False,
    like: RunStarted | None = None,
) -> Exit:
    """Submit the run that the words ask for; `again`: as a retry of the plan's last run."""
    found = prepare.prepared(at, plan_word, words, like=like)
    if isinstance(found, str):
        progress.say(f"runplan: {found}")
        return Exit.DONE
    at, request = found
    prepare.admit_agents(at)
    asked = words_of.parse_words(words, phases=None)
    timing = _timing(at, asked.every, now=asked.now) if asked.every is not None else None
    return submit_run(at, replace(request, again=again), timing, wait=wait)


def _timing(at: RepositoryContext, every: str, *, now: bool) -> Timing:
    run, set_by = at.settings.run, variables(at.env)
    given = ",".join(name for name, variable in TIMED.items() if variable in set_by)
    spec = spell(parse(every)).removeprefix("every ")
    return Timing(every=spec, now=now, zone=run.timezone, misfire=run.misfire, given=given)


def submit_run(at: RepositoryContext, request: RunRequest, timing: Timing | None = None, *, wait: bool = False) -> Exit:
    """Submit the run and print the answer."""
    plan = request.started.plan
    started = replace(request.started, daemon=True, needs=submitting.needed(at, request.started))
    arguments = start_arguments(replace(request, started=started), timing)
    answer = submit(at, Command(plan=plan, verb="start", arguments=arguments, by=BY_PERSON, at=""))
    if timing is not None and answer.scheduled:
        first = parse_iso(answer.scheduled).astimezone(zone(at.settings.run.timezone))
        instead = f" instead of every {answer.instead}" if answer.instead else ""
        progress.say(f"runplan: Scheduled {plan} every {timing.every}{instead}, first at {first:%Y-%m-%d %H:%M %Z}")
        if not timing.now:
            return Exit.DONE
    if answer.declined and not answer.owner:
        return not_started(answer) if timing is not None else prepare.over(request, answer.why)
    if isinstance(request.answer, Rejected) and answer.run:
        status = command("runplan", "status", plan)
        progress.say(f"runplan: Rejected {answer.run}; its work stays on its branch. See: {status}")
    else:
        print_answer(plan, answer)
    return _follow(at, plan, answer.run) if wait and not answer.declined else Exit.DONE


def submit(at: RepositoryContext, asked: Command) -> Answer:
    """Submit a command that begins something, and wait for its answer. A refusal is raised."""
    (answer,) = submitting.submit(at, [asked], talk=TALK, wait=True)
    assert answer is not None
    if answer.error:
        raise error_with(answer.error, answer.exit)
    return answer


def _follow(at: RepositoryContext, plan: str, run: str) -> Exit:
    """Print the events of the run until it ends or waits for a person; Ctrl-C only detaches."""
    try:
        for event in submitting.follow(at, plan, run):
            progress.tell(event)
    except KeyboardInterrupt:
        again, stop = command("runplan", "logs", plan, "-f"), command("runplan", "stop", plan)
        raise Interrupted(f"detached; {run} continues. Follow it: {again}; stop it: {stop}") from None
    return prepare.outcome(at, plan, run)


def not_started(answer: Answer) -> Exit:
    """The plan waits for a person, so nothing was started."""
    progress.say(f"runplan: Not started: {answer.why}")
    return Exit.WAITING


def print_answer(plan: str, answer: Answer) -> None:
    """Print the answer to a request for a run."""
    for words in answer.warnings:
        progress.warn(words)
    if answer.declined:
        prepare.declined(plan, Declined(owner=answer.owner, why=answer.why))
    elif answer.fresh:
        progress.say(f"runplan: Accepted as {answer.run}; follow it: {command('runplan', 'logs', plan, '-f')}")
    else:
        progress.say(f"runplan: {plan} is already running ({answer.run}); see: {command('runplan', 'status', plan)}")


def _say(text: str) -> None:
    progress.say(f"runplan: {text}")


TALK = Talk(notice=lambda: _say(BUSY), say=_say)
