"""The closed sets of words in the journal and in JSON. docs/reference.md lists those that users see."""

from __future__ import annotations

from enum import Enum, StrEnum

from runplan.errors import Exit


class Access(Enum):
    """The files that a process may write besides its own directory."""

    WORK = "work"  #: the worktree of agents
    PRODUCTS = "products"  #: the proof worktree; what is written there stays
    SCRATCH = "scratch"  #: the proof worktree; what is written there is thrown away
    NOTHING = "nothing"


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
    GATE = "gate"  #: the project's test command
    BASELINE = "baseline"  #: the test command on the base
    PROVE = "prove"  #: tests of one side on the code of the other
    SETUP = "setup", Access.PRODUCTS  #: run.setup; without a tree in the worktree of agents

    @property
    def is_writer(self) -> bool:
        """Whether it changes files that become work."""
        return self.access is Access.WORK


class Mode(StrEnum):
    """What a run was asked for."""

    NEXT = "next"
    PHASE = "phase"
    FINISH = "finish"
    UNDO = "undo"


class RunOutcome(StrEnum):
    """How a run ended, with the exit code of a command that waited for it."""

    exit: Exit

    def __new__(cls, value: str, exit_code: Exit = Exit.DONE) -> RunOutcome:
        outcome = str.__new__(cls, value)
        outcome._value_ = value
        outcome.exit = exit_code
        return outcome

    DONE = "done", Exit.DONE
    NOTHING_TO_DO = "nothing-to-do", Exit.DONE
    FAILED = "failed", Exit.FAILED
    STOPPED = "stopped", Exit.FAILED
    REFUSED = "refused", Exit.USAGE

    @property
    def is_good(self) -> bool:
        """Of a lane too: another run may have finished its phase."""
        return self.exit is Exit.DONE


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


UNFINISHED = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)  #: of a run that has not ended


class WaitKind(StrEnum):
    """What a run waits for."""

    APPROVAL = "approval"
    SIGN_OFF = "sign-off"
    CHECKOUT = "checkout"
    PAUSED = "paused"
    KEY = "key"
    SLOT = "slot"
    LIMIT = "limit"
    OVERLOADED = "overloaded"
    BUDGET = "budget"
    UNREACHABLE = "unreachable"
    PARENT = "parent"
    CHECKS = "checks"
    REVIEW = "review"
    MERGE = "merge"
    CLAIM = "claim"  #: of the daemon: another process works on the run


ANSWERED = (WaitKind.APPROVAL, WaitKind.SIGN_OFF)  #: waits that `approve` and `reject` end
#: Waits after which the same thing is looked at again.
REPEATED_WAITS = (
    *(WaitKind.CHECKOUT, WaitKind.UNREACHABLE, WaitKind.PARENT),
    *(WaitKind.CHECKS, WaitKind.REVIEW, WaitKind.MERGE),
)


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
    LAND = "land"
    UNDO = "undo"
    STOP = "stop"


class GateAnswer(StrEnum):
    """The judgement of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNFINISHED = "unfinished"
    SKIPPED = "skipped"
