"""The facts of a run, one value each."""

from msgspec import Struct

from runplan.domain.plan.marks import NoWorkKind, PhaseSettings
from runplan.domain.run import kinds
from runplan.domain.run.dispatch import Ending, Evidence, NewTestsAnswer, Remarks
from runplan.domain.settings.schema import TESTS as TESTS, Settings
from runplan.domain.standing.usage import AgentUsage

Rows = tuple[tuple[str, str], ...]  #: (id, text) pairs


class Event(Struct, frozen=True, kw_only=True):
    """A fact. The class name is its `type` in the journal."""

    lane: str = ""  #: the one of several phases side by side that it belongs to; "" for the run


class Planning(Struct, frozen=True, kw_only=True):
    goal: str
    is_quoted: bool = False  #: it is the text of a file or an issue, and not the words of the person who asks
    is_revision: bool = False  #: of the plan on the target
    revises: str = ""  #: the phase that is to be revised; "" for the plan
    quick: bool = False
    steps: tuple[kinds.Role, ...] = ()  #: that are taken beside the draft; () for all
    rounds: int = 2  #: of critique and revision
    asks: bool = False  #: the steps before the draft may ask questions
    sources: Rows = ()  #: (name, text) of further files, such as a roadmap
    explorers: int = 1  #: that explore at the same time, each with a question of its own
    approval: str = "required"  #: required, none
    then: str = ""  #: JSON of the request that starts the approved plan; "" for none


class ReviewItem(Struct, frozen=True, array_like=True):
    """A comment of a review: a work item, or without an id a part of the conversation that asks for nothing."""

    thread: str  #: the reference by which it is answered
    words: str
    author: str = ""
    path: str = ""
    line: int = 0
    id: str = ""  #: R1…
    group: str = ""  #: of a stack, whose pull request has the comment

    @property
    def heading(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{self.author} on {place}" if place else self.author


class RunStarted(Event, frozen=True, kw_only=True):
    mode: kinds.Mode
    wanted: str  #: phase id for the modes phase and undo, else ""
    auto: bool
    daemon: bool = False  #: in the daemon, which resumes it after a restart
    needs: tuple[str, ...] = ()  #: names of the variables that the caller gave its agents
    review: tuple[ReviewItem, ...] = ()  #: comments that a person wants handled
    anew: bool = False  #: without the kept work of failed attempts
    plan: str  #: repository-relative path
    title: str
    landing: str
    target: str  #: branch name
    slug: str
    remote: str = ""  #: of the target, for landings that push
    concludes: bool = False  #: when every phase has landed, the lander has something left to do: a pull request
    issues: tuple[int, ...] = ()  #: the issues of the plan, which the run claims
    settings: Settings | None = None  #: of the project; None in a schedule, whose runs read them when they start
    given: Rows = ()  #: the settings that the caller gave as variables
    settled: str = ""  #: in a fleet, the commit of the target whose settings the run keeps
    remarks: tuple[str, ...] = ()  #: on the target, for the report
    command: int = 0  #: number of the command that asked for the run; 0 for none
    watch: str = ""  #: the watch of issues that began it
    parent: str = ""  #: the run that has a phase done by this one
    parents: tuple[str, ...] = ()  #: the plans of that run and of those above it, the first one first
    planning: Planning | None = None  #: of the mode plan
    memory: bool = True  #: its agents are told what earlier runs have taught, if plan.memory is set
    model: str = ""  #: of the implementer, or the planner, in this run; "" for that of the settings
    effort: str = ""  #: likewise

    @property
    def kept(self) -> Settings:  # whatever is committed later
        return self.settings or Settings()


class ClaimTaken(Event, frozen=True, kw_only=True):
    owner: str
    took_over: str = ""  #: the dead owner
    labels: tuple[str, ...] | None = None  #: of the host; None without a fleet
    is_new_host: bool = False  #: its name is an old one, and the files of the attempt are gone


class IssueShared(Event, frozen=True, kw_only=True):
    """An unfinished run of another plan claims the same issue; both runs continue."""

    number: int
    run: str
    plan: str = ""  #: of the other run, where the journal knows it

    @property
    def words(self) -> str:
        of = f" of {self.plan}" if self.plan else ""
        return f"issue #{self.number} is claimed by the run {self.run}{of}; both runs continue"


class IssueRead(Event, frozen=True, kw_only=True):
    """An issue of the plan, as it was before the work, or before the merge if it had changed by then."""

    number: int
    title: str = ""  #: its digest; "" where the issue could not be read
    text: str = ""  #: likewise
    closed: str = ""  #: in words, why it is not wanted any more; "" for an open or completed one
    is_changed: bool = False  #: the merge waits until a person resumes the run


class IssuesMarked(Event, frozen=True, kw_only=True):
    notes: tuple[str, ...] = ()
    until: str = ""  #: the end of a rate limit of the forge, after which they are shown again


class RunResumed(Event, frozen=True, kw_only=True):
    """A person resumed the run: every wait ends, and these options of the request hold from now on."""

    mode: kinds.Mode
    wanted: str
    auto: bool
    daemon: bool = False
    needs: tuple[str, ...] = ()
    review: tuple[ReviewItem, ...] = ()
    memory: bool = True
    model: str = ""
    effort: str = ""


class Chosen(Event, frozen=True, kw_only=True):
    """The plan was read from the target's tip, and this work is due. Each kind of work has a class of its own."""

    tip: str
    phase: str = ""
    title: str = ""
    text: str = ""  #: the phase, verbatim
    items: Rows = ()
    touches: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    sign_off: tuple[str, ...] = ()  #: criteria that a person must check before it lands
    remarks: tuple[str, ...] = ()  #: on the text, for the report
    base: str = ""  #: the commit of another phase that it begins on, before that phase has landed; "" for the tip
    host: tuple[str, ...] = ()  #: labels of the host of a fleet that works on it
    own: PhaseSettings = PhaseSettings()
    ends: bool = False  #: every other phase of the plan is done
    group: str = ""  #: of a stack, to whose branch it lands; "" for the plan's own branch


class PhaseChosen(Chosen, frozen=True, kw_only=True):
    drift: str = ""  #: why the text has to be revised before any work
    direct: bool = False  #: it lands by a push, however the run lands


class SubplanChosen(Chosen, frozen=True, kw_only=True):
    subplan: str  #: its path


class DelegateChosen(Chosen, frozen=True, kw_only=True):
    command: str


class UndoChosen(Chosen, frozen=True, kw_only=True):
    """A phase that has landed is to be reverted."""


class RepairChosen(Chosen, frozen=True, kw_only=True):
    review: tuple[str, ...] = ()  #: references of the comments that it handles
    comments: tuple[ReviewItem, ...] = ()  #: the same comments; those with an id are its items


class MergeChosen(Chosen, frozen=True, kw_only=True):
    merge: str  #: the commit of the target, or of the branch below in a stack
    since: str = ""  #: in a stack, the commit to count as the merge base; it is on the target in other commits


class CompletionChosen(Chosen, frozen=True, kw_only=True):
    """Every phase is done; the plan is to be marked as complete."""


class NoWork(Event, frozen=True, kw_only=True):
    tip: str
    kind: NoWorkKind
    detail: str = ""
    title: str = ""


class LanesChosen(Event, frozen=True, kw_only=True):
    """These phases run side by side from now on; none when no further phase can start."""

    tip: str  #: where the plan was read
    lanes: tuple[tuple[str, str, tuple[str, ...]], ...]  #: name of the lane, phase, its touched paths
    ahead: tuple[tuple[str, str, str], ...] = ()  #: of these lanes: name, the phase to land first, its commit


class Queued(Event, frozen=True, kw_only=True):
    """The limit of concurrent runs is reached; this one waits for its turn."""


class Admitted(Event, frozen=True, kw_only=True):
    """It is this run's turn."""


class AgentLimited(Event, frozen=True, kw_only=True):
    """The quota of an agent's account is used up; no run starts an agent of that account before `until`."""

    agent: str
    account: str  #: of the agent; others with the same one wait as well
    until: str  #: UTC ISO-8601, margin and jitter included
    words: str


class Paused(Event, frozen=True, kw_only=True):
    kind: kinds.WaitKind
    until: str  #: UTC ISO-8601; "" for one that only a person or another host ends
    agent: str = ""
    words: str = ""


class Woke(Event, frozen=True, kw_only=True):
    kind: kinds.WaitKind  #: of the pause that is over


class Halted(Event, frozen=True, kw_only=True):
    """A person paused the run, or a restart lost variables: nothing new starts."""

    by: str
    missing: tuple[str, ...] = ()  #: names of the lost variables


class Continued(Event, frozen=True, kw_only=True):
    """A person ended the pause."""


class Told(Event, frozen=True, kw_only=True):
    """Words of a person for the agents of this run; those that begin from now on read them first."""

    text: str
    by: str
    command: int = 0  #: its number; a command that is executed again after a crash adds nothing


class StopRequested(Event, frozen=True, kw_only=True):
    by: str


class RunEnded(Event, frozen=True, kw_only=True):
    outcome: kinds.RunOutcome
    reason: str = ""
    detail: str = ""
    parked: str = ""  #: the ref that keeps work of the worktree that is on no branch
    remedy: str = ""  #: after a loss of infrastructure, instead of the advice for the reason


class SubplanEnded(Event, frozen=True, kw_only=True):
    complete: bool
    run: str = ""  #: of that plan; "" when it was complete before, or never began
    detail: str = ""  #: why it is not complete


class KeptWork(Struct, frozen=True, kw_only=True):
    """Work of a failed attempt, with commits that a person added, on which the next attempt begins."""

    ref: str  #: that has it in the user's repository
    head: str
    tree: str
    beginning: kinds.Beginning
    base: str  #: the commit below the work
    complaint: str = ""  #: why the attempt failed
    failed: Rows = ()  #: items that its verifier failed, with the evidence
    red: Rows = ()  #: checks that failed, with the end of their output
    authors: tuple[str, ...] = ()  #: the agents that wrote it


class Leased(Event, frozen=True, kw_only=True):
    phase: str
    branch: str  #: full ref name
    base: str  #: the target tip it starts at; with kept work the commit that it was based on
    base_tree: str  #: of the baseline
    worktree: str  #: its name under the worktree root
    attempt: int  #: from 1, over all runs of the plan
    parked: str = ""  #: the ref that keeps the work of an earlier attempt
    kept: KeptWork | None = None


class BaselineKnown(Event, frozen=True, kw_only=True):
    key: str
    tree: str  #: the tree it ran on
    results: str  #: JSON of the results
    name: str = TESTS
    ran: Evidence | None = None  #: None: known from an earlier run of the same check
    note: str = ""  #: failures before any work, in words


class DispatchStarted(Event, frozen=True, kw_only=True):
    """Recorded before a process starts. Its lock proves that it is alive."""

    id: str = ""
    role: kinds.Role
    agent: str = ""
    cycle: int
    version: str = ""  #: of the agent's program
    model: str = ""  #: that the plan or the person who started the run wants; "" for that of the settings
    effort: str = ""  #: likewise
    tree: str = ""  #: the tree that a gate or verifier judges, or that failed before a fix
    complaint: str = ""  #: what a fixer has to fix
    again: str = ""  #: how the process before it ended, when the same work is tried again
    why: str = ""  #: why run.setup runs, or a gate for the third time
    tokens: int = 0  #: limit; 0 for none
    usd: float = 0.0  #: limit in dollars; 0 for none
    seconds: float = 0.0  #: limit of an agent or a command; 0 for none
    bounds: tuple[str, ...] = ()  #: the settings that set these limits
    near: tuple[str, ...] = ()  #: limits that are nearly used up, each with its figures and its setting
    phase: str = ""  #: of an agent's
    at: str = ""  #: UTC ISO-8601
    gates: tuple[str, ...] = ()  #: names of the checks that it runs
    argv: tuple[str, ...] = ()  #: of a command of the project
    environment: str = ""  #: digest of the variables of such a command
    scope: str = ""  #: of a verifier: "final" for all phases, "" for one; of a proof: its kind
    agents: bool = False  #: run.setup runs in both worktrees at the same time, also in that of the agents
    beside: tuple[str, ...] = ()  #: the ids of further processes of the role, which run at the same time


class DispatchEnded(Event, frozen=True, kw_only=True):
    id: str
    role: kinds.Role
    ending: Ending
    code: int | None
    signal: int | None = None
    said: str = ""  #: status in the agent's return: done, partial, blocked, failed, none
    detail: str = ""  #: blockers, or the last words of a failed agent
    agent: str = ""
    phase: str = ""
    kind: str = ""  #: an EndingKind
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0  #: from its start to its end
    estimated: bool = False  #: its tokens, or the tokens at which it was stopped, are an estimate
    refused: tuple[str, ...] = ()  #: hosts that it asked for and may not reach

    @property
    def succeeded(self) -> bool:
        return self.ending is Ending.EXITED and self.code == 0

    @property
    def usage(self) -> AgentUsage:
        tokens = self.input_tokens + self.output_tokens
        return AgentUsage(tokens=tokens, usd=self.usd, unpriced=bool(tokens and not self.usd), estimated=self.estimated)


class HandedOver(Event, frozen=True, kw_only=True):
    """An agent's context was full. Its work is on the branch; a fresh agent continues with the note."""

    number: int  #: from 1, per phase
    tree: str
    note: str
    why: str


class QuestionAsked(Event, frozen=True, kw_only=True):
    id: str
    text: str
    phase: str = ""


class QuestionAnswered(Event, frozen=True, kw_only=True):
    id: str
    text: str


class GuardFound(Event, frozen=True, kw_only=True):
    violated: bool  #: at least one change is the agent's
    lines: tuple[str, ...]


class WorkTaken(Event, frozen=True, kw_only=True):
    head: str
    tree: str
    commits: int
    files: tuple[str, ...] = ()
    squash: bool = False  #: its single commits may not land; their net change does
    lines: tuple[str, ...] = ()  #: why, for the report
    remarks: Remarks = Remarks()  #: of the agent that wrote it
    summary: str = ""  #: of its return


class RulesBroken(Event, frozen=True, kw_only=True):
    tree: str
    reason: kinds.Reason  #: of the failure if it happens again
    lines: tuple[str, ...]  #: the findings
    remedy: str = ""  #: how a person permits them


class WorkRefused(Event, frozen=True, kw_only=True):
    reason: kinds.Reason
    detail: str
    other_run: str = ""  #: that landed the phase from another repository; this run stands back


class ProofRun(Struct, frozen=True, kw_only=True):
    kind: kinds.ProofKind
    commit: str  #: with the tree that both sides make
    tree: str
    files: tuple[str, ...] = ()  #: the test files to run; () when the whole suite has to run


class CandidateBuilt(Event, frozen=True, kw_only=True):
    onto: str
    onto_tree: str
    commits: tuple[str, ...]
    tree: str
    patch: str
    change: str = ""  #: a hash of the change that is the same on any base
    undoes: str = ""  #: the landing that is reverted
    undone: tuple[str, ...] = ()  #: its code commits, newest first
    proofs: tuple[ProofRun, ...] = ()  #: due after the gates, because tests differ from those before the plan
    versions: Rows = ()  #: test files that earlier phases changed, each with the commit before that
    rejected: str = ""  #: that a person rejected this very change before, when and with which words; "" if not


class CandidateConflicted(Event, frozen=True, kw_only=True):
    onto: str
    paths: tuple[str, ...]


class BranchRebuilt(Event, frozen=True, kw_only=True):
    """The branch starts again at the target's tip: empty after a conflict, else with the work replayed there."""

    base: str
    base_tree: str
    parked: str  #: the ref that keeps the old branch
    complaint: str  #: what the fixer has to fix
    tree: str = ""  #: the tree that failed; "" after a conflict
    start: str = ""  #: the newest commit of the branch


class GateJudged(Event, frozen=True, kw_only=True):
    tree: str
    answer: kinds.GateAnswer
    code: int | None
    line: str  #: one line for people
    time: int  #: 1, 2 for the second run, 3 for all tests after a fresh set-up
    output: str = ""  #: the end of its output, for the fixer
    name: str = TESTS
    failures: tuple[str, ...] = ()  #: names of the tests that decide
    rerun: str = ""  #: the command that runs only the failed tests again
    differences: tuple[tuple[str, int, tuple[str, ...]], ...] = ()  #: to the base: kind, count and first names
    ran: Evidence | None = None  #: None: skipped, or known from an earlier run of the same check


class Promise(Struct, frozen=True, kw_only=True):
    test: str  #: file and function; the file where it cannot be loaded, words where results have no names
    why: str  #: one line


class ProofJudged(Event, frozen=True, kw_only=True):
    tree: str  #: of the candidate
    kind: kinds.ProofKind
    line: str  #: one line for people
    time: int = 1  #: 2 for the second run
    promises: tuple[Promise, ...] = ()  #: tests of the base that do not pass
    answer: NewTestsAnswer | None = None  #: None for the other kinds of runs
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    ran: Evidence | None = None  #: None: known from an earlier run on the same tree


class VerdictGiven(Event, frozen=True, kw_only=True):
    tree: str
    patch: str
    passed: bool
    items: tuple[tuple[str, bool, str], ...]  #: id, passed, evidence
    agent: str
    scope: str = ""  #: "final" for all phases of the plan, "" for one
    work_items: int = 0  #: of all phases, in the final verification
    questions: Rows = ()  #: about tests of the base, which it answers
    absent: Rows = ()  #: items that pass without a file that they name
    why: str = ""  #: why it did not pass, in one line


class VerdictDoubted(Event, frozen=True, kw_only=True):
    patch: str
    why: str
    items: Rows = ()  #: with what is missing
    who: str = "verifier"


class DriftFound(Event, frozen=True, kw_only=True):
    abort: str = ""  #: why the phase fails
    of: str = ""  #: the phase that is worked on
    corrections: tuple[tuple[str, int, str, int], ...] = ()  #: phase, criterion, stated text, measured number
    lines: tuple[str, ...] = ()  #: for the report


class PhaseFailed(Event, frozen=True, kw_only=True):
    phase: str
    reason: kinds.Reason
    step: kinds.PhaseStep
    detail: str
    title: str = ""
    attempt: int = 1
    branch: str = ""  #: short name of the branch that keeps the work; "" for none
    parked: str = ""  #: the ref that keeps the work as it was before a conflict
    evidence: str = ""  #: many lines: the fix cycles, failed items
    output: str = ""  #: the last lines that a failed command printed
    dispatch: str = ""  #: the last process of the phase, for its log
    rejected: str | None = None  #: a person's reason for the rejection, for the next agent; None: not rejected
    tree: str = ""  #: of the work; the same tree and the same failure twice is no progress
    head: str = ""  #: the newest commit of that branch; another one there is a person's
    base: str = ""  #: the commit below the work
    failed: Rows = ()  #: items that the verifier failed, with the evidence
    red: Rows = ()  #: checks that failed, with the end of their output
    authors: tuple[str, ...] = ()  #: the agents that wrote the work
    stays: bool = False  #: the command of the phase has landed work, which stays on the target


class CleanedUp(Event, frozen=True, kw_only=True):
    """Candidate and branch are removed; work that did not land is on a branch of the user's."""

    phase: str


class FinalVerificationDue(Event, frozen=True, kw_only=True):
    """The plan ends with this phase: before it lands, a verifier judges all phases together."""

    tree: str
    is_narrowed: bool = False  #: only the tests that the phase names have run; now all of them do


class ApprovalAsked(Event, frozen=True, kw_only=True):
    tree: str


class Answered(Event, frozen=True, kw_only=True):
    tree: str
    change: str = ""  #: that of the candidate; "" of a proposal
    approved: bool
    why: str = ""  #: why it was rejected
    comments: tuple[ReviewItem, ...] = ()  #: on lines of the change, each an item that is judged
    by: str = ""  #: who, and by which way: `Uma (terminal)`, `Uma (page)`, `Uma (mcp)`; for a link `link 1a2b3c`


class LandingStarted(Event, frozen=True, kw_only=True):
    """The intent, recorded before the ref moves: from `old` to `new`, once."""

    id: str  #: stands in the Runplan-Landing trailer of every landed commit
    ref: str  #: full ref name of the target
    old: str
    new: str
    code: str = ""  #: the last code commit
    follows: str = ""  #: old tip of the local branch that follows a landing on a remote; "" for none
    complete: bool = False  #: every phase of the plan is done with it
    since: str = ""  #: the commit from which the branch is made anew; "" where it continues from `old`
    remade: tuple[str, ...] = ()  #: the code commits of the branch that is made anew


class LandingHeld(Event, frozen=True, kw_only=True):
    why: str  #: the checkout of the target is in use; nothing was changed


class LandingMoved(Event, frozen=True, kw_only=True):
    tip: str
    ours: bool = False  #: moved by another landing of runplan, which does not count against the limit


class Landed(Event, frozen=True, kw_only=True):
    id: str
    phase: str
    tip: str
    code: str
    note: str = ""  #: why the local branch did not follow
    pull: str = ""  #: number and address of the pull request
    complete: bool = False
    review: tuple[str, ...] = ()  #: references of the review comments that were handled


class Concluded(Event, frozen=True, kw_only=True):
    """Nothing is left to do for the lander: merged, no pull request, or no further attempt for this reason."""

    reason: str = ""
    note: str = ""
    group: str = ""  #: of a stack, whose pull request alone is merged; "" for the whole
    merged: tuple[str, str] = ("", "")  #: the head of that pull request, and its commit on the target
    pull: str = ""  #: number and address of the merged pull request
