"""Takes in an agent's output in bounded memory: a log with its middle left out, lines, and what they tell."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents.clis import module_of
from runplan.checks.secrets import LONGEST, Redactor, overlap, redacted, redacted_end
from runplan.run.usage import (
    MESSAGE_TAIL,
    AgentEvent,
    Finished,
    Folding,
    Message,
    Retrying,
    Spent,
    Tally,
    ToolUsed,
    Trouble,
    Unread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    Reader = Callable[[bytes], tuple[AgentEvent, ...]]

#: What is kept of the end of a log that is longer than its cap.
LOG_TAIL = 256 * 1024

#: A longer line is cut before it is read for events; the log has it whole.
LONGEST_LINE = 10 * 1024 * 1024

#: What is kept of the end of standard error for whoever judges the ending, in bytes.
ERROR_TAIL = 4 * 1024

#: What a reader raises when it meets what nobody thought of.
MISREAD = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def reader_of(name: str) -> Reader:
    """How the output of this kind of agent is read."""
    return module_of(name).read if name else _tells_nothing


def rest_of(name: str, directory: Path) -> Callable[[], tuple[AgentEvent, ...]]:
    """What this kind of agent tells elsewhere than in its output, asked when it has ended."""
    return partial(module_of(name).finish, directory) if name else tuple


def _tells_nothing(line: bytes) -> tuple[AgentEvent, ...]:  # noqa: ARG001
    return ()


class CappedLog:
    """A log file of at most `cap` bytes: the head as it comes, the tail when it is closed, a line between them.

    Secrets are taken out of what is written, and of nothing else: most of a long output is dropped.
    """

    def __init__(self, path: Path, *, cap: int, secrets: Collection[str] = ()) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._tail_size = min(LOG_TAIL, cap // 2)
        self._room = cap - self._tail_size
        self._secrets = secrets
        self._redactor = Redactor(secrets)
        self._overlap = overlap(secrets)
        self._tail = bytearray()
        self._dropped = 0
        self.size = 0  #: bytes taken in

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self._room:
            self._fill(self._redactor.feed(chunk))
        else:
            self._tail += chunk
            self._touch()
        if len(self._tail) > 2 * (self._tail_size + self._overlap):
            surplus = len(self._tail) - self._tail_size - self._overlap
            self._dropped += surplus
            del self._tail[:surplus]

    def _touch(self) -> None:
        """Nothing is written until the end; the file still tells when something was last said."""
        with contextlib.suppress(OSError):
            os.utime(self._file)

    def close(self) -> None:
        if self._room:
            self._fill(self._redactor.finish())
        tail = redacted_end(bytes(self._tail), self._secrets, size=self._tail_size)
        self._dropped += max(0, len(self._tail) - self._tail_size)
        if self._dropped:
            self._put(f"\n[runplan: {self._dropped} bytes left out]\n".encode())
        self._put(tail)
        os.close(self._file)

    def _fill(self, said: bytes) -> None:
        head, rest = said[: self._room], said[self._room :]
        self._room -= len(head)
        self._put(head)
        if not self._room:
            self._tail += rest + self._redactor.take_rest()

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
    """What the lines told; a line that its reader cannot stomach is one of an unknown form."""

    def __init__(self, read: Reader, *, secrets: Collection[str] = ()) -> None:
        self._read = read
        self._secrets = secrets
        self._folding = Folding()

    def take(self, line: bytes) -> None:
        try:
            events = self._read(line)
        except MISREAD:
            events = (Unread(),)
        self.take_events(events)

    def take_events(self, events: tuple[AgentEvent, ...]) -> None:
        """Add what was told elsewhere than in a line."""
        for event in events:
            self._folding.take(event if isinstance(event, Message) else without_secrets(event, self._secrets))

    @property
    def message(self) -> str:
        """Its end, without secrets; where it was cut, half of one may stand."""
        said = self._folding.message
        return redacted(said if len(said) < MESSAGE_TAIL else said[LONGEST:], self._secrets)

    @property
    def events(self) -> tuple[AgentEvent, ...]:
        return self._folding.events

    @property
    def left_out(self) -> int:
        """Tool events beyond what is kept."""
        return self._folding.left_out

    @property
    def tally(self) -> Tally:
        return self._folding.tally


def told_in(log: bytes, reader: str) -> Tally:
    """What an agent had told, by the log of its output."""
    harvest = Harvest(reader_of(reader))
    for line in log.split(b"\n"):
        harvest.take(line[:LONGEST_LINE])
    return harvest.tally


def without_secrets(event: AgentEvent, secrets: Collection[str]) -> AgentEvent:
    """The same event, fit to be written down."""
    match event:
        case Trouble(words=words) | Finished(words=words):
            return replace(event, words=redacted(words, secrets))
        case Retrying(words=words):
            return Retrying(words=redacted(words, secrets))
        case ToolUsed(tool=tool, path=path, denied=denied):
            plain = redacted(tool, secrets), redacted(path, secrets)
            return event if plain == (tool, path) else ToolUsed(tool=plain[0], path=plain[1], denied=denied)
        case _:
            return event


class Intake:
    """All that comes out of one agent: standard output is logged and read, standard error is logged.

    `rest` is asked at the end for what the agent told elsewhere; `secrets` are words that must not be written down.
    """

    def __init__(
        self,
        *,
        out: Path,
        err: Path,
        cap: int,
        read: Reader,
        rest: Callable[[], tuple[AgentEvent, ...]] = tuple,
        secrets: Collection[str] = (),
    ) -> None:
        self.harvest = Harvest(read, secrets=secrets)
        self._lines = Lines(self.harvest.take)
        self._out = CappedLog(out, cap=cap, secrets=secrets)
        self._err = CappedLog(err, cap=cap, secrets=secrets)
        self._secrets = secrets
        self._errors_kept = ERROR_TAIL + overlap(secrets)
        self._last_error = b""
        self._rest = rest

    def take_out(self, chunk: bytes) -> None:
        self._out.write(chunk)
        self._lines.feed(chunk)

    def take_err(self, chunk: bytes) -> None:
        self._err.write(chunk)
        self._last_error = (self._last_error + chunk[-self._errors_kept :])[-self._errors_kept :]

    def consult(self) -> None:
        """Ask what it has spent by what it tells elsewhere: there nobody quotes it."""
        with contextlib.suppress(*MISREAD, OSError):
            self.harvest.take_events(tuple(each for each in self._rest() if isinstance(each, Spent)))

    def finish(self) -> None:
        self._lines.finish()
        with contextlib.suppress(*MISREAD, OSError):
            self.harvest.take_events(self._rest())
        self._out.close()
        self._err.close()

    @property
    def error(self) -> str:
        """The end of standard error."""
        return redacted_end(self._last_error, self._secrets, size=ERROR_TAIL).decode(errors="replace")

    @property
    def size(self) -> int:
        return self._out.size + self._err.size
