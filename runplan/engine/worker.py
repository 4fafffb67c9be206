"""The worker of a repository: the one outer loop, and the worker that a foreground command runs."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.engine.runs import ActiveRuns
from runplan.errors import Fenced, RunplanError
from runplan.run.decide import decide
from runplan.run.requests import Answer
from runplan.run.state import running
from runplan.text import in_words
from runplan.times import parse_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from types import FrameType

    from runplan.engine.commands import Executor
    from runplan.engine.repository import OpenRepository
    from runplan.run.decide import Decision
    from runplan.run.events import Event
    from runplan.run.requests import RunRequest
    from runplan.run.rows import Command
    from runplan.run.state import RunState


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RepositoryWorker:
    """Executes the commands of one repository and takes the steps of its runs."""

    unattended = True  #: a run that meets an error is tried again later; False: the error goes to the caller
    repository: OpenRepository
    runs: ActiveRuns

    def open(self, repository: OpenRepository) -> None:
        self.repository, self.runs = repository, ActiveRuns(repository, self)

    def work(self) -> datetime | None:
        """Work until nothing is left to do; when the next step is due."""
        while True:
            self.execute_commands()
            dispatches, wake = self.runs.step_all(self.execute_commands)
            if not self.wait(dispatches, wake):
                return wake

    def execute_commands(self) -> None:
        """Called before and between steps."""

    def wait(self, dispatches: list[str], wake: datetime | None) -> bool:
        """Wait until one of the dispatches ends, or until `wake`; False when no run is left."""
        if not self.runs.plans:
            return False
        left = (wake - self.repository.clock.now()).total_seconds() if wake else None
        self.repository.dispatches.wait(dispatches, timeout_s=left)
        return True

    # --- called by the runs -------------------------------------------------------------------------------

    def may_begin(self) -> bool:
        """False as soon as no new step may begin."""
        return True

    def request_permit(self, _plan: str) -> bool:
        """Whether the run may work now; if not, it is queued."""
        return True

    def count_permit(self, _plan: str) -> None:
        """Count a run whose agent is running already."""

    def release_permit(self, _plan: str) -> None: ...

    def recorded(self, _plan: str, _run: str, _event: Event, _phase: str) -> None: ...

    def warned(self, _text: str) -> None: ...

    def ended(self, _plan: str, _run: str, _state: RunState) -> None: ...

    def waits(self, _plan: str, _run: str, _state: RunState, _decision: Decision) -> None: ...

    def failed(self, _plan: str, error: RunplanError) -> None:
        raise error


# --- a run in the foreground ---------------------------------------------------------------------------


class Interruption:
    """Ctrl-C, SIGTERM and SIGHUP: the first lets the agents finish, the second ends them."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._until = 0.0
        self.asked = False  #: begin nothing new
        self._at_once = False
        self.wakeup, self._wake_w = os.pipe()  #: readable after a signal
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self._wake_w, False)

    def __enter__(self) -> Interruption:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        if self._before[signal.SIGHUP] is signal.SIG_IGN:  # nohup
            del self._before[signal.SIGHUP]
        for number in self._before:
            signal.signal(number, self._on_signal)
        # Also for a signal that another thread receives, or that comes just before the wait.
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.wakeup)
        os.close(self._wake_w)

    @property
    def left_s(self) -> float:
        """The time that agents still have to finish."""
        return max(0.0, self._until - time.monotonic())

    def clear(self) -> None:
        """Drain the pipe, so that the next wait blocks again."""
        with suppress(BlockingIOError):
            while os.read(self.wakeup, 64):
                pass

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While no agent runs, the first signal interrupts."""
        self._at_once = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked or self._at_once or not self._grace_s:
            self.asked = True
            raise KeyboardInterrupt
        self.asked = True
        self._until = time.monotonic() + self._grace_s
        with suppress(OSError):
            os.write(self._wake_w, b".")
            message = f"runplan: agents have {in_words(self._grace_s)} to finish; press Ctrl-C again to end them now\n"
            over = "\r\x1b[K" if os.isatty(2) else ""  # the live line
            os.write(2, f"{over}{message}".encode())  # not through a stream, whose buffer may be in use


class Outcome(Struct, frozen=True, kw_only=True):
    """The end of a run, or its wait for a person."""

    run: str
    decision: Decision
    state: RunState


class ForegroundWorker(RepositoryWorker):
    """Works one run in this process, and raises errors."""

    unattended = False

    def __init__(
        self,
        interruption: Interruption,
        *,
        show: Callable[[Event], None],
        warn: Callable[[str], None],
    ) -> None:
        self._interruption = interruption
        self._show = show
        self._warn = warn
        self._plan = ""
        self._last: tuple[str, RunState] | None = None  #: run and state, when it has ended

    def run(self, request: RunRequest, repository: OpenRepository) -> Outcome | Answer:
        """Work the run to its end, or to a wait that only a person can end."""
        self._plan = request.started.plan
        self.open(repository)
        while True:
            begun = self.runs.begin(request)
            if isinstance(begun, Answer) and begun.declined:
                return begun
            self._work_to_end()
            if isinstance(begun, Answer):  # else another run had to end first
                break
        if self._last is not None:
            run, state = self._last
            return Outcome(run=run, decision=decide(state), state=state)
        left = self.runs.state(self._plan)
        assert left is not None
        return Outcome(run=begun.run, decision=decide(left), state=left)

    def _work_to_end(self) -> None:
        try:
            self.work()
        except Fenced:
            raise  # another process owns the run and its agents
        except RunplanError as error:
            if not self._interruption.asked:
                raise
            self._end_agents()
            raise KeyboardInterrupt from error  # Ctrl-C reaches git too, which ends at once
        except KeyboardInterrupt:
            self._end_agents()
            raise

    def _end_agents(self) -> None:
        """End the agents now; the next start runs them again."""
        with suppress(RunplanError):  # the next start sees that they have ended
            self.runs.end_agents()

    def wait(self, _dispatches: list[str], _wake: datetime | None) -> bool:
        repository, runs = self.repository, self.runs
        state = runs.state(self._plan)
        if state is None:
            return False
        decision, stop = decide(state), self._interruption
        if stop.asked and not (running(state) and stop.left_s):
            raise KeyboardInterrupt
        if not decision.waiting:
            left = (parse_iso(decision.wake) - repository.clock.now()).total_seconds() if decision.wake else None
            if stop.asked:
                left = stop.left_s if left is None else min(left, stop.left_s)
            repository.dispatches.wait(running(state), timeout_s=left)
            stop.clear()
            return True
        with stop.at_once():
            if not decision.wake or decision.waiting == "review":  # a person is needed
                return False
            repository.clock.sleep_until(parse_iso(decision.wake))
            return True

    def may_begin(self) -> bool:
        return not self._interruption.asked

    def recorded(self, _plan: str, _run: str, event: Event, _phase: str) -> None:
        self._show(event)

    def warned(self, text: str) -> None:
        self._warn(text)

    def ended(self, _plan: str, run: str, state: RunState) -> None:
        self._last = (run, state)


class LocalWorker(RepositoryWorker):
    """Executes commands in this process when no daemon runs; stopped runs are worked to their end."""

    unattended = False

    def run(self, commands: list[Command], executor: Executor) -> list[Answer | None]:
        """Execute the commands, which were just queued, and those before them; None for one that stays queued.

        No run begins: no process would continue it.
        """
        answers = {command.seq: answer for command, answer in executor.execute_queued(begins=False)}
        for plan in self.runs.plans:
            state = self.runs.state(plan)
            if state is not None and not state.stop:
                self.runs.disown(plan)  # the next worker continues it
        self.work()
        # Another process may have executed it first.
        return [answers.get(command.seq) or self.repository.store.commands.answer(command.seq) for command in commands]
