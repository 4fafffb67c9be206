"""The things the machine can want done: plain data, decided in decide.py and done in the app."""

from __future__ import annotations

from typing import TypeAlias

from runplan.quickclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Read the plan from the target's tip and choose the next phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Get the run's worktree onto the phase's branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a process and return at once."""

    role: str  #: a Role
    cycle: int
    tree: str = ""  #: what a gate or verifier looks at; for a fixer, the tree that failed
    complaint: str = ""  #: what a fixer is told
    again: str = ""  #: how the process before it ended, where the same work is tried once more


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """See whether the process has ended."""

    id: str
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """See whether the time that is waited for has come."""

    kind: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Keep what an agent without room has made, and write the note for the next one."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeWork:
    """Commit what the agent left and look at what it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeBaseline:
    """Read the results of the checks on the base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeGate:
    """Read the results of the checks on the candidate; without a command, record that they were skipped."""

    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVerdict:
    """Read the verifier's reply, and see that it changed nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCandidate:
    """Replay the phase's commits on the target's tip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildUndo:
    """Take a landed phase's changes back, on the target's tip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildBranch:
    """Begin the branch anew on the target's tip, keeping aside what it was."""

    onto: str  #: the target's tip
    start: str  #: where the branch begins: there, or at the work as it was replayed there
    conflict: bool
    errand: str
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask a person whether the candidate may land."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Land:
    """Move the target, once: code, tracker and report together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End a running process on request."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Record that the phase ends here, and why."""

    reason: str
    step: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """Take back what the phase no longer needs; keep what is not on the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Give back the worktree and the claim, and end the run."""

    outcome: str
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneAction:
    """The same for one of several phases that are worked side by side."""

    lane: str
    action: Action


Action: TypeAlias = (
    ReadPlan
    | Lease
    | Start
    | Await
    | Sleep
    | HandOver
    | TakeWork
    | JudgeBaseline
    | JudgeGate
    | JudgeVerdict
    | BuildCandidate
    | BuildUndo
    | RebuildBranch
    | Ask
    | Land
    | End
    | Fail
    | CleanUp
    | Finish
    | LaneAction
)
