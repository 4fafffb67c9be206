"""A failed run whose pull request is open: the daemon looks there for the comment `/runplan retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan import names
from runplan.landing import modes
from runplan.landing.conversation import find_due
from runplan.run.kinds import Mode, RunOutcome
from runplan.run.requests import RunRequest
from runplan.steps.conclude import list_answers
from runplan.times import parse_iso

if TYPE_CHECKING:
    from datetime import datetime

    from runplan.engine.worker import RepositoryWorker
    from runplan.run.rows import Answer, WaitRow
    from runplan.run.state import RunState

LONGEST_S = 7 * 24 * 3600.0  #: after which nobody looks any more


def awaits_retry(state: RunState) -> bool:
    """Whether a comment on the pull request may have the daemon retry the run, which has ended."""
    options = state.options
    is_work = options.daemon and options.auto and options.concludes and options.mode not in (Mode.PLAN, Mode.UNDO)
    return is_work and state.ended is not None and state.ended.outcome is RunOutcome.FAILED


def look_for_retry(row: WaitRow, worker: RepositoryWorker, now: datetime) -> Answer | bool:
    """The answer to a command that asks for a retry; else whether there may be one later."""
    state = worker.newest(row.plan)
    since = parse_iso(row.since).timestamp()
    if not awaits_retry(state) or now.timestamp() - since > LONGEST_S:
        return False
    started = state.options
    context = worker.context_for(started).for_run(started)
    run = context.settings.run
    forge = modes.open_forge(context.git, run, context.env)
    pull = forge.find_pull_request(branch=names.pull_branch(run.branch_prefix, started.slug), base=run.target)
    if pull is None or not pull.is_open:
        return False
    messages = forge.read_activity(pull.number, pull.head).messages
    handled = list_answers(worker.repository.store, row.plan)
    due = find_due(messages, handled=handled, login=forge.own_login, may_write=forge.may_write, since=since)
    if not due.commands or due.commands[-1].is_stop:
        return not due.commands
    again = replace(started, command=0, settings="", review=(), remarks=())  # the settings of now
    return worker.begin(RunRequest(started=again, again=True)) or True
