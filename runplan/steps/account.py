"""The facts of a run for the report: commits, warnings, and the evidence of a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.report import sections
from runplan.run.reasons import Reason
from runplan.settings.schema import FILES
from runplan.steps.context import phase_of
from runplan.steps.gates import content, log_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runplan.run.state import RunState
    from runplan.steps.context import RunContext

OUTPUT_READ = 64 * 1024  #: bytes at the end of a failed command's output that are read
LINES_SHOWN = 20  #: lines of it in the report
LONGEST_LINE = 300


def phase_section(state: RunState, context: RunContext, audited: Sequence[str]) -> str:
    """A phase that is about to land; `audited` are the remarks on a plan that is complete with it."""
    phase = phase_of(state)
    assert phase.candidate is not None
    return sections.phase_section(
        phase,
        plan=context.plan,
        run=context.run,
        subjects=_subjects(context, phase.candidate.commits),
        commands={name: check.command for name, check in context.settings.checks.items()},
        warnings=(*state.warnings, *phase.warnings, *_settings_warning(state, context), *audited),
    )


def undo_section(state: RunState, context: RunContext) -> str:
    """A phase that is about to be reverted."""
    phase = phase_of(state)
    assert phase.candidate is not None
    subjects = _subjects(context, phase.candidate.undone)
    return sections.undo_section(phase, plan=context.plan, run=context.run, subjects=subjects)


def _subjects(context: RunContext, commits: tuple[str, ...]) -> dict[str, str]:
    found = ((oid, context.objects.commit(oid).message.partition("\n")[0]) for oid in commits)
    return {oid: context.agents.redacted(subject) for oid, subject in found}


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
        case Reason.NO_PROGRESS | Reason.TESTS_FAILED | Reason.TESTS_UNFINISHED if phase.gates:
            red = (gate.output for gate in phase.judged.values() if gate.answer != "passed")
            lines = [line for output in red for line in _end_of(output)]
        case Reason.GUARD_VIOLATED:
            lines = [line for line in phase.warnings if phase.refusal is None or line not in phase.refusal[1]]
        case Reason.BASELINE_RED | Reason.SETUP_FAILED if phase.newest is not None:
            lines = [line for path in log_files(phase.newest, context).values() for line in _end_of(content(path))]
        case _:
            lines = []
    return context.agents.redacted("\n".join(lines))


def _end_of(output: str | bytes) -> list[str]:
    text = output if isinstance(output, str) else output[-OUTPUT_READ:].decode("utf-8", "replace")
    return [line[:LONGEST_LINE] for line in text.splitlines()[-LINES_SHOWN:]]
