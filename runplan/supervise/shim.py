"""Supervises one agent from its start to the end of its last descendant, whether or not the runner lives on.

The shim reads the agent's pipes, writes the capped logs, keeps the limits, waits on the agent's pid (a
grandchild may hold the pipe open for ever), ends whatever the agent left behind, writes exit.json and is gone.
SIGTERM asks it to end the agent; a second one, to kill at once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan import processes
from runplan.agents.budgets import used_by
from runplan.agents.clis import about
from runplan.agents.context import READING, WRAP_UP, Reading, reading_text
from runplan.agents.sandbox import is_sandboxed
from runplan.checks.secrets import secret_values
from runplan.resources import is_shortage, refused_by_system
from runplan.run.dispatch import OWN, Ending, Outcome
from runplan.supervise import cgroups, files as bell
from runplan.supervise.agentstart import PIPE_SIZE, start
from runplan.supervise.files import publish
from runplan.supervise.output import Intake, reader_of, rest_of
from runplan.supervise.speech import Limits, Speech

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from runplan.processes import Process
    from runplan.run.dispatch import Launch
    from runplan.supervise.cgroups import Cgroup
    from runplan.supervise.files import DispatchFiles

CHUNK = 256 * 1024

#: For what an agent leaves behind when it ends by itself.
LEFTOVER_GRACE_S = 1.0

#: The kernel refuses to sleep for much longer at once.
LONGEST_SLEEP_S = 86_400.0


def supervise(launch: Launch, files: DispatchFiles, *, me: str, subreaper: bool) -> None:
    """Start the process, see it through, and write how it ended; `me` is the identity of this process."""
    with Signals() as signals, _held(files.directory) as directory:
        group = cgroups.planned(files.directory)
        files.write_shim(me, reader=launch.reader, cgroup=group.path if group else "")
        outcome = _see_through(launch, files, signals, group, subreaper=subreaper)
        if group:  # also when nothing could be started
            group.remove()
        bell.take_down(files.directory)
        files.write_exit(outcome, held=directory)


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[int]:
    """The directory, wherever it is moved meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _see_through(
    launch: Launch, files: DispatchFiles, signals: Signals, group: Cgroup | None, *, subreaper: bool
) -> Outcome:
    read, rest = reader_of(launch.reader), rest_of(launch.reader, files.directory / OWN)
    secrets = secret_values(launch.env)
    intake = Intake(out=files.out, err=files.err, cap=launch.log_cap, read=read, rest=rest, secrets=secrets)
    began = time.monotonic()  # from here on an agent may stop us, and its time goes on
    try:
        agent, to_it, out, err = start(launch, group)
    except (OSError, ValueError) as error:
        ending, why = (Ending.REFUSED, refused_by_system(error)) if is_shortage(error) else (Ending.MISSING, error)
        message = f"cannot start {launch.argv[0]!r}: {why}"
        return Outcome(ending=ending, code=None, signal=None, message=message, ended_at=time.time())
    filling = partial(_tell_filling, files.directory)
    supervision = _Supervision(
        launch, agent, intake, signals, group, Speech(to_it, launch), began=began, subreaper=subreaper, filling=filling
    )
    supervision.listen(out, intake.take_out)
    supervision.listen(err, intake.take_err)
    return supervision.see_through()


def _tell_filling(directory: Path, reading: Reading) -> None:
    """Say how full the context is, and wake who waits; an agent that took the place away has no note, no more."""
    with contextlib.suppress(OSError):
        publish(directory / READING, reading_text(reading).encode(), sync=False)
        bell.ring(directory)


class _Supervision:
    """One agent while it runs."""

    def __init__(
        self,
        launch: Launch,
        agent: int,
        intake: Intake,
        signals: Signals,
        group: Cgroup | None,
        speech: Speech,
        *,
        began: float,
        subreaper: bool,
        filling: Callable[[Reading], None],
    ) -> None:
        self._launch = launch
        self._agent = agent
        self._intake = intake
        self._limits = Limits(launch, intake)
        self._signals = signals
        self._groups = [group] if group else []
        self._subreaper = subreaper
        self._filling = filling  #: told once, when a hand-over has to be prepared
        self._asked = about(launch.reader).asked if launch.reader else signal.SIGTERM
        self._armed = launch.arm_at == 0
        self._status: int | None = None
        self._ending: Ending | None = None
        self._rungs = ladder(Ending.ENDED, launch, self._asked)
        self._due = 0.0  #: when the next step on the way down is taken
        self._heeded = 1  #: requests that need no step of their own: the one that began it, or comes on top of a limit
        self._waiting = ""  #: what it waited for when it was asked to end; what it says then is about us
        self._wrap_up_by = 0.0  #: when it was told to wrap up: until when
        self._started = began
        self._heard = time.monotonic()
        self._sample: Signs | None = None  #: what the family had done in the middle of the silence
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.descriptor, selectors.EVENT_READ, None)
        self._speech = speech
        speech.by(self._selector)

    def listen(self, pipe: int, take: Callable[[bytes], None]) -> None:
        """Hand what comes through the pipe to `take`."""
        self._selector.register(pipe, selectors.EVENT_READ, take)

    def see_through(self) -> Outcome:
        while self._status is None:
            for key, _ in self._selector.select(self._until_next()):
                if key.data is None:
                    self._signals.clear()
                    self._reap()
                elif key.data is self._speech:
                    self._speech.go_on()
                else:
                    self._take(key)
            self._fall_silent()
            if self._status is None:
                self._judge(time.monotonic())
        self._speech.close()
        self._drain()
        leftovers = self._end_leftovers()
        return self._outcome(os.waitstatus_to_exitcode(self._status), leftovers)

    def _fall_silent(self) -> None:
        """One that hears waits for more when it has finished, whether well or not."""
        if self._speech.pipe is not None and self._intake.harvest.tally.finished is not None:
            self._speech.close()

    # --- output -------------------------------------------------------------------------------------

    def _take(self, key: selectors.SelectorKey) -> int:
        try:
            chunk = os.read(key.fd, CHUNK)
        except BlockingIOError:
            return 0
        if not chunk:
            self._selector.unregister(key.fd)
            os.close(key.fd)
            return 0
        self._heard = time.monotonic()
        key.data(chunk)
        return len(chunk)

    def _drain(self) -> None:
        """Take what the agent had written; it fits into the pipe, so a chattering grandchild cannot hold us."""
        for key in [key for key in self._selector.get_map().values() if key.data is not None]:
            rest = PIPE_SIZE
            while rest > 0 and (got := self._take(key)):
                rest -= got
            if key.fd in self._selector.get_map():
                self._selector.unregister(key.fd)
                os.close(key.fd)
        self._intake.finish()

    # --- limits -------------------------------------------------------------------------------------

    def _until_next(self) -> float:
        return min(LONGEST_SLEEP_S, max(0.0, min(self._moments()) - time.monotonic()))

    def _moments(self) -> list[float]:
        if self._ending:
            return [self._due]
        if self._wrap_up_by:
            return [self._wrap_up_by]
        moments = [self._started + self._launch.wall_s, *self._limits.moments()]
        if self._launch.silence_s:
            share = 1.0 if self._sampled() else 0.5
            moments.append(self._heard + share * self._launch.silence_s)
        return moments

    def _judge(self, now: float) -> None:
        if self._ending:
            if now >= self._due or self._signals.asked > self._heeded:
                self._signals.asked = self._heeded
                self._step(now)
        elif 0 < self._wrap_up_by <= now:
            self._stop(Ending.CONTEXT, now)
        elif now >= self._started + self._launch.wall_s:
            self._stop(Ending.TIMEOUT, now)  # also when we were stopped meanwhile, and are asked to end for that
        elif self._signals.asked:
            self._stop(Ending.ENDED, now)
        elif over := self._limits.over(now):
            self._bring_to_an_end(over, now)
        elif not self._wrap_up_by:
            self._watch(now)

    def _bring_to_an_end(self, over: Ending, now: float) -> None:
        """One that is out of room, and hears, is told so first, once, and goes on for a while."""
        if over is Ending.CONTEXT and self._wrap_up_by:
            return
        if over is Ending.CONTEXT and self._speech.say_last(WRAP_UP):
            self._wrap_up_by = min(now + self._launch.wrap_up_s, self._started + self._launch.wall_s)
        else:
            self._stop(over, now)

    def _watch(self, now: float) -> None:
        """It may go on; is its context filling, or has it fallen silent?"""
        if not self._armed and (reading := self._limits.filling()):
            self._armed = True
            self._filling(reading)
        if self._launch.silence_s and now >= self._heard + self._launch.silence_s / 2:
            self._judge_silence(now)

    def _judge_silence(self, now: float) -> None:
        """Compare what the family had done at the middle and the end of the silence: work is a sign of life."""
        if self._sample is None or not self._sampled():
            self._sample = signs_of(self._family(), at=now)
        elif now >= self._heard + self._launch.silence_s:
            if signs_of(self._family(), at=now).working(self._sample):
                self._heard = now
            else:
                self._stop(Ending.SILENT, now)

    def _sampled(self) -> bool:
        return self._sample is not None and self._sample.at > self._heard

    # --- the end ------------------------------------------------------------------------------------

    def _stop(self, ending: Ending, now: float) -> None:
        self._ending = ending
        self._waiting = self._intake.harvest.tally.waiting
        self._heeded = 0 if ending is Ending.CONTEXT else 1
        self._rungs = ladder(ending, self._launch, self._asked)
        self._step(now)

    def _step(self, now: float) -> None:
        rung = next(self._rungs)
        self._due = now + rung.seconds
        for process in self._family():
            if rung.signal is signal.SIGKILL or self._reaches(process, rung.signal):
                processes.send(process, rung.signal)

    def _reaches(self, process: Process, number: signal.Signals) -> bool:
        """Whether it is asked by this signal."""
        if process.pid == self._agent and is_sandboxed(self._launch.argv):
            return False  # bwrap ends with what it wraps; before that it would take the agent's last words along
        # As at a terminal: what an agent runs in a session of its own it ends itself, or it is left over.
        return number is not signal.SIGINT or processes.session(process.pid) == self._agent

    def _family(self) -> list[Process]:
        found = processes.family(self._launch.id, root=os.getpid(), leader=self._agent)
        return cgroups.with_members(found, self._groups)

    def _reap(self) -> bool:
        """Take leave of every child that ended; False when there is no child left."""
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
        asked_s = self._launch.grace_s if self._ending is None else self._due - time.monotonic()
        grace_s = max(0.0, min(LEFTOVER_GRACE_S, asked_s))
        return cgroups.end(self._groups, self._leftovers, grace_s=grace_s)

    def _leftovers(self) -> list[Process]:
        childless = not self._reap()
        # Orphans become children of a subreaper, so without children there is no descendant left.
        return [] if childless and self._subreaper else self._family()

    def _own_end(self, *, by_signal: bool) -> Ending:
        if self._wrap_up_by:
            return Ending.CONTEXT
        return Ending.SIGNALLED if by_signal else Ending.EXITED

    def _outcome(self, exit_code: int, leftovers: int) -> Outcome:
        by_signal = exit_code < 0
        tally = self._intake.harvest.tally
        return Outcome(
            ending=self._ending or self._own_end(by_signal=by_signal),
            code=None if by_signal else exit_code,
            signal=-exit_code if by_signal else None,
            message=self._intake.harvest.message,
            events=self._intake.harvest.events,
            events_left_out=self._intake.harvest.left_out,
            output_bytes=self._intake.size,
            leftovers=leftovers,
            tally=replace(
                tally, usage=used_by(self._launch, tally, sure=False), waiting=self._waiting or tally.waiting
            ),
            error=self._intake.error,
            ended_at=time.time(),
            seconds=time.monotonic() - self._started,
        )


# --- the signals that end an agent ---------------------------------------------------------------------------


class Rung(Struct, frozen=True, kw_only=True):
    """One step."""

    signal: signal.Signals
    seconds: float  #: until the next


def ladder(ending: Ending, launch: Launch, asked: signal.Signals) -> Iterator[Rung]:
    """The steps, the last of them again and again; `asked` is the signal that this kind of agent ends cleanly by.

    Where it is only out of room nothing is urgent: an interrupt leaves it the most, so every kind gets one first.
    """
    if ending is Ending.CONTEXT:
        yield Rung(signal=signal.SIGINT, seconds=launch.rung_s)
        yield Rung(signal=signal.SIGTERM, seconds=launch.rung_s)
    else:
        yield Rung(signal=asked, seconds=launch.grace_s)
    while True:
        yield Rung(signal=signal.SIGKILL, seconds=processes.KILLED_S)


# --- signals to the shim -------------------------------------------------------------------------------------


class Signals:
    """Turns SIGTERM and SIGCHLD into a readable descriptor."""

    def __init__(self) -> None:
        self.asked = 0  #: how often we were asked to end
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)

    def __enter__(self) -> Signals:
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # whatever was asked of us until now counts
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, 4096):
                pass

    def _on_term(self, *_: object) -> None:
        self.asked += 1


# --- signs of life -------------------------------------------------------------------------------------------


#: Processor time that counts as a sign of life: this much, and this share of the time. Agents that merely wait for
#: their provider use 1 % (opencode) to 3 % (codex) of a processor.
BUSY_S = 0.02
BUSY_SHARE = 0.05

#: Bytes that count as one: this many, and this many a second. Loops that look at something once a second move 5 kB
#: (sleep), 15 kB (ls, git status) to 50 kB (curl, which reads its certificates); a download over 1 Mbit/s moves 125 kB.
MOVED = 256 * 1024
MOVED_PER_S = 64 * 1024


class Signs(Struct, frozen=True, kw_only=True):
    """What some processes had done at a moment."""

    at: float
    cpu_s: float
    moved: int  #: bytes

    def working(self, earlier: Signs) -> bool:
        """Whether they have worked since; who merely waits or polls has not."""
        elapsed = self.at - earlier.at
        return self.cpu_s - earlier.cpu_s >= max(BUSY_S, BUSY_SHARE * elapsed) or (
            self.moved - earlier.moved >= max(MOVED, MOVED_PER_S * elapsed)
        )


def signs_of(family: Iterable[Process], *, at: float) -> Signs:
    """What the processes have done so far."""
    cpu_s, moved = processes.work_done(family)
    return Signs(at=at, cpu_s=cpu_s, moved=moved)
