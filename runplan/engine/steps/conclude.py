"""What a run does on the forge: claims of issues, and after the last phase the pull request and its repairs."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from runplan.adapters.forge.protocol import Forge
from runplan.adapters.store.claims import landing_lock
from runplan.adapters.store.protocol import Store
from runplan.domain.decoding import convert
from runplan.domain.errors import NotAllowed, RateLimited, RefusedEarly, Unreachable
from runplan.domain.names import repository_id
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import MessagesHandled
from runplan.domain.run.kinds import Reason, RunOutcome, WaitKind
from runplan.domain.run.reasons import next_action
from runplan.domain.run.state import RunState, failure
from runplan.domain.text import bounded, command, inert
from runplan.domain.times import delay_s, iso, iso_at, parse_iso
from runplan.engine.landing.conversation import answer_handled, result_marker, to_repair
from runplan.engine.landing.lander import Commanded, Conclusion, Failed, Landed, NeedsRepair, Progress, Waiting
from runplan.engine.landing.modes import open_forge
from runplan.engine.landing.pull_request import PullRequestLander
from runplan.engine.landing.stack import TOP, Stack
from runplan.engine.report.sections import describe_kept_work
from runplan.engine.report.text import indent_block
from runplan.engine.steps.context import RunContext

LONGEST_S = 60.0  #: between two looks at the forge
CONFLICT = (
    "The target was merged into this branch, with conflict markers in {}. Resolve them: keep what both sides mean, "
    "and leave no marker."
)
WORKING = "runplan works on this issue"
CLAIM_S = 7 * 24 * 3600.0  #: after which a claim counts no more
_CLAIM = r"<!-- runplan-claim (\w+) (.+?) -->"


def _pull_request_lander(context: RunContext) -> PullRequestLander:
    assert isinstance(context.lander, PullRequestLander)
    return context.lander


def conclude(state: RunState, context: RunContext) -> Iterator[e.Event]:
    now = context.clock.now()
    progress = measure_progress(state, context)
    lander = _pull_request_lander(context).of_group(TOP)
    try:
        with landing_lock(context.claims.locks):
            stack = lander.stack
            lander = stack.choose_lowest(progress.merged) if stack else lander
            # A pull request above it may lack what has landed below, or have a review.
            needed = find_stale(stack, progress, context) if stack else None
            answer: Conclusion = needed or lander.conclude(progress, now=now.timestamp())
            asked = stack.look_above(lander, progress) if stack and isinstance(answer, Waiting) else needed
            if stack and asked:
                lander, answer = stack.focus, asked
    except RateLimited as limit:
        yield e.Paused(kind=WaitKind.MERGE, until=iso_at(limit.until), words=str(limit))
        return
    except NotAllowed:
        _pull_request_lander(context).forget()
        raise
    context = replace(context, lander=lander)
    match answer:
        case Landed(note=note, tip=tip, head=head, pull=pull):
            merged = (head, tip) if lander.group else ("", "")
            yield e.Concluded(note=note, group=lander.group, merged=merged, pull=pull)
            if lander.group:  # the next look follows a wait, however short
                yield e.Paused(kind=WaitKind.MERGE, until=iso(now), words="the next pull request of the stack follows")
        case Waiting(kind=kind, why=why, issues=issues):
            first_s = context.settings.pull_request.poll_s
            wait_s = delay_s(state.waits + 1, first_s=first_s, longest_s=max(first_s, LONGEST_S), factor=1.5)
            yield from (replace(issue, is_changed=True) for issue in issues)
            yield e.Paused(kind=kind, until=iso(now + timedelta(seconds=wait_s)), words=why)
        case NeedsRepair():
            yield choose_repair(answer, context)
        case Commanded():
            yield from heed_command(answer, state, context)
            if not answer.is_stop:  # the next look follows a wait, however short
                yield e.Paused(kind=WaitKind.REVIEW, until=iso(now), words=f"tried again for {answer.origin}")
        case Failed(reason=reason, why=why):
            yield e.Concluded(reason=reason, note=why)
        case unreachable:
            assert_never(unreachable)


def find_stale(stack: Stack[PullRequestLander], progress: Progress, context: RunContext) -> NeedsRepair | None:
    facts = context.store.list_facts(e.RepairChosen, e.MergeChosen, e.Landed, e.Concluded, plan=context.plan)
    return stack.find_stale(progress.merged, (fact.event for fact in facts))


def measure_progress(state: RunState, context: RunContext) -> Progress:
    landings = context.store.list_facts(e.Landed, plan=context.plan)
    begun = [fact.event for fact in context.store.list_facts(e.LandingStarted, plan=context.plan)]
    merged: dict[str, tuple[str, str]] = {}  # groups of a stack, since the last conclusion of the whole plan
    for fact in context.store.list_facts(e.Concluded, plan=context.plan):
        if fact.event.group:
            merged[fact.event.group] = fact.event.merged
        elif not fact.event.reason:
            merged = {}
    return Progress(
        may_merge=state.options.auto,
        repairs=state.repairs,
        max_repairs=state.options.kept.run.max_fix_cycles,
        updates=state.updates,
        pushed=tuple(oid for landing in begun for oid in (*landing.remade, landing.new)),
        pushed_at=max((parse_iso(landing.at).timestamp() for landing in landings), default=0.0),
        reviews=state.reviews,
        max_reviews=context.settings.pull_request.max_reviews,
        answers=list_answers(context.store, context.plan),
        shows_strangers=context.settings.issues.trust == "all",
        began=parse_iso(context.store.list_facts(e.RunStarted, plan=context.plan)[-1].at).timestamp(),
        issues=list_known_issues(context),
        merged=merged,
    )


def list_known_issues(context: RunContext) -> dict[int, e.IssueRead]:
    """The issues since the last merge of the plan, as they were before the work, or when a person resumed the run."""
    known: dict[int, e.IssueRead] = {}
    told: dict[int, e.IssueRead] = {}
    for fact in context.store.list_facts(e.IssueRead, e.RunResumed, e.Concluded, plan=context.plan):
        match fact.event:
            case e.IssueRead() as issue:
                (told if issue.is_changed else known)[issue.number] = issue
            case e.RunResumed():
                known |= told
            case e.Concluded(reason="", group=""):
                known, told = {}, {}
    return known


def heed_command(command: Commanded, state: RunState, context: RunContext) -> Iterator[e.Event]:
    again = convert(state.options, e.RunResumed, from_attributes=True)
    yield e.StopRequested(by=command.origin) if command.is_stop else replace(again, review=())
    answers = ((command.id, answer_command(context.plan, is_stop=command.is_stop)),)
    yield MessagesHandled(review=(command.id,), words=command.origin, answers=answers)
    if command.is_stop:  # nobody looks again
        with suppress(Unreachable, RefusedEarly):
            lander = _pull_request_lander(context)
            if pull := lander.find_open_pull():
                messages = lander.forge().read_activity(pull.number, pull.head).messages
                answer_handled(lander.forge(), pull.number, messages, dict(answers))


def answer_command(plan: str, *, is_stop: bool) -> str:
    again = command("runplan", "retry", plan)
    return f"Stopped. Branch and pull request stay; `{again}` continues." if is_stop else "Trying again."


def review(state: RunState, context: RunContext) -> e.Event:
    """The comments are quoted: they describe a problem, and give runplan no instructions."""
    top = _pull_request_lander(context).of_group(TOP)
    if top.stack is not None:
        top.seen.focus = state.review[0].group
    return choose_repair(to_repair(state.review), replace(context, lander=top.stack.worked if top.stack else top))


def list_answers(store: Store, plan: str) -> dict[str, str]:
    """The answers to the messages on the plan's pull request that were handled, by their ids; "" for none."""
    landed = [fact.event.review for fact in store.list_facts(e.Landed, plan=plan)]
    handled = [fact.event for fact in store.list_facts(MessagesHandled, plan=plan)]
    ids = (id_ for review in (*landed, *(event.review for event in handled)) for id_ in review)
    return dict.fromkeys(ids, "") | dict(row for event in handled for row in event.answers)


def choose_repair(needed: NeedsRepair, context: RunContext) -> e.RepairChosen | e.MergeChosen:
    comments = tuple(replace(item, words=context.agents.redacted(item.words)) for item in needed.comments)
    items = tuple((item.id, f"The comment of {item.heading} is handled.") for item in comments if item.id)
    repair = e.RepairChosen(
        tip=context.tip(),
        title=needed.title,
        text=context.agents.redacted(needed.complaint),
        items=items or (("P", "The problem is solved, and nothing else has changed."),),
        review=tuple(item.thread for item in comments),
        comments=comments,
        group=_pull_request_lander(context).group,
    )
    if not needed.merge:
        return repair
    merge = needed.commit or _pull_request_lander(context).target_tip()
    fields = {name: getattr(repair, name) for name in ("tip", "title", "text", "items", "group")}
    return e.MergeChosen(**fields, merge=merge, since=needed.since)


def merge_target(state: RunState, context: RunContext) -> Iterator[e.Event]:
    phase = state.work
    assert isinstance(phase.chosen, e.MergeChosen)
    tip = phase.chosen.tip
    tree, conflicts = context.candidates.merge(tip, phase.chosen.merge, since=phase.chosen.since)
    is_stacked = _pull_request_lander(context).stack is not None
    of_branch = context.bookkeeping if phase.chosen.since else (context.report,) if is_stacked else ()
    if bookkeeping := [path for path in conflicts if path in of_branch]:
        # In a stack the branch above has the same rows and sections, and more.
        tree = context.candidates.tree_with(tree, {path: context.candidates.entry(tip, path) for path in bookkeeping})
        conflicts = tuple(path for path in conflicts if path not in bookkeeping)
    made = context.candidates.commit(tree, onto=tip, message=f"{phase.chosen.title}\n", by=context.signature())
    if not conflicts:
        yield e.WorkTaken(head=made, tree=tree, commits=1, files=())
        return
    context.zone.lease(branch=phase.leased.branch, base=made, onto=tip, pin=context.mark)
    complaint = CONFLICT.format(", ".join(conflicts))
    yield e.CandidateConflicted(onto=tip, paths=conflicts)
    yield e.BranchRebuilt(base=made, base_tree=tree, parked=phase.parked, complaint=complaint)


def claim_issues(state: RunState, context: RunContext) -> Iterator[e.Event]:
    """Label or assign the issues, with one comment each. It names this repository, so that others see the claim."""
    now = context.clock.now()
    if state.claim_at and now < parse_iso(state.claim_at):
        return
    try:
        notes = _mark_issues(state, context, f"{WORKING} (plan `{context.plan}`).", is_claimed=True)
    except RateLimited as limit:
        yield e.IssuesMarked(until=iso_at(max(limit.until, now.timestamp() + 1)))
    else:
        yield e.IssuesMarked(notes=notes)


def report_end(over: e.RunEnded, state: RunState, context: RunContext) -> tuple[str, ...]:
    """Show a failure on pull request and issues, whose claims go unless a next run has them; notes of what failed."""
    is_work = state.options.mode.works_phases
    if over.outcome is RunOutcome.FAILED and is_work and isinstance(context.lander, PullRequestLander):
        phase = f"phase {failed.phase}: " if (failed := failure(state)) and failed.phase else ""
        detail = context.agents.redacted(over.detail).partition("\n")[0]
        with suppress(Unreachable, RefusedEarly):
            context.lander.show_failure(inert(f"{phase}{over.reason}: {detail}".rstrip(": ")))
    is_failed = over.outcome in (RunOutcome.FAILED, RunOutcome.REFUSED)
    if over.outcome is RunOutcome.DONE and state.landed and not state.landed[-1].complete:
        return ()
    text = f"runplan ended its work on this issue (plan `{context.plan}`): {over.outcome}."
    text += f"{_describe_failure(over, state, context)}." if is_failed else ""
    if not state.claimed and not (is_failed and is_work and state.options.concludes and not state.lane):
        return ()
    return _mark_issues(state, context, text, is_claimed=False)


def comment_failure(over: e.RunEnded, state: RunState, context: RunContext) -> tuple[str, ...]:
    """Report the failure of an `auto` run on its open pull request; a note where the forge did not answer."""
    options = state.options
    is_work = options.auto and options.concludes and options.mode.works_phases
    if over.outcome is not RunOutcome.FAILED or not is_work:
        return ()
    ended = f"runplan ended its work on this pull request (plan `{context.plan}`): {over.outcome}."
    by_comment = ", or comment `/runplan retry` here" if options.daemon else ""
    text = f"{ended}{_describe_failure(over, state, context)}{by_comment}."
    lander = _pull_request_lander(context)
    try:
        if pull := lander.find_open_pull():
            lander.forge().put_comment(pull.number, marker=result_marker(context.plan), text=text, is_pull=True)
    except (Unreachable, RefusedEarly) as error:
        return (f"the failure is not told on the pull request: {error}",)
    return ()


def _describe_failure(over: e.RunEnded, state: RunState, context: RunContext) -> str:
    failed = failure(state)
    kept = describe_kept_work(failed, over.parked, ".git/runplan") if failed else []
    detail = indent_block(bounded(context.agents.redacted(over.detail)))
    next_step = next_action(Reason(over.reason), failed.step if failed else None)
    to_type = f"Continue it: `{command('runplan', 'retry', context.plan)}`"
    parts = (f" Reason: `{over.reason}`.", detail, "\n".join(f"- {words}" for words in kept), f"{next_step} {to_type}")
    return "\n\n".join(filter(None, parts))


def _mark_issues(state: RunState, context: RunContext, text: str, *, is_claimed: bool) -> tuple[str, ...]:
    claim = state.options.kept.issues.claim if is_claimed or state.claimed else ""
    repository = repository_id(context.workspace.common_dir)
    marker = f"runplan-claim {repository} {context.plan}" if claim else result_marker(context.plan)
    notes = list[str]()
    for number in state.options.issues:
        try:
            forge = open_forge(context.workspace.user, context.settings.run, context.env)
            if is_claimed:
                others = foreign_claims(forge, number, repository, now=context.clock.now())
                say = "issue #{} is claimed by another repository, for {}; both work on it".format
                notes += [say(number, plan) for plan in others]
            if claim == "assignee":
                forge.assign_issue(number, is_assigned=is_claimed)
            elif claim:
                forge.label_issue(number, **{"add" if is_claimed else "remove": claim})
            forge.put_comment(number, marker=marker, text=text)
        except (Unreachable, RefusedEarly) as error:
            if is_claimed and isinstance(error, RateLimited):
                raise
            kind = "claim" if claim else "comment"
            notes.append(f"the {kind} of issue #{number} is not up to date on the forge: {error}")
    return tuple(notes)


def foreign_claims(forge: Forge, number: int, repository: str, *, now: datetime) -> list[str]:
    """The plans for which other repositories work on the issue: fresh claims of accounts with write access."""
    fresh = [comment for comment in forge.list_comments(number) if now.timestamp() - comment.changed < CLAIM_S]
    claims = [(comment, re.search(_CLAIM, comment.text)) for comment in fresh if comment.text.startswith(WORKING)]
    others = [(comment.author, claim[2]) for comment, claim in claims if claim and claim[1] != repository]
    return [plan for author, plan in others if forge.may_write(author)]
