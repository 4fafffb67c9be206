"""Starts a process: an agent with its prompt, or a command of the project's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.agents import prompts
from runplan.agents.budgets import Left
from runplan.checks.returns import IN_PROGRESS
from runplan.errors import RunplanError, Unreachable
from runplan.gitfacts import committing_as
from runplan.names import as_utf8
from runplan.run.dispatch import GRACE_S, RETURN, WRITERS, Ending, ItemResult, Launch, Role, Running
from runplan.run.events import BaselineKnown, DispatchEnded, DispatchStarted, Paused, WorkRefused
from runplan.steps.budget import allowance, choose
from runplan.steps.context import phase_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.run.actions import Start
    from runplan.run.events import Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext

FINGERPRINT = "fingerprint.json"  #: how the user's repository looked before
AGENT_ROLES = frozenset({*WRITERS, Role.VERIFY})


def observe(action: Start, state: RunState, world: RunContext) -> tuple[Event, ...]:  # noqa: ARG001
    """A baseline is known already when the same checks passed on the same code before."""
    if action.role != "baseline":
        return ()
    key = baseline_key(world, action.tree)
    known = world.store.baseline(key)
    return () if known is None else (BaselineKnown(key=key, tree=action.tree, results=known),)


def baseline_key(world: RunContext, tree: str) -> str:
    """Names the code of a tree, the plan and its report left out, together with how it is checked."""
    checks = (world.settings.run.setup, world.settings.tests.command, world.settings.tests.summary)
    return json.dumps([world.candidates.code_key(tree, (world.plan, world.report)), *checks])


def start(action: Start, state: RunState, world: RunContext) -> Iterator[Event]:
    phase = phase_of(state)
    _require_alone(state, world)
    name = f"{world.mark}.{state.dispatches + 1}"
    sent = _send(action, phase, world) if action.role in AGENT_ROLES else None
    if isinstance(sent, Paused | WorkRefused):
        yield sent
        return
    writes = action.role in WRITERS
    path = _attach(phase, world) if writes else _worktree(phase, world)
    launch = _agent(action, phase, world, name, path, sent) if sent else _command(action, phase, world, name, path)
    began = DispatchStarted(
        id=name,
        role=action.role,
        agent="",
        cycle=action.cycle,
        tree=action.tree,
        head=world.worktrees.head(path) if writes else _commit_of(action.tree, phase),
        complaint=action.complaint,
        again=action.again,
        seconds=launch.wall_s,
        at=world.iso(),
    )
    yield _sent(began, phase, world, sent) if sent else began
    if sent:
        # Others may have begun between our look and our record: the journal's order says who has to do with less.
        may = allowance(world, phase=phase.read.phase, before=name)
        if not isinstance(may, Left):
            yield DispatchEnded(id=name, role=action.role, ending=Ending.ENDED, code=None)
            yield may
            return
        if may != sent.left:
            launch = _agent(action, phase, world, name, path, replace(sent, left=may))
    if not writes:
        try:
            _show(action, phase, world, path)
        except (RunplanError, OSError):
            yield DispatchEnded(id=name, role=action.role, ending=Ending.ENDED, code=None)
            raise
    world.dispatches.start(launch)


def _require_alone(state: RunState, world: RunContext) -> None:
    """Never two in one worktree: whatever was recorded of the one before, nobody is started beside it."""
    before = f"{world.mark}.{state.dispatches}"
    if not state.dispatches or world.dispatches.standing(before) != Running():
        return
    world.dispatches.end([before], grace_s=GRACE_S)
    if world.dispatches.standing(before) == Running():
        raise still_running(before)


def still_running(id: str) -> Unreachable:
    """Whoever cannot be ended is not told of as if it had: nobody may be sent in its place."""
    return Unreachable(
        f"the process {id} still runs and cannot be ended; what carries RUNPLAN_DISPATCH={id} is its own"
    )


def _sent(began: DispatchStarted, phase: PhaseRun, world: RunContext, sent: Sent) -> DispatchStarted:
    """The same for an agent, with what it may use."""
    return replace(
        began,
        agent=sent.agent,
        version=world.agents.version(sent.agent),
        tokens=sent.left.tokens,
        usd=sent.left.usd,
        bounds=sent.left.bounds,
        phase=phase.read.phase,
        despite=sent.despite,
    )


class Sent(Struct, frozen=True, kw_only=True):
    """Who is sent, and what may be used."""

    agent: str
    left: Left
    despite: str = ""  #: a usage limit that a person does not wait for


def _send(action: Start, phase: PhaseRun, world: RunContext) -> Sent | Paused | WorkRefused:
    chosen = choose(action.role, phase, world)
    if isinstance(chosen, Paused):
        return chosen
    may = allowance(world, phase=phase.read.phase)
    return Sent(agent=chosen.agent, left=may, despite=chosen.despite) if isinstance(may, Left) else may


def _worktree(phase: PhaseRun, world: RunContext) -> Path:
    assert phase.lease is not None
    return world.worktrees.path(phase.lease.worktree)


def _attach(phase: PhaseRun, world: RunContext) -> Path:
    """Writers work on the branch."""
    assert phase.lease is not None
    name, branch = phase.lease.worktree, phase.lease.branch
    return world.worktrees.attach(name, branch=branch, clean=_gentle(world), keep=world.settings.run.copy)


def _show(action: Start, phase: PhaseRun, world: RunContext, path: Path) -> None:
    """Everybody else sees the exact tree and nothing that others left there.

    An agent can hide changes from git's own status, so what is looked at is always put there anew. Only what
    run.setup has just made for this tree is left in place. What the writer left there was recorded before.
    """
    run = world.settings.run
    if run.setup and action.role in ("baseline", "gate") and phase.prepared == action.tree:
        return
    clean = _gentle(world) if action.role == "verify" else run.clean
    world.worktrees.show(path, _commit_of(action.tree, phase), clean=clean, keep=run.copy)


def _gentle(world: RunContext) -> str:
    """What setup makes is usually ignored by git: writers and verifiers keep it, checks get it made anew."""
    return "untracked" if world.settings.run.setup else world.settings.run.clean


def _commit_of(tree: str, phase: PhaseRun) -> str:
    """The commit that has this tree: the candidate's, the target's tip, or the base."""
    candidate = phase.candidate
    if candidate is not None and tree == candidate.tree:
        return candidate.commits[-1]
    return candidate.onto if candidate is not None and tree == candidate.onto_tree else phase.base


def _agent(action: Start, phase: PhaseRun, world: RunContext, id: str, path: Path, sent: Sent) -> Launch:
    directory = world.dispatches.directory(id)
    prompt = directory / "prompt.md"
    asked = _prompt(action, phase, world, path)
    world.dispatches.write(id, prompt.name, asked)
    # Whoever is interrupted has not come to write a return of its own.
    world.dispatches.write(id, RETURN, IN_PROGRESS)
    argv, env, reader = world.agents.launch(
        sent.agent,
        dispatch=id,
        role=Role(action.role),
        phase=phase.read.phase,
        attempt=phase.lease.attempt if phase.lease else 1,
        cycle=action.cycle,
        directory=directory,
        worktree=path,
        usd=sent.left.usd,
    )
    table = world.settings.agents.agent(sent.agent)
    price = world.agents.price(sent.agent)
    limits, writes = world.settings.limits, action.role in WRITERS
    return Launch(
        id=id,
        argv=argv,
        cwd=str(path),
        env=env,
        stdin=str(prompt),
        reader=reader,
        wall_s=sent.left.seconds,
        silence_s=limits.silence_s,
        hears=world.agents.profile(sent.agent, Role(action.role)).hears,
        tokens=sent.left.tokens,
        usd=sent.left.usd,
        prompt=len(asked),
        arm_at=limits.context_warn if writes else 0,
        hand_over_at=limits.context_critical if writes else 0,
        window=table.context,
        model=table.model,
        usd_in=price.sent,
        usd_out=price.answered,
        usd_guessed=price.guessed,
        files=((FINGERPRINT, world.fingerprints.take().dump()),),
    )


def _command(action: Start, phase: PhaseRun, world: RunContext, id: str, path: Path) -> Launch:
    settings = world.settings
    line = settings.run.setup if action.role == "setup" else settings.tests.command
    argv, env = world.agents.command(
        line,
        dispatch=id,
        role=Role(action.role),
        phase=phase.read.phase,
        directory=world.dispatches.directory(id),
        worktree=path,
    )
    return Launch(
        id=id,
        argv=argv,
        cwd=str(path),
        env=env | committing_as(id),
        stdin="",
        reader="",
        wall_s=settings.tests.timeout_s,
        silence_s=0,
        files=((FINGERPRINT, world.fingerprints.take().dump()),),
    )


def _prompt(action: Start, phase: PhaseRun, world: RunContext, path: Path) -> str:
    assert phase.lease is not None
    brief = prompts.Brief(
        plan=world.plan,
        phase=phase.read.phase,
        title=phase.read.title,
        text=phase.read.text,
        items=phase.read.items,
        touches=phase.read.touches,
        worktree=str(path),
        branch=phase.lease.branch.removeprefix("refs/heads/"),
        test_command=world.settings.tests.command,
    )
    template = world.prompts[action.role]
    note = as_utf8(prompts.rejections(_rejections(phase.read.phase, world)) + _note(phase))
    if action.role == "implement":
        return prompts.implement_prompt(template, brief) + note
    if action.role == "fix":
        told = prompts.fix_prompt(template, brief, failed=_failed(phase), why=action.complaint, output=_output(phase))
        return told + note
    assert phase.candidate is not None
    assert phase.work is not None
    gates = tuple(
        prompts.GateEvidence(
            command=world.settings.tests.command, exit_code=gate.code, tree=gate.tree, result=gate.line
        )
        for gate in phase.gates
        if gate.answer != "skipped"
    )
    diff = f"git diff {phase.candidate.onto} {phase.candidate.commits[-1]}"
    return prompts.verify_prompt(template, brief, diff_command=diff, changed=phase.work.files, gates=gates)


def _rejections(phase: str, world: RunContext) -> list[str]:
    """What people said against earlier attempts at the phase, since it last landed; oldest first."""
    facts = [(row.seq, json.loads(row.body)) for row in world.store.facts(world.plan, "PhaseFailed")]
    said = [(seq, body["rejected"]) for seq, body in facts if body["phase"] == phase and body.get("rejected")]
    if not said:
        return []
    landings = world.store.facts(world.plan, "Landed")
    landed = max((row.seq for row in landings if json.loads(row.body)["phase"] == phase), default=0)
    return [words for seq, words in said if seq > landed]


def _note(phase: PhaseRun) -> str:
    """What the last agent left for its successor: of one that vanished or was sent away, what was noted in time."""
    if phase.armed is not None:
        return f"\n{phase.armed.note}"
    return f"\n{phase.handovers[-1].note}" if phase.handovers else ""


def _failed(phase: PhaseRun) -> tuple[ItemResult, ...]:
    """The items the verifier did not find proven."""
    if phase.verdict is None:
        return ()
    return tuple(
        ItemResult(item=item, passed=False, evidence=evidence)
        for item, passed, evidence in phase.verdict.items
        if not passed
    )


def _output(phase: PhaseRun) -> str:
    """The end of what a red gate printed."""
    return phase.gates[-1].output if phase.gates else ""
