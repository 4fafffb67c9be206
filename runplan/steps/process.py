"""Starts a process, an agent with prompt and budget or a command of the project, and observes its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from shlex import join, quote
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from runplan.agents import prompts
from runplan.agents.budgets import Cost, GivenOut, Left, UsedUp, meter_usage, price_usage, remaining_budget
from runplan.agents.clis import agent_of
from runplan.agents.endings import FARTHEST_S, judge_ending, quote_error
from runplan.checks import results, returns
from runplan.checks.secrets import redact_text
from runplan.errors import HandOverRefused, ObjectsRefused, RunplanError, Unreachable
from runplan.git.repository import describe_differences
from runplan.git.zones import Extra
from runplan.gitfacts import committing_as, signing
from runplan.names import as_utf8, context_files
from runplan.run import dispatch as d, events as e
from runplan.run.attempts import PlanningAttempt, WorkAttempt
from runplan.run.dispatch import Ending, EndingKind, NeverStarted, Outcome, ReturnStatus, Running
from runplan.run.kinds import Access, GateAnswer, Reason, Role, WaitKind
from runplan.settings.schema import FILES
from runplan.steps import planning, proof, setup
from runplan.steps.gates import command_line, own_logs
from runplan.steps.verify import final_brief, plan_base, reply_of
from runplan.text import in_words
from runplan.times import busy_ends, iso, limit_ends, parse_iso, zone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from runplan.agents.adapter import Agent
    from runplan.agents.endings import AgentEnding
    from runplan.run.actions import Action, Start
    from runplan.run.attempt_parts import DispatchRecord
    from runplan.run.attempts import AgentAttempt
    from runplan.run.recorded import Recorded
    from runplan.run.state import RunState
    from runplan.settings.schema import AgentsSettings, RunSettings
    from runplan.steps.context import RunContext

CHANGE = "change.diff"  #: that a fixer continues or a verifier judges
FINGERPRINT = "fingerprint.json"  #: of the user's repository before the dispatch
LAST_WORDS = 600  #: characters of a failed process's output in the report
#: Endings after which the end of the output says more than the kind.
STOPPED = (EndingKind.CRASHED, EndingKind.KILLED, EndingKind.SILENT, EndingKind.TIMED_OUT)
RETRY = timedelta(minutes=1)  #: wait while running agents may use all that is left
EARLIER = timedelta(days=2)  #: an agent that was started this long before midnight may still run
LATE_S = 300.0  #: the end of a dispatch is recorded this long after its time limit, or its runner died


def start(action: Start, state: RunState, context: RunContext) -> Iterator[e.Event]:
    attempt = state.dispatching
    name = f"{context.mark}.{state.dispatches + 1}"
    _end_previous(state, context)
    wanted = replace(action.dispatch, id=name, phase=attempt.chosen.phase, at=context.iso())
    started = _choose_agent(wanted, attempt, context) if wanted.role.agent else wanted
    if not isinstance(started, e.DispatchStarted):
        yield started
        return
    diff = _read_change(started, state.work, context) if started.role in (Role.FIX, Role.VERIFY) else ""
    if isinstance(attempt, PlanningAttempt):
        text = planning.write_prompt(started, attempt, context)
        launch = _launch_agent(started, context, text, base=attempt.chosen.tip)
    elif started.agent:
        launch = _launch_writer_or_verifier(started, state.work, context, diff)
    else:
        launch = _launch_command(started, state.work, context)
        started = replace(started, seconds=launch.wall_s, argv=launch.argv, environment=context.agents.digest)
        if started.role is Role.SETUP:
            started = replace(started, why=setup.describe_reason(started, state.work, context))
    is_delegated = started.role is Role.DELEGATE  # it is to change the repository
    files = () if is_delegated else ((FINGERPRINT, context.fingerprints.take_fingerprint()),)
    if diff:
        context.dispatches.write(started.id, CHANGE, diff)
    yield started
    fault = ""
    try:
        if isinstance(attempt, PlanningAttempt):
            planning.prepare_files(attempt, context)
        else:
            fault = _prepare_files(started, state.work, context, has_diff=bool(diff))
    except (RunplanError, OSError):
        yield _without_result(started, Ending.ENDED)
        raise
    if fault:  # it is due again after run.setup
        yield replace(_without_result(started, Ending.ENDED), detail=fault)
    else:
        context.dispatches.start(replace(launch, files=files))


def _end_previous(state: RunState, context: RunContext) -> None:
    """Never two processes in one worktree: end the previous one, even if its end is recorded."""
    previous = f"{context.mark}.{state.dispatches}"
    if not state.dispatches or context.dispatches.standing(previous) != Running():
        return
    context.dispatches.end([previous], grace_s=d.GRACE_S)
    if context.dispatches.standing(previous) == Running():
        raise still_running(previous)


def still_running(id: str) -> Unreachable:
    """The process could not be killed, so no replacement starts."""
    return Unreachable(f"the process {id} cannot be killed; its processes have RUNPLAN_DISPATCH={id} set")


def _place_of(started: e.DispatchStarted, context: RunContext) -> tuple[Path, tuple[Path, ...]]:
    """The worktree of a dispatch, and the directories that it may write."""
    if started.role is Role.DELEGATE:
        return context.root, ()
    if is_for_writers(started):
        return context.zone.path, context.zone.writable
    proof = context.proof
    writable = {Access.PRODUCTS: proof.writable, Access.SCRATCH: (proof.path,)}
    return proof.path, writable.get(started.role.access, ())


def is_for_writers(started: e.DispatchStarted) -> bool:
    """Whether it runs in the worktree of implementers and fixers; else in the proof worktree."""
    return started.role.is_writer or (started.role is Role.SETUP and not started.tree)


def clean_mode_for_agents(started: e.DispatchStarted, run: RunSettings) -> str:
    """What is removed before an agent starts; the products of run.setup stay until it runs again."""
    return "untracked" if run.setup and started.role is not Role.SETUP else run.clean


def _prepare_files(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext, *, has_diff: bool) -> str:
    """Put the files of the worktree right; why the products of run.setup there cannot be used, or ""."""
    if started.role is Role.DELEGATE:
        return ""
    run = context.settings.run
    extra = Extra(
        copies=context.copied,
        root=context.root,
        diff=context.dispatches.directory(started.id) / CHANGE if has_diff else None,
    )
    last = phase.dispatches.newest
    is_set_up = last is not None and last.role is Role.SETUP and is_for_writers(last) == is_for_writers(started)
    if is_for_writers(started) or started.agents:
        clean = clean_mode_for_agents(started, run)
        context.zone.lend(branch=phase.leased.branch, clean=clean, extra=extra, keeps_repository=is_set_up)
    if is_for_writers(started):
        return ""
    commit = setup.commit_of(started, phase, context)
    if started.role is Role.SETUP:
        context.proof.write_anew(commit, extra=extra)
        return ""
    if not run.setup:
        context.proof.checkout_exact_tree(commit, clean=run.clean, extra=extra)
        return ""
    if context.proof.inputs != setup.find_inputs(started, phase, context):
        return "the products of run.setup are those of other inputs"
    is_read = started.role is Role.VERIFY  # a new file would count as the verifier's
    if is_set_up and last is not None and last.tree == started.tree and not is_read and context.proof.is_made:
        return ""  # nothing has run there since its products were listed
    if fault := context.proof.reuse(commit, clean=is_read, extra=extra):
        context.proof.forget_products(fault)
    return fault


def _launch_writer_or_verifier(
    started: e.DispatchStarted, phase: WorkAttempt, context: RunContext, diff: str
) -> d.Launch:
    path, _ = _place_of(started, context)
    text = _write_prompt(started, phase, context, path, diff)
    continues = phase.handovers or phase.dispatches.questions or started.again
    if started.role.is_writer and continues:  # it continues the notes of its predecessor
        context.dispatches.write(started.id, d.NOTES, context.dispatches.read(phase.written, d.NOTES) or "")
    return _launch_agent(started, context, text, base=phase.base, attempt=phase.leased.attempt)


def _launch_agent(
    started: e.DispatchStarted, context: RunContext, text: str, *, base: str, attempt: int = 1
) -> d.Launch:
    """The process of an agent with this prompt; `base` is the commit that it begins on."""
    path, writable = _place_of(started, context)
    directory = context.dispatches.directory(started.id)
    prompt = directory / "prompt.md"
    context.dispatches.write(started.id, prompt.name, text)
    context.dispatches.write(started.id, d.RETURN, returns.IN_PROGRESS)  # what an interrupted agent returns
    guarded = [name for name in (context.plan, *FILES) if context.objects.blob(base, name) is not None]
    argv, env, reader = context.agents.launch(
        started, attempt=attempt, directory=directory, cwd=path, writable=writable, guarded=guarded
    )
    table = context.settings.agents.agent(started.agent)
    limits = context.settings.limits
    return d.Launch(
        id=started.id,
        argv=argv,
        cwd=str(path),
        env=env,
        stdin=str(prompt),
        reader=reader,
        wall_s=started.seconds,
        silence_s=limits.silence_s,
        tokens=started.tokens,
        usd=started.usd,
        prompt=_sent_at_first(agent_of(table.kind), text),
        hand_over_at=limits.context_critical if started.role.is_writer else 0,
        window=table.context,
        model=table.model,
        usd_in=table.usd_per_mtok_in,
        usd_out=table.usd_per_mtok_out,
    )


def _sent_at_first(agent: Agent, prompt: str) -> int:
    """The characters of the first request, for an estimate; an agent that prints its prompt shows them itself."""
    return 0 if agent.prompt_ends else len(prompt) + agent.overhead


def _launch_command(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> d.Launch:
    path, writable = _place_of(started, context)
    name = started.id
    directory = context.dispatches.directory(started.id)
    build = proof.command_line if started.role is Role.PROVE else command_line
    line, wall_s = build(started, phase, context)
    if started.role is Role.DELEGATE:
        argv, env = context.agents.delegate(line, started)
    else:
        argv, env = context.agents.command(line, started, directory=directory, cwd=path, writable=writable)
        env = env | committing_as(name)
        if started.agents:
            argv = _also_in_zone(argv, line, started, context)
    logs = tuple(own_logs(started.gates).values())
    return d.Launch(id=name, argv=argv, cwd=str(path), env=env, wall_s=wall_s, logs=logs)


def _also_in_zone(argv: Sequence[str], line: str, started: e.DispatchStarted, context: RunContext) -> tuple[str, ...]:
    """A command, and the same line in the agents' worktree and sandbox at the same time; it fails when one does."""
    zone = context.zone
    directory = context.dispatches.directory(started.id)
    other, _ = context.agents.command(line, started, directory=directory, cwd=zone.path, writable=zone.writable)
    other_line = f"cd {quote(str(zone.path))} && {join(other)}"
    return ("/bin/sh", "-c", f"{{ {other_line}; }} & {join(argv)}; code=$?; wait $! && exit $code")


def _write_prompt(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext, path: Path, diff: str) -> str:
    asked = phase.proof.questions_to_verifiers(context.settings.tests.changed) if started.role is Role.VERIFY else ()
    tip = phase.built.commits[-1] if started.role is Role.VERIFY else phase.base
    brief = prompts.Brief(
        plan=context.plan,
        chosen=replace(phase.chosen, items=(*phase.chosen.items, *asked)),
        worktree=str(path),
        branch=phase.leased.branch.removeprefix("refs/heads/"),
        test_command=context.settings.tests.command,
        context=[name for name in context_files(context.plan) if context.objects.blob(tip, name) is not None],
        baseline=_list_baselines(phase, context),
    )
    template = context.prompts[prompts.FINAL if started.scope else started.role]
    if started.role is Role.VERIFY:
        assert phase.work is not None
        checks = context.settings.checks
        changed = phase.work.files
        gates = [
            (checks[gate.name].command, gate) for gate in phase.proof.gates if gate.answer is not GateAnswer.SKIPPED
        ]
        proofs = () if started.scope else phase.proof.runs
        if started.scope:
            brief, changed = final_brief(brief, phase, context)
        missing = prompts.unresolved_note(phase.proof.unresolved.items if phase.proof.unresolved else ())
        text = prompts.verify_prompt(template, brief, diff=diff, changed=changed, gates=gates, proofs=proofs)
        return text + as_utf8(missing)
    handover = f"\n{phase.handovers[-1].note}" if phase.handovers else ""
    rejections = [why for failure in context.failures(phase.chosen.phase) if (why := failure.event.rejected)]
    rejections += phase.rejections
    answers = prompts.answers_note(context.answers(phase.chosen.phase))
    note = as_utf8(prompts.rejections_note(rejections) + answers + handover)
    kept = phase.leased.kept
    if started.role is Role.IMPLEMENT:
        return prompts.implement_prompt(template, brief) + (prompts.kept_note(kept) if kept else "") + note
    failed = phase.proof.failed_items
    outputs = phase.proof.red_checks
    if kept is not None and not phase.proof.gates and started.complaint == kept.complaint:  # of the last attempt
        failed = kept.failed
        outputs = kept.red
    checks = context.settings.checks
    red = [(checks[name].command, output) for name, output in outputs if name in checks]
    return prompts.fix_prompt(template, brief, failed=failed, why=started.complaint, gates=red, diff=diff) + note


def _read_change(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> str:
    """The change that a fixer continues or a verifier judges; an agent without a shell reads it in its worktree."""
    if started.role is Role.FIX:
        head = context.objects.tip(phase.leased.branch) or phase.base
        return context.agents.redacted(context.candidates.diff(phase.base, head))  # it may have to remove a secret
    base, without = (plan_base(phase, context), context.bookkeeping) if started.scope else (phase.built.onto, ())
    return context.candidates.diff(base, phase.built.commits[-1], without=without)


def _list_baselines(phase: WorkAttempt, context: RunContext) -> list[tuple[str, results.Results]]:
    """The commands of the checks with their results before the work."""
    checks = context.settings.checks
    known = ((name, event.results) for name, event in phase.proof.baselines.items() if name in checks and event.results)
    return [(checks[name].command, results.from_text(text)) for name, text in known]


# --- its agent and budget -------------------------------------------------------------------------------


def _choose_agent(wanted: e.DispatchStarted, attempt: AgentAttempt, context: RunContext) -> e.Event:
    """The dispatch with the agent of the role, or its fallback, and its budget; or why it has to wait or fails."""
    authors = attempt.authors if isinstance(attempt, WorkAttempt) else ()
    names = _list_agents(wanted, authors, context.settings.agents)
    limits = _find_limits(context)
    agent = next((name for name in names if name not in limits), None)
    if agent is None:
        first = min((limits[name] for name in names), key=lambda limit: limit.until)
        return e.Paused(kind=WaitKind.LIMIT, until=first.until, agent=first.agent, words=first.words)
    match _remaining_budget(wanted, context):
        case UsedUp(why=why):
            return e.WorkRefused(reason=Reason.BUDGET, detail=why)
        case GivenOut(why=why):
            return e.Paused(kind=WaitKind.BUDGET, until=iso(context.clock.now() + RETRY), words=why)
        case Left(tokens=tokens, usd=usd, seconds=seconds, bounds=bounds):
            wanted = replace(wanted, agent=agent, version=context.agents.version(agent))
            return replace(wanted, tokens=tokens, usd=usd, seconds=seconds, bounds=bounds)


def _list_agents(wanted: e.DispatchStarted, authors: Sequence[str], agents: AgentsSettings) -> list[str]:
    """The agents for the role by preference; none verifies its own work unless the settings say so."""
    verifier = wanted.agent or agents.judges[0]
    if wanted.role is Role.CRITIQUE:
        names = [verifier, agents.fallback]
    elif wanted.role is not Role.VERIFY:
        names = [getattr(agents, wanted.role.agent), agents.fallback]
    elif verifier == agents.implementer or verifier not in authors:
        names = [verifier, *({agents.fallback} - set(authors))]
    else:  # the verifier stood in for the implementer, which now verifies in its place
        names = [name for name in (agents.fallback, agents.implementer) if name not in authors]
    return list(dict.fromkeys(name for name in names if name)) or [verifier]


def _find_limits(context: RunContext) -> dict[str, e.AgentLimited]:
    """The newest usage limit of each agent that has not reset yet, over all runs of the repository.

    A person who resumes the run does not want to wait for the limits before that.
    """
    now = context.clock.now()
    farthest = timedelta(seconds=FARTHEST_S)
    newest: dict[str, e.AgentLimited] = {}
    resumed = [
        fact.seq for fact in context.store.list_facts(e.RunResumed, plan=context.plan) if fact.run == context.run
    ]
    for fact in context.store.list_facts(e.AgentLimited, since=iso(now - farthest)):
        if fact.seq > max(resumed, default=0):
            until = min(fact.event.until, iso(parse_iso(fact.at) + farthest))
            newest[fact.event.agent] = replace(fact.event, until=until)
    return {agent: limit for agent, limit in newest.items() if parse_iso(limit.until) > now}


def _remaining_budget(wanted: e.DispatchStarted, context: RunContext) -> Left | UsedUp | GivenOut:
    """What the dispatch may use. The journal is read only for scopes that have a limit."""
    limits = context.settings.limits
    store = context.store
    budgets = {
        "dispatch": Cost(tokens=limits.tokens, usd=limits.usd, seconds=limits.wall_of(wanted.role)),
        "phase": Cost(tokens=limits.phase_tokens, usd=limits.phase_usd, seconds=limits.phase_wall_s),
        "plan": Cost(tokens=limits.plan_tokens, usd=limits.plan_usd, seconds=limits.plan_wall_s),
        "day": Cost(tokens=limits.day_tokens, usd=limits.day_usd, seconds=limits.day_wall_s),
    }
    spent: dict[str, Cost] = {}
    given: dict[str, Cost] = {}
    if budgets["phase"] != Cost() or budgets["plan"] != Cost():
        of_plan = (
            store.list_facts(e.DispatchStarted, plan=context.plan),
            store.list_facts(e.DispatchEnded, plan=context.plan),
        )
        spent["plan"], given["plan"] = _sum_usage(context, *of_plan)
        spent["phase"], given["phase"] = _sum_usage(context, *of_plan, phase=wanted.phase)
    if budgets["day"] != Cost():
        today = context.clock.now().astimezone(zone(context.settings.run.timezone))
        midnight = today.replace(hour=0, minute=0, second=0, microsecond=0)
        since = iso(midnight - EARLIER)
        of_day = store.list_facts(e.DispatchStarted, since=since), store.list_facts(e.DispatchEnded, since=since)
        spent["day"], given["day"] = _sum_usage(context, *of_day, since=iso(midnight))
    return remaining_budget(budgets, spent, given)


def _sum_usage(
    context: RunContext,
    started: list[Recorded[e.DispatchStarted]],
    ended: list[Recorded[e.DispatchEnded]],
    *,
    phase: str = "",
    since: str = "",
) -> tuple[Cost, Cost]:
    """What agents have used, and what agents that run in other lanes and runs may still use."""
    spent = Cost()
    given = Cost()
    now = context.clock.now()
    for fact in ended:
        if fact.event.agent and fact.at >= since and phase in ("", fact.event.phase):
            tokens = fact.event.input_tokens + fact.event.output_tokens
            spent = spent.plus(Cost(tokens=tokens, usd=fact.event.usd, seconds=fact.event.seconds))
    over = {fact.event.id for fact in ended}
    for begun in started:
        event = begun.event
        late = parse_iso(begun.at) + timedelta(seconds=event.seconds + LATE_S)
        runs = event.agent and event.id not in over and now <= late
        if runs and not event.id.startswith(f"{context.mark}.") and phase in ("", event.phase):
            given = given.plus(Cost(tokens=event.tokens, usd=event.usd, seconds=event.seconds))
    return spent, given


# --- its end --------------------------------------------------------------------------------------------


def await_end(action: Action, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    started = _running_dispatch(state)
    outcome = context.dispatches.standing(started.id)
    if isinstance(outcome, Running):
        return
    if isinstance(outcome, Outcome) and outcome.ending is Ending.REFUSED:
        # It never ran: the same dispatch is due again when the run is retried.
        yield replace(_without_result(started, Ending.ENDED), detail=outcome.message)
        raise Unreachable(outcome.message)
    if isinstance(outcome, NeverStarted) or outcome.ending is Ending.LOST:
        context.dispatches.end([started.id], grace_s=d.GRACE_S)
    yield from _examine_changes(started, state, context)
    if isinstance(outcome, NeverStarted):  # only the intent was recorded, or the agent deleted the files
        yield _without_result(started, Ending.LOST)
        return
    ended = _record_result(started, context, outcome)
    if started.role is Role.SETUP and ended.succeeded:
        try:
            setup.keep_products(started, state.work, context)
        except (RunplanError, OSError):
            yield _without_result(started, Ending.ENDED)
            raise
    if not started.agent:
        yield ended
        return
    agent = agent_of(context.settings.agents.agent(started.agent).kind)
    zone = context.clock.now().astimezone().tzinfo
    ending = judge_ending(outcome, agent, writes=started.role.is_writer, zone=zone)
    detail = ended.detail
    if ending.kind in STOPPED:
        has_reason = ended.said in (ReturnStatus.BLOCKED, ReturnStatus.FAILED)  # in the agent's own return
        detail = detail if has_reason else quote_error(ending, outcome, agent)
    elif ending.kind is not EndingKind.SUCCESS:
        detail = ending.words or detail
    yield _name_limit(replace(ended, kind=ending.kind, detail=detail), started)
    yield from _pause_after(ending, state.dispatching.dispatches, context, started)


def end(action: Action, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    """Record a process that the loop has just ended; its commits are kept."""
    started = _running_dispatch(state)
    outcome = context.dispatches.standing(started.id)
    if outcome == Running():
        raise still_running(started.id)
    yield from _examine_changes(started, state, context)
    if isinstance(outcome, Outcome):
        ended = _record_result(started, context, outcome)
        yield replace(ended, ending=Ending.ENDED, kind=EndingKind.KILLED, said="", detail="")
    else:
        yield _without_result(started, Ending.ENDED)


def _running_dispatch(state: RunState) -> e.DispatchStarted:
    started = state.dispatching.dispatches.running
    assert started is not None
    return started


def _without_result(started: e.DispatchStarted, ending: Ending) -> e.DispatchEnded:
    return e.DispatchEnded(id=started.id, role=started.role, ending=ending, code=None)


def _record_result(started: e.DispatchStarted, context: RunContext, outcome: Outcome) -> e.DispatchEnded:
    """How the process ended, what it said and what it used, by its output or by its return."""
    usage = outcome.tally.usage
    seconds = outcome.seconds
    table = context.settings.agents.agent(started.agent) if started.agent else None
    if not outcome.ended_at:  # its shim died and recorded neither
        seconds = longest_run_s(started, context.clock.now())
        if table is not None:
            prompt = _sent_at_first(agent_of(table.kind), context.dispatches.read(started.id, "prompt.md") or "")
            prices = {"usd_in": table.usd_per_mtok_in, "usd_out": table.usd_per_mtok_out}
            usage = meter_usage(outcome.tally, prompt=prompt, **prices)
    _, returned = reply_of(started.id, context)
    if usage == d.Usage() and isinstance(returned, d.Return):
        usage = returned.usage
    if table is not None and not usage.usd and outcome.ending is not Ending.EXITED:  # before it reported dollars
        usage = price_usage(usage, *agent_of(table.kind).highest_usd)
    succeeded = outcome.ending is Ending.EXITED and outcome.code == 0
    said = ""
    detail = "" if succeeded else " ".join(outcome.message[-LAST_WORDS:].split())
    if started.role.is_writer or started.role.is_planner:
        if isinstance(returned, d.Return):
            said = returned.status
            detail = returned.summary if said in (ReturnStatus.BLOCKED, ReturnStatus.FAILED) else detail
        if blockers := returns.find_blockers(outcome.message):
            said = ReturnStatus.BLOCKED
            detail = "; ".join(blockers)
    return e.DispatchEnded(
        id=started.id,
        role=started.role,
        agent=started.agent,
        phase=started.phase,
        ending=outcome.ending,
        code=outcome.code,
        signal=outcome.signal,
        said=said,
        detail=detail,
        seconds=seconds,
        estimated=outcome.estimated,
        **asdict(usage),
    )


def _examine_changes(started: e.DispatchStarted, state: RunState, context: RunContext) -> Iterator[e.Event]:
    """Name changes in the user's repository during the dispatch, and fetch the commits of a writer."""
    role = started.role
    if (before := context.dispatches.read(started.id, FINGERPRINT)) is not None:
        tips = [fact.event.tip for fact in context.store.list_facts(e.Landed, since=started.at)]
        differences = context.fingerprints.list_differences(before, agent=signing(started.id).email, landed=tips)
        lines = describe_differences(differences, "the agent" if role.agent else f"the {role} command")
        if set(lines) - set(state.current.warnings):  # else recorded before a crash
            yield e.GuardFound(violated=any(difference.by_agent for difference in differences), lines=lines)
    if role.is_writer:
        try:
            work = state.work
            context.zone.hand_over(branch=work.leased.branch, base=work.base, copies=context.personal)
        except ObjectsRefused as error:
            reason = Reason.AGENT_FAILED if isinstance(error, HandOverRefused) else Reason.TAMPERED
            yield e.WorkRefused(reason=reason, detail=redact_text(str(error)))


def _name_limit(ended: e.DispatchEnded, started: e.DispatchStarted) -> e.DispatchEnded:
    """Name the setting that ended the dispatch. A time limit of a phase, plan or day counts as a budget."""
    tokens, usd, wall = (*started.bounds, "", "", "")[:3]
    if ended.kind == EndingKind.TIMED_OUT and wall not in ("", "limits.wall"):
        detail = f"{wall} left {in_words(started.seconds)}"
        return replace(ended, ending=Ending.BUDGET, kind=EndingKind.BUDGET, detail=detail)
    if ended.kind != EndingKind.BUDGET:
        return ended
    guess = "; its use is an estimate, as this agent reports it only at its end" if ended.estimated else ""
    if started.tokens and (ended.estimated or ended.input_tokens + ended.output_tokens >= started.tokens):
        return replace(ended, detail=f"{tokens} left {started.tokens} tokens{guess}")
    if started.usd:
        words = f" ({ended.detail})" if ended.detail and ended.ending != Ending.BUDGET else ""
        return replace(ended, detail=f"{usd} left ${started.usd:.2f}{words}{guess}")
    return ended


def _pause_after(
    ending: AgentEnding, record: DispatchRecord, context: RunContext, started: e.DispatchStarted
) -> Iterator[e.Event]:
    """The wait after a usage limit or an overload; `record` is that before the agent ended."""
    now = context.clock.now().timestamp()
    agent = started.agent
    words = ending.words
    if ending.kind is EndingKind.LIMIT:
        ends = limit_ends(ending.resets, now=now, times=record.limited + 1, seed=started.id)
        yield e.AgentLimited(agent=agent, until=iso(datetime.fromtimestamp(ends, UTC)), words=words)
    elif ending.kind is EndingKind.OVERLOADED and record.busy < d.MAX_OVERLOADS:
        ends = busy_ends(now=now, times=record.busy + 1, seed=started.id)
        yield e.Paused(kind=WaitKind.OVERLOADED, until=iso(datetime.fromtimestamp(ends, UTC)), agent=agent, words=words)


def sleep(action: Action, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    pause = state.pause
    if pause is not None and context.clock.now() >= parse_iso(pause.until):
        yield e.Woke(kind=pause.kind)


def longest_run_s(started: e.DispatchStarted, now: datetime) -> float:
    """The longest time that a lost process can have run."""
    passed_s = max(0.0, (now - parse_iso(started.at)).total_seconds()) if started.at else 0.0
    return min(passed_s, started.seconds) if started.seconds else passed_s
