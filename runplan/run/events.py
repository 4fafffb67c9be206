"""The facts of a run: one value per thing that happened."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from runplan.run.rows import IssueShared as IssueShared


class ApprovalAsked(Struct, frozen=True, kw_only=True):
    """The candidate is proven; a person is asked whether it may land."""

    tree: str


class Approved(Struct, frozen=True, kw_only=True):
    """A person said yes to exactly this tree."""

    tree: str


class Rejected(Struct, frozen=True, kw_only=True):
    """A person said no."""

    tree: str
    why: str = ""


class LandingStarted(Struct, frozen=True, kw_only=True):
    """The intent: recorded before the swap, so that a crash in between can be seen."""

    id: str
    ref: str
    old: str
    new: str
    code: str  #: the last code commit
    follows: str = ""  #: where the local branch stood that follows a landing elsewhere


class LandingHeld(Struct, frozen=True, kw_only=True):
    """The checkout of the target is in use; nothing was changed."""

    id: str
    why: str


class LandingMoved(Struct, frozen=True, kw_only=True):
    """The target moved meanwhile; the candidate is built again."""

    id: str
    tip: str
    ours: bool = False  #: by another landing of ours, of which there are only so many


class LandingRefused(Struct, frozen=True, kw_only=True):
    """Whoever owns the target does not take the candidate; nothing was changed."""

    id: str
    why: str


class Landed(Struct, frozen=True, kw_only=True):
    """The target holds the phase: code, tracker and report in one step."""

    id: str
    phase: str
    tip: str
    code: str
    note: str = ""  #: why a local branch did not follow


class LanesChosen(Struct, frozen=True, kw_only=True):
    """These phases are worked side by side from here on; none when nothing can begin beside those at work."""

    tip: str  #: where the plan was read
    lanes: tuple[tuple[str, str, tuple[str, ...]], ...]  #: name of the lane, phase, what it touches


class LaneFact(Struct, frozen=True, kw_only=True):
    """A fact of one lane; everything else is a fact of the run."""

    lane: str
    event: Event


class AgentLimited(Struct, frozen=True, kw_only=True):
    """An agent's quota is used up; nobody starts it before then, in whatever run."""

    agent: str
    until: str  #: UTC ISO-8601, margin and jitter included
    words: str


class Paused(Struct, frozen=True, kw_only=True):
    """It cannot go on now; the run waits until then, and no attempt is charged."""

    kind: str  #: limit, overloaded; in the daemon also checkout, unreachable
    until: str  #: UTC ISO-8601
    agent: str = ""
    words: str = ""


class Woke(Struct, frozen=True, kw_only=True):
    """The time that was waited for has come."""

    kind: str


class HandoverArmed(Struct, frozen=True, kw_only=True):
    """An agent's context is filling: while it goes on, a note is kept for whoever may have to take over."""

    id: str  #: its dispatch
    percent: int  #: how full
    note: str
    estimated: bool = False  #: nobody told; it is a guess


class HandedOver(Struct, frozen=True, kw_only=True):
    """An agent had no room left; what it made is on the branch, and a fresh one goes on with a note."""

    number: int  #: from 1, per phase
    head: str
    tree: str
    note: str
    why: str


class Queued(Struct, frozen=True, kw_only=True):
    """As many runs are at work as may be; this one has its turn when one of them ends or waits."""


class Admitted(Struct, frozen=True, kw_only=True):
    """It is this run's turn."""


class Halted(Struct, frozen=True, kw_only=True):
    """Nothing new is begun until a person lets it go on."""

    by: str
    missing: tuple[str, ...] = ()  #: names of the variables that a restart has lost


class Continued(Struct, frozen=True, kw_only=True):
    """A person lets it go on."""


Rows: TypeAlias = tuple[tuple[str, str], ...]  #: (id, text) pairs


class RunStarted(Struct, frozen=True, kw_only=True):
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
    command: int = 0  #: the number of the command that asked for it; 0 for none


class ClaimTaken(Struct, frozen=True, kw_only=True):
    """This process owns the plan now."""

    owner: str
    fence: int
    took_over: str = ""  #: the dead owner, if there was one


class RunResumed(Struct, frozen=True, kw_only=True):
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


class PlanRead(Struct, frozen=True, kw_only=True):
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


class Leased(Struct, frozen=True, kw_only=True):
    """A worktree stands on the phase's branch."""

    phase: str
    branch: str  #: full ref name
    base: str  #: the target tip it began at
    base_tree: str
    worktree: str  #: its name under the worktree root
    attempt: int  #: from 1, over all runs of the plan
    fresh: bool  #: newly made or swept clean, so that setup has to run
    parked: str = ""  #: where the work of an earlier attempt was kept aside


class BaselineKnown(Struct, frozen=True, kw_only=True):
    """The checks on the base: run now, or known for this very code from before."""

    key: str
    tree: str  #: the tree they ran on
    results: str  #: JSON of the results


class DispatchStarted(Struct, frozen=True, kw_only=True):
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


class DispatchEnded(Struct, frozen=True, kw_only=True):
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


class GuardFound(Struct, frozen=True, kw_only=True):
    """Things of the main repository changed while an agent ran."""

    violated: bool  #: at least one is laid at the agent's door
    lines: tuple[str, ...]


class WorkTaken(Struct, frozen=True, kw_only=True):
    """What the agent left is committed on its branch."""

    head: str
    tree: str
    commits: int
    files: tuple[str, ...] = ()


class WorkRefused(Struct, frozen=True, kw_only=True):
    """The attempt cannot go on: what the agent left, or what the verifier said or did, does not stand."""

    reason: str
    detail: str


class CandidateBuilt(Struct, frozen=True, kw_only=True):
    """The phase's commits stand on the target's tip, in memory."""

    onto: str
    onto_tree: str
    commits: tuple[str, ...]
    tree: str
    patch: str
    undoes: str = ""  #: the landing that is taken back
    undone: tuple[str, ...] = ()  #: its code commits, newest first


class CandidateConflicted(Struct, frozen=True, kw_only=True):
    """The commits do not apply on the target's tip."""

    onto: str
    paths: tuple[str, ...]


class CandidateEmpty(Struct, frozen=True, kw_only=True):
    """The target already holds everything the phase did."""

    onto: str


class BranchRebuilt(Struct, frozen=True, kw_only=True):
    """The branch begins anew on the target's tip: empty after a conflict, else with the work replayed there."""

    base: str
    base_tree: str
    parked: str  #: where the branch as it was is kept
    conflict: bool
    errand: str  #: what the fixer is told
    tree: str  #: the tree that failed; "" after a conflict


class GateJudged(Struct, frozen=True, kw_only=True):
    """The checks on a tree: passed, failed, unfinished or skipped, and why."""

    tree: str
    answer: str  #: passed, failed, unfinished, skipped, baseline-red
    code: int | None
    line: str  #: one line for people
    time: int  #: 1, or 2 when it was tried again
    output: str = ""  #: the end of what it printed, for the fixer


class VerdictGiven(Struct, frozen=True, kw_only=True):
    """The verifier's answer, bound to a tree."""

    tree: str
    patch: str
    passed: bool
    items: tuple[tuple[str, bool, str], ...]  #: id, passed, evidence
    agent: str
    pristine: bool = False  #: the verifier left nothing behind, not even ignored files
    why: str = ""  #: why it did not pass, in one line


class PhaseFailed(Struct, frozen=True, kw_only=True):
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


class CleanedUp(Struct, frozen=True, kw_only=True):
    """Candidate and branch are gone; work that did not land is on a branch of the user's."""

    phase: str


class StopRequested(Struct, frozen=True, kw_only=True):
    """The run is to end as soon as nothing is half done."""

    by: str


class RunEnded(Struct, frozen=True, kw_only=True):
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
