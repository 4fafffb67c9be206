"""Takes in an agent's output in bounded memory: a log with its middle left out, lines, and what they tell."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from runplan.core.dispatch import AgentEvent, Message, Spent, ToolUsed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Reader = Callable[[bytes], tuple[AgentEvent, ...]]

#: What is kept of the end of a log that is longer than its cap.
LOG_TAIL = 256 * 1024

#: A longer line is cut before it is read for events; the log has it whole.
LONGEST_LINE = 10 * 1024 * 1024

#: What is kept of the end of the agent's message, in characters.
MESSAGE_TAIL = 1024 * 1024

#: Different tool events kept; the rest is counted.
MOST_TOOLS = 5_000


class CappedLog:
    """A log file of at most `cap` bytes: the head as it comes, the tail when it is closed, a line between them."""

    def __init__(self, path: Path, *, cap: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._tail_size = min(LOG_TAIL, cap // 2)
        self._room = cap - self._tail_size
        self._tail = bytearray()
        self._dropped = 0
        self.size = 0  #: bytes taken in

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        head, rest = chunk[: self._room], chunk[self._room :]
        self._room -= len(head)
        self._put(head)
        self._tail += rest
        if len(self._tail) > 2 * self._tail_size:
            self._trim()

    def close(self) -> None:
        self._trim()
        if self._dropped:
            self._put(f"\n[runplan: {self._dropped} bytes left out]\n".encode())
        self._put(bytes(self._tail))
        os.close(self._file)

    def _trim(self) -> None:
        surplus = max(0, len(self._tail) - self._tail_size)
        self._dropped += surplus
        del self._tail[:surplus]

    def _put(self, data: bytes) -> None:
        # A full disk costs the log, not the agent's work: the pipe must go on being read.
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._file, data) :]


class Lines:
    """Cuts chunks into lines; only the start of an overlong line is kept."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._held: list[bytes] = []
        self._held_size = 0

    def feed(self, chunk: bytes) -> None:
        first, *lines = chunk.split(b"\n")
        self._hold(first)
        if not lines:
            return
        self._hand_out()
        last = lines.pop()
        for line in lines:
            self._take(line)
        self._hold(last)

    def finish(self) -> None:
        """Hand out a last line that had no end."""
        if self._held:
            self._hand_out()

    def _hand_out(self) -> None:
        line = b"".join(self._held)
        self._held.clear()
        self._held_size = 0
        self._take(line)

    def _hold(self, piece: bytes) -> None:
        piece = piece[: LONGEST_LINE - self._held_size]
        if piece:
            self._held.append(piece)
            self._held_size += len(piece)


class Harvest:
    """What the lines told: the end of the message, the tools used, the last usage."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._pieces: list[str] = []
        self._length = 0
        self._tools: dict[ToolUsed, None] = {}
        self._spent: Spent | None = None
        self.left_out = 0  #: tool events beyond MOST_TOOLS

    def take(self, line: bytes) -> None:
        for event in self._read(line):
            match event:
                case Message(text=text):
                    self._say(text)
                case ToolUsed():
                    self._use(event)
                case Spent():
                    self._spent = event

    @property
    def message(self) -> str:
        return "".join(self._pieces)[-MESSAGE_TAIL:]

    @property
    def events(self) -> tuple[AgentEvent, ...]:
        return (*self._tools, self._spent) if self._spent else tuple(self._tools)

    def _say(self, text: str) -> None:
        self._pieces.append(text[-MESSAGE_TAIL:])
        self._length += len(self._pieces[-1])
        if self._length > 2 * MESSAGE_TAIL:
            self._pieces = [self.message]
            self._length = len(self._pieces[0])

    def _use(self, event: ToolUsed) -> None:
        if event in self._tools or len(self._tools) < MOST_TOOLS:
            self._tools[event] = None
        else:
            self.left_out += 1


class Intake:
    """All that comes out of one agent: standard output is logged and read, standard error is logged."""

    def __init__(self, *, out: Path, err: Path, cap: int, read: Reader) -> None:
        self.harvest = Harvest(read)
        self._lines = Lines(self.harvest.take)
        self._out = CappedLog(out, cap=cap)
        self._err = CappedLog(err, cap=cap)

    def take_out(self, chunk: bytes) -> None:
        self._out.write(chunk)
        self._lines.feed(chunk)

    def take_err(self, chunk: bytes) -> None:
        self._err.write(chunk)

    def finish(self) -> None:
        self._lines.finish()
        self._out.close()
        self._err.close()

    @property
    def size(self) -> int:
        return self._out.size + self._err.size
