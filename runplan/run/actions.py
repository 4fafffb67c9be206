"""The things the machine can want done: plain data, decided in decide.py and done in the app."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class ReadPlan(Struct, frozen=True, kw_only=True):
    """Read the plan from the target's tip and choose the next phase."""


class Lease(Struct, frozen=True, kw_only=True):
    """Get the run's worktree onto the phase's branch."""


class Start(Struct, frozen=True, kw_only=True):
    """Start a process and return at once."""

    role: str  #: a Role
    cycle: int
    tree: str = ""  #: what a gate or verifier looks at; for a fixer, the tree that failed
    complaint: str = ""  #: what a fixer is told
    again: str = ""  #: how the process before it ended, where the same work is tried once more


class Await(Struct, frozen=True, kw_only=True):
    """See whether the process has ended."""

    id: str
    role: str


class Sleep(Struct, frozen=True, kw_only=True):
    """See whether the time that is waited for has come."""

    kind: str
    until: str


class HandOver(Struct, frozen=True, kw_only=True):
    """Keep what an agent without room has made, and write the note for the next one."""

    why: str


class TakeWork(Struct, frozen=True, kw_only=True):
    """Commit what the agent left and look at what it changed."""


class JudgeBaseline(Struct, frozen=True, kw_only=True):
    """Read the results of the checks on the base."""


class JudgeGate(Struct, frozen=True, kw_only=True):
    """Read the results of the checks on the candidate; without a command, record that they were skipped."""

    tree: str


class JudgeVerdict(Struct, frozen=True, kw_only=True):
    """Read the verifier's reply, and see that it changed nothing."""


class BuildCandidate(Struct, frozen=True, kw_only=True):
    """Replay the phase's commits on the target's tip."""


class BuildUndo(Struct, frozen=True, kw_only=True):
    """Take a landed phase's changes back, on the target's tip."""


class RebuildBranch(Struct, frozen=True, kw_only=True):
    """Begin the branch anew on the target's tip, keeping aside what it was."""

    onto: str  #: the target's tip
    start: str  #: where the branch begins: there, or at the work as it was replayed there
    conflict: bool
    errand: str
    tree: str


class Ask(Struct, frozen=True, kw_only=True):
    """Ask a person whether the candidate may land."""


class Land(Struct, frozen=True, kw_only=True):
    """Move the target, once: code, tracker and report together."""


class End(Struct, frozen=True, kw_only=True):
    """End a running process on request."""

    id: str


class Fail(Struct, frozen=True, kw_only=True):
    """Record that the phase ends here, and why."""

    reason: str
    step: str
    detail: str


class CleanUp(Struct, frozen=True, kw_only=True):
    """Take back what the phase no longer needs; keep what is not on the target."""


class Finish(Struct, frozen=True, kw_only=True):
    """Give back the worktree and the claim, and end the run."""

    outcome: str
    reason: str = ""
    detail: str = ""


class LaneAction(Struct, frozen=True, kw_only=True):
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
