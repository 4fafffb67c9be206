"""What a person says to plans that have a run or a schedule: stop, pause, resume, run now, approve, reject, answer."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from runplan.adapters import processes
from runplan.adapters.configuration.places import key_directory, state_directory
from runplan.adapters.notify.links import Link, Unusable, is_used, load_key, read_link
from runplan.adapters.store.protocol import Store
from runplan.app.operations import requests, runs
from runplan.app.operations.model import Accepted, Answer, Caller, Declined, Where, operation
from runplan.app.views.changes import ChangeView, ProposalView, list_pending, nothing_pending, view_change
from runplan.app.views.repositories import find_known, open_known
from runplan.domain.errors import Busy, NotFound, RunplanError, Unreachable, UsageError, error_with
from runplan.domain.names import QUEUE, WATCHES
from runplan.domain.run.attempts import PlanningAttempt, WorkAttempt
from runplan.domain.run.events import Answered, QuestionAnswered, QuestionAsked
from runplan.domain.run.requests import RunRequest, read_comments
from runplan.domain.run.rows import Answer as RowAnswer, Command
from runplan.domain.run.state import open_states
from runplan.domain.text import command, plain
from runplan.engine.loop import preflight
from runplan.engine.loop.context import RepositoryContext, plan_or_watch, plan_path
from runplan.engine.loop.runs import describe_late, end_recorded_agents, state_of
from runplan.hosts.commands import KEEP_SCHEDULE, request_of
from runplan.hosts.daemon import submit
from runplan.hosts.daemon.state import read_holder

ENDING_S = 20.0  #: for a foreground run to end its agents
SHORT = 12  #: digits of an id
REPLACED = "The change was replaced: the link is for an earlier change, or it was answered. See: runplan inbox"


@operation
def pause(caller: Caller, request: requests.PauseRequest) -> Answer:
    return _pause_or_resume(caller, request.plan, "pause", ". Resume with: runplan resume")


@operation
def resume(caller: Caller, request: requests.ResumeRequest) -> Answer:
    return _pause_or_resume(caller, request.plan, "resume", "; see: runplan status")


def _pause_or_resume(caller: Caller, word: str, verb: str, then: str) -> Answer:
    """Pause or resume the plan; `then` is the rest of the message, without the plan."""
    with caller.open(lenient=verb == "pause") as context:
        plan = plan_or_watch(context, word)
        store = context.store()
        run = store.get_interrupted_run(plan)
        has_run = run is not None and run.daemon
        row = store.get_schedule(plan)
        is_kept = has_run or row is not None or plan.startswith(QUEUE)
        if is_kept and verb == "resume" and not plan.startswith(WATCHES):
            place = context.landing_like(request_of(row).started) if row else context.for_plan(plan)
            preflight.require_active(place, plan)
        answer = runs.submit_command(caller, context, plan, verb, wait=verb == "resume") if is_kept else RowAnswer()
    if answer is not None and not answer.lines:
        raise NotFound(f"{plan} has no daemon run and no schedule; see: {command('runplan', 'status', plan)}")
    caller.say(f"{answer.lines[0] if answer is not None else submit.BUSY}{then} {command(plan)}")
    return Accepted(plan=plan)


@operation
def tell(caller: Caller, request: requests.TellRequest) -> Answer:
    text = plain(request.text).strip()
    if not text:
        raise UsageError("tell: the text is empty")
    with caller.open(lenient=True) as context:
        plan = plan_path(context, request.plan)
        run = context.store().get_interrupted_run(plan)
        if run is None or not run.daemon:
            where = "runs in a terminal, not in the daemon" if run is not None else "is not running"
            raise NotFound(f"{plan} {where}; nobody was told. See: {command('runplan', 'status', plan)}")
        arguments = {"text": text, "by": runs.name_person(caller, context)}
        answer = runs.submit_command(caller, context, plan, "tell", arguments)
    if answer is None or not answer.lines:
        raise NotFound(f"the run of {plan} has ended meanwhile; nobody was told")
    caller.say(answer.lines[0])
    return Accepted(plan=plan, run=run.id)


@operation
def now(caller: Caller, request: requests.NowRequest) -> Answer:
    with caller.open() as context:
        plans = [row.plan for row in context.store().list_schedules()]
        if not request.plan and len(plans) > 1:
            raise UsageError(f"now: there is more than one schedule; name one of {', '.join(plans)}")
        plan = plan_or_watch(context, request.plan) if request.plan else plans[0] if plans else ""
        if plan not in plans:
            make = command("runplan", "start", plan or "PLAN", "auto", "every", "4h")
            raise NotFound(f"{plan or 'this repository'} has no schedule; make one: {make}")
        row = context.store().get_schedule(plan)
        if row is not None and not plan.startswith(WATCHES):
            preflight.require_active(context.landing_like(request_of(row).started), plan)
        answer = runs.submit_command(caller, context, plan, "now")
    assert answer is not None
    return runs.tell_answer(caller, plan, answer)


@operation
def stop(caller: Caller, request: requests.StopRequest) -> Answer:
    with caller.open(lenient=True) as context:
        plan = plan_or_watch(context, request.plan) if request.plan else ""
        store = context.store()
        lines, still_running = _end_foreground(context, store, plan, force=request.force)
        active = [name for name in store.list_active_plans(queued=True) if plan in ("", name)]
        arguments = {KEEP_SCHEDULE: True} if request.keep_schedule else {}
        wanted = Command(plan="", verb="stop", arguments=arguments, by="runplan stop", at="")
        commands = [replace(wanted, plan=name) for name in active if name not in still_running]
        error: Exception | None = Unreachable("; ".join(still_running.values())) if still_running else None
        try:
            answers = submit.submit_commands(context, commands, say=caller.say) if commands else []
            lines += [line for answer in answers if answer is not None for line in answer.lines]
            lines += [submit.BUSY] if None in answers else []
            errors = (error_with(answer.error, answer.exit) for answer in answers if answer and answer.error)
            error = next(errors, error)
        except Unreachable as failed:
            # The daemon does not answer, or nothing can be recorded: agents are ended all the same.
            plans = [] if context.fleet else end_recorded_agents(context.state, plan)
            lines += [f"Ended the agent of {ended}; its work is kept" for ended in plans]
            is_queued = isinstance(failed, submit.StillQueued)  # the daemon executes it when it can
            error = failed if is_queued else Unreachable(f"{failed}; then stop it again")
    for line in lines:
        caller.say(line)
    if error is not None:
        raise error
    if lines:
        return Accepted(plan=plan)
    caller.say(f"Nothing to stop {f'for {plan}' if plan else 'here'}")
    return Declined()


def _end_foreground(
    context: RepositoryContext, store: Store, plan: str, *, force: bool
) -> tuple[list[str], dict[str, str]]:
    """End foreground runs in other terminals as Ctrl-C twice does; messages, and errors by plan."""
    owners = {key: owner for key, owner in store.list_owners().items() if plan in ("", key)}
    daemon = read_holder(state_directory(context.env))
    others = (processes.identity(os.getpid()), daemon.identity if daemon else None)
    lines = list[str]()
    still_running = dict[str, str]()
    for key, owner in owners.items():
        process = processes.living(owner) if owner not in others else None
        if process is None:
            continue
        # The second signal ends the agents; the same signal twice could be delivered once. Ctrl-Z may have stopped it.
        for number in (signal.SIGKILL,) if force else (signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            processes.send(process, number)
        if processes.await_gone([process], timeout_s=ENDING_S):
            at_once = command("runplan", "stop", key, "--force")
            still_running[key] = f"the run of {key} in process {process.pid} still runs; end it at once: {at_once}"
        else:
            lines.append(f"Stopped the run of {key} in process {process.pid}")
    return lines, still_running


@operation
def approve(caller: Caller, request: requests.ApproveRequest) -> Answer:
    return _submit_answer("approve", caller, request)


@operation
def reject(caller: Caller, request: requests.RejectRequest) -> Answer:
    if request.why and not plain(request.why).strip():
        raise UsageError("reject: the text is empty")
    return _submit_answer("reject", caller, request)


def _submit_answer(verb: str, caller: Caller, request: requests.ApproveRequest | requests.RejectRequest) -> Answer:
    """Record the answer to the change that waits, and continue the run as it was started."""
    if request.tree and len(request.tree) < SHORT:
        raise UsageError(f"{verb}: --tree needs at least {SHORT} digits of the tree")
    with caller.open(lenient=True) as context:  # the run has its own settings
        plan = plan_path(context, request.plan) if request.plan else None
        pending = list_pending(context, plan, request.phase or None, verb)
        changes = [change for change in pending if change.attempt.answerable.startswith(request.tree)]
        named = [(change.state.options.plan, change.attempt.chosen.phase) for change in changes or pending]
        if pending and not changes:
            see = command("runplan", "diff", *filter(None, named[0]))
            tree = request.tree[:SHORT]
            raise Busy(f"the change was replaced: tree {tree} does not wait any more; nothing was done. See: {see}")
        if plan is None and len(changes) > 1:
            commands = "; ".join(command("runplan", verb, *name) for name in named)
            raise NotFound(f"{len(changes)} changes wait for you; name one: {commands}")
        if not changes and plan:
            if held := list_pending(context, plan, request.phase or None, "reject"):  # those that wait for the checkout
                attempt = held[0].attempt
                landing = f"its landing waits: {attempt.delivery.held}; then: {command('runplan', 'retry', plan)}"
                raise Busy(f"phase {attempt.chosen.phase} of {plan} needs no further approval; {landing}")
            raise nothing_pending(plan, request.phase or None)
        if not changes:
            raise NotFound("no change waits for you here; see: runplan status")
        change = changes[0]
        attempt = change.attempt
        options = change.state.options
        why = request.why if isinstance(request, requests.RejectRequest) else ""
        by = runs.name_person(caller, context)
        answer = Answered(tree=attempt.answerable, approved=verb == "approve", why=why, by=by)
        if (candidate := attempt.delivery.candidate) is not None:
            answer = replace(answer, change=candidate.change)
        if isinstance(attempt, WorkAttempt):
            comments = read_comments(why, attempt.changed_files, dict(attempt.chosen.items), by=by)
            answer = replace(answer, comments=comments)
        action = "approving" if verb == "approve" else "rejecting"
        if not isinstance(attempt, PlanningAttempt) and answer.tree:
            commit = f"commit {candidate.commits[-1][:SHORT]}, " if candidate else ""
            takes = "; an agent gets your words" if why and attempt.is_revisable else ""
            phase = attempt.chosen.phase
            caller.say(f"{action} phase {phase} of {options.plan}: {commit}tree {answer.tree[:SHORT]}{takes}")
        elif answer.tree:
            takes = "; an agent revises it" if why else ""
            caller.say(f"{action} the proposed {options.plan}: SHA-256 {answer.tree[:SHORT]}{takes}")
        return continue_run(caller, context, RunRequest(started=options, answer=answer))


def continue_run(caller: Caller, context: RepositoryContext, request: RunRequest) -> Answer:
    """Have the run continue where it was started, or by the daemon."""
    is_daemons = request.started.daemon or caller.where is Where.DAEMON
    return (runs.submit_run if is_daemons else runs.run_here)(caller, context.for_run(request.started), request)


@operation
def answer(caller: Caller, request: requests.AnswerRequest) -> Answer:
    """Answer the open question with this id, or the only one of the plan."""
    text = plain(request.text).strip()
    if not text:
        raise UsageError("answer: the text is empty")
    with caller.open(lenient=True) as context:
        store = context.store()
        questions = [
            (state.options, question)
            for state in [state_of(store, row) for row in store.list_unfinished_runs()]
            for lane in open_states(state)
            for question in lane.questions
        ]
        matches = [pair for pair in questions if pair[1].id == request.id]
        if not matches:
            earlier = next((fact.run for fact in store.list_facts(QuestionAsked) if fact.event.id == request.id), "")
            if earlier and (row := store.get_run(earlier)) is not None:
                raise NotFound(describe_late(row.plan, QuestionAnswered(id=request.id, text="")))
            plan = plan_path(context, request.id)
            matches = [pair for pair in questions if pair[0].plan == plan]
            if not matches:
                raise NotFound(f"no question of {plan} waits for you; see: {command('runplan', 'status', plan)}")
            if len(matches) > 1:
                commands = "; ".join(command("runplan", "answer", question.id, "TEXT") for _, question in matches)
                raise NotFound(f"{len(matches)} questions of {plan} wait for you; name one: {commands}")
        started, question = matches[0]
        caller.say(f"answering {question.id}: {question.text}")
        reply = QuestionAnswered(id=question.id, text=text)
        return continue_run(caller, context, RunRequest(started=started, answered=reply))


class LinkEnded(RunplanError):
    """The link was used, or is too old."""


def open_link(env: Mapping[str, str], token: str, now: float) -> tuple[Link, Path, ChangeView | ProposalView]:
    """The link of the token, the root of its repository, and the change that waits for an answer."""
    link = read_link(load_key(key_directory(env)), token, now)
    if link is Unusable.FORGED:
        raise NotFound("No such link: it is not complete, or it was made by another runplan.")
    if link is Unusable.EXPIRED:
        raise LinkEnded("The link has expired: it was valid for a day. Answer by: runplan inbox")
    try:
        known = find_known(env, link.repo)
    except NotFound:
        raise Busy(REPLACED) from None
    with open_known(known, warn=lambda _: None) as context:
        if is_used(context.store(), link.nonce):
            raise LinkEnded("The link was used: the change was answered with it, and a link takes one answer.")
        for change in list_pending(context, link.plan, link.phase or None, "approve"):
            if change.run == link.run and change.attempt.answerable == link.tree:
                return link, Path(known.root), view_change(context, change)
    raise Busy(REPLACED)
