"""Why runs fail and wait: the closed list of failure reasons, and sentences about endings and waits."""

from collections.abc import Sequence

from runplan.domain.run.dispatch import Ending, EndingKind, ReturnStatus
from runplan.domain.run.events import DispatchEnded, Paused, PhaseFailed, ProofJudged
from runplan.domain.run.kinds import Beginning, PhaseStep, Reason, WaitKind

#: Tokens of GitHub and GitLab.
FORGE_TOKENS = (
    *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"),
    *("GITHUB_APP_ID", "GITHUB_APP_PRIVATE_KEY_FILE", "GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN"),
)
PUSHING_KEYS = (*FORGE_TOKENS, "SSH_AUTH_SOCK")  #: the variables of a run that a landing may need
UNDO_ADVICE = "Undo the phase again if it is not undone yet, or revert it by hand and set its row in the plan to todo."
_PROOFS = {
    "old-tests": "The base's tests on the new code",
    "landed-tests": "The tests of earlier phases on the new code",
    "new-tests": "The new tests on the base's code",
    "emptied": "What the new tests prove",
}
_ENDINGS = {
    Ending.TIMEOUT: "was stopped: it ran longer than its time limit",
    Ending.SILENT: "was stopped: no output or activity",
    Ending.MISSING: "could not be started",
    Ending.BUDGET: "was stopped: its budget is used up",
    Ending.CONTEXT: "was stopped: its context is full",
    Ending.SURVIVED: "left processes that cannot be killed",
}
_KINDS = {
    EndingKind.AUTH: "cannot run: no valid key or login",
    EndingKind.REFUSAL: "refused the work",
    EndingKind.OVERLOADED: "cannot run: its provider was overloaded too often in a row",
    EndingKind.MAX_TURNS: "used up its turns",
    EndingKind.CONTEXT: "ran out of context",
    EndingKind.BUDGET: "used up its own budget",
    EndingKind.SETUP: "cannot run",
    EndingKind.DENIED: "was denied a tool that it needs",
    EndingKind.NO_OUTPUT: "ended without an answer",
}


def beginning_after(failure: PhaseFailed, *, is_changed: bool, has_fixers: bool) -> Beginning:
    """How the next attempt begins on the kept work; after a change by a person (`is_changed`) with the checks."""
    if is_changed:
        return Beginning.PROVE
    beginning = failure.reason.beginning
    if failure.rejected is not None and beginning is not Beginning.ANEW:  # no agent may have changed the work since
        is_end = failure.reason is Reason.STOPPED and failure.step is not PhaseStep.STOP  # the rejection ended the run
        is_open = is_end or not failure.tree or failure.reason is Reason.NO_PROGRESS
        beginning = Beginning.FIX if is_open else beginning
    if beginning is Beginning.CONTINUE and failure.step is not PhaseStep.IMPLEMENT:
        return Beginning.PROVE  # the implementer had finished
    return Beginning.CONTINUE if beginning is Beginning.FIX and not has_fixers else beginning


def next_action(reason: Reason, step: PhaseStep | None) -> str:
    return UNDO_ADVICE if step is PhaseStep.UNDO else reason.advice


def describe_proof(proof: ProofJudged) -> str:
    again = " (repeated)" if proof.time > 1 else ""
    took = f", {proof.seconds:.1f} s" if proof.ran else ""
    answer = f"{proof.answer}: " if proof.answer else ""
    return f"{_PROOFS[proof.kind]}{again}{took}: {answer}{'; '.join((proof.line, *proof.notes))}"


def describe_pause(pause: Paused) -> str:
    known = {WaitKind.LIMIT: f"{pause.agent} usage limit", WaitKind.OVERLOADED: f"{pause.agent} is overloaded"}
    return known.get(pause.kind, pause.words)


def gave_reason(ended: DispatchEnded) -> bool:
    is_stopped = ended.ending in (Ending.SILENT, Ending.TIMEOUT)
    return is_stopped and ended.kind in (EndingKind.AUTH, EndingKind.REFUSAL, EndingKind.SETUP, EndingKind.DENIED)


def describe_ending(ended: DispatchEnded) -> str:
    who = f"{ended.agent} ({ended.role})" if ended.agent else f"the {ended.role} command"
    how = "was stopped" if ended.code is None else f"exited with code {ended.code}"
    if ended.ending is Ending.SIGNALLED:
        how = f"was killed by signal {ended.signal}"
    elif ended.ending in _ENDINGS and not gave_reason(ended):
        how = _ENDINGS[ended.ending]
    elif ended.kind in _KINDS:
        how = _KINDS[EndingKind(ended.kind)]
    elif ended.kind == EndingKind.CRASHED and not ended.code:
        how = "failed with exit code 0"
    elif ended.said == ReturnStatus.FAILED:
        how = "reported a failure"
    return f"{who} {how}" + (f": {ended.detail}" if ended.detail else "")


def describe_refused(ended: DispatchEnded) -> list[str]:
    who, section = (ended.agent, "agents") if ended.agent else (f"the {ended.role} command", "tests")
    return [f"{who} asked for {host}, refused: it is not in {section}.network" for host in ended.refused]


def describe_lost(names: Sequence[str]) -> str:
    return f"the daemon restarted and lost {', '.join(f'${name}' for name in names)}"
