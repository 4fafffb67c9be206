"""The actions that decide.py asks for and the steps carry out."""

from __future__ import annotations

from msgspec import Struct


class Action(Struct, frozen=True):
    """Something to do, as plain data."""


class ReadPlan(Action, frozen=True, kw_only=True):
    """Read the plan from the target's tip and choose the next phase."""


class Lease(Action, frozen=True, kw_only=True):
    """Switch the run's worktree to the phase's branch."""


class Start(Action, frozen=True, kw_only=True):
    """Start a process and return at once."""

    role: str  #: a Role
    cycle: int
    gates: tuple[str, ...] = ()  #: names of the checks to run at the same time
    agent: str = ""  #: the verifier whose turn it is
    scope: str = ""  #: "final": the verifier judges all phases of the plan
    tree: str = ""  #: the tree that a gate or verifier judges, or that failed before a fix
    complaint: str = ""  #: what a fixer has to fix
    again: str = ""  #: how the process before it ended, when the same work is tried again


class Await(Action, frozen=True, kw_only=True):
    """Record the end of the process, if it has ended."""

    id: str
    role: str


class Sleep(Action, frozen=True, kw_only=True):
    """End the pause, if its time has come."""

    kind: str
    until: str


class HandOver(Action, frozen=True, kw_only=True):
    """Keep the work of an agent whose context is full, and write the note for its successor."""

    why: str


class TakeWork(Action, frozen=True, kw_only=True):
    """Commit the agent's changes and inspect them."""


class JudgeBaseline(Action, frozen=True, kw_only=True):
    """Read the results of the checks on the base."""


class JudgeGate(Action, frozen=True, kw_only=True):
    """Read the results of the checks on the candidate; without any, record that they were skipped."""

    tree: str


class JudgeVerdict(Action, frozen=True, kw_only=True):
    """Read the verifier's reply, and check that it changed nothing."""


class BuildCandidate(Action, frozen=True, kw_only=True):
    """Replay the phase's commits on the target's tip."""


class BuildUndo(Action, frozen=True, kw_only=True):
    """Revert a landed phase on the target's tip."""


class RebuildBranch(Action, frozen=True, kw_only=True):
    """Start the branch again at the target's tip, and park its old commits."""

    onto: str  #: the target's tip
    start: str  #: that tip, or the work as it was replayed there
    conflict: bool
    complaint: str
    tree: str


class Ask(Action, frozen=True, kw_only=True):
    """Ask a person for approval."""


class Land(Action, frozen=True, kw_only=True):
    """Move the target, once: code, tracker and report together."""


class Conclude(Action, frozen=True, kw_only=True):
    """Let the lander do what is left when every phase has landed: the pull request, its checks, its merge."""


class MergeTarget(Action, frozen=True, kw_only=True):
    """Merge the target into the branch; conflicts are left to an agent."""


class End(Action, frozen=True, kw_only=True):
    """End a running process on request."""

    id: str


class Fail(Action, frozen=True, kw_only=True):
    reason: str
    step: str
    detail: str


class CleanUp(Action, frozen=True, kw_only=True):
    """Remove branch and candidate; keep work that is not on the target."""


class Finish(Action, frozen=True, kw_only=True):
    """Give back the worktree and the claim, and end the run."""

    outcome: str
    reason: str = ""
    detail: str = ""


class LaneAction(Action, frozen=True, kw_only=True):
    """An action for one of several phases that run side by side."""

    lane: str
    action: Action
