"""What the store keeps beside the events, as plain values; cheap to import, because every reading verb does."""

from __future__ import annotations

from runplan.core.quickclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """What `status` shows of a run."""

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
    about: str | None = None  #: what exactly is waited for, in words
    wake: str | None = None  #: when it is looked at again


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One line of the journal."""

    seq: int
    run: str
    at: str
    type: str
    body: str
