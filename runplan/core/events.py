"""The facts of a run: one value per thing that happened.

An event says what was true when it was recorded; nothing else is remembered anywhere. Fields may be added
with a default, never renamed or removed: journals outlive versions.
"""

from __future__ import annotations

from typing import TypeAlias

from runplan.core.claims import IssueShared as IssueShared
from runplan.core.landingevents import (
    ApprovalAsked as ApprovalAsked,
    Approved as Approved,
    Landed as Landed,
    LandingHeld as LandingHeld,
    LandingMoved as LandingMoved,
    LandingRefused as LandingRefused,
    LandingStarted as LandingStarted,
    Rejected as Rejected,
)
from runplan.core.laneevents import LaneFact as LaneFact, LanesChosen as LanesChosen
from runplan.core.quickclass import dataclass
from runplan.core.waitevents import (
    Admitted as Admitted,
    AgentLimited as AgentLimited,
    Continued as Continued,
    Halted as Halted,
    HandedOver as HandedOver,
    HandoverArmed as HandoverArmed,
    Paused as Paused,
    Queued as Queued,
    Woke as Woke,
)

Rows: TypeAlias = tuple[tuple[str, str], ...]  #: (id, text) pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run of a plan began, with every option resolved."""

    plan: str  #: repository-relative path
    title: str
    mode: str  #: next, phase, finish, undo
    wanted: str  #: phase id for the modes phase and undo, else ""
    auto: bool
    landing: str
    target: str  #: branch name
    slug: str
    max_fix_cycles: int
    test_command: str
    setup: str = ""
    clean: str = "ignored"
    remote: str = ""  #: where the target lives, for landings that push
    daemon: bool = False  #: worked by the daemon, which goes on with it after a restart
    needs: tuple[str, ...] = ()  #: names of the variables its agents had when it was asked for
    parallel: int = 1  #: how many phases may be worked side by side
    issues: tuple[int, ...] = ()  #: the issues of the plan, which the run claims
    settings: str = ""  #: all of them as JSON; "" in a schedule, whose runs have the settings of their own start
    settings_file: str = ""  #: hash of the repository's file on the target that they are from; "" for none
    given: Rows = ()  #: the settings that its caller gave as variables


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTaken:
    """This process owns the plan now."""

    owner: str
    fence: int
    took_over: str = ""  #: the dead owner, if there was one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """Somebody called the run on: whatever it waited for is looked at again, with what is asked for now."""

    mode: str
    wanted: str
    auto: bool
    max_fix_cycles: int = 2
    test_command: str = ""
    setup: str = ""
    clean: str = "ignored"
    parallel: int = 1
    daemon: bool = False  #: the daemon was asked to go on with it, and does so after a restart
    needs: tuple[str, ...] = ()  #: names of the variables its agents had then


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRead:
    """The plan was read from the target's tip, and this is what it asks for."""

    tip: str
    choice: str  #: next, all-done, complete, phase-done, needs, blocked, unreadable; undo
    phase: str = ""
    title: str = ""
    text: str = ""  #: the phase, verbatim
    items: Rows = ()
    touches: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """A worktree stands on the phase's branch."""

    phase: str
    branch: str  #: full ref name
    base: str  #: the target tip it began at
    base_tree: str
    worktree: str  #: its name under the worktree root
    attempt: int  #: from 1, over all runs of the plan
    fresh: bool  #: newly made or swept clean, so that setup has to run
    parked: str = ""  #: where the work of an earlier attempt was kept aside


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineKnown:
    """The checks on the base: run now, or known for this very code from before."""

    key: str
    tree: str  #: the tree they ran on
    results: str  #: JSON of the results


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchStarted:
    """A process is about to be started; its lock is its proof of life."""

    id: str
    role: str
    agent: str
    cycle: int
    tree: str = ""  #: the tree it looks at, for gates and verifiers
    head: str = ""  #: where the worktree stood
    complaint: str = ""  #: what a fixer is told
    again: str = ""  #: how the process before it ended, where the same work is tried once more
    version: str = ""  #: of the agent's program
    tokens: int = 0  #: what it may use; 0 for no limit
    usd: float = 0.0
    seconds: float = 0.0  #: a command's, too
    bounds: tuple[str, ...] = ()  #: the settings that say so, of tokens, dollars and time
    phase: str = ""  #: of an agent's
    despite: str = ""  #: a usage limit that a person does not wait for
    at: str = ""  #: when that was, UTC ISO-8601


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchEnded:
    """The process ended, one way or another."""

    id: str
    role: str
    ending: str
    code: int | None
    signal: int | None = None
    output_bytes: int = 0
    leftovers: int = 0
    said: str = ""  #: what the agent's return says of itself: done, partial, blocked, failed, none
    detail: str = ""  #: blockers, or the last words of one that failed
    agent: str = ""
    phase: str = ""
    kind: str = ""  #: how an agent's work ended (core.endings.EndingKind)
    session: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0  #: from its start to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFound:
    """Things of the main repository changed while an agent ran."""

    violated: bool  #: at least one is laid at the agent's door
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTaken:
    """What the agent left is committed on its branch."""

    head: str
    tree: str
    commits: int
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRefused:
    """The attempt cannot go on: what the agent left, or what the verifier said or did, does not stand."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateBuilt:
    """The phase's commits stand on the target's tip, in memory."""

    onto: str
    onto_tree: str
    commits: tuple[str, ...]
    tree: str
    patch: str
    undoes: str = ""  #: the landing that is taken back
    undone: tuple[str, ...] = ()  #: its code commits, newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateConflicted:
    """The commits do not apply on the target's tip."""

    onto: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateEmpty:
    """The target already holds everything the phase did."""

    onto: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRebuilt:
    """The branch begins anew on the target's tip: empty after a conflict, else with the work replayed there."""

    base: str
    base_tree: str
    parked: str  #: where the branch as it was is kept
    conflict: bool
    errand: str  #: what the fixer is told
    tree: str  #: the tree that failed; "" after a conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class GateJudged:
    """The checks on a tree: passed, failed, unfinished or skipped, and why."""

    tree: str
    answer: str  #: passed, failed, unfinished, skipped, baseline-red
    code: int | None
    line: str  #: one line for people
    time: int  #: 1, or 2 when it was tried again
    output: str = ""  #: the end of what it printed, for the fixer


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictGiven:
    """The verifier's answer, bound to a tree."""

    tree: str
    patch: str
    passed: bool
    items: tuple[tuple[str, bool, str], ...]  #: id, passed, evidence
    agent: str
    pristine: bool = False  #: the verifier left nothing behind, not even ignored files
    why: str = ""  #: why it did not pass, in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFailed:
    """The phase ends here, and everything it made is kept."""

    phase: str
    reason: str
    step: str
    detail: str
    title: str = ""
    attempt: int = 1
    tree: str = ""  #: of the work; the same tree and the same failure twice is no progress
    branch: str = ""  #: short name of the branch that keeps the work; "" when there is none
    parked: str = ""  #: the ref that keeps the work as it was before a conflict
    evidence: str = ""  #: what shows it, in many lines: failed items, the end of an output
    dispatch: str = ""  #: the last process of the phase, whose log tells more
    rejected: str = ""  #: what a person said against it, for the next agent


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedUp:
    """Candidate and branch are gone; work that did not land is on a branch of the user's."""

    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """The run is to end as soon as nothing is half done."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run is over, in a named outcome."""

    outcome: str  #: done, failed, stopped, nothing-to-do, refused
    reason: str = ""
    detail: str = ""
    parked: str = ""  #: where work of the worktree that is on no branch is kept


Event: TypeAlias = (
    RunStarted
    | ClaimTaken
    | IssueShared
    | RunResumed
    | PlanRead
    | LanesChosen
    | Leased
    | BaselineKnown
    | DispatchStarted
    | DispatchEnded
    | AgentLimited
    | Paused
    | Woke
    | Queued
    | Admitted
    | Halted
    | Continued
    | HandedOver
    | HandoverArmed
    | GuardFound
    | WorkTaken
    | WorkRefused
    | CandidateBuilt
    | CandidateConflicted
    | CandidateEmpty
    | BranchRebuilt
    | GateJudged
    | VerdictGiven
    | ApprovalAsked
    | Approved
    | Rejected
    | LandingStarted
    | LandingHeld
    | LandingMoved
    | LandingRefused
    | Landed
    | PhaseFailed
    | CleanedUp
    | StopRequested
    | RunEnded
)

#: As it stands in the journal: a fact of the run, or of one of its lanes.
Fact: TypeAlias = Event | LaneFact
