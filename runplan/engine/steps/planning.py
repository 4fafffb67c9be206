"""The steps of planning: the goal, the prompts and outputs of its agents, the proposal, and the run that follows."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import PurePath

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from runplan.adapters.agents.prompts import PRINCIPLES, PlanBrief, memory_note, planning_prompt, told_note
from runplan.adapters.configuration.places import remove_unused_root
from runplan.adapters.git.command import Git
from runplan.adapters.store.protocol import Store
from runplan.domain import names
from runplan.domain.checks.planning import StepFacts, judge_output
from runplan.domain.decoding import parse_json
from runplan.domain.plan.marks import PlanStatus, Status
from runplan.domain.plan.model import parse_plan
from runplan.domain.plan.proposal import set_plan_status, slug_of_title, summarize, write_proposal
from runplan.domain.plan.tracker import assume_done
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import PlanningChosen, ProposalMade, StartQueued, StepJudged
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.dispatch import RETURN
from runplan.domain.run.kinds import Role
from runplan.domain.run.requests import BY_PERSON, RunRequest
from runplan.domain.run.rows import Command
from runplan.domain.run.rules.lanes import list_startable
from runplan.domain.run.rules.planning import describe_misfit
from runplan.domain.run.state import RunState, failure
from runplan.engine.report.summary import Outlook, forecast_phases, list_landed
from runplan.engine.steps.context import RunContext
from runplan.engine.steps.process import Prepared, launch_agent
from runplan.engine.steps.verify import reply_of

#: The files with a project's rules, and a folder of such files.
RULES = ("AGENTS.md", "CLAUDE.md", *names.SPEC_FOLDERS.values())
STEERING = ".kiro/steering/"
LONGEST_RULES = 8_000  #: characters of such a file in a prompt


def choose_goal(state: RunState, context: RunContext) -> Iterator[e.Event]:
    started = state.options
    failed = failure(state)
    planning = started.planning or state.revision
    reason = None
    if planning is None and failed is not None:
        reason = failed.reason
        goal = describe_misfit(failed)
        planning = e.Planning(goal=goal, is_quoted=True, is_revision=True, revises=failed.phase, rounds=1)
    assert planning is not None
    tip = context.tip()
    same_title = PurePath(context.settings.paths.plans, f"{slug_of_title(started.title)}.md").as_posix()
    is_other = same_title != context.plan and not planning.is_revision
    chosen = PlanningChosen(
        tip=tip,
        title=started.title,
        text=planning.goal,
        planning=planning,
        reason=reason,
        before=(context.read_file(tip, context.plan) or "") if planning.is_revision else "",
        earlier=(context.read_file(tip, same_title) or "") if is_other else "",
    )
    yield chosen
    # The steps, answers and proposals of the plan's last run, if it had the same goal and no person answered it.
    facts = partial(context.store.list_facts, plan=context.plan)
    last = next((fact for fact in reversed(facts(PlanningChosen)) if fact.run != context.run), None)
    is_same = last is not None and (last.event.planning, last.event.before) == (planning, chosen.before)
    if last is None or started.anew or not is_same or any(fact.run == last.run for fact in facts(e.Answered)):
        return
    for fact in facts(StepJudged, ProposalMade, e.QuestionAsked, e.QuestionAnswered):
        if fact.run == last.run and not (isinstance(fact.event, StepJudged) and fact.event.problems):
            yield fact.event


def prepare_planner(started: e.DispatchStarted, state: RunState, context: RunContext) -> Prepared:
    attempt = state.planning
    tip = attempt.chosen.tip
    steering = [path for path in sorted(list_paths(context.objects, tip, STEERING)) if path.endswith(".md")]
    texts = ((path, context.read_file(tip, path)) for path in dict.fromkeys((*RULES, *steering)))
    brief = PlanBrief(
        attempt=attempt,
        plan=context.plan,
        worktree=str(context.proof.path),
        test_command=context.settings.tests.command,
        rules=tuple((path, text[:LONGEST_RULES]) for path, text in texts if text),
        principles=context.prompts[PRINCIPLES],
        sections=context.settings.plan.sections,
    )
    template = told_note([words.text for words in context.list_told()]) + context.prompts[f"plan-{started.role}"]
    has_memory = started.role in (Role.EXPLORE, Role.DRAFT, Role.CRITIQUE)
    memory = names.as_utf8(memory_note(context.choose_lessons(state.options))) if has_memory else ""
    count = attempt.chosen.planning.explorers if started.role is Role.EXPLORE and not attempt.parts else 1
    if count > 1:  # they share the budget of the dispatch
        beside = tuple(f"{started.id}-{number}" for number in range(2, count + 1))
        tokens = -(-started.tokens // count)  # rounded up: 0 is no limit
        started = replace(started, beside=beside, tokens=tokens, usd=started.usd / count)
    launches = []
    for number, id_ in enumerate((started.id, *started.beside)):
        text = planning_prompt(template, replace(brief, question=number if count > 1 else None)) + memory
        launches.append(launch_agent(replace(started, id=id_), context, text, base=tip))
    return Prepared(started=started, launches=tuple(launches))


def list_paths(git: Git, commit: str, *below: str) -> frozenset[str]:
    listed = git.run("ls-tree", "-rz", "--name-only", "--full-tree", commit, "--", *below).out
    return frozenset(filter(None, os.fsdecode(listed).split("\0")))


def judge_step(state: RunState, context: RunContext) -> e.Event:
    attempt = state.planning
    ended = attempt.ended
    is_read_only = context.agents.is_sandboxed(ended.agent)
    if not is_read_only and (touched := context.proof.changed(attempt.chosen.tip, context.personal)):
        problem = f"files were changed ({', '.join(touched[:8])}), but a planning agent only reads"
        return StepJudged(role=ended.role, dispatch=ended.id, problems=(problem,), has_written=True)
    # The texts proposed for the plan, in this run or an earlier one, whose newest answer is a rejection.
    answers = {fact.event.tree: fact.event for fact in context.store.list_facts(e.Answered, plan=context.plan)}
    rejected = {sha256 for sha256, answer in answers.items() if not answer.approved}
    proposals = context.store.list_facts(ProposalMade, plan=context.plan) if rejected else []
    facts = StepFacts(
        paths=list_paths(context.objects, attempt.chosen.tip),
        findings=attempt.findings if ended.role is Role.REVISE else (),
        before=attempt.chosen.before,
        rejected=tuple(fact.event.text for fact in proposals if fact.event.sha256 in rejected),
        path=context.plan,
        test_command=context.settings.tests.command,
        sections=context.settings.plan.sections,
        revises=attempt.chosen.planning.revises,
    )
    results = []
    for id_ in (ended.id, *(attempt.dispatches.newest.beside if attempt.dispatches.newest else ())):
        message, _ = reply_of(id_, context)
        file_text = context.dispatches.read(id_, RETURN)
        file_text = None if file_text is None else context.agents.redacted(file_text)
        message = context.agents.redacted(message)
        results.append(judge_output(ended.role, message=message, file_text=file_text, facts=facts))
    valid = [result for result in results if not result.problems]
    if len(valid) > 1:
        return StepJudged(role=ended.role, dispatch=ended.id, parts=tuple(result.text for result in valid))
    return StepJudged(role=ended.role, dispatch=ended.id, **asdict((valid or results)[0]))


def ask_questions(state: RunState, _context: RunContext) -> Iterator[e.Event]:
    for id_, text in state.planning.new_questions:
        yield e.QuestionAsked(id=id_, text=text)


def propose(state: RunState, context: RunContext) -> e.Event:
    attempt = state.planning
    text = write_proposal(
        attempt.draft.text,
        title=attempt.draft.title or attempt.chosen.title,
        created=context.iso()[:10],
        issues=state.options.issues,
        path=context.plan,
        before=attempt.chosen.before,
    )
    context.proof.remove()  # a person may take days to answer
    remove_unused_root(context.workspace.root, context.settings)
    return make_proposal(text, context.store, path=context.plan)


def make_proposal(text: str, store: Store, *, path: str) -> ProposalMade:
    summary = summarize(text, path=path)
    sha256 = names.digest_of(text.encode("utf-8", "surrogateescape"))
    earlier = {fact.event.sha256 for fact in store.list_facts(ProposalMade, plan=path)} - {sha256}
    plan = parse_plan(text.encode("utf-8", "surrogateescape"), path=path)
    outlook = [Outlook(phase.own.agent, len(phase.items)) for phase in plan.phases if phase.status is not Status.DONE]
    notes = [f"forecast: {forecast_phases(outlook, list_landed(store))}"]
    left = replace(plan, status=PlanStatus.ACTIVE)
    while startable := list_startable(left, {}, limit=len(plan.phases)):  # each turn of as many as possible
        *ids, last = (phase.id for phase in startable)
        left = assume_done(left, *ids, last)
        if ids:
            notes.append(f"phases {', '.join(ids)} and {last} are independent: run.parallel = {len(ids) + 1}")
    return ProposalMade(
        path=path,
        text=text,
        sha256=sha256,
        title=summary.title,
        is_free=summary.is_free,
        number=len(earlier) + 1,
        notes=tuple(notes),
    )


def landed_files(attempt: PlanningAttempt, context: RunContext, onto: str) -> dict[str, bytes] | e.LandingHeld:
    """The plan as it lands: the text that was shown, with the status `active`."""
    proposal = attempt.proposal
    assert proposal is not None
    present = context.read_file(onto, proposal.path) or ""
    if present != attempt.chosen.before:
        target = context.settings.run.target
        why = f"{proposal.path} was {'changed' if attempt.chosen.before else 'added'} on {target} meanwhile"
        return e.LandingHeld(why=f"{why}; restore it, or reject the proposal without words and plan again")
    return {proposal.path: set_plan_status(proposal.text, PlanStatus.ACTIVE).encode("utf-8", "surrogateescape")}


def queue_start(state: RunState, context: RunContext) -> Iterator[e.Event]:
    """Queue the start that follows, once: it names its run, since answers to changes are starts as well."""
    queued = context.store.list_queued_commands()
    before = [StartQueued(command=start.seq) for start in queued if start.arguments.get("origin") == context.run]
    if before:  # before a crash
        yield from before
        return
    request = replace(parse_json(state.planning.chosen.planning.then, RunRequest), origin=context.run)
    command = Command(plan=context.plan, verb="start", arguments=to_builtins(request), by=BY_PERSON, at=context.iso())
    yield StartQueued(command=context.store.add_command(command))
