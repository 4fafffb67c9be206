"""Starts a process, an agent with its prompt or a command of the project, and observes its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents import prompts
from runplan.agents.budgets import Left, metered, priced
from runplan.agents.clis import agent_of
from runplan.agents.endings import judge, quoted
from runplan.checks import returns
from runplan.checks.returns import IN_PROGRESS
from runplan.checks.secrets import redacted
from runplan.errors import ObjectsRefused, RunplanError, Unreachable
from runplan.git.repository import describe_differences
from runplan.gitfacts import committing_as, signing
from runplan.names import DIFF_FILE, as_utf8
from runplan.plan.specs import context_files
from runplan.run.dispatch import (
    GRACE_S,
    RETURN,
    WRITERS,
    Ending,
    EndingKind,
    Launch,
    NeverStarted,
    Outcome,
    Return,
    ReturnStatus,
    Role,
    Running,
    Usage,
    ran_s,
)
from runplan.run.events import DispatchEnded, DispatchStarted, GuardFound, Landed, PhaseFailed, WorkRefused
from runplan.run.reasons import Reason
from runplan.steps.budget import choose, name_limit, pause_after
from runplan.steps.context import phase_of
from runplan.steps.gates import command_line, own_logs
from runplan.steps.verify import EVERY_PHASE, final_brief, plan_base, return_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.run.actions import Action, Start
    from runplan.run.events import Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext

FINGERPRINT = "fingerprint.json"  #: of the user's repository before the dispatch
LAST_WORDS = 600  #: characters of a failed process's output in the report
AGENT_ROLES = frozenset({*WRITERS, Role.VERIFY})


def start(action: Start, state: RunState, context: RunContext) -> Iterator[Event]:
    phase = phase_of(state)
    _end_previous(state, context)
    name = f"{context.mark}.{state.dispatches + 1}"
    chosen = choose(action, phase, context) if action.role in AGENT_ROLES else ("", Left())
    if not isinstance(chosen, tuple):
        yield chosen
        return
    agent, may = chosen
    writes = action.role in WRITERS
    path = _attach(phase, context) if writes else _worktree(phase, context)
    diff = _diff(action, phase, context) if action.role in ("fix", "verify") else ""
    if agent:
        launch = _agent(action, phase, context, name, path, agent=agent, may=may, diff=diff)
    else:
        launch = _command(action, phase, context, name, path)
    yield DispatchStarted(
        id=name,
        role=action.role,
        agent=agent,
        version=context.agents.version(agent) if agent else "",
        cycle=action.cycle,
        tree=action.tree,
        complaint=action.complaint,
        again=action.again,
        tokens=may.tokens,
        usd=may.usd,
        seconds=launch.wall_s,
        bounds=may.bounds,
        phase=phase.read.phase,
        at=context.iso(),
        gates=action.gates,
        argv=() if agent else launch.argv,
        environment="" if agent else context.agents.digest,
        scope=action.scope,
    )
    try:
        if not writes:
            _show(action, phase, context, path)
        if diff:
            (path / DIFF_FILE).write_bytes(diff.encode("utf-8", "surrogateescape"))
    except (RunplanError, OSError):
        yield DispatchEnded(id=name, role=action.role, ending=Ending.ENDED, code=None)
        raise
    context.dispatches.start(launch)


def _end_previous(state: RunState, context: RunContext) -> None:
    """Never two processes in one worktree: end the previous one, even if its end is recorded."""
    previous = f"{context.mark}.{state.dispatches}"
    if not state.dispatches or context.dispatches.standing(previous) != Running():
        return
    context.dispatches.end([previous], grace_s=GRACE_S)
    if context.dispatches.standing(previous) == Running():
        raise still_running(previous)


def still_running(id: str) -> Unreachable:
    """The process could not be killed, so no replacement starts."""
    return Unreachable(f"the process {id} cannot be killed; its processes have RUNPLAN_DISPATCH={id} set")


def _worktree(phase: PhaseRun, context: RunContext) -> Path:
    assert phase.lease is not None
    return context.worktrees.path(phase.lease.worktree)


def _attach(phase: PhaseRun, context: RunContext) -> Path:
    """Writers work on the branch."""
    assert phase.lease is not None
    name, branch = phase.lease.worktree, phase.lease.branch
    (_worktree(phase, context) / DIFF_FILE).unlink(missing_ok=True)
    return context.worktrees.attach(name, branch=branch, clean=_gentle(context), keep=context.settings.run.copy)


def _show(action: Start, phase: PhaseRun, context: RunContext, path: Path) -> None:
    """Check out the exact tree for gates and verifiers.

    An agent can hide changes from `git status`, so the files are always written again. Only the output of run.setup
    for this same tree stays.
    """
    run = context.settings.run
    if run.setup and action.role in ("baseline", "gate") and phase.prepared == action.tree:
        return
    clean = _gentle(context) if action.role == "verify" else run.clean
    context.worktrees.show(path, _commit_of(action.tree, phase), clean=clean, keep=run.copy)


def _gentle(context: RunContext) -> str:
    """Git usually ignores the output of run.setup: writers and verifiers keep it, gates get it made again."""
    return "untracked" if context.settings.run.setup else context.settings.run.clean


def _commit_of(tree: str, phase: PhaseRun) -> str:
    """The commit that has this tree: of the candidate, the target or the base."""
    candidate = phase.candidate
    if candidate is not None and tree == candidate.tree:
        return candidate.commits[-1]
    return candidate.onto if candidate is not None and tree == candidate.onto_tree else phase.base


def _agent(
    action: Start, phase: PhaseRun, context: RunContext, id: str, path: Path, *, agent: str, may: Left, diff: str
) -> Launch:
    directory = context.dispatches.directory(id)
    prompt = directory / "prompt.md"
    text = _prompt(action, phase, context, path, diff)
    context.dispatches.write(id, prompt.name, text)
    context.dispatches.write(id, RETURN, IN_PROGRESS)  # what an interrupted agent returns
    argv, env, reader = context.agents.launch(
        agent,
        dispatch=id,
        role=Role(action.role),
        phase=EVERY_PHASE if action.scope else phase.read.phase,
        attempt=phase.lease.attempt if phase.lease else 1,
        cycle=action.cycle,
        directory=directory,
        worktree=path,
        usd=may.usd,
    )
    table, limits = context.settings.agents.agent(agent), context.settings.limits
    return Launch(
        id=id,
        argv=argv,
        cwd=str(path),
        env=env,
        stdin=str(prompt),
        reader=reader,
        wall_s=may.seconds,
        silence_s=limits.silence_s,
        tokens=may.tokens,
        usd=may.usd,
        prompt=len(text),
        hand_over_at=limits.context_critical if action.role in WRITERS else 0,
        window=table.context,
        model=table.model,
        usd_in=table.usd_per_mtok_in,
        usd_out=table.usd_per_mtok_out,
        files=((FINGERPRINT, context.fingerprints.take()),),
    )


def _command(action: Start, phase: PhaseRun, context: RunContext, id: str, path: Path) -> Launch:
    directory = context.dispatches.directory(id)
    line, wall_s = command_line(action, phase, context)
    argv, env = context.agents.command(
        line, dispatch=id, role=Role(action.role), phase=phase.read.phase, directory=directory, worktree=path
    )
    return Launch(
        id=id,
        argv=argv,
        cwd=str(path),
        env=env | committing_as(id),
        stdin="",
        reader="",
        wall_s=wall_s,
        silence_s=0,
        logs=tuple(own_logs(action.gates).values()),
        files=((FINGERPRINT, context.fingerprints.take()),),
    )


def _prompt(action: Start, phase: PhaseRun, context: RunContext, path: Path, diff: str) -> str:
    assert phase.lease is not None
    brief = prompts.Brief(
        plan=context.plan,
        phase=phase.read.phase,
        title=phase.read.title,
        text=phase.read.text,
        items=phase.read.items,
        touches=phase.read.touches,
        worktree=str(path),
        branch=phase.lease.branch.removeprefix("refs/heads/"),
        test_command=context.settings.tests.command,
    )
    template = context.prompts[action.role]
    files = prompts.context_note([name for name in context_files(context.plan) if (path / name).is_file()])
    handover = f"\n{phase.handovers[-1].note}" if phase.handovers else ""
    note = as_utf8(files + prompts.rejections(_rejections(phase.read.phase, context)) + handover)
    if action.role == "implement":
        return prompts.implement_prompt(template, brief) + note
    if action.role == "fix":
        output = "\n".join(gate.output for gate in phase.judged.values() if gate.output)
        items = phase.verdict.items if phase.verdict else ()
        failed = [(one, why) for one, passed, why in items if not passed]
        why = action.complaint
        return prompts.fix_prompt(template, brief, failed=failed, why=why, output=output, diff=diff) + note
    assert phase.work is not None
    checks = context.settings.checks
    gates = [(checks[gate.name].command, gate) for gate in phase.gates if gate.answer != "skipped"]
    changed = phase.work.files
    if action.scope:
        brief, changed = final_brief(brief, phase, context)
    return prompts.verify_prompt(template, brief, diff=diff, changed=changed, gates=gates) + files


def _diff(action: Start, phase: PhaseRun, context: RunContext) -> str:
    """The change that a fixer continues or a verifier judges; an agent without a shell reads it in its worktree."""
    if action.role == "fix":
        assert phase.lease is not None
        return context.candidates.diff(phase.base, context.worktrees.tip(phase.lease.branch) or phase.base)
    assert phase.candidate is not None
    base = plan_base(phase, context) if action.scope else phase.candidate.onto
    return context.candidates.diff(base, phase.candidate.commits[-1])


def _rejections(phase: str, context: RunContext) -> list[str]:
    """The reasons of rejected attempts at the phase since it last landed; oldest first."""
    failures = [one for one in context.store.facts(PhaseFailed, plan=context.plan) if one.event.phase == phase]
    rejected = [one for one in failures if one.event.rejected]
    if not rejected:  # usual; the landings of a long plan are many
        return []
    landings = context.store.facts(Landed, plan=context.plan)
    landed = max((one.seq for one in landings if one.event.phase == phase), default=0)
    return [one.event.rejected for one in rejected if one.seq > landed]


# --- its end --------------------------------------------------------------------------------------------


def await_end(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    started = _running(state)
    match context.dispatches.standing(started.id):
        case Running():
            return
        case NeverStarted():
            # Only the intent was recorded, or the agent deleted the files of its dispatch.
            context.dispatches.end([started.id], grace_s=GRACE_S)
            yield from _examine(started, state, context)
            yield DispatchEnded(id=started.id, role=started.role, ending=Ending.LOST, code=None)
        case Outcome(ending=Ending.REFUSED) as outcome:
            # It never ran: the same dispatch is due again when the run is retried.
            detail = outcome.message
            yield DispatchEnded(id=started.id, role=started.role, ending=Ending.ENDED, code=None, detail=detail)
            raise Unreachable(detail)
        case Outcome() as outcome:
            yield from _ended(started, state, context, outcome)


def end(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    """Record a process that the loop has just ended; its commits are kept."""
    started = _running(state)
    outcome = context.dispatches.standing(started.id)
    if outcome == Running():
        raise still_running(started.id)
    yield from _examine(started, state, context)
    if isinstance(outcome, Outcome):
        yield replace(_usage(started, context, outcome), ending=Ending.ENDED, kind=EndingKind.KILLED)
    else:
        yield DispatchEnded(id=started.id, role=started.role, ending=Ending.ENDED, code=None)


def _running(state: RunState) -> DispatchStarted:
    started = phase_of(state).dispatch
    assert started is not None
    return started


def _ended(started: DispatchStarted, state: RunState, context: RunContext, outcome: Outcome) -> Iterator[Event]:
    if outcome.ending is Ending.LOST:
        context.dispatches.end([started.id], grace_s=GRACE_S)
    yield from _examine(started, state, context)
    said, detail = _said(started, context, outcome)
    ended = replace(_usage(started, context, outcome), said=said, detail=detail)
    if not started.agent:
        yield ended
        return
    agent = agent_of(context.settings.agents.agent(started.agent).kind)
    zone = context.clock.now().astimezone().tzinfo
    ending = judge(outcome, agent, writes=started.role in WRITERS, zone=zone)
    if ending.kind in ("crashed", "killed", "silent", "timed-out"):
        has_reason = said in (ReturnStatus.BLOCKED, ReturnStatus.FAILED)  # in the agent's own return
        detail = detail if has_reason else quoted(ending, outcome, agent)
    elif ending.kind != "success":
        detail = ending.words or detail
    yield name_limit(replace(ended, kind=ending.kind, detail=detail), started)
    yield from pause_after(ending, phase_of(state), context, agent=started.agent, id=started.id)


def _usage(started: DispatchStarted, context: RunContext, outcome: Outcome) -> DispatchEnded:
    """How the process ended and what it used, by its output or by its return."""
    usage, seconds = outcome.tally.usage, outcome.seconds
    if not outcome.ended_at:  # its shim died and recorded neither
        seconds = ran_s(started, context.clock.now())
        if started.agent:
            prompt = len(context.dispatches.read(started.id, "prompt.md") or "")
            table = context.settings.agents.agent(started.agent)
            prices = {"usd_in": table.usd_per_mtok_in, "usd_out": table.usd_per_mtok_out}
            usage = metered(outcome.tally, prompt=prompt, **prices)
    returned = returns.parse_return(return_text(context, started.id), outcome.message)
    if usage == Usage() and isinstance(returned, Return):
        usage = returned.usage
    if started.agent and not usage.usd and outcome.ending is not Ending.EXITED:  # before it reported dollars
        kind = context.settings.agents.agent(started.agent).kind
        usage = priced(usage, *agent_of(kind).highest_usd)
    return DispatchEnded(
        id=started.id,
        role=started.role,
        agent=started.agent,
        phase=started.phase,
        ending=outcome.ending,
        code=outcome.code,
        signal=outcome.signal,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        usd=usage.usd,
        seconds=seconds,
    )


def _examine(started: DispatchStarted, state: RunState, context: RunContext) -> Iterator[Event]:
    """Name changes in the user's repository during the dispatch, and fetch the commits of a writer."""
    phase, role = phase_of(state), started.role
    if (before := context.dispatches.read(started.id, FINGERPRINT)) is not None:
        tips = [one.event.tip for one in context.store.facts(Landed, since=started.at)]
        found = context.fingerprints.compare(before, agent=signing(started.id).email, landed=tips)
        lines = describe_differences(found, "the agent" if role in AGENT_ROLES else f"the {role} command")
        if set(lines) - set(phase.warnings):  # else recorded before a crash
            yield GuardFound(violated=any(one.by_agent for one in found), lines=lines)
    if role not in WRITERS or phase.lease is None:
        return
    if phase.lease.worktree != context.worktree:
        left = context.worktrees.path(phase.lease.worktree)
        why = f"the repository was moved while the agent worked; the agent's work is in {left}"
        yield WorkRefused(reason=Reason.BLOCKED, detail=why)
        return
    try:
        context.worktrees.take(phase.lease.worktree, branch=phase.lease.branch, base=phase.base)
    except ObjectsRefused as error:
        yield WorkRefused(reason=Reason.TAMPERED, detail=redacted(str(error)))


def _said(started: DispatchStarted, context: RunContext, outcome: Outcome) -> tuple[str, str]:
    """The status in the agent's return, and why it stopped; the last words of a process that failed."""
    succeeded = outcome.ending is Ending.EXITED and outcome.code == 0
    last_words = "" if succeeded else " ".join(outcome.message[-LAST_WORDS:].split())
    if started.role not in WRITERS:
        return "", last_words
    if blockers := returns.blockers(outcome.message):
        return ReturnStatus.BLOCKED, "; ".join(blockers)
    match returns.parse_return(return_text(context, started.id), outcome.message):
        case Return(status=ReturnStatus.BLOCKED | ReturnStatus.FAILED as status, summary=summary):
            return status, summary
        case Return(status=status):
            return status, last_words
        case _:
            return "", last_words
