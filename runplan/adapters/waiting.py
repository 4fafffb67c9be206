"""Waits for what git says, and not for ever: agents can leave pipes where git reads, and nobody ever writes to them."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ANSWER_S = 60.0  #: a kept process that says nothing for so long will not any more
SLOW_S = 2.0  #: so long git may take before anybody looks what keeps it
_CHUNK = 64 * 1024
_READ_BY_GIT = ".git"  #: how the names of files begin that git reads in a worktree (.gitignore, .gitattributes)


def outputs(
    process: subprocess.Popen[bytes], stdin: bytes, timeout_s: float, *, slow: Callable[[], object] | None = None
) -> tuple[bytes, bytes]:
    """What a command writes until it ends; it does not outlive an exception. `slow` is called when it takes long."""
    try:
        return _talk(process, stdin, _Patience(process, timeout_s, slow))
    finally:
        if process.returncode is None:
            process.kill()


def answer(process: subprocess.Popen[bytes], length: int) -> bytes:
    """So many bytes of what a kept process says next; fewer when it ends, or is silent for too long."""
    assert process.stdout is not None
    said = b""
    while len(said) < length and has_said(process):
        piece = os.read(process.stdout.fileno(), length - len(said))
        if not piece:
            break
        said += piece
    return said


def has_said(process: subprocess.Popen[bytes]) -> bool:
    """Whether a kept process says something, or ends, before long; one that does not is ended."""
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if poll.poll(ANSWER_S * 1000):
        return True
    process.kill()
    return False


class _Patience:
    """For how long to wait for something to happen; every now and then somebody looks what keeps it."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float, slow: Callable[[], object] | None) -> None:
        self._process = process
        self._slow = slow
        self._step = SLOW_S
        self._look = time.monotonic() + SLOW_S
        self._end = time.monotonic() + timeout_s

    def left_ms(self) -> float:
        """Until the next look, or the end; past the end it is `TimeoutExpired`."""
        now = time.monotonic()
        if now >= self._end:
            raise subprocess.TimeoutExpired(self._process.args, 0)
        if self._slow is None:
            return (self._end - now) * 1000
        if now >= self._look:
            self._slow()
            self._step *= 2
            self._look = now + self._step
        return max(0.0, min(self._end, self._look) - now) * 1000


def _talk(process: subprocess.Popen[bytes], stdin: bytes, patience: _Patience) -> tuple[bytes, bytes]:
    """Say everything, and hear both outputs to their ends.

    `communicate` with a time limit naps a millisecond for each exit, and after the first one it says no more.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    heard: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    out, err = heard.values()
    poll = select.poll()
    for pipe in heard:
        poll.register(pipe, select.POLLIN)
    rest = memoryview(stdin)
    if process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
        poll.register(process.stdin, select.POLLOUT)
    left = len(heard)
    while left:
        for pipe, _ in poll.poll(patience.left_ms()):
            if pipe not in heard:
                rest = _said(process, rest, poll)
            elif chunk := os.read(pipe, _CHUNK):
                heard[pipe].append(chunk)
            else:
                poll.unregister(pipe)
                left -= 1
    process.wait()  # a git that has closed both has ended
    return b"".join(out), b"".join(err)


def _said(process: subprocess.Popen[bytes], rest: memoryview, poll: select.poll) -> memoryview:
    """What is still to be said; with the last of it, or when nobody listens any more, the pipe is closed."""
    assert process.stdin is not None
    try:
        rest = rest[os.write(process.stdin.fileno(), rest) :]
    except BrokenPipeError:
        rest = rest[:0]
    if not rest:
        poll.unregister(process.stdin)
        process.stdin.close()
    return rest


def let_go(worktree: Path) -> list[str]:
    """Take away pipes where git reads in a worktree, and let go whoever waits at one; their names."""
    taken = []
    for folder, _, names in os.walk(worktree):
        for name in names:
            path = os.path.join(folder, name)
            if name.startswith(_READ_BY_GIT) and stat.S_ISFIFO(os.lstat(path).st_mode):
                _end_of(path)
                taken.append(path)
    return taken


def _end_of(path: str) -> None:
    """Whoever waits for a writer gets one that has nothing to say."""
    try:
        writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # nobody waits there
        os.unlink(path)  # noqa: PTH108
        return
    os.unlink(path)  # noqa: PTH108
    os.close(writer)
