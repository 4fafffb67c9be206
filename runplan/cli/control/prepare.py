"""Turns the words of a command into a run request, runs it in the foreground, and maps outcomes to exit codes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.cli.control.asking import ask_here
from runplan.cli.show import progress
from runplan.cli.show.summary import summary
from runplan.engine import admission, context as places
from runplan.engine.acquire import Declined, interrupted
from runplan.engine.preflight import (
    infrastructure,
    require_landable,
    require_own_branches,
    require_same_history,
    settle_lost_landings,
)
from runplan.engine.worker import ForegroundWorker, Outcome
from runplan.errors import (
    Exit,
    Fenced,
    Interrupted,
    JournalDamaged,
    NotFound,
    RefusedEarly,
    SettingsError,
    Unreachable,
    UsageError,
)
from runplan.landing import modes
from runplan.plan.model import parse
from runplan.run.decide import decide
from runplan.run.events import RunStarted
from runplan.run.requests import RunRequest
from runplan.run.state import fold
from runplan.settings import options as words_of
from runplan.settings.load import file_hash, record, run_variables
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runplan.engine.context import RepositoryContext
    from runplan.plan.model import Plan
    from runplan.run.rows import RunRow
    from runplan.run.state import RunState
    from runplan.settings.options import Resolved
    from runplan.store.sqlite import Store


MOST_TARGETS = 3  #: branches whose settings may name another target, in a row


def towards_landing(at: RepositoryContext, words: Sequence[str]) -> RepositoryContext:
    """The context with the landing mode of the words, which decides the tip that the plan is read from."""
    options = words_of.resolve(words_of.parse_words(words, phases=None), at.settings)
    modes.require_allowed(options.landing, at.settings.run)
    return at.towards(options.landing)


def request_for(at: RepositoryContext, plan_word: str, words: Sequence[str]) -> RunRequest | str:
    """The request with resolved options, after all checks; a sentence when there is nothing to do."""
    tip = at.tip()
    path = places.plan_path(at, plan_word)
    blob = at.repository.git.blob(tip, path)
    store = at.store()
    resuming = store is not None and interrupted(store, path) is not None
    standing = "same" if resuming and blob is not None else places.in_checkout(at, path, blob)
    text = admission.committed_plan(path, tip, blob, standing, target=at.target_name)
    plan = parse(text, path=path)
    parsed = words_of.parse_words(words, phases=[phase.id for phase in plan.phases])
    options = words_of.resolve(parsed, at.settings)
    admitted = admission.admit(text, path, tip=tip, options=options, resuming=resuming)
    if isinstance(admitted, admission.NothingToDo):
        return admitted.told
    admission.require_test_command(at.settings, infrastructure(at.repository.git, tip))
    asked = started(at, path, plan, options)
    require_same_history(at, path)
    if not resuming:
        require_own_branches(at, plan=path, slug=asked.slug, phases=admission.due(admitted, options), tip=tip)
    for remark in plan.remarks:
        progress.warn(f"{path}:{remark.line}: {remark.text}")
    return RunRequest(started=asked)


def started(at: RepositoryContext, path: str, plan: Plan, options: Resolved) -> RunStarted:
    return RunStarted(
        plan=path,
        title=plan.title,
        mode=options.mode,
        wanted=options.phase or "",
        auto=options.auto,
        landing=options.landing,
        target=options.target,
        slug=places.slug_of(at, path),
        max_fix_cycles=at.settings.run.max_fix_cycles,
        test_command=at.settings.tests.command,
        setup=at.settings.run.setup,
        clean=at.settings.run.clean,
        parallel=at.settings.run.parallel,
        issues=plan.issues,
        remote=at.settings.run.remote if modes.uses_remote(options.landing) else "",
        settings=record(at.settings),
        settings_file=file_hash(file.content if (file := at.committed()) is not None else None),
        given=run_variables(at.env),
    )


def admit_agents(at: RepositoryContext) -> None:
    """Refuse agents that cannot run, and warn when they run without a sandbox."""
    from runplan.engine.preflight import require_agents

    if warning := require_agents(at):
        progress.warn(warning)


def run_here(at: RepositoryContext, request: RunRequest) -> Exit:
    """Run it in this process."""
    from runplan.engine.interrupting import Interruption
    from runplan.engine.repository import open_repository
    from runplan.settings.load import load_user

    if request.started.mode != "undo":
        admit_agents(at)
    plan = request.started.plan
    with (
        Interruption(load_user(at.env).daemon.grace_s) as interruption,
        open_repository(at, wakeup=interruption.wakeup) as repository,
        _with_retry_hint(plan),
    ):
        worker = ForegroundWorker(
            interruption, person=lambda state: ask_here(at, state), tell=progress.tell, warn=progress.warn
        )
        outcome = worker.run(request, repository)
    match outcome:
        case Declined(owner=""):
            return over(request, outcome.why)
        case Declined():
            return declined(plan, outcome)
        case Outcome():
            return _print_summary(at, plan, outcome)


def over(request: RunRequest, why: str) -> Exit:
    """The run has ended meanwhile: a retry is not needed, and an answer is refused."""
    if request.answer is not None:
        raise NotFound(why)
    progress.say(f"runplan: {why}")
    return Exit.DONE


def declined(plan: str, answer: Declined) -> Exit:
    """Print which process owns the plan."""
    number = answer.owner.partition(":")[0]
    process = number if number.isdigit() else answer.owner
    progress.say(f"runplan: {plan} is already running in another process ({process}); nothing was changed")
    progress.say(f"runplan: follow it: {command('runplan', 'logs', plan, '-f')}")
    return Exit.DONE


@contextlib.contextmanager
def _with_retry_hint(plan: str) -> Iterator[None]:
    """Add the command that continues the run to errors from outside."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; all agents are stopped. Continue with: {command('runplan', 'retry', plan)}"
        ) from None
    except (Fenced, JournalDamaged):
        raise  # this journal cannot be continued
    except Unreachable as error:
        raise Unreachable(f"{error}; the work is kept. Continue with: {command('runplan', 'retry', plan)}") from error


def outcome(at: RepositoryContext, plan: str, run: str) -> Exit:
    """Print the summary of the run from its journal; the exit code."""
    store = at.store()
    row = next((one for one in store.runs(plan) if one.id == run), None) if store is not None else None
    if store is None or row is None:
        raise NotFound(f"no run of {plan} is recorded here")
    state = state_of(store, row)
    return _print_summary(at, plan, Outcome(run=row.id, decision=decide(state), state=state))


def _print_summary(at: RepositoryContext, plan: str, outcome: Outcome) -> Exit:
    code, lines = summary(plan, outcome, logs=at.state / "dispatch")
    progress.say("\n".join(["", *(f"runplan: {line}" for line in lines)]))
    return code


def state_of(store: Store, row: RunRow) -> RunState:
    """The state of a run, from its journal."""
    from runplan.store.journal import recorded

    state = fold(one.fact for one in recorded(store, row.id))
    if state.started is None:
        raise RefusedEarly(f"{row.plan}: the run {row.id} cannot be read; see: {command('runplan', 'logs', row.plan)}")
    return state


def prepared(
    at: RepositoryContext, plan_word: str, words: Sequence[str], *, like: RunStarted | None = None
) -> tuple[RepositoryContext, RunRequest] | str:
    """The request of the words after all checks; a sentence when there is nothing to do.

    `like` is the run that is retried: the new one lands in the same place.
    """
    at = towards_landing(at, words)
    enter(at, plan_word)
    at = fixed(at, words, like=like)
    request = request_for(at, plan_word, words)
    if isinstance(request, str):
        return request
    store = at.store()
    row = interrupted(store, request.started.plan) if store is not None else None
    begun = state_of(store, row).started if store is not None and row is not None else None
    if begun is not None:  # a resumed run keeps its settings
        return at.for_run(begun), request
    if note := places.settings_note(at):
        progress.say(f"runplan: {note}")
    return at, request


def fixed(at: RepositoryContext, words: Sequence[str], *, like: RunStarted | None = None) -> RepositoryContext:
    """The context with the settings of the target's tip, which a new run uses."""
    for _ in range(MOST_TARGETS):
        there = towards_landing(at.with_committed_settings(), words)
        if like is not None:
            return there.towards(there.settings.run.landing, target=like.target, remote=like.remote)
        if there.target == at.target:
            return there
        require_landable(there)
        at = there
    raise SettingsError(f"run.target: the settings on each branch name another one; the last is {at.target_name}")


def enter(at: RepositoryContext, plan_word: str) -> None:
    """Complete interrupted landings, and refuse a target that cannot be landed on."""
    try:
        for note in settle_lost_landings(at):
            progress.warn(note)
        require_landable(at)
    except JournalDamaged:
        raise
    except Unreachable:
        path = _interrupted_plan(at, plan_word)
        with _with_retry_hint(path) if path else contextlib.nullcontext():
            raise


def _interrupted_plan(at: RepositoryContext, plan_word: str) -> str | None:
    """The plan, if it has an unfinished run; None also when the plan cannot be found."""
    try:
        path, store = places.plan_path(at, plan_word), at.store()
    except (NotFound, UsageError):
        return None
    return path if store is not None and interrupted(store, path) else None


def start(
    at: RepositoryContext, plan_word: str, words: Sequence[str], *, again: bool = False, like: RunStarted | None = None
) -> Exit:
    """Run in this process; `again`: as a retry of the plan's last run."""
    if words_of.parse_words(words, phases=None).every is not None:
        raise RefusedEarly("schedules need the daemon; leave out --foreground")
    found = prepared(at, plan_word, words, like=like)
    if isinstance(found, str):
        progress.say(f"runplan: {found}")
        return Exit.DONE
    at, request = found
    return run_here(at, replace(request, again=again))


def dry_run(at: RepositoryContext, request: RunRequest) -> str:
    """What a start would do; nothing is written."""
    from runplan.cli.control.dryrun import account

    return account(at, request.started)
