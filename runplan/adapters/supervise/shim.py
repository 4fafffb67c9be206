"""Supervises one agent until its last descendant has ended. The shim outlives the runner that started it.

The shim reads the agent's pipes, writes the capped logs, enforces the limits, waits for the agent's pid (a grandchild
can hold the pipe open for ever), ends the processes the agent left behind and writes exit.json. SIGTERM asks it to end
the agent and to exit; a second SIGTERM makes it kill at once.

This module runs as the spawner, which forks shims on request and lives as long as its runner. A new interpreter for
every shim would take a hundred milliseconds, a fork takes ten.
"""

import contextlib
import ctypes
import fcntl
import gc
import math
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters import processes
from runplan.adapters.agents.budgets import context_percent, has_reached, is_estimate, meter_usage
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.processes import MARK, Process
from runplan.adapters.sandbox.proxy import SOCKET, Proxy
from runplan.adapters.store.files import make_below, open_untrusted, publish, read_file, remove_directory
from runplan.adapters.supervise.output import MISREAD, CappedLog, DispatchFiles, EventCollector, ShimRecord, reader_of
from runplan.domain.checks.secrets import secret_values
from runplan.domain.decoding import parse_json
from runplan.domain.errors import is_shortage, refused_by_system
from runplan.domain.run import dispatch as d

#: A request to a shim is the length of its text, with the lock's descriptor, then the text. The answer is its pid.
HEADER = struct.Struct("!I")
LONGEST_KIND = 64  #: bytes of the name of a kind of agent
STREAMS = (1, 2)  #: standard output and error
PIPE_SIZE = 1024 * 1024
CHUNK = 256 * 1024
MEMORY_S = 1.0  #: how often the memory of a dispatch that has a limit is measured
OOM_SCORE = 500  #: a kernel without memory ends a process of a dispatch rather than runplan
END_S = 60.0  #: for an engine to end a sandbox
LEFTOVER_GRACE_S = 1.0  #: between SIGTERM and SIGKILL for processes that an agent leaves behind
LONGEST_SLEEP_S = 86_400.0  #: the kernel refuses to sleep for much longer at once
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE = Path("/proc/self/oom_score_adj")
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
#: CPU time that counts as work: at least this much, and this share of the time. Agents that wait for their provider
#: use 1 % (opencode) to 3 % (codex) of a processor.
BUSY_S = 0.02
BUSY_SHARE = 0.05
#: I/O that counts as work: at least this many bytes, and this many a second. Loops that poll once a second move 5 kB
#: (sleep), 15 kB (ls, git status) to 50 kB (curl, with its certificates); a download over 1 Mbit/s moves 125 kB.
MOVED = 256 * 1024
MOVED_PER_S = 64 * 1024


def main(descriptor: int) -> None:
    """Fork a shim for each socket that the runner sends, until the runner closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the shims
    processes.identity(os.getpid())  # caches the boot id for all shims
    gc.freeze()  # the forks share these pages
    with socket.socket(fileno=descriptor) as runner:
        while True:
            kind, ends, _, _ = socket.recv_fds(runner, LONGEST_KIND, 2)
            if not ends:
                os._exit(0)
            os.dup2(ends[1], 2)
            os.close(ends[1])
            with contextlib.suppress(ImportError):  # the shim reports it
                reader_of(kind.decode().strip())  # imported here once, not in every shim
            if os.fork() == 0:
                runner.close()
                try:
                    _become_shim(ends[0])
                finally:
                    if sys.exc_info()[0]:
                        sys.excepthook(*sys.exc_info())
                    os._exit(0)
            os.close(ends[0])


def _become_shim(descriptor: int) -> None:
    os.setsid()
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if _LIBC:  # orphaned descendants become our children, so that a daemon without the mark is found too
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    me = processes.identity(os.getpid()) or ""
    text = b""
    with socket.socket(fileno=descriptor) as runner:
        with contextlib.suppress(OSError):  # the runner is gone
            header, locks, _, _ = socket.recv_fds(runner, HEADER.size, 1)
            text = runner.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL) if locks else b""
        if not text:
            return
        os.set_inheritable(locks[0], False)
        # From the answer on the shim can be asked to end; the request is delivered when it is ready.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        with contextlib.suppress(OSError):  # the runner may have died
            runner.sendall(HEADER.pack(os.getpid()))
        directory, launch = parse_json(text, tuple[str, d.Launch])
        supervise(launch, DispatchFiles(Path(directory)), me=me)
        os.close(locks[0])  # before the end of the link, by which the runner knows that the dispatch has ended


def supervise(launch: d.Launch, files: DispatchFiles, *, me: str) -> None:
    """Supervise a process to its end and write the exit record; `me` is the identity of this process."""
    scratch = files.directory / d.SCRATCH
    beside = files.directory / d.BESIDE
    for top in (files.directory, *((beside,) if launch.is_double else ())) if launch.boxed else ():
        for folder in (d.OWN, *(f"{d.SCRATCH}/{name}" for name in d.TEMPORARY.values())):
            make_below(files.directory, top / folder)
    held = os.open(files.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with _Signals() as signals:
        record = ShimRecord(identity=me, reader=launch.reader)
        publish(files.shim_file, msgspec.json.encode(record), sync=False)
        proxy: Proxy | None = None
        try:
            proxy = Proxy(scratch / d.TEMPORARY["/run"], launch.hosts, launch.env) if launch.hosts else None
            if proxy and launch.is_double:
                os.link(scratch / d.TEMPORARY["/run"] / SOCKET, beside / d.SCRATCH / d.TEMPORARY["/run"] / SOCKET)
            supervision = _Supervision(launch, files, signals)
        except (OSError, ValueError) as error:
            ending = d.Ending.REFUSED if is_shortage(error) else d.Ending.MISSING
            why = refused_by_system(error) if is_shortage(error) else error
            message = f"cannot start {launch.argv[0]!r}: {why}"
            outcome = d.Outcome(ending=ending, code=None, signal=None, message=message, ended_at=time.time())
        else:
            outcome = replace(supervision.run(), refused=tuple(proxy.refused) if proxy else ())
        with contextlib.suppress(OSError):  # `gc` removes the rest with the logs
            remove_directory(scratch)
        with contextlib.suppress(OSError), open_untrusted(files.directory / d.RETURN, follow=True) as file:
            os.fsync(file.fileno())
        content = msgspec.json.encode(outcome)
        try:
            publish(files.exit_file, content, sync=True)
        except FileNotFoundError:  # the repository was moved
            publish(files.exit_file.relative_to(files.directory), content, sync=True, directory=held)
    os.close(held)


def _start(launch: d.Launch) -> tuple[int, int, list[int]]:
    """Its pid, the descriptor of messages to it or -1, and those of its outputs."""
    with contextlib.ExitStack() as stack:
        talk = -1
        if launch.talks:
            stdin, talk = os.pipe()
            os.set_blocking(talk, False)
        else:
            stdin = os.open(launch.stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            if launch.stdin and sys.platform == "linux":  # a copy: what is open can be opened again, to write
                with open(stdin, "rb") as prompt:
                    stdin = os.memfd_create("prompt")
                    os.write(stdin, prompt.read())
                os.lseek(stdin, 0, os.SEEK_SET)
        stack.callback(os.close, stdin)
        pipes = []
        for _ in (*STREAMS, *launch.logs):
            read_end, write_end = os.pipe()
            stack.callback(os.close, write_end)
            os.set_blocking(read_end, False)
            with contextlib.suppress(AttributeError, OSError):  # only faster; the user's allowance can be used up
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
            pipes.append((read_end, write_end))
        out, err, *more = (write_end for _, write_end in pipes)
        if score := read_file(_OOM_SCORE):  # inherited; there is none on macOS
            stack.callback(_OOM_SCORE.write_bytes, score)
            _OOM_SCORE.write_text(str(max(int(score), OOM_SCORE)))
        agent = subprocess.Popen(
            launch.argv,
            stdin=stdin,
            stdout=out,
            stderr=err,
            pass_fds=more,
            cwd=launch.cwd,
            env={**launch.env, MARK: launch.id}
            | ({d.LOGS: " ".join(f"/dev/fd/{number}" for number in more)} if more else {}),
            start_new_session=True,
        )
    agent.returncode = 0  # the shim waits for every child itself; Popen must not
    return agent.pid, talk, [read_end for read_end, _ in pipes]


class _Signals:
    """Turns SIGTERM and SIGCHLD into a readable descriptor."""

    def __init__(self) -> None:
        self.requests = 0  #: how often the shim was asked to end
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)

    def __enter__(self) -> "_Signals":
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGURG, lambda *_: None)  # there is a message; without a handler it has no effect
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # deliver requests that came before
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.close(self.descriptor)
        os.close(self._write_end)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, 4096):
                pass

    def _on_term(self, *_: object) -> None:
        self.requests += 1


class _Supervision:
    def __init__(self, launch: d.Launch, files: DispatchFiles, signals: _Signals) -> None:
        self._launch = launch
        self._signals = signals
        self._files = files
        secrets = secret_values(launch.env)
        self._events = EventCollector(reader_of(launch.reader), secrets=secrets, cwd=launch.cwd)
        paths = (files.out, files.err, *(files.directory / name for name in launch.logs))
        self._logs = [CappedLog(path, cap=launch.log_cap, secrets=secrets) for path in paths]
        self._started = time.monotonic()  # before the start: from there on the agent can stop the shim
        self._agent, self._talk, outputs = _start(launch)
        self._status: int | None = None
        self._ending: d.Ending | None = None
        self._measure_at = self._started if launch.memory else math.inf
        self._memory = 0  #: that its processes had when they were asked to end for it
        self._kill_at = 0.0  #: when an agent that was asked to end is killed
        self._waiting = ""  #: the provider it waited for when it was asked to end
        self._by_estimate = False  #: its usage was an estimate when it was asked to end
        self._wall = self._started + launch.wall_s
        self._last_output = time.monotonic()
        self._sample: ProcessActivity | None = None  #: taken in the middle of the current silence
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.descriptor, selectors.EVENT_READ, None)
        for output, log in zip(outputs, self._logs, strict=True):
            self._selector.register(output, selectors.EVENT_READ, log)
        self._sent: set[str] = set()  #: names of the messages that were sent
        self._outgoing = bytearray()
        self._is_warned = False
        self._progress = (0, 0)
        if launch.talks:
            self._send((read_file(Path(launch.stdin)) or b"").decode(errors="replace"))
            self._send_told()

    def run(self) -> d.Outcome:
        while self._status is None:
            timeout_s = self._deadline() - time.monotonic()
            for key, _ in self._selector.select(min(LONGEST_SLEEP_S, max(0.0, timeout_s))):
                if key.data is None:
                    self._signals.clear()
                    self._reap()
                    self._send_told()
                elif key.fd == self._talk:
                    self._flush()
                else:
                    self._read(key)
            if self._status is None:
                self._check(time.monotonic())
        self._close_talk()
        # The rest fits into the pipe, so a grandchild that keeps printing cannot hold the shim.
        for key in [key for key in self._selector.get_map().values() if key.data is not None]:
            rest = PIPE_SIZE
            while rest > 0 and (got := self._read(key)):
                rest -= got
            if key.fd in self._selector.get_map():
                self._selector.unregister(key.fd)
                os.close(key.fd)
        self._selector.close()
        self._events.finish()
        if self._launch.reader:
            with contextlib.suppress(*MISREAD, OSError):
                self._events.add(agent_of(self._launch.reader).read_reports(self._files.directory / d.OWN))
        for log in self._logs:
            log.close()
        grace_s = self._launch.grace_s if self._ending is None else self._kill_at - time.monotonic()
        leftovers, left = processes.end_all(self._leftovers, grace_s=max(0.0, min(LEFTOVER_GRACE_S, grace_s)))
        exit_code = os.waitstatus_to_exitcode(self._status)
        if self._ending or exit_code < 0:
            self._end_sandbox()
        by_signal, tally = exit_code < 0, self._events.tally
        ending = self._ending or (d.Ending.SIGNALLED if by_signal else d.Ending.EXITED)
        if not self._ending and self._signals.requests and exit_code:  # a shutdown signals the agent and the shim
            ending = d.Ending.ENDED
        return d.Outcome(
            ending=d.Ending.SURVIVED if left else ending,
            code=None if by_signal else exit_code,
            signal=-exit_code if by_signal else None,
            message=self._events.message,
            leftovers=leftovers,
            survivors=tuple(map(processes.describe, left)),
            memory=self._memory,
            tally=replace(tally, usage=self._usage(), waiting=self._waiting or tally.waiting),
            estimated=is_estimate(tally) or (self._by_estimate and self._ending is d.Ending.BUDGET),
            error=self._files.error(),
            ended_at=time.time(),
            seconds=round(time.monotonic() - self._started, 3),
        )

    def _usage(self) -> d.Usage:
        launch = self._launch
        return meter_usage(self._events.tally, prompt=launch.prompt, usd_in=launch.usd_in, usd_out=launch.usd_out)

    def _read(self, key: selectors.SelectorKey) -> int:
        try:
            chunk = os.read(key.fd, CHUNK)
        except BlockingIOError:
            return 0
        if not chunk:
            self._selector.unregister(key.fd)
            os.close(key.fd)
            return 0
        self._last_output, self._sample = time.monotonic(), None
        key.data.write(chunk)
        if key.data is self._logs[0]:
            self._events.feed(chunk)
            if self._launch.reader:
                self._note_progress()
        return len(chunk)

    def _note_progress(self) -> None:
        tally = self._events.tally
        percent = context_percent(tally, self._launch)
        if (percent, tally.uses) != self._progress:
            self._progress = (percent, tally.uses)
            with contextlib.suppress(OSError), (self._files.directory / d.PROGRESS).open("a") as file:
                file.write(f"{percent} {tally.uses}\n")
        if self._talk < 0 or self._ending:
            return
        if not self._is_warned and has_reached(self._launch.warn_at, tally, self._launch):
            self._is_warned = True
            self._send(self._launch.warning)
        if tally.finished is not None and not self._outgoing:
            self._close_talk()  # it waits for a further message, and ends without one

    def _send_told(self) -> None:
        """Send the messages that came since the last time."""
        told = sorted(path for path in (self._files.directory / d.TOLD).glob("*.txt") if path.name not in self._sent)
        for path in told if self._talk >= 0 else ():
            self._sent.add(path.name)
            self._send((read_file(path) or b"").decode(errors="replace"))

    def _send(self, text: str) -> None:
        if not self._outgoing:
            self._selector.register(self._talk, selectors.EVENT_WRITE, self._outgoing)
        self._outgoing += agent_of(self._launch.reader).encode_message(text)

    def _flush(self) -> None:
        try:
            del self._outgoing[: os.write(self._talk, self._outgoing)]
        except BlockingIOError:
            return
        except OSError:  # it has closed its standard input
            self._close_talk()
            return
        if not self._outgoing:
            self._selector.unregister(self._talk)
            self._note_progress()

    def _close_talk(self) -> None:
        if self._talk >= 0:
            if self._outgoing:
                self._selector.unregister(self._talk)
            os.close(self._talk)
            self._talk = -1

    def _deadline(self) -> float:
        if self._ending:
            return self._kill_at
        deadline = min(self._wall, self._measure_at)
        if not self._launch.silence_s:
            return deadline
        share = 1.0 if self._sample else 0.5
        return min(deadline, self._last_output + share * self._launch.silence_s)

    def _check(self, now: float) -> None:
        if self._ending:
            if now >= self._kill_at or self._signals.requests > 1:
                self._signals.requests = 1
                self._end_sandbox()
                processes.kill_all(self._leftovers)
                self._kill_at = time.monotonic() + processes.KILLED_S
        elif now >= self._wall:
            self._stop(d.Ending.TIMEOUT)
        elif self._signals.requests:
            self._stop(d.Ending.ENDED)
        elif exceeded := self._exceeded():
            self._stop(exceeded)
        elif now >= self._measure_at:
            used = used_memory([process.pid for process in self._family()], most=self._launch.memory)
            self._measure_at = time.monotonic() + MEMORY_S
            if used > self._launch.memory:
                self._memory = used
                self._stop(d.Ending.BUDGET)
        elif self._launch.silence_s and now >= self._last_output + self._launch.silence_s / 2:
            # The activity in the middle and at the end of the silence: work is a sign of life.
            if self._sample is None:
                self._sample = activity(self._family(), now=now)
            elif now >= self._last_output + self._launch.silence_s:
                if activity(self._family(), now=now).is_work_since(self._sample):
                    self._last_output, self._sample = now, None
                else:
                    self._stop(d.Ending.SILENT)

    def _exceeded(self) -> d.Ending | None:
        tally, launch = self._events.tally, self._launch
        finished = tally.finished if tally.finished and tally.finished.ok else None
        if finished and not finished.so_far:
            return None  # finished work is not discarded for its cost
        used = self._usage()
        if 0 < launch.tokens <= used.input_tokens + used.output_tokens or 0 < launch.usd <= used.usd:
            return d.Ending.BUDGET
        # An agent that may have finished is not replaced: aider applies an answer after it has reported the usage.
        return d.Ending.CONTEXT if not finished and has_reached(launch.hand_over_at, tally, launch) else None

    def _stop(self, ending: d.Ending) -> None:
        """Ask the agent to end by the signal on which its kind ends cleanly; it is killed after the grace."""
        self._ending = ending
        self._waiting, self._by_estimate = self._events.tally.waiting, is_estimate(self._events.tally)
        number = agent_of(self._launch.reader).stop_signal if self._launch.reader else signal.SIGTERM
        family = list(self._family())
        if self._launch.boxed:
            # The sandbox ends with the agent; ended earlier it would cut off the agent's last output.
            family = [process for process in family if process.pid != self._agent]
        if number is signal.SIGINT:  # as at a terminal: an agent interrupts its commands in other sessions itself
            family = [process for process in family if processes.session(process.pid) == self._agent]
        for process in family:
            processes.send(process, number)
        is_full = ending is d.Ending.CONTEXT and not self._is_warned  # it may have notes to write
        grace_s = (self._launch.save_s if is_full else 0) or self._launch.grace_s
        self._kill_at = time.monotonic() + grace_s  # finding its processes took some time

    def _end_sandbox(self) -> None:
        """End what the sandbox has outside the process tree; one that ended by itself has left nothing."""
        if self._launch.end:
            processes.run_program(self._launch.end, self._launch.env, within_s=END_S)

    def _family(self) -> Iterator[Process]:
        return processes.family(self._launch.id, shim=os.getpid(), leader=self._agent)

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

    def _leftovers(self) -> Iterable[Process]:
        # Orphans become children of a subreaper, so without children no descendant is left.
        return self._family() if self._reap() or not _LIBC else ()


class ProcessActivity(Struct, frozen=True, kw_only=True):
    at: float
    cpu_s: float
    moved: int  #: bytes

    def is_work_since(self, earlier: "ProcessActivity") -> bool:
        """Whether they worked since then; waiting and polling do not count."""
        elapsed = self.at - earlier.at
        is_busy = self.cpu_s - earlier.cpu_s >= max(BUSY_S, BUSY_SHARE * elapsed)
        return is_busy or self.moved - earlier.moved >= max(MOVED, MOVED_PER_S * elapsed)


def activity(family: Iterable[Process], *, now: float) -> ProcessActivity:
    import psutil  # 33 ms, and only a silent process needs it

    cpu_s, moved = 0.0, 0
    for process in family:
        with contextlib.suppress(psutil.Error, OSError, AttributeError):  # macOS counts no bytes
            known = psutil.Process(process.pid)
            cpu_s += sum(known.cpu_times()[:4])
            counted = known.io_counters()
            # Memory-mapped files are read without a system call and count only as disk blocks.
            moved += max(counted.read_chars + counted.write_chars, counted.read_bytes + counted.write_bytes)
    return ProcessActivity(at=now, cpu_s=cpu_s, moved=moved)


def used_memory(pids: Sequence[int], *, most: int) -> int:
    """The bytes of memory and swap that no disk backs; if that is over `most`, shared pages are counted once."""
    if sys.platform != "linux":
        import psutil  # as above

        known = (running for running in psutil.process_iter(["memory_info"]) if running.pid in pids)
        return sum(running.info["memory_info"].rss for running in known if running.info["memory_info"])
    shared = dict[int, int]()  # files in /dev/shm of a sandbox, by its device; a process may have mapped them, too
    for place in (f"/proc/{pid}/root/dev/shm" for pid in pids):
        with contextlib.suppress(OSError):  # as below
            system, device = os.statvfs(place), Path(place).stat().st_dev
            if device != Path("/dev/shm").stat().st_dev:  # noqa: S108
                shared[device] = (system.f_blocks - system.f_bfree) * system.f_frsize
    files = sum(shared.values())
    used = files + _sum_fields(pids, "status", ("RssAnon", "RssShmem", "VmSwap"))
    if used <= most:
        return used
    mapped = _sum_fields(pids, "smaps_rollup", ("Pss_Shmem",))
    return max(files, mapped) + _sum_fields(pids, "smaps_rollup", ("Pss_Anon", "SwapPss"))


def _sum_fields(pids: Iterable[int], file: str, names: Collection[str]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            lines = Path(f"/proc/{pid}/{file}").read_text(errors="replace").split("\n")
            total += sum(int(line.split()[1]) for line in lines if line.partition(":")[0] in names)
    return 1024 * total


if __name__ == "__main__":
    main(int(sys.argv[1]))
