"""Passes events of runs to the log, to followers, to waiting callers, and to notifications."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from runplan.report.notices import of_ending, of_lost_keys, of_waiting
from runplan.run.events import DispatchEnded, DispatchStarted, Halted, LaneFact, PlanRead, name_of, to_json
from runplan.run.requests import refused
from runplan.run.state import awaiting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.daemon.logs import Log
    from runplan.daemon.notify import Notifier
    from runplan.errors import RunplanError
    from runplan.report.notices import Notice
    from runplan.run.decide import Decision
    from runplan.run.events import Fact
    from runplan.run.requests import Answer
    from runplan.run.rows import Command
    from runplan.run.state import RunState

FILE = "noticed.json"
MOST = 1000  #: bounds the entries of runs whose end no daemon saw


class Noticed:
    """The notifications that were sent, across restarts; may be called from any thread."""

    def __init__(self, state: Path) -> None:
        self._file = state / FILE
        self._lock = threading.Lock()
        self._told = _read(self._file)

    def has(self, run: str, what: str) -> bool:
        with self._lock:
            return [run, what] in self._told

    def add(self, run: str, what: str) -> None:
        """Record a notification."""
        with self._lock:
            self._told = [*self._told, [run, what]][-MOST:]
            self._write()

    def forget(self, run: str) -> None:
        """The run has ended."""
        with self._lock:
            left = [one for one in self._told if one[0] != run]
            if len(left) < len(self._told):
                self._told = left
                self._write()

    def _write(self) -> None:
        draft = self._file.with_name(f"{FILE}.new")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(self._told), encoding="ascii")
            os.replace(draft, self._file)


def _read(file: Path) -> list[list[str]]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    whole = found if isinstance(found, list) else []
    return [one for one in whole if isinstance(one, list) and len(one) == 2 and all(isinstance(x, str) for x in one)]


WARNINGS = ("trouble", "warning", "closed", "declined")


class Follower:
    """A caller who follows a run; the thread of its connection takes the events from the queue."""

    def __init__(self, root: str, plan: str, run: str) -> None:
        self._key = (root, plan)
        self._run = run  #: "" for whichever run the plan has
        #: Events, each with False; at last the outcome with True.
        self.events: queue.SimpleQueue[tuple[bool, Mapping[str, Any]]] = queue.SimpleQueue()

    def follows(self, root: str, plan: str, run: str) -> bool:
        return self._key == (root, plan) and self._run in ("", run)


class Observer:
    """Called in the threads of workers; nothing here waits."""

    def __init__(self, log: Log, notifier: Notifier, noticed: Noticed) -> None:
        self._log = log
        self.notifier = notifier
        self._noticed = noticed
        self._phases: dict[str, dict[str, str]] = {}  #: by run and lane
        self._lock = threading.Lock()
        self._followers: list[Follower] = []
        self._waiting: dict[tuple[str, int], Future[Answer]] = {}  #: by repository and command

    # --- callers --------------------------------------------------------------------------------------------

    def expect(self, root: str, command: int) -> Future[Answer]:
        """The answer to a command, as soon as there is one."""
        with self._lock:
            return self._waiting.setdefault((root, command), Future())

    def answered(self, root: str, command: Command, answer: Answer) -> None:
        result = answer.error or answer.why or " ".join(answer.lines) or answer.run or "scheduled"
        self.happened(root, "command", plan=command.plan, verb=command.verb, answer=result)
        self.resolve(root, command.seq, answer)

    def resolve(self, root: str, command: int, answer: Answer) -> None:
        """Pass the answer to the caller that waits for it."""
        with self._lock:
            future = self._waiting.pop((root, command), None)
        if future is not None:
            future.set_result(answer)

    def unanswered(self, root: str, trouble: RunplanError) -> None:
        """Answer all waiting callers of a repository that cannot be opened."""
        with self._lock:
            keys = [key for key in self._waiting if key[0] == root]
            futures = [self._waiting.pop(key) for key in keys]
        queued = refused(trouble)
        for future in futures:
            future.set_result(replace(queued, error=f"{queued.error}; the request stays queued"))

    def follow(self, follower: Follower) -> None:
        with self._lock:
            self._followers.append(follower)

    def unfollow(self, follower: Follower) -> None:
        with self._lock:
            self._followers = [one for one in self._followers if one is not follower]

    def _of(self, root: str, plan: str, run: str) -> list[Follower]:
        with self._lock:
            return [one for one in self._followers if one.follows(root, plan, run)]

    def _dismiss(self, root: str, plan: str, run: str, outcome: str) -> None:
        for one in self._of(root, plan, run):
            one.events.put((True, {"run": run, "outcome": outcome}))

    # --- runs -----------------------------------------------------------------------------------------------

    def happened(self, root: str, event: str, **fields: object) -> None:
        tell = self._log.warning if event in WARNINGS else self._log.info
        tell(event, repository=root, **fields)

    def recorded(self, root: str, plan: str, run: str, fact: Fact) -> None:
        lane, event = (fact.lane, fact.event) if isinstance(fact, LaneFact) else ("", fact)
        phases = self._phases.setdefault(run, {})
        if isinstance(event, PlanRead):
            phases[lane] = event.phase
        dispatch = event.id if isinstance(event, DispatchStarted | DispatchEnded) else ""
        facts = {"repository": root, "plan": plan, "run": run, "phase": phases.get(lane, ""), "dispatch": dispatch}
        self._log.info(name_of(event), **facts)
        if isinstance(event, Halted) and event.missing:  # recorded once, however often the daemon is started
            self.notifier.send(of_lost_keys(event.missing, repository=root, plan=plan, run=run))
        for one in self._of(root, plan, run):
            one.events.put((False, {"plan": plan, "type": name_of(fact), "body": to_json(fact)}))

    def ended(self, root: str, plan: str, run: str, state: RunState) -> None:
        outcome = state.ended.outcome if state.ended else ""
        self._phases.pop(run, None)
        self._noticed.forget(run)
        self._log.info("ended", repository=root, plan=plan, run=run, outcome=outcome)
        if (notice := of_ending(state, repository=root, plan=plan, run=run)) is not None:
            self.notifier.send(notice)
        self._dismiss(root, plan, run, outcome)

    def waits(self, root: str, plan: str, run: str, state: RunState, decision: Decision) -> None:
        self._log.info("waits", repository=root, plan=plan, run=run, why=decision.why)
        if (notice := of_waiting(state, decision, repository=root, plan=plan, run=run)) is not None:
            self._notice(notice, state)
        if decision.waiting == "checkout" or not (decision.wake or decision.waiting == "slot"):
            self._dismiss(root, plan, run, "waiting")

    def _notice(self, notice: Notice, state: RunState) -> None:
        """Notify a person once of each wait, however often a daemon finds it."""
        phase = awaiting(state)
        what = f"{notice.phase} {notice.reason} {phase.asked if phase else ''}"
        if not self._noticed.has(notice.run, what):
            self.notifier.send(notice)
            self._noticed.add(notice.run, what)
