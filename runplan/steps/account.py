"""Tells the story of a phase for the report: from the journal and from git, never from an agent's words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.report import text as report
from runplan.run.events import IssueShared
from runplan.run.reasons import Reason
from runplan.settings.schema import FILES
from runplan.text import command
from runplan.times import parse_iso

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext
    from runplan.store.sqlite import Store

SHORT = 7  #: digits of a commit
OUTPUT_READ = 64 * 1024  #: bytes at the end of a failed command's output that are looked at
LINES_TOLD = 20  #: lines of it that stand in the report
LONGEST_LINE = 300


def phase_account(state: RunState, world: RunContext) -> report.PhaseAccount:
    """A phase that is about to land."""
    phase = state.phase
    assert phase is not None
    assert phase.lease is not None
    assert phase.candidate is not None
    assert phase.verdict is not None
    texts = dict(phase.read.items)
    return report.PhaseAccount(
        plan=world.plan,
        phase=phase.read.phase,
        title=phase.read.title,
        run=world.run,
        status=_status(phase.cycle - 1),
        branch=phase.lease.branch.removeprefix("refs/heads/"),
        commits=tuple(_commit_line(world, oid) for oid in phase.candidate.commits),
        items=tuple(
            report.ItemLine(id=item, text=texts.get(item, ""), passed=passed, evidence=evidence)
            for item, passed, evidence in phase.verdict.items
        ),
        gates=_gates(phase, world),
        verdict=report.VerdictLine(
            verifier=phase.verdict.agent, tree=phase.verdict.tree, landed_tree=phase.candidate.tree
        ),
        warnings=(*state.warnings, *phase.warnings, *_settings(state, world)),
    )


def undo_account(state: RunState, world: RunContext) -> report.UndoAccount:
    """A phase that is about to be taken back."""
    phase = state.phase
    assert phase is not None
    assert phase.candidate is not None
    return report.UndoAccount(
        plan=world.plan,
        phase=phase.read.phase,
        title=phase.read.title,
        run=world.run,
        landing=phase.candidate.undoes,
        commits=tuple(_commit_line(world, oid) for oid in phase.candidate.undone),
    )


def _status(fixes: int) -> str:
    if not fixes:
        return "Completed (verified, landed)"
    return f"Completed (verified, landed) after {fixes} fix cycle{'' if fixes == 1 else 's'}"


def _commit_line(world: RunContext, oid: str) -> report.CommitLine:
    subject = world.objects.commit(oid).message.partition("\n")[0]
    return report.CommitLine(short=oid[:SHORT], subject=world.agents.redacted(subject))


def _gates(phase: PhaseRun, world: RunContext) -> tuple[report.GateLine, ...]:
    command = world.settings.tests.command
    lines = []
    if phase.baseline is not None and phase.baseline.results:
        before = json.loads(phase.baseline.results)
        counted = f"{before['passed']} passed, {before['failed'] or 0} failed" if before["passed"] is not None else ""
        lines.append(
            report.GateLine(
                name="Baseline",
                command=command,
                exit_code=before["exit_code"],
                tree=phase.baseline.tree,
                result=counted or ("passed" if before["exit_code"] == 0 else "failed"),
            )
        )
    lines += [
        report.GateLine(name="Gate", command=command, exit_code=gate.code, tree=gate.tree, result=gate.line)
        for gate in phase.gates
        if gate.answer != "skipped"
    ]
    return tuple(lines)


def _settings(state: RunState, world: RunContext) -> tuple[str, ...]:
    """Whether the target has another settings file than the one that the run was started with."""
    assert state.started is not None
    assert state.phase is not None
    assert state.phase.candidate is not None
    if not state.started.settings:
        return ()
    from runplan.settings.load import file_hash

    code = state.phase.candidate.commits[-1]
    found = ((name, content) for name in FILES if (content := world.objects.blob(code, name)) is not None)
    name, content = next(found, (FILES[0], None))
    if file_hash(content) == state.started.settings_file:
        return ()
    target = state.started.target
    return (f"{name} changed on {target} since the run started; the change holds from the next run on",)


def evidence(reason: str, state: RunState, world: RunContext) -> str:
    """What shows that it failed, in a few lines: failed items, what the guard saw, or the end of an output."""
    phase = state.phase
    assert phase is not None
    match reason:
        case Reason.VERIFICATION_FAILED | Reason.NO_PROGRESS if phase.verdict is not None:
            lines = [f"{item}: {found}" for item, passed, found in phase.verdict.items if not passed]
        case Reason.NO_PROGRESS if phase.gates:
            lines = phase.gates[-1].output.splitlines()[-LINES_TOLD:]
        case Reason.GUARD_VIOLATED:
            lines = [line for line in phase.warnings if phase.refusal is None or line not in phase.refusal[1]]
        case Reason.TESTS_FAILED | Reason.TESTS_UNFINISHED | Reason.BASELINE_RED | Reason.SETUP_FAILED:
            lines = _last_lines(world.dispatches.directory(f"{world.mark}.{state.dispatches}") / "out.log")
        case _:
            lines = []
    return world.agents.redacted("\n".join(lines))


def _last_lines(log: Path) -> list[str]:
    try:
        text = log.read_bytes()[-OUTPUT_READ:].decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [line[:LONGEST_LINE] for line in text.splitlines()[-LINES_TOLD:]]


def failure_sections(store: Store, plan: str) -> list[str]:
    """Every failure of the plan so far, oldest first; they reach the repository with the next landing."""
    failures = store.facts(plan, "PhaseFailed")
    if not failures:
        return []
    parked = {}  # by run and lane
    for row in store.facts(plan, "RunEnded"):
        body = json.loads(row.body)
        parked[row.run, body.get("lane")] = body.get("parked", "")
    shared: dict[str, list[str]] = {}  # by run
    for row in store.facts(plan, "IssueShared"):
        shared.setdefault(row.run, []).append(IssueShared(**json.loads(row.body)).words)
    sections = []
    for row in failures:
        body = json.loads(row.body)
        account = report.FailureAccount(
            at=parse_iso(row.at).strftime("%Y-%m-%d %H:%M"),
            plan=plan,
            phase=body["phase"],
            title=body.get("title", ""),
            run=row.run,
            attempt=body.get("attempt", 1),
            step=body["step"],
            reason=Reason(body["reason"]),
            detail="\n\n".join(part for part in (body["detail"], body.get("evidence")) if part),
            state=(*_left(body, parked.get((row.run, body.get("lane")), "")), *shared.get(row.run, ())),
            resume=command("runplan", "retry", plan),
        )
        sections.append(report.failure_section(account))
    return sections


def _left(body: dict[str, str], parked: str) -> Iterator[str]:
    """What a failed phase leaves, and where."""
    yield "Nothing was changed" if body["step"] == "undo" else "Nothing of the phase landed"
    if branch := body.get("branch"):
        yield f"The work is kept on the branch `{branch}`; the next attempt puts it aside under `refs/runplan/parked/`"
    if before := body.get("parked"):
        yield f"The work as it was before the conflict is kept at `{before}`"
    if parked:
        yield f"Work that is on no branch is kept at `{parked}`"
    if dispatch := body.get("dispatch"):
        yield f"The log of the last process is `runplan/dispatch/{dispatch}/out.log` in the git directory"
