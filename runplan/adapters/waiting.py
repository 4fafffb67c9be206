"""Waits for what git says, and not for ever: agents can leave pipes where git reads, and nobody ever writes to them."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
        if stdin:
            return _spoken_to(process, stdin, time.monotonic() + timeout_s, slow)
        return _read_all(process, time.monotonic() + timeout_s, slow)
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


def _steps(deadline: float, slow: Callable[[], object] | None) -> Iterator[float]:
    """For how long to wait, again and again, with a look in between; ends with the time."""
    step = SLOW_S
    while (left := deadline - time.monotonic()) > 0:
        yield min(left, step) if slow else left
        if slow and left > step:
            slow()
            step *= 2


def _spoken_to(
    process: subprocess.Popen[bytes], stdin: bytes, deadline: float, slow: Callable[[], object] | None
) -> tuple[bytes, bytes]:
    asked: bytes | None = stdin
    for step in _steps(deadline, slow):
        try:
            return process.communicate(asked, timeout=step)
        except subprocess.TimeoutExpired:
            asked = None  # it goes on where it was
    raise subprocess.TimeoutExpired(process.args, 0)


def _read_all(
    process: subprocess.Popen[bytes], deadline: float, slow: Callable[[], object] | None
) -> tuple[bytes, bytes]:
    """Both outputs to their ends. `communicate` with a time limit naps a millisecond for each exit."""
    assert process.stdout is not None
    assert process.stderr is not None
    pieces: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    out, err = pieces.values()
    poll = select.poll()
    for pipe in pieces:
        poll.register(pipe, select.POLLIN)
    left = set(pieces)
    steps = _steps(deadline, slow)
    while left:
        step = next(steps, None)
        if step is None:
            raise subprocess.TimeoutExpired(process.args, 0)
        while left and (ready := poll.poll(step * 1000)):
            for pipe, _ in ready:
                if chunk := os.read(pipe, _CHUNK):
                    pieces[pipe].append(chunk)
                else:
                    poll.unregister(pipe)
                    left.remove(pipe)
    process.wait()  # a git that has closed both has ended
    return b"".join(out), b"".join(err)


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
