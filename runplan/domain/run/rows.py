"""Rows of the store other than events, the kinds of waits, and the results of claims. Cheap to import."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

from msgspec import Struct

from runplan.domain.run.kinds import UNFINISHED, Mode, PhaseStep, RunOutcome, RunStatus, WaitKind
from runplan.domain.text import counted


class Work(Struct, frozen=True, kw_only=True):
    phase: str | None = None
    step: PhaseStep | None = None
    since: str = ""  #: start of the step, of the wait, or the end of the run
    began: str | None = None  #: when the step started; other processes may have continued it since
    waiting_for: WaitKind | None = None
    about: str | None = None  #: the cause of the wait
    subplan: str | None = None  #: the plan that does the phase, while its run has not ended
    wake: str | None = None  #: when the wait ends
    dispatch: str | None = None  #: the running process
    agent: str | None = None  #: its agent; None for a command of the project
    version: str | None = None  #: of the agent's program
    dispatched: str | None = None
    output: str | None = None  #: its last output, added by `status`
    context: int | None = None  #: per cent of its agent's context that are full, likewise; None if unknown
    tools: int | None = None  #: calls of tools by its agent, likewise
    gates: tuple[str, ...] = ()  #: names of the checks that it runs
    retries: int = 0  #: fix cycles, hand-overs and repeated dispatches of the phase
    tokens: int = 0  #: sent and received, by agents that have ended
    usd: float = 0.0
    unpriced: bool = False  #: an agent reported tokens but no cost
    estimated: bool = False  #: tokens of an agent are an estimate
    kept: str | None = None  #: which host of a fleet alone has the newest work, and why
    failed: str | None = None  #: why a lane ended without a landing

    @property
    def fill(self) -> tuple[str, ...]:
        full = (f"context {self.context} % full",) if self.agent and self.context else ()
        return (*full, counted(self.tools, "tool call")) if self.agent and self.tools else full


class RunRow(Work, frozen=True, kw_only=True):
    """A run as `status` shows it; of several lanes, the work of the first open one and the usage of all."""

    id: str
    plan: str
    started: str
    state: RunStatus
    landing: str
    target: str = ""  #: branch name
    remote: str = ""  #: of the target
    title: str = ""  #: of the plan
    slug: str = ""  #: of the plan
    concludes: bool = False  #: it lands by a pull request
    mode: Mode = Mode.NEXT
    daemon: bool = False  #: the daemon works on it
    attempt: int = 1
    outcome: RunOutcome | None = None
    reason: str | None = None
    asked: str | None = None  #: stop or pause, requested by a person
    lanes: tuple[Work, ...] = ()  #: open and failed lanes
    questions: tuple[str, ...] = ()  #: ids of the open ones
    near: tuple[str, ...] = ()  #: limits that are nearly used up
    pulls: tuple[str, ...] = ()  #: number and address of each open pull request

    @property
    def is_active(self) -> bool:
        return self.state in UNFINISHED

    @property
    def needs_person(self) -> bool:
        is_for_time = self.wake and self.waiting_for != WaitKind.CHECKOUT
        return self.state == RunStatus.WAITING and not is_for_time and not self.subplan


class Wait(Struct, frozen=True):
    verbs: tuple[str, ...] = ("retry",)  #: the most useful first
    is_for_person: bool = True
    is_notified: bool = False  #: a person is told when it begins
    is_asked: bool = False  #: a person asked for it, so it needs no attention
    until: str = "until"  #: the words before the time of its end


_ANSWERED = Wait(("diff", "approve", "reject"), is_notified=True)
_FOR_TIME = Wait(is_for_person=False)
_FOR_FORGE = Wait(is_for_person=False, until="looks again")
#: The waits that differ from a wait for a time.
WAITS = {
    WaitKind.APPROVAL: _ANSWERED,
    WaitKind.SIGN_OFF: _ANSWERED,
    WaitKind.QUESTION: Wait(("answer",), is_notified=True),
    WaitKind.CHECKOUT: Wait(("explain", "retry"), is_notified=True, until="tries again"),
    WaitKind.CHECKS: _FOR_FORGE,
    WaitKind.MERGE: _FOR_FORGE,
    WaitKind.REVIEW: Wait(("explain", "retry"), is_notified=True, until="looks again"),
    WaitKind.ISSUE: Wait(is_notified=True, until="looks again"),
    WaitKind.HOST: Wait(("explain", "retry"), is_notified=True, until="looks again"),
    WaitKind.PAUSED: Wait(("resume",), is_asked=True),
    WaitKind.KEY: Wait(("resume",)),
    WaitKind.CRASHED: Wait(is_notified=True),
    WaitKind.SUBPLAN: Wait(("explain", "retry"), is_for_person=False),
    WaitKind.PHASE: Wait(("explain",), is_for_person=False),
    WaitKind.LIMIT: Wait(is_for_person=False, until="resets"),
}


def wait_of(kind: WaitKind | None) -> Wait:
    return WAITS.get(kind, _FOR_TIME) if kind else _FOR_TIME


class EventRow(Struct, frozen=True, kw_only=True):
    seq: int
    run: str
    at: str
    type: str
    body: str


class ScheduleRow(Struct, frozen=True, kw_only=True):
    plan: str
    spec: str  #: the words after `every`
    zone: str
    misfire: str  #: run-once, skip
    request: str  #: JSON of the RunStarted it begins
    anchor: str  #: start of the intervals
    made: str
    last: str | None = None  #: key of the newest answered slot
    paused: str | None = None  #: why it does not fire
    next: str | None = None  #: the first slot after now, recorded when the schedule is armed


class FiringRow(Struct, frozen=True, kw_only=True):
    plan: str
    slot: str
    at: str
    answer: str  #: fired, skipped, missed
    why: str = ""


class Command(Struct, frozen=True, kw_only=True):
    plan: str
    verb: str  #: start, now, stop, pause, resume, tell
    arguments: Mapping[str, Any]
    by: str
    at: str
    seq: int = 0  #: its number in the queue; 0 for a command that is not stored


class Answer(Struct, frozen=True, kw_only=True):
    run: str = ""
    plan: str = ""  #: of the run, where the command names a watch of issues
    fresh: bool = False  #: the command started or resumed the run
    resumed: bool = False  #: the run was unfinished before the command
    declined: bool = False  #: nothing was changed
    owner: str = ""  #: the process that works on the plan instead
    why: str = ""  #: why it was declined
    lines: tuple[str, ...] = ()  #: messages, one sentence each
    warnings: tuple[str, ...] = ()
    scheduled: str = ""  #: when the schedule fires first, UTC
    instead: str = ""  #: the schedule that it replaces
    error: str = ""  #: why the command was refused
    exit: int = 0


class WaitRow(Struct, frozen=True, kw_only=True):
    kind: WaitKind
    plan: str
    about: str
    since: str
    wake: str | None = None  #: when the worker checks again
    times: int = 1  #: checks so far


class WorkProgress(Struct, frozen=True, kw_only=True):
    begun: tuple[str, ...] = ()  #: its plans so far
    paused: str = ""  #: by whom; it begins no further plan
    trouble: str = ""  #: why it cannot begin the next plan


class FailureRow(Struct, frozen=True):
    phase: str
    reason: str
    detail: str
    output: str = ""  #: the last lines of the command that failed


class PlanFacts(Struct, frozen=True, kw_only=True):
    run: RunRow | None = None  #: the newest
    owner: str = ""  #: of its claim
    alive: bool = False  #: the owner runs; added by `status`, as are the next two fields
    stopped: bool = False  #: the owner is suspended, as by Ctrl-Z
    in_fleet: bool = False  #: so a run that nobody owns is continued by any host
    schedule: ScheduleRow | None = None
    queued: str = ""  #: the verb of the newest command that is not executed yet
    refused: tuple[str, str, str] = ("", "", "")  #: time, verb and error of a refused newest start, `now` or `resume`
    wait: WaitRow | None = None  #: of the daemon, for this plan
    failures: tuple[FailureRow, ...] = ()  #: of phases that have not landed since
    outline: tuple[str, str] = ("", "")  #: JSON of the parsed plan, after the version and blob it is valid for


class DispatchTotal(Struct, frozen=True):
    role: str
    agent: str  #: "" for a command of the project
    ending: str
    count: int
    seconds: float
    usd: float
    input_tokens: float
    output_tokens: float
    cached_tokens: float


class UsageTotal(Struct, frozen=True):
    day: str  #: of UTC
    plan: str
    agent: str
    role: str
    count: int
    tokens: int  #: sent and received
    usd: float
    unpriced: bool  #: an agent reported tokens but no cost
    estimated: bool  #: the tokens of an agent are an estimate


class Figures(Struct, frozen=True, kw_only=True):
    runs: Mapping[tuple[str, ...], float]  #: by state
    takeovers: Mapping[tuple[str, ...], float]
    landed: Mapping[tuple[str, ...], float]  #: phases, without undone ones and completed plans
    failed: Mapping[tuple[str, ...], float]  #: attempts, by reason
    waiting_s: Mapping[tuple[str, ...], float]  #: the longest wait, by its kind
    schedules: Mapping[tuple[str, ...], float]  #: active or paused
    slots: Mapping[tuple[str, ...], float]  #: of schedules, by answer
    dispatches: tuple[DispatchTotal, ...]


class OwnerState(Enum):
    GONE = "gone"
    RUNNING = "running"
    SUSPENDED = "suspended"  #: as by Ctrl-Z


class ClaimRow(Struct, frozen=True, kw_only=True):
    run: str
    owner: str
    fence: int


class Acquired(Struct, frozen=True, kw_only=True):
    fence: int
    took_over: str = ""


class Reentered(Struct, frozen=True, kw_only=True):
    fence: int


class HeldByOther(Struct, frozen=True, kw_only=True):
    owner: str


ClaimResult: TypeAlias = Acquired | Reentered | HeldByOther
