"""The closed list of reasons a run can fail for, each with what to do next."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a run failed; part of the public contract (docs/exit-codes.md)."""

    NO_COMMITS = "no-commits"
    OFF_BASE = "off-base"
    VERIFICATION_FAILED = "verification-failed"
    INVALID_VERDICT = "invalid-verdict"
    TESTS_FAILED = "tests-failed"
    TESTS_UNFINISHED = "tests-unfinished"
    TAMPERED = "tampered"
    OUT_OF_SCOPE = "out-of-scope"
    GUARD_VIOLATED = "guard-violated"
    READONLY_VIOLATED = "readonly-violated"
    CONFLICT = "conflict"
    TARGET_MOVING = "target-moving"
    PROTECTED = "protected"
    DRIFT = "drift"
    TIMEOUT = "timeout"
    SILENT = "silent"
    NO_PROGRESS = "no-progress"
    BUDGET = "budget"
    AGENT_FAILED = "agent-failed"
    AGENT_MISSING = "agent-missing"
    BLOCKED = "blocked"
    BASELINE_RED = "baseline-red"
    SETUP_FAILED = "setup-failed"
    ALREADY_ON_TARGET = "already-on-target"
    PLAN_NOT_COMMITTED = "plan-not-committed"
    CI_FAILED = "ci-failed"
    PR_CLOSED = "pr-closed"
    FORGE_UNREACHABLE = "forge-unreachable"
    STOPPED = "stopped"
    CRASHED = "crashed"


#: What a person does about it, in one sentence. Shown with the failure and in docs/exit-codes.md.
NEXT: dict[Reason, str] = {
    Reason.NO_COMMITS: "Read the agent's log; make the phase's work items concrete, then start it again.",
    Reason.OFF_BASE: (
        "The branch holds commits that the agent did not make; pick its own from the kept branch, or start again."
    ),
    Reason.VERIFICATION_FAILED: "Read the failed items in the report; mend the plan, then try again.",
    Reason.INVALID_VERDICT: "The verifier gave no usable verdict; read its log, then start the phase again.",
    Reason.TESTS_FAILED: "Read the gate's output; the branch holds the work, start again when it is clear.",
    Reason.TESTS_UNFINISHED: "The test command did not finish; raise tests.timeout or mend the suite.",
    Reason.TAMPERED: "The agent changed what it may not; review the branch or allow it in the plan.",
    Reason.OUT_OF_SCOPE: "Files outside the phase's Touches: changed; widen Touches: or start again.",
    Reason.GUARD_VIOLATED: "A ref of yours was moved; the report shows both values. Set it back, then try again.",
    Reason.READONLY_VIOLATED: "The verifier changed files; use another verifier, then try again.",
    Reason.CONFLICT: "Bring the kept work onto the target by hand; the report names its ref. Or start the phase again.",
    Reason.TARGET_MOVING: "The target kept moving; start again when it is quiet.",
    Reason.PROTECTED: (
        "The target refuses pushes; land by cherry-pick and push when it is allowed, or ask for the rule to be lifted."
    ),
    Reason.DRIFT: "The plan's numbers do not fit the code; correct the plan, then try again.",
    Reason.TIMEOUT: "The agent ran longer than limits.wall; raise it or make the phase smaller.",
    Reason.SILENT: "The agent said nothing for limits.silence; read its log, then try again.",
    Reason.NO_PROGRESS: "Two passes gave the same tree and the same failure; a person must look.",
    Reason.BUDGET: "The budget is used up; raise it to go on.",
    Reason.AGENT_FAILED: "The agent failed; read its log, then start the phase again.",
    Reason.AGENT_MISSING: "Install the agent or name another one under [agents].",
    Reason.BLOCKED: "Answer the blocker the report names, then start the phase again.",
    Reason.BASELINE_RED: "The tests fail before any work; mend them, or set tests.env or tests.allow_red_baseline.",
    Reason.SETUP_FAILED: "run.setup failed in the fresh worktree; mend the command.",
    Reason.ALREADY_ON_TARGET: (
        "If another run has landed it, nothing is to be done; else mark the phase done in the plan."
    ),
    Reason.PLAN_NOT_COMMITTED: "Commit the plan on the target branch.",
    Reason.CI_FAILED: "Read the failed checks on the pull request.",
    Reason.PR_CLOSED: "Reopen the pull request or start again.",
    Reason.FORGE_UNREACHABLE: "Check the network and the token, then retry.",
    Reason.STOPPED: "Start the plan again to go on.",
    Reason.CRASHED: "Something in runplan itself went wrong; what was made is kept. Read the log, start again.",
}


#: What differs when a landed phase is taken back.
NEXT_OF_UNDO: dict[Reason, str] = {
    Reason.CONFLICT: "Revert the phase's commits by hand, and set its row back to todo in the plan.",
    Reason.PROTECTED: "The target refuses pushes; undo the phase again when the rule is lifted.",
    Reason.ALREADY_ON_TARGET: "Another run has taken it back; nothing is to be done.",
    Reason.BLOCKED: "Take the phase back by hand, and set its row back to todo in the plan.",
    Reason.TARGET_MOVING: "The target kept moving; undo it again when it is quiet.",
    Reason.STOPPED: "Undo it again to go on.",
}


def next_action(reason: Reason, step: str) -> str:
    """What a person does about a failure at this step."""
    return NEXT_OF_UNDO.get(reason, NEXT[reason]) if step == "undo" else NEXT[reason]
