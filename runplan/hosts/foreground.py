"""Runs in the process of a command: a whole run in the foreground, or commands without a daemon."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from types import FrameType
from typing import Any

from msgspec.structs import replace

from runplan.domain import names
from runplan.domain.errors import Fenced, RunplanError
from runplan.domain.run import events as e
from runplan.domain.run.actions import Decision
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import ON_PULL_REQUEST
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rows import Answer, Command
from runplan.domain.run.state import RunState, list_running
from runplan.domain.text import in_words
from runplan.domain.times import parse_iso
from runplan.engine.loop.repository import Environments
from runplan.engine.loop.runs import ActiveRun
from runplan.hosts.commands import Executor
from runplan.hosts.owner import RunOwner


class Interruption:
    """Ctrl-C, SIGTERM and SIGHUP: the first lets the agents finish, the second ends them."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._until = 0.0
        self._before: dict[signal.Signals, Any] = {}  #: the handlers of the caller
        self.asked = False  #: begin nothing new
        self.at_once = False  #: the first signal interrupts, since no agent runs
        self.wakeup, self._wake_w = os.pipe()  #: readable after a signal
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self._wake_w, False)

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is not threading.main_thread():  # only that one handles signals
            return self
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        if self._before[signal.SIGHUP] is signal.SIG_IGN:  # nohup
            del self._before[signal.SIGHUP]
        for number in self._before:
            signal.signal(number, self._on_signal)
        # Also for a signal that another thread receives, or that comes just before the wait.
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.wakeup)
        os.close(self._wake_w)

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.wakeup, 4096)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        was_asked = self.asked
        self.asked = True
        if was_asked or self.at_once or not self._grace_s:
            raise KeyboardInterrupt
        self._until = time.monotonic() + self._grace_s
        message = f"runplan: agents have {in_words(self._grace_s)} to finish; press Ctrl-C again to end them now\n"
        over = "\r\x1b[K" if os.isatty(2) else ""  # the live line
        with suppress(OSError):
            os.write(2, f"{over}{message}".encode())  # not through a stream, whose buffer may be in use


class ForegroundHost:
    """The process of a command, in which a person watches a run."""

    root = only = name = ""
    limit = None

    def __init__(
        self,
        interruption: Interruption,
        env: Mapping[str, str],
        *,
        show: Callable[[e.Event], None] = lambda _event: None,
        warn: Callable[[str], None] = lambda _words: None,
    ) -> None:
        self.owner = RunOwner(self, Environments(env))
        self._interruption = interruption
        self._plan = ""
        self._show = show
        self._warn = warn

    def run(self, request: RunRequest) -> Answer:
        """Work the run to its end, or to a wait that only a person can end."""
        self._plan = request.started.plan
        while True:
            begun = self.owner.begin(request)
            if begun is None or not begun.declined:
                try:
                    self.owner.work()
                except Fenced:
                    raise  # another process owns the run and its agents
                except (RunplanError, KeyboardInterrupt) as error:
                    if isinstance(error, RunplanError) and not self._interruption.asked:
                        raise
                    with suppress(RunplanError):  # the next start sees that they have ended
                        self.owner.end_agents()
                    raise KeyboardInterrupt from error  # Ctrl-C reaches git too, which ends at once
            if begun is not None:  # else another run had to end first
                return begun

    def execute(self, commands: list[Command]) -> list[Answer | None]:
        """Execute the commands and those queued before; None for one that stays queued. Only stopped runs work on."""
        answers = {command.seq: answer for command, answer in Executor(self.owner).execute_queued(begins=False)}
        for plan in [plan for plan, active in self.owner.runs.items() if not active.state.stop]:
            self.owner.disown(plan)  # the next process continues it
        self.owner.work()
        # Another process may have executed it first.
        store = self.owner.repository.store
        return [answers.get(command.seq) or store.get_answer(command.seq) for command in commands]

    def is_mine(self, _plan: str) -> bool:
        return True

    def may_begin(self) -> bool:
        return not self._interruption.asked

    def execute_commands(self) -> None:
        """Only `execute` does so."""

    def wait(self, dispatches: list[str], wake: datetime | None) -> bool:
        runs = self.owner.runs.values()
        if not runs:
            return False
        decisions = [decide(active.state) for active in runs]
        is_running = any(list_running(active.state) for active in runs)
        clock = self.owner.repository.clock
        stop = self._interruption
        stop.at_once = all(decision.waiting for decision in decisions)
        if stop.asked and not (is_running and stop.left_s and not stop.at_once):
            raise KeyboardInterrupt
        if stop.at_once:
            wakes = [decision.wake for decision in decisions if decision.waiting not in ON_PULL_REQUEST]
            if not any(wakes):  # a person is needed
                return False
            clock.sleep_until(parse_iso(min(filter(None, wakes))))
        else:
            if stop.asked:
                over = clock.now() + timedelta(seconds=stop.left_s)
                wake = min(wake, over) if wake else over
            left_s = max(0.0, (wake - clock.now()).total_seconds()) if wake else None
            self.owner.repository.dispatches.wait(dispatches, timeout_s=left_s)
            stop.clear()
        stop.at_once = False
        return True

    def tell(self, plan: str, _run: str, event: e.Event, _phase: str) -> None:
        if isinstance(event, e.IssueShared):
            self._warn(event.words)
        name = event.lane if plan == self._plan else "/".join(filter(None, (names.slug(plan), event.lane)))
        self._show(replace(event, lane=name))

    def tell_wait(self, _plan: str, _run: str, _state: RunState, _decision: Decision) -> None: ...
    def tell_trouble(self, _plan: str, _error: RunplanError) -> None: ...
    def tell_end(self, _plan: str, _run: str, _state: RunState) -> None: ...
    def leave(self, _active: ActiveRun) -> None: ...
    def lose(self, _active: ActiveRun) -> None: ...
