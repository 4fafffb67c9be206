"""Approve, reject, answer: a person's word on what waits."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.configuration.places import key_directory
from runplan.adapters.notify.links import Link, Unusable, is_used, load_key, read_link
from runplan.app.operations import runs
from runplan.app.operations.model import Answer, Caller, Where, operation
from runplan.app.operations.requests import AnswerRequest, ApproveRequest, RejectRequest
from runplan.app.views.changes import ChangeView, ProposalView, list_pending, nothing_pending, view_change
from runplan.app.views.repositories import find_known, open_known
from runplan.domain.errors import Busy, NotFound, RunplanError, UsageError
from runplan.domain.run.attempts import PlanningAttempt, WorkAttempt
from runplan.domain.run.events import Answered, QuestionAnswered, QuestionAsked
from runplan.domain.run.requests import RunRequest, read_comments
from runplan.domain.run.state import open_states
from runplan.domain.text import command, plain
from runplan.engine.loop.context import RepositoryContext, plan_path
from runplan.engine.loop.runs import describe_late, state_of

SHORT = 12  #: digits of an id


@operation
def approve(caller: Caller, request: ApproveRequest) -> Answer:
    return _submit_answer("approve", caller, request)


@operation
def reject(caller: Caller, request: RejectRequest) -> Answer:
    return _submit_answer("reject", caller, request)


def _submit_answer(verb: str, caller: Caller, request: ApproveRequest | RejectRequest) -> Answer:
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
        why = request.why if isinstance(request, RejectRequest) else ""
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
def answer(caller: Caller, request: AnswerRequest) -> Answer:
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


REPLACED = "The change was replaced: the link is for an earlier change, or it was answered. See: runplan inbox"


class LinkedChange(Struct, frozen=True, kw_only=True):
    link: Link
    root: Path
    view: ChangeView | ProposalView


class LinkEnded(RunplanError):
    """The link was used, or is too old."""


def open_link(env: Mapping[str, str], token: str, now: float) -> LinkedChange:
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
                return LinkedChange(link=link, root=Path(known.root), view=view_change(context, change))
    raise Busy(REPLACED)
