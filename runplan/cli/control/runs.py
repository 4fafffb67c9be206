"""Turns the words of a command into a run request, after all checks, and has it executed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan import names
from runplan.cli.show import progress
from runplan.daemon import submit as queue
from runplan.daemon.client import wake
from runplan.engine import context as contexts
from runplan.engine.preflight import (
    committed_plan,
    living_owner,
    phases_to_work,
    require_landable,
    require_own_branches,
    require_same_history,
    require_test_command,
    settle_lost_landings,
)
from runplan.engine.worker import ForegroundWorker, Interruption, Outcome
from runplan.errors import (
    Exit,
    Fenced,
    Interrupted,
    JournalDamaged,
    NotFound,
    RefusedEarly,
    SettingsError,
    Unreachable,
    error_with,
)
from runplan.landing import modes
from runplan.names import WATCH
from runplan.plan.model import parse
from runplan.run.decide import decide
from runplan.run.events import Landed, Rejected, RunStarted
from runplan.run.requests import BY_PERSON, Answer, RunRequest, start_arguments
from runplan.run.rows import Command
from runplan.run.state import fold
from runplan.settings import options as words_of
from runplan.settings.load import run_variables
from runplan.text import bounded, command, plain
from runplan.times import parse_iso, zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from runplan.engine.context import RepositoryContext
    from runplan.forge.model import ReviewComment
    from runplan.plan.model import Phase, Plan
    from runplan.run.events import Rows
    from runplan.run.requests import Timing
    from runplan.run.rows import RunRow
    from runplan.run.state import RunState
    from runplan.settings.options import Options
    from runplan.store.sqlite import Store

MOST_TARGETS = 3  #: branches whose settings may name another target, in a row


def prepared(
    at: RepositoryContext,
    plan_word: str,
    words: Sequence[str],
    *,
    like: RunStarted | None = None,
    review: Rows = (),
) -> tuple[RepositoryContext, RunRequest] | str:
    """The request of the words after all checks; a sentence when there is nothing to do.

    `like` is the run that is retried: the new one lands in the same place. A run at work takes a `review`, too.
    """
    at = with_landing(at, words)
    if not review and (already := _already_running(at, plan_word, words)):
        return already
    complete_landings(at)
    at = with_target_settings(at, words, like=like)
    found = request_for(at, plan_word, words)
    if isinstance(found, str):
        return found
    request, _ = found
    request = replace(request, started=replace(request.started, review=review))
    if (left := unfinished(at, request.started.plan)) is not None:  # a resumed run keeps its settings
        assert left[1].started is not None
        return at.for_run(left[1].started), request
    if note := contexts.settings_note(at):
        progress.say(note)
    return at, request


def _already_running(at: RepositoryContext, plan_word: str, words: Sequence[str]) -> str:
    """Says that a live process works on the plan, before the remote is asked, which may hang; "" for none.

    A schedule is made all the same, and a run that is being stopped ends first.
    """
    store = at.store()
    if store is None or words_of.parse_words(words, phases=None).every is not None:
        return ""
    plan = contexts.plan_path(at, plan_word)
    row, owner = store.interrupted(plan), living_owner(store, plan)
    if row is None or row.state != "running" or not owner or row.asked:
        return ""
    if any(one.plan == plan for one in store.commands.queued()):
        return ""
    if not store.is_daemons(plan):
        return describe_owner(plan, owner)
    wake(at.env)  # the repository may have been away
    return describe_running(plan, row.id)


def describe_running(plan: str, run: str) -> str:
    return f"{plan} is already running ({run}); see: {command('runplan', 'status', plan)}"


def describe_owner(plan: str, owner: str) -> str:
    pid, follow = owner.partition(":")[0], command("runplan", "logs", plan, "-f")
    return f"{plan} is already running in another process ({pid}); nothing was changed. Follow it: {follow}"


def with_landing(at: RepositoryContext, words: Sequence[str]) -> RepositoryContext:
    """The context with the landing mode of the words, which decides the tip that the plan is read from."""
    options = words_of.resolve(words_of.parse_words(words, phases=None), at.settings)
    modes.require_allowed(options.landing, at.settings.run)
    return at.with_landing(options.landing)


def complete_landings(at: RepositoryContext) -> None:
    """Complete interrupted landings, and refuse a target that cannot be landed on."""
    for note in settle_lost_landings(at):
        progress.warn(note)
    require_landable(at)


def with_target_settings(
    at: RepositoryContext, words: Sequence[str], *, like: RunStarted | None = None
) -> RepositoryContext:
    """The context with the settings of the target's tip, which a new run uses."""
    for _ in range(MOST_TARGETS):
        there = with_landing(at.with_committed_settings(), words)
        if like is not None:
            return there.with_landing(there.settings.run.landing, target=like.target, remote=like.remote)
        if there.target == at.target:
            return there
        require_landable(there)
        at = there
    raise SettingsError(f"run.target: the settings on each branch name another one; the last is {at.target_name}")


def request_for(at: RepositoryContext, plan_word: str, words: Sequence[str]) -> tuple[RunRequest, list[Phase]] | str:
    """The request with resolved options, and its phases; a sentence when there is nothing to do."""
    at.tip()  # a repository without a commit has no plan either
    path = contexts.plan_path(at, plan_word)
    if modes.concludes(at.settings.run.landing):  # the plan is read from its own branch
        slug = contexts.slug_of(at, path)
        at = replace(at, pull=slug)
        modes.fetch_branch(at.repository.git, at.settings.run, slug, at.env)
    tip = at.tip()
    blob = at.repository.git.blob(tip, path)
    store = at.store()
    resuming = store is not None and store.interrupted(path) is not None
    standing = "same" if resuming and blob is not None else contexts.in_checkout(at, path, blob)
    text = committed_plan(path, tip, blob, standing, target=at.target_name)
    plan = parse(text, path=path)
    parsed = words_of.parse_words(words, phases=[phase.id for phase in plan.phases])
    options = words_of.resolve(parsed, at.settings)
    phases = phases_to_work(plan, text, tip=tip, options=options, resuming=resuming)
    if isinstance(phases, str):
        if not at.is_on_branch:
            return phases
        phases = []  # the pull request is still to be merged
    require_test_command(at)
    asked = run_started(at, path, plan, options)
    require_same_history(at, path)
    if not resuming:
        require_own_branches(at, plan=path, slug=asked.slug, phases=phases, tip=tip)
    for remark in plan.remarks:
        progress.warn(f"{path}:{remark.line}: {remark.text}")
    return RunRequest(started=asked), [phase for phase in plan.phases if phase.id in phases]


def run_started(at: RepositoryContext, path: str, plan: Plan, options: Options) -> RunStarted:
    asked = RunStarted(
        plan=path,
        title=plan.title,
        mode=options.mode,
        wanted=options.phase or "",
        auto=options.auto,
        landing=options.landing,
        target=options.target,
        slug=contexts.slug_of(at, path),
        max_fix_cycles=at.settings.run.max_fix_cycles,
        test_command=at.settings.tests.command,
        issues=plan.issues,
        remote=at.settings.run.remote if modes.uses_remote(options.landing) else "",
        concludes=modes.concludes(options.landing),
        given=run_variables(at.env),
    )
    return at.record_settings(asked)


@contextlib.contextmanager
def retry_hint(plan: str) -> Iterator[None]:
    """Add the command that continues the run to errors from outside."""
    retry = command("runplan", "retry", plan)
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; all agents are stopped. Continue with: {retry}") from None
    except (Fenced, JournalDamaged):
        raise  # this journal cannot be continued
    except Unreachable as error:
        raise Unreachable(f"{error}; the work is kept. Continue with: {retry}") from error


def review_of(at: RepositoryContext, last: RunStarted, store: Store) -> tuple[int, Rows]:
    """The number of the plan's open pull request, and the comments of its reviewers that no run has handled."""
    if not last.concludes:
        raise RefusedEarly(f"the last run of {last.plan} landed by {last.landing}; only a pull request has a review")
    run = at.settings.run
    forge = modes.forge_of(at.repository.git, run, at.env)
    pull = forge.find(branch=names.pull_branch(run.branch_prefix, last.slug), base=run.target)
    if pull is None or not pull.is_open:
        raise NotFound(f"{last.plan} has no open pull request; see: {command('runplan', 'status', last.plan)}")
    handled = {id_ for one in store.facts(Landed, plan=last.plan) for id_ in one.event.review}
    found = forge.review_comments(pull.number)
    return pull.number, tuple((one.id, _quoted(one)) for one in found if one.id not in handled)


def _quoted(comment: ReviewComment) -> str:
    lines = plain(bounded(comment.text)).splitlines()
    where = f" on {comment.place}" if comment.place else ""
    return "\n".join([f"{comment.author}{where}:", *(f"> {line}" for line in lines)])


# --- runs on record ---------------------------------------------------------------------------------------


def unfinished(at: RepositoryContext, plan: str) -> tuple[RunRow, RunState] | None:
    """The plan's unfinished run with its state."""
    store = at.store()
    row = store.interrupted(plan) if store is not None else None
    return (row, state_of(store, row)) if store is not None and row is not None else None


def state_of(store: Store, row: RunRow) -> RunState:
    """The state of a run, from its journal."""
    from runplan.store.journal import recorded

    state = fold(one.event for one in recorded(store, row.id))
    if state.started is None:
        raise RefusedEarly(f"{row.plan}: the run {row.id} cannot be read; see: {command('runplan', 'logs', row.plan)}")
    return state


# --- execution --------------------------------------------------------------------------------------------


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
    store = at.store()
    row = store.interrupted(plan) if store is not None and store.is_daemons(plan) else None
    return _follow(at, plan, row.id, after=queue.newest_event(at)) if row is not None else Exit.DONE


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
    state = state_of(store, row)
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
        retry_hint(plan),
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
        progress.say(describe_owner(plan, answer.owner))
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
        progress.say(describe_running(plan, answer.run))
    return Exit.DONE
