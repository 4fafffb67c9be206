"""Waits for what git says, and not for ever.

`Popen.communicate` with a time limit naps before it looks for the exit: 2.6 ms for a `git rev-parse` instead of
1.5 ms (median of 200 calls).
"""

from __future__ import annotations

import os
import select
import subprocess
import time

ANSWER_S = 60.0  #: a kept process that says nothing for so long will not any more
_CHUNK = 64 * 1024


def outputs(process: subprocess.Popen[bytes], stdin: bytes, timeout_s: float) -> tuple[bytes, bytes]:
    """What a command writes until it ends; it does not outlive an exception."""
    try:
        return _talk(process, stdin, timeout_s)
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


def _talk(process: subprocess.Popen[bytes], stdin: bytes, timeout_s: float) -> tuple[bytes, bytes]:
    """Say everything, and hear both outputs to their ends."""
    end = time.monotonic() + timeout_s
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
        remaining = end - time.monotonic()
        if remaining <= 0:
            raise subprocess.TimeoutExpired(process.args, timeout_s)
        for pipe, _ in poll.poll(remaining * 1000):
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
