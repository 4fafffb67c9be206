"""Supervises one agent until its last descendant has ended. The shim outlives the runner that started it.

The shim reads the agent's pipes, writes the capped logs, enforces the limits, waits for the agent's pid (a grandchild
can hold the pipe open for ever), ends the processes the agent left behind and writes exit.json. SIGTERM asks it to end
the agent and to exit; a second SIGTERM makes it kill at once.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan import processes
from runplan.agents.budgets import used_by
from runplan.agents.clis import agent_of
from runplan.agents.context import WRAP_UP, reached
from runplan.checks.secrets import secret_values
from runplan.errors import is_shortage, refused_by_system
from runplan.run.dispatch import Ending, Outcome
from runplan.supervise import cgroups
from runplan.supervise.child import PIPE_SIZE, Signals, start
from runplan.supervise.files import ShimRecord
from runplan.supervise.output import AgentOutput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.processes import Process
    from runplan.run.dispatch import Launch
    from runplan.run.usage import Tally
    from runplan.supervise.cgroups import Cgroup
    from runplan.supervise.child import Child
    from runplan.supervise.files import DispatchFiles

CHUNK = 256 * 1024
LEFTOVER_GRACE_S = 1.0  #: between SIGTERM and SIGKILL for processes that an agent leaves behind
LONGEST_SLEEP_S = 86_400.0  #: the kernel refuses to sleep for much longer at once


def supervise(launch: Launch, files: DispatchFiles, *, me: str, subreaper: bool) -> bool:
    """Start the process, supervise it to its end and write the exit record; `me` is this process's identity.

    Whether the shim can supervise another one: the agent exited by itself and left no process behind.
    """
    held = os.open(files.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with Signals() as signals:
        group = cgroups.planned(files.directory.name)
        files.write_shim(ShimRecord(identity=me, reader=launch.reader, cgroup=group.path if group else ""))
        outcome = _run(launch, files, signals, group, subreaper=subreaper)
        if group:
            group.remove()
        files.write_exit(outcome, held=held)
    os.close(held)
    return outcome.ending is Ending.EXITED and not outcome.leftovers and not signals.requests


def _run(launch: Launch, files: DispatchFiles, signals: Signals, group: Cgroup | None, *, subreaper: bool) -> Outcome:
    output = AgentOutput(launch.reader, files, cap=launch.log_cap, secrets=secret_values(launch.env))
    started = time.monotonic()  # before the start: from there on the agent can stop the shim
    try:
        child = start(launch, group)
    except (OSError, ValueError) as error:
        ending, why = (Ending.REFUSED, refused_by_system(error)) if is_shortage(error) else (Ending.MISSING, error)
        message = f"cannot start {launch.argv[0]!r}: {why}"
        return Outcome(ending=ending, code=None, signal=None, message=message, ended_at=time.time())
    groups = [group] if group else []
    return _Supervision(launch, child, output, signals, groups, started, subreaper=subreaper).run()


class _Supervision:
    """One agent while it runs."""

    def __init__(
        self,
        launch: Launch,
        child: Child,
        output: AgentOutput,
        signals: Signals,
        groups: list[Cgroup],
        started: float,
        *,
        subreaper: bool,
    ) -> None:
        self._launch = launch
        self._agent = child.pid
        self._stdin = child.stdin
        self._output = output
        self._signals = signals
        self._groups = groups
        self._subreaper = subreaper
        self._status: int | None = None
        self._ending: Ending | None = None
        self._kill_at = 0.0  #: when an agent that was asked to end is killed
        self._waiting = ""  #: the provider it waited for when it was asked to end
        self._wrap_up_by = 0.0  #: deadline of an agent that was asked to wrap up; 0: it was not
        self._started = started
        self._wall = started + launch.wall_s
        self._last_output = time.monotonic()
        self._sample: Activity | None = None  #: taken in the middle of the current silence
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.descriptor, selectors.EVENT_READ, None)
        self._selector.register(child.out, selectors.EVENT_READ, output.take_out)
        self._selector.register(child.err, selectors.EVENT_READ, output.take_err)

    def run(self) -> Outcome:
        while self._status is None:
            timeout_s = min(self._deadlines()) - time.monotonic()
            for key, _ in self._selector.select(min(LONGEST_SLEEP_S, max(0.0, timeout_s))):
                if key.data is None:
                    self._signals.clear()
                    self._reap()
                else:
                    self._read(key)
            if self._tally.finished is not None:
                self._close_stdin()  # an agent that reads messages waits for more when it has finished
            if self._status is None:
                self._check(time.monotonic())
        self._close_stdin()
        self._drain()
        leftovers = self._end_leftovers()
        return self._outcome(os.waitstatus_to_exitcode(self._status), leftovers)

    def _close_stdin(self) -> None:
        if self._stdin:
            self._stdin.close()
            self._stdin = None

    @property
    def _tally(self) -> Tally:
        return self._output.events.tally

    # --- output -------------------------------------------------------------------------------------

    def _read(self, key: selectors.SelectorKey) -> int:
        try:
            chunk = os.read(key.fd, CHUNK)
        except BlockingIOError:
            return 0
        if not chunk:
            self._selector.unregister(key.fd)
            os.close(key.fd)
            return 0
        self._last_output = time.monotonic()
        key.data(chunk)
        return len(chunk)

    def _drain(self) -> None:
        """Read the rest. It fits into the pipe, so a grandchild that keeps printing cannot hold the shim."""
        for key in [key for key in self._selector.get_map().values() if key.data is not None]:
            rest = PIPE_SIZE
            while rest > 0 and (got := self._read(key)):
                rest -= got
            if key.fd in self._selector.get_map():
                self._selector.unregister(key.fd)
                os.close(key.fd)
        self._selector.close()
        self._output.finish()

    # --- limits -------------------------------------------------------------------------------------

    def _deadlines(self) -> list[float]:
        if self._ending or self._wrap_up_by:
            return [self._kill_at or self._wrap_up_by]
        deadlines = [self._wall]
        if self._launch.silence_s:
            share = 1.0 if self._is_sampled() else 0.5
            deadlines.append(self._last_output + share * self._launch.silence_s)
        return deadlines

    def _check(self, now: float) -> None:
        if self._ending:
            if now >= self._kill_at or self._signals.requests > 1:
                self._signals.requests = 1
                self._kill_at = now + processes.KILLED_S
                self._signal(signal.SIGKILL)
        elif 0 < self._wrap_up_by <= now:
            self._stop(Ending.CONTEXT, now)
        elif now >= self._wall:
            self._stop(Ending.TIMEOUT, now)
        elif self._signals.requests:
            self._stop(Ending.ENDED, now)
        elif exceeded := self._exceeded():
            self._enforce(exceeded, now)
        elif not self._wrap_up_by and self._launch.silence_s and now >= self._last_output + self._launch.silence_s / 2:
            self._check_silence(now)

    def _enforce(self, exceeded: Ending, now: float) -> None:
        """Stop the agent. One with a full context that reads messages is asked to wrap up first."""
        if exceeded is Ending.CONTEXT and self._wrap_up_by:
            return
        if exceeded is Ending.CONTEXT and self._stdin:
            self._stdin.send(WRAP_UP)
            self._close_stdin()
            self._wrap_up_by = min(now + self._launch.wrap_up_s, self._wall)
        else:
            self._stop(exceeded, now)

    def _exceeded(self) -> Ending | None:
        """The limit that ends the agent."""
        tally, launch = self._tally, self._launch
        finished = tally.finished if tally.finished and tally.finished.ok else None
        if finished and not finished.so_far:
            return None  # finished work is not discarded for its cost
        used = used_by(launch, tally, sure=True)
        if 0 < launch.tokens <= used.input_tokens + used.output_tokens or 0 < launch.usd <= used.usd:
            return Ending.BUDGET
        # An agent that may have finished is not replaced: aider applies an answer after it has reported the usage.
        return Ending.CONTEXT if not finished and reached(launch.hand_over_at, tally, launch) else None

    def _check_silence(self, now: float) -> None:
        """Compare the activity in the middle and at the end of the silence: work is a sign of life."""
        if self._sample is None or not self._is_sampled():
            self._sample = activity(self._family(), at=now)
        elif now >= self._last_output + self._launch.silence_s:
            if activity(self._family(), at=now).is_work_since(self._sample):
                self._last_output = now
            else:
                self._stop(Ending.SILENT, now)

    def _is_sampled(self) -> bool:
        return self._sample is not None and self._sample.at > self._last_output

    # --- the end ------------------------------------------------------------------------------------

    def _stop(self, ending: Ending, now: float) -> None:
        """Ask the agent to end by the signal on which its kind ends cleanly; it is killed after the grace."""
        self._ending = ending
        self._waiting = self._tally.waiting
        self._kill_at = now + self._launch.grace_s
        self._signal(agent_of(self._launch.reader).stop_signal if self._launch.reader else signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._family():
            if number is signal.SIGKILL or self._gets(process, number):
                processes.send(process, number)

    def _gets(self, process: Process, number: signal.Signals) -> bool:
        from runplan.agents.sandbox import is_sandboxed  # slow to import

        if process.pid == self._agent and is_sandboxed(self._launch.argv):
            return False  # bwrap ends with the agent; ended earlier it would cut off the agent's last output
        # As at a terminal: an agent interrupts the commands that it runs in other sessions itself.
        return number is not signal.SIGINT or processes.session(process.pid) == self._agent

    def _family(self) -> list[Process]:
        found = processes.family(self._launch.id, root=os.getpid(), leader=self._agent)
        return cgroups.with_members(found, self._groups)

    def _reap(self) -> bool:
        """Wait for every child that has ended; False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._agent:
                self._status = status

    def _end_leftovers(self) -> int:
        grace_s = self._launch.grace_s if self._ending is None else self._kill_at - time.monotonic()
        return cgroups.end(self._groups, self._leftovers, grace_s=max(0.0, min(LEFTOVER_GRACE_S, grace_s)))

    def _leftovers(self) -> list[Process]:
        # Orphans become children of a subreaper, so without children no descendant is left.
        return self._family() if self._reap() or not self._subreaper else []

    def _outcome(self, exit_code: int, leftovers: int) -> Outcome:
        by_signal, tally = exit_code < 0, self._tally
        own_ending = Ending.SIGNALLED if by_signal else Ending.EXITED
        return Outcome(
            ending=self._ending or (Ending.CONTEXT if self._wrap_up_by else own_ending),
            code=None if by_signal else exit_code,
            signal=-exit_code if by_signal else None,
            message=self._output.events.message,
            tools=self._output.events.tools,
            output_bytes=self._output.size,
            leftovers=leftovers,
            tally=replace(
                tally, usage=used_by(self._launch, tally, sure=False), waiting=self._waiting or tally.waiting
            ),
            error=self._output.error,
            ended_at=time.time(),
            seconds=round(time.monotonic() - self._started, 3),
        )


#: CPU time that counts as work: at least this much, and this share of the time. Agents that wait for their provider
#: use 1 % (opencode) to 3 % (codex) of a processor.
BUSY_S = 0.02
BUSY_SHARE = 0.05

#: I/O that counts as work: at least this many bytes, and this many a second. Loops that poll once a second move 5 kB
#: (sleep), 15 kB (ls, git status) to 50 kB (curl, with its certificates); a download over 1 Mbit/s moves 125 kB.
MOVED = 256 * 1024
MOVED_PER_S = 64 * 1024


class Activity(Struct, frozen=True, kw_only=True):
    """The CPU time and I/O of some processes up to a moment."""

    at: float
    cpu_s: float
    moved: int  #: bytes

    def is_work_since(self, earlier: Activity) -> bool:
        """Whether they worked since then; waiting and polling do not count."""
        elapsed = self.at - earlier.at
        return self.cpu_s - earlier.cpu_s >= max(BUSY_S, BUSY_SHARE * elapsed) or (
            self.moved - earlier.moved >= max(MOVED, MOVED_PER_S * elapsed)
        )


def activity(family: Iterable[Process], *, at: float) -> Activity:
    cpu_s, moved = processes.work_done(family)
    return Activity(at=at, cpu_s=cpu_s, moved=moved)
