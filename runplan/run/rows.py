"""Rows of the store other than events, and the results of claims. Cheap to import."""

from __future__ import annotations

import json
from typing import TypeAlias

from msgspec import Struct, convert
from msgspec.structs import replace

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

UNFINISHED = ("queued", "running", "waiting")  #: the states of a run that has not ended


class RunRow(Struct, frozen=True, kw_only=True):
    """A run as `status` shows it."""

    id: str
    plan: str
    started: str
    state: str  #: queued, running, waiting, done, failed, stopped
    phase: str | None
    step: str | None
    since: str
    attempt: int
    outcome: str | None
    reason: str | None
    waiting_for: str | None
    landing: str
    about: str | None = None  #: the cause of the wait
    wake: str | None = None  #: when the wait ends
    progress: str = ""  #: JSON of its Work

    @property
    def work(self) -> Work:
        return convert(json.loads(self.progress), Work) if self.progress else Work()


class Work(Struct, frozen=True, kw_only=True):
    """The current work of a run or lane, and its usage."""

    dispatch: str | None = None  #: the running process
    agent: str | None = None  #: its agent; None for a command of the project
    version: str | None = None  #: of the agent's program
    dispatched: str | None = None
    gates: tuple[str, ...] = ()  #: names of the checks that it runs
    phase: str | None = None
    step: str | None = None
    began: str | None = None  #: when the step started; other processes may have continued it since
    retries: int = 0  #: fix cycles, hand-overs and repeated dispatches of the phase
    tokens: int = 0  #: sent and received, by agents that have ended
    usd: float = 0.0
    unpriced: bool = False  #: an agent reported tokens but no cost
    asked: str | None = None  #: stop or pause, requested by a person
    waiting_for: str | None = None  #: of a lane, as are the fields below
    about: str | None = None
    wake: str | None = None
    failed: str | None = None  #: why the lane ended without a landing
    lanes: tuple[Work, ...] = ()  #: open and failed lanes

    def at_rest(self) -> Work:
        """The same without a running process."""
        return replace(self, dispatch=None, agent=None, version=None, dispatched=None, gates=())


class EventRow(Struct, frozen=True, kw_only=True):
    """One line of the journal."""

    seq: int
    run: str
    at: str
    type: str
    body: str


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """The schedule of a plan, with its resolved options."""

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
    """The answer to one slot of a schedule."""

    plan: str
    slot: str
    at: str
    answer: str  #: fired, skipped, missed
    why: str = ""


class Command(Struct, frozen=True, kw_only=True):
    """A request of a person, executed by the worker of the repository."""

    plan: str
    verb: str  #: start, now, stop, pause, resume
    arguments: Mapping[str, Any]
    by: str
    at: str
    seq: int = 0  #: its number in the queue; 0 for a command that is not stored


class WaitRow(Struct, frozen=True, kw_only=True):
    """What the worker of a repository waits for, as opposed to the wait of a run."""

    kind: str  #: claim: another process works on the run
    plan: str
    about: str
    since: str
    wake: str | None = None  #: when the worker checks again
    times: int = 1  #: checks so far


class Acquired(Struct, frozen=True, kw_only=True):
    """This process owns it now; `took_over` names the dead owner, if there was one."""

    fence: int
    took_over: str = ""


class Reentered(Struct, frozen=True, kw_only=True):
    """This process owned it already."""

    fence: int


class HeldByOther(Struct, frozen=True, kw_only=True):
    """Another process owns it."""

    owner: str


ClaimResult: TypeAlias = Acquired | Reentered | HeldByOther
