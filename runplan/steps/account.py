"""The sections of the report, from the journal and from git; never from an agent's own account."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.report import text as report
from runplan.run.events import TESTS, IssueShared, PhaseFailed, RunEnded
from runplan.run.reasons import Reason
from runplan.settings.schema import FILES
from runplan.steps.context import phase_of
from runplan.text import command
from runplan.times import parse_iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from runplan.run.events import BaselineKnown, GateJudged
    from runplan.run.state import PhaseRun, RunState
    from runplan.settings.schema import GateTable
    from runplan.steps.context import RunContext
    from runplan.store.sqlite import Store

SHORT = 7  #: digits of a commit
OUTPUT_READ = 64 * 1024  #: bytes at the end of a failed command's output that are read
LINES_SHOWN = 20  #: lines of it in the report
LONGEST_LINE = 300


def phase_account(state: RunState, context: RunContext, audited: Sequence[str] = ()) -> report.PhaseAccount:
    """A phase that is about to land; `audited` are the remarks on a plan that is complete with it."""
    phase = phase_of(state)
    assert phase.lease is not None
    assert phase.candidate is not None
    assert phase.verdicts
    texts = dict(phase.read.items)
    status, fixes = "Completed (verified, landed)", phase.cycle - 1
    return report.PhaseAccount(
        plan=context.plan,
        phase=phase.read.phase,
        title=phase.read.title,
        run=context.run,
        status=f"{status} after {fixes} fix cycle{'' if fixes == 1 else 's'}" if fixes else status,
        branch=phase.lease.branch.removeprefix("refs/heads/"),
        commits=tuple(_commit_line(context, oid) for oid in phase.candidate.commits),
        items=tuple(
            report.ItemLine(id=item, text=texts.get(item, ""), passed=passed, evidence=evidence)
            for item, passed, evidence in phase.verdicts[0].items
        ),
        gates=tuple(_gates(phase, context.settings.checks)),
        verdicts=tuple(
            report.VerdictLine(
                verifier=one.agent, tree=one.tree, landed_tree=phase.candidate.tree, is_final=bool(one.scope)
            )
            for one in phase.verdicts
        ),
        warnings=(*state.warnings, *phase.warnings, *_settings_warning(state, context), *audited),
    )


def undo_account(state: RunState, context: RunContext) -> report.UndoAccount:
    """A phase that is about to be reverted."""
    phase = phase_of(state)
    assert phase.candidate is not None
    return report.UndoAccount(
        plan=context.plan,
        phase=phase.read.phase,
        title=phase.read.title,
        run=context.run,
        landing=phase.candidate.undoes,
        commits=tuple(_commit_line(context, oid) for oid in phase.candidate.undone),
    )


def _commit_line(context: RunContext, oid: str) -> report.CommitLine:
    subject = context.objects.commit(oid).message.partition("\n")[0]
    return report.CommitLine(short=oid[:SHORT], subject=context.agents.redacted(subject))


def _gates(phase: PhaseRun, checks: Mapping[str, GateTable]) -> Iterator[report.GateLine]:
    for known in phase.baselines:
        if known.results:
            before = json.loads(known.results)
            counts = f"{before['passed']} passed, {before['failed'] or 0} failed"
            plain = "passed" if before["exit_code"] == 0 else "failed"
            result = counts if before["passed"] is not None else plain
            yield _gate("Baseline", known, checks, code=before["exit_code"], result=result)
    for gate in phase.gates:
        if gate.answer != "skipped":
            yield _gate("Gate", gate, checks, code=gate.code, result=gate.line)


def _gate(
    word: str, check: BaselineKnown | GateJudged, checks: Mapping[str, GateTable], *, code: int | None, result: str
) -> report.GateLine:
    name = word if check.name == TESTS else f"{word} {check.name}"
    command = checks[check.name].command
    return report.GateLine(name=name, command=command, exit_code=code, tree=check.tree, result=result)


def _settings_warning(state: RunState, context: RunContext) -> Iterator[str]:
    """A warning when the settings file on the target is not the one that the run started with."""
    candidate = phase_of(state).candidate
    assert state.started is not None
    assert candidate is not None
    if not state.started.settings:
        return
    from runplan.settings.load import file_hash  # `runplan report` does not need it

    code = candidate.commits[-1]
    found = ((name, content) for name in FILES if (content := context.objects.blob(code, name)) is not None)
    name, content = next(found, (FILES[0], None))
    if file_hash(content) != state.started.settings_file:
        yield f"{name} changed on {state.started.target} since the run started; the next run uses the change"


def evidence(reason: str, state: RunState, context: RunContext) -> str:
    """A few lines that prove the failure: failed items, guard findings, or the end of the output."""
    phase = phase_of(state)
    match reason:
        case Reason.VERIFICATION_FAILED | Reason.NO_PROGRESS if phase.verdict is not None:
            lines = [f"{item}: {found}" for item, passed, found in phase.verdict.items if not passed]
        case Reason.NO_PROGRESS if phase.gates:
            lines = phase.gates[-1].output.splitlines()[-LINES_SHOWN:]
        case Reason.GUARD_VIOLATED:
            lines = [line for line in phase.warnings if phase.refusal is None or line not in phase.refusal[1]]
        case Reason.TESTS_FAILED | Reason.TESTS_UNFINISHED | Reason.BASELINE_RED | Reason.SETUP_FAILED:
            lines = _last_lines(context.dispatches.directory(f"{context.mark}.{state.dispatches}") / "out.log")
        case _:
            lines = []
    return context.agents.redacted("\n".join(lines))


def _last_lines(log: Path) -> list[str]:
    try:
        text = log.read_bytes()[-OUTPUT_READ:].decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [line[:LONGEST_LINE] for line in text.splitlines()[-LINES_SHOWN:]]


def failure_sections(store: Store, plan: str) -> list[str]:
    """Every failure of the plan so far, oldest first; they reach the repository with the next landing."""
    failures = store.facts(PhaseFailed, plan=plan)
    if not failures:
        return []
    parked = {(one.run, one.lane): one.event.parked for one in store.facts(RunEnded, plan=plan)}
    shared = [(one.run, one.event.words) for one in store.facts(IssueShared, plan=plan)]
    sections = []
    for one in failures:
        failed = one.event
        left = _left(failed, parked.get((one.run, one.lane), ""))
        account = report.FailureAccount(
            at=parse_iso(one.at).strftime("%Y-%m-%d %H:%M"),
            plan=plan,
            phase=failed.phase,
            title=failed.title,
            run=one.run,
            attempt=failed.attempt,
            step=failed.step,
            reason=Reason(failed.reason),
            detail="\n\n".join(part for part in (failed.detail, failed.evidence) if part),
            state=(*left, *(words for run, words in shared if run == one.run)),
            resume=command("runplan", "retry", plan),
        )
        sections.append(report.failure_section(account))
    return sections


def _left(failed: PhaseFailed, parked: str) -> Iterator[str]:
    """Where the work of a failed phase is."""
    yield "Nothing was changed" if failed.step == "undo" else "Nothing of the phase landed"
    if failed.branch:
        yield (
            f"The work is kept on the branch `{failed.branch}`; "
            "the next attempt moves it to a ref under `refs/runplan/parked/`"
        )
    if failed.parked:
        yield f"The work before the conflict is kept at `{failed.parked}`"
    if parked:
        yield f"Work that is on no branch is kept at `{parked}`"
    if failed.dispatch:
        yield f"The log of the last process is `runplan/dispatch/{failed.dispatch}/out.log` in the git directory"
