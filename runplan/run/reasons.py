"""Why runs fail and wait: the closed list of failure reasons, and sentences about endings and waits."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from runplan.run.dispatch import Ending, EndingKind, ReturnStatus
from runplan.run.kinds import PhaseStep, WaitKind

if TYPE_CHECKING:
    from runplan.run.events import DispatchEnded, Paused, PhaseFailed, ProofJudged


class Beginning(StrEnum):
    """How the next attempt at a failed phase begins."""

    PROVE = "prove"  #: with the checks of the kept work
    FIX = "fix"  #: with a fixer on the kept work, which gets the complaint about it
    CONTINUE = "continue"  #: with an implementer that continues the kept work
    ANEW = "anew"  #: with an implementer on the target; the kept work is parked


class Reason(StrEnum):
    """Why a run failed, and what a person does about it; part of the public contract (docs/reference.md)."""

    advice: str

    def __new__(cls, value: str, advice: str = "") -> Reason:
        reason = str.__new__(cls, value)
        reason._value_, reason.advice = value, advice
        return reason

    @property
    def beginning(self) -> Beginning:
        """Of the next attempt, unless a person changed the branch or the phase's text meanwhile."""
        return _BEGINNINGS.get(self, Beginning.PROVE)

    NO_COMMITS = "no-commits", "Read the agent's log, make the work items of the phase concrete, then retry."
    OFF_BASE = "off-base", "The branch holds commits of others. Remove them from the kept branch, or retry without it."
    VERIFICATION_FAILED = "verification-failed", "Read the failed items in the report. `retry` has them fixed."
    INVALID_VERDICT = "invalid-verdict", "The verifier gave no usable verdict. Read its log. `retry` asks again."
    TESTS_FAILED = "tests-failed", "Read the test output in the report. `retry` starts a fixer on the kept work."
    TESTS_UNFINISHED = "tests-unfinished", "A check did not end. Raise its timeout ([tests], [gates.NAME]), or fix it."
    TAMPERED = "tampered", "Guarded files changed. Permit it with Allows: in the plan, or retry: a fixer removes it."
    OUT_OF_SCOPE = "out-of-scope", "Files outside Touches: changed. Widen Touches:, or retry: a fixer removes it."
    GUARD_VIOLATED = "guard-violated", "An agent moved one of your refs; the report shows both values. Set it back."
    READONLY_VIOLATED = "readonly-violated", "The verifier changed files. Use another verifier, then retry."
    CONFLICT = "conflict", "Bring the kept branch onto the target by hand, or retry: an agent tries it again."
    TARGET_MOVING = "target-moving", "The target kept moving. Retry when it is quiet."
    PROTECTED = "protected", "The target rejects pushes. Land by cherry-pick and push later, or have the rule lifted."
    DRIFT = "drift", "The numbers in the plan do not fit the code. Correct the plan, then retry."
    TIMEOUT = "timeout", "The agent ran too long. Raise limits.wall, fix_wall or verify_wall, or split the phase."
    SILENT = "silent", "The agent was silent for limits.silence. Read its log. `retry` checks the kept work."
    NO_PROGRESS = "no-progress", "The same tree failed twice in the same way. Edit the branch, or `retry --fresh`."
    BUDGET = "budget", "The budget is used up. Raise it, then retry: it continues with the kept work."
    AGENT_FAILED = "agent-failed", "The agent failed. Read its log, then retry: the next one continues the kept work."
    AGENT_MISSING = "agent-missing", "Install the agent, or name another one under [agents]."
    BLOCKED = "blocked", "Resolve the blocker that the report names, then retry."
    BASELINE_RED = "baseline-red", "Tests fail before any work. Fix them, or set tests.env or tests.allow_red_baseline."
    SETUP_FAILED = "setup-failed", "run.setup failed in the new worktree. Fix the command, then retry."
    ALREADY_ON_TARGET = "already-on-target", "If another run landed it, you are done. Else mark it done in the plan."
    PLAN_NOT_COMMITTED = "plan-not-committed", "Commit the plan on the target branch."
    CI_FAILED = "ci-failed", "Read the failed checks on the pull request."
    PR_CLOSED = "pr-closed", "Reopen the pull request, or start again."
    FORGE_UNREACHABLE = "forge-unreachable", "Check the network and the token, then retry."
    STOPPED = "stopped", "Edit the plan or the branch if needed. `runplan retry` continues with the kept work."
    CRASHED = "crashed", "runplan itself failed; the work is kept. Read the log, then retry."


_BEGINNINGS = {
    **dict.fromkeys((Reason.NO_COMMITS, Reason.OFF_BASE), Beginning.ANEW),
    **dict.fromkeys((Reason.TESTS_FAILED, Reason.VERIFICATION_FAILED), Beginning.FIX),
    **dict.fromkeys((Reason.TAMPERED, Reason.OUT_OF_SCOPE), Beginning.FIX),
    **dict.fromkeys((Reason.AGENT_FAILED, Reason.AGENT_MISSING, Reason.BLOCKED), Beginning.CONTINUE),
}
#: Failures that say nothing about the work: the same one twice is not the work's lack of progress.
NOT_OF_WORK = frozenset({
    Reason.STOPPED, Reason.TIMEOUT, Reason.SILENT, Reason.BUDGET, Reason.AGENT_FAILED, Reason.AGENT_MISSING,
    Reason.CRASHED,
})  # fmt: skip


RESERVED = (Reason.FORGE_UNREACHABLE,)  #: no run of this version ends with it


def beginning_after(failure: PhaseFailed, *, is_changed: bool, has_fixers: bool) -> Beginning:
    """How the attempt after this failure begins on the kept work.

    When a person changed the branch or the phase's text since, the checks decide whether the complaint still holds.
    """
    if is_changed:
        return Beginning.PROVE
    beginning = Beginning.FIX if failure.rejected is not None else failure.reason.beginning
    if beginning is Beginning.CONTINUE and failure.step is not PhaseStep.IMPLEMENT:
        return Beginning.PROVE  # the implementer had finished
    return Beginning.CONTINUE if beginning is Beginning.FIX and not has_fixers else beginning


UNDO_ADVICE = "Undo the phase again if it is not undone yet, or revert it by hand and set its row in the plan to todo."


def next_action(reason: Reason, step: PhaseStep | None) -> str:
    """What a person does about a failure at this step, or outside of a phase."""
    return UNDO_ADVICE if step is PhaseStep.UNDO else reason.advice


_PROOFS = {
    "old-tests": "The base's tests on the new code",
    "landed-tests": "The tests of earlier phases on the new code",
    "new-tests": "The new tests on the base's code",
}


def describe_proof(proof: ProofJudged) -> str:
    """What a run of old tests on new code, or of new tests on old code, has shown."""
    again = " (repeated)" if proof.time > 1 else ""
    took = f", {proof.seconds:.1f} s" if proof.ran else ""
    return f"{_PROOFS[proof.kind]}{again}{took}: {'; '.join((proof.line, *proof.notes))}"


def describe_pause(pause: Paused) -> str:
    known = {WaitKind.LIMIT: f"{pause.agent} usage limit", WaitKind.OVERLOADED: f"{pause.agent} is overloaded"}
    return known.get(pause.kind, pause.words)


def gave_reason(ended: DispatchEnded) -> bool:
    """Whether the agent named its problem and then hung until a time limit ended it."""
    is_stopped = ended.ending in (Ending.SILENT, Ending.TIMEOUT)
    named = (EndingKind.AUTH, EndingKind.REFUSAL, EndingKind.SETUP, EndingKind.DENIED)
    return is_stopped and ended.kind in named


_ENDINGS = {
    Ending.TIMEOUT: "was stopped: it ran longer than its time limit",
    Ending.SILENT: "was stopped: no output or activity",
    Ending.MISSING: "could not be started",
    Ending.BUDGET: "was stopped: its budget is used up",
    Ending.CONTEXT: "was stopped: its context is full",
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


def describe_ending(ended: DispatchEnded) -> str:
    """Who ended how, and its last words."""
    who = f"{ended.agent} ({ended.role})" if ended.agent else f"the {ended.role} command"
    return f"{who} {_describe_manner(ended)}" + (f": {ended.detail}" if ended.detail else "")


def _describe_manner(ended: DispatchEnded) -> str:
    if ended.ending is Ending.SIGNALLED:
        return f"was killed by signal {ended.signal}"
    if ended.ending in _ENDINGS and not gave_reason(ended):
        return _ENDINGS[ended.ending]
    if ended.kind in _KINDS:
        return _KINDS[EndingKind(ended.kind)]
    if ended.kind == EndingKind.CRASHED and not ended.code:
        return "failed with exit code 0"
    return "reported a failure" if ended.said == ReturnStatus.FAILED else f"exited with code {ended.code}"


def name_variables(names: Sequence[str]) -> str:
    return ", ".join(f"${name}" for name in names)
