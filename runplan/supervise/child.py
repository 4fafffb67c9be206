"""Starts the process of a dispatch with pipes to its shim, and writes to its standard input."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.clis import agent_of
from runplan.processes import MARK

if TYPE_CHECKING:
    from runplan.run.dispatch import Launch
    from runplan.supervise.cgroups import Cgroup

PIPE_SIZE = 1024 * 1024


class Child(Struct, frozen=True, kw_only=True):
    """A started process and the shim's ends of its pipes."""

    pid: int
    stdin: int | None  #: None when it reads a file
    out: int
    err: int


def start(launch: Launch, group: Cgroup | None) -> Child:
    """Start the process in a session of its own and, where possible, in its control group."""
    with contextlib.ExitStack() as stack:
        if launch.takes_messages:
            stdin, to_it = os.pipe()
            os.set_blocking(to_it, False)
        else:
            stdin, to_it = os.open(launch.stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC), None
        (out, out_end), (err, err_end) = _pipe(), _pipe()
        for descriptor in (stdin, out_end, err_end):
            stack.callback(os.close, descriptor)
        if group and group.make():
            stack.enter_context(group.entered())
        agent = subprocess.Popen(
            launch.argv,
            stdin=stdin,
            stdout=out_end,
            stderr=err_end,
            cwd=launch.cwd,
            env={**launch.env, MARK: launch.id},
            start_new_session=True,
        )
    agent.returncode = 0  # the shim waits for every child itself; Popen must not
    return Child(pid=agent.pid, stdin=to_it, out=out, err=err)


def _pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with contextlib.suppress(AttributeError, OSError):  # only faster; the user's allowance can be used up
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    return read_end, write_end


class StdinWriter:
    """Writes messages to an agent without blocking; the first one is its prompt."""

    def __init__(self, pipe: int | None, launch: Launch, selector: selectors.BaseSelector) -> None:
        self._pipe = pipe  #: None: the agent takes no messages, or its pipe is closed
        self._format = agent_of(launch.reader).message if pipe is not None else None
        self._selector = selector
        self._rest = b""
        self._is_last = False
        if pipe is not None:
            self._queue(Path(launch.stdin).read_text(encoding="utf-8", errors="replace"))
            self.write()

    def send_last(self, text: str) -> bool:
        """Send a message and close the pipe after it; False when the agent cannot read it."""
        if self._pipe is None or self._is_last:
            return False
        self._queue(text)
        self._is_last = True
        return self.write()

    def write(self) -> bool:
        """Write as much as the pipe takes; False when the agent does not read."""
        if self._pipe is None:
            return False
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._pipe, self._rest) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return False
        if self._is_last and not self._rest:
            self.close()
        else:
            self._watch()
        return True

    def close(self) -> None:
        if self._pipe is not None:
            if self._pipe in self._selector.get_map():
                self._selector.unregister(self._pipe)
            os.close(self._pipe)
            self._pipe = None

    def _queue(self, text: str) -> None:
        assert self._format is not None
        self._rest += self._format(text)

    def _watch(self) -> None:
        assert self._pipe is not None
        watched = self._pipe in self._selector.get_map()
        if self._rest and not watched:
            self._selector.register(self._pipe, selectors.EVENT_WRITE, self)
        elif watched and not self._rest:
            self._selector.unregister(self._pipe)


class Signals:
    """Turns SIGTERM and SIGCHLD into a readable descriptor."""

    def __init__(self) -> None:
        self.requests = 0  #: how often the shim was asked to end
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)

    def __enter__(self) -> Signals:
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
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
