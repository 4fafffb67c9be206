"""The closed sets of words in the journal and in JSON. docs/reference.md lists those that users see."""

from __future__ import annotations

from enum import Enum, StrEnum

from runplan.domain.errors import Exit


class Access(Enum):
    WORK = "work"  #: the worktree of agents
    PRODUCTS = "products"  #: the proof worktree; what is written there stays
    SCRATCH = "scratch"  #: the proof worktree; what is written there is thrown away
    NOTHING = "nothing"
    USER = "user"  #: all that the user may write: it runs in the main checkout, without a sandbox


class Role(StrEnum):
    """The job of a process. The prompt of an agent is the template with the name of its role."""

    access: Access
    agent: str  #: the key of [agents] that names its agent; "" for a command of the project
    wall: str  #: the key of [limits] with its longest time

    def __new__(cls, value: str, access: Access = Access.SCRATCH, agent: str = "", wall: str = "wall") -> Role:
        role = str.__new__(cls, value)
        role._value_ = value
        role.access = access
        role.agent = agent
        role.wall = wall
        return role

    IMPLEMENT = "implement", Access.WORK, "implementer"
    FIX = "fix", Access.WORK, "implementer", "fix_wall"
    VERIFY = "verify", Access.NOTHING, "verifier", "verify_wall"
    TRY = "try", Access.SCRATCH, "try", "verify_wall"  #: uses what try.serve serves, beside it in one view
    GATE = "gate"  #: the project's test command
    BASELINE = "baseline"  #: the test command on the base
    PROVE = "prove"  #: tests of one side on the code of the other
    DELEGATE = "delegate", Access.USER  #: the command of a phase, which lands by itself
    SETUP = "setup", Access.PRODUCTS  #: run.setup; without a tree in the worktree of agents
    UNDERSTAND = "understand", Access.NOTHING, "planner"
    EXPLORE = "explore", Access.NOTHING, "planner"
    ALTERNATIVES = "alternatives", Access.NOTHING, "planner"
    DRAFT = "draft", Access.NOTHING, "planner"
    CRITIQUE = "critique", Access.NOTHING, "verifier"
    REVISE = "revise", Access.NOTHING, "planner"

    @property
    def is_writer(self) -> bool:
        return self.access is Access.WORK

    @property
    def is_planner(self) -> bool:
        return self in PLANNING


#: The steps of a planning run; those from the critique on are repeated.
PLANNING = (Role.UNDERSTAND, Role.EXPLORE, Role.ALTERNATIVES, Role.DRAFT, Role.CRITIQUE, Role.REVISE)


class Mode(StrEnum):
    NEXT = "next"
    PHASE = "phase"
    FINISH = "finish"
    UNDO = "undo"
    PLAN = "plan"  #: a plan, from a goal

    @property
    def works_phases(self) -> bool:
        return self not in (Mode.UNDO, Mode.PLAN)


class RunOutcome(StrEnum):
    DONE = "done"
    NOTHING_TO_DO = "nothing-to-do"
    FAILED = "failed"
    STOPPED = "stopped"
    REFUSED = "refused"

    @property
    def is_good(self) -> bool:
        return self in (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO)

    @property
    def exit(self) -> Exit:
        return Exit.USAGE if self is RunOutcome.REFUSED else Exit.DONE if self.is_good else Exit.FAILED


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


UNFINISHED = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)  #: of a run that has not ended


class WaitKind(StrEnum):
    APPROVAL = "approval"
    SIGN_OFF = "sign-off"
    QUESTION = "question"  #: of an agent
    CHECKOUT = "checkout"
    PAUSED = "paused"
    KEY = "key"
    SLOT = "slot"
    LIMIT = "limit"
    OVERLOADED = "overloaded"
    BUDGET = "budget"
    HOURS = "hours"
    UNREACHABLE = "unreachable"
    PARENT = "parent"
    SUBPLAN = "sub-plan"
    PHASE = "phase"  #: that has to land first
    CHECKS = "checks"
    REVIEW = "review"
    ISSUE = "issue"  #: of the plan, which has changed before the merge
    MERGE = "merge"
    HOST = "host"  #: of a fleet, with labels
    CRASHED = "crashed"  #: a person, after a defect of runplan itself
    CLAIM = "claim"  #: of the daemon: another process works on the run
    QUEUE = "queue"  #: of the daemon: it begins further plans of the queue


ANSWERED = (WaitKind.APPROVAL, WaitKind.SIGN_OFF)  #: waits that `approve` and `reject` end
FOR_ANSWER = (*ANSWERED, WaitKind.QUESTION)  #: waits that an answer of a person ends
#: Waits after which the same thing is looked at again.
REPEATED_WAITS = (
    *(WaitKind.CHECKOUT, WaitKind.UNREACHABLE, WaitKind.PARENT, WaitKind.SUBPLAN),
    *(WaitKind.CHECKS, WaitKind.REVIEW, WaitKind.ISSUE, WaitKind.MERGE),
)
ON_PULL_REQUEST = (WaitKind.REVIEW, WaitKind.ISSUE)  #: waits of a pull request for a person


class PhaseStep(StrEnum):
    """The step of an attempt, as `status` and failures name it. That of a process has the name of its role."""

    LEASE = "lease"
    SETUP = "setup"
    BASELINE = "baseline"
    IMPLEMENT = "implement"
    FIX = "fix"
    GATE = "gate"
    PROVE = "prove"
    VERIFY = "verify"
    TRY = "try"
    SUBPLAN = "sub-plan"
    DELEGATE = "delegate"
    LAND = "land"
    CLEAN_UP = "clean-up"
    UNDO = "undo"
    STOP = "stop"
    UNDERSTAND = "understand"
    EXPLORE = "explore"
    ALTERNATIVES = "alternatives"
    DRAFT = "draft"
    CRITIQUE = "critique"
    REVISE = "revise"
    APPROVE = "approve"  #: of a proposed plan


PLANNING_STEPS = (*(PhaseStep(role) for role in PLANNING), PhaseStep.APPROVE)


class GateAnswer(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    SKIPPED = "skipped"


class ProofKind(StrEnum):
    OLD_TESTS = "old-tests"  #: the base's tests on the new code
    LANDED_TESTS = "landed-tests"  #: tests of earlier phases that this one changes again, on the new code
    NEW_TESTS = "new-tests"  #: the new tests on the base's code
    EMPTIED = "emptied"  #: those that cannot be loaded there, on the new code with the added functions emptied


class Beginning(StrEnum):
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
    READONLY_VIOLATED = "readonly-violated", "An agent that may only read changed files. Use another agent, then retry."
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
    PLAN_INVALID = "plan-invalid", "No valid plan after three tries. Read the report, make the goal clearer, and retry."
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
