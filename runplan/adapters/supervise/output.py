"""The files of one dispatch, and its output taken in with bounded memory: capped logs, lines and their events.

The directory of a dispatch is named after its id:

own/       the agent's return
lock       held by the shim while it lives
shim.json  identity of the shim; written before the agent starts
out.log    output of the agent, capped; err.log likewise
exit.json  how the dispatch ended; written by rename as the shim's last act

A free lock without a complete exit.json means that the shim died.
"""

import contextlib
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents.budgets import tokens_in
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.store.files import is_held, open_untrusted, read_bounded
from runplan.domain.checks.secrets import LONGEST, Redactor, byte_spans, redact_text, redacted_bytes
from runplan.domain.decoding import decode_json
from runplan.domain.run import dispatch as d

T = TypeVar("T")
Reader: TypeAlias = Callable[[bytes], tuple[d.AgentEvent, ...]]
#: The largest record or log that is read whole. An exit record includes the end of the message.
LARGEST = 64 * 1024 * 1024
LOG_TAIL = 256 * 1024  #: how much of the end is kept of a log that is longer than its cap
LONGEST_LINE = 10 * 1024 * 1024  #: a longer line is cut before it is read for events; the log has all of it
LONGEST_READ = 100_000  #: programs give their model about 2,000 lines of a file at once
ERROR_TAIL = 4 * 1024  #: how many bytes of the end of standard error are kept to judge the ending
#: Exceptions of a reader that meets a line of an unexpected form.
MISREAD = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def reader_of(kind: str) -> Reader:
    """The function that reads one output line of this kind of agent; a command of the project reports no events."""
    return agent_of(kind).read_line if kind else lambda _: ()


class CappedLog:
    """A log file of at most `cap` bytes without secrets: the head is written as it comes, the tail at the end."""

    def __init__(self, path: Path, *, cap: int, secrets: Collection[str] = ()) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._tail_size = min(LOG_TAIL, cap // 2)
        self._head_left = cap - self._tail_size
        self._secrets = secrets
        self._redactor = Redactor(secrets)
        self._overlap = max([LONGEST, *(4 * len(value) for value in secrets)])  #: bytes of a secret before the tail
        self._tail = bytearray()
        self._dropped = 0

    def write(self, chunk: bytes) -> None:
        if self._head_left:
            self._fill_head(self._redactor.feed(chunk))
        else:
            self._tail += chunk
            with contextlib.suppress(OSError):
                os.utime(self._file)  # the file still shows when the agent last printed
        if len(self._tail) > 2 * (self._tail_size + self._overlap):
            surplus = len(self._tail) - self._tail_size - self._overlap
            self._dropped += surplus
            del self._tail[:surplus]

    def close(self) -> None:
        if self._head_left:
            self._fill_head(self._redactor.finish())
        data = bytes(self._tail)
        start = max(0, len(data) - self._tail_size)
        across = (end for begin, end in byte_spans(data, self._secrets) if begin < start < end)
        tail = redacted_bytes(data[next(across, start) :], self._secrets)  # a secret at its start is removed whole
        self._dropped += start
        if self._dropped:
            self._put(f"\n[runplan: {self._dropped} bytes left out]\n".encode())
        self._put(tail)
        os.close(self._file)

    def _fill_head(self, text: bytes) -> None:
        head, rest = text[: self._head_left], text[self._head_left :]
        self._head_left -= len(head)
        self._put(head)
        if not self._head_left:
            self._tail += rest + self._redactor.take_rest()

    def _put(self, data: bytes) -> None:
        # A full disk costs the log, not the agent's work: the pipe must still be read.
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._file, data) :]


class EventCollector:
    """Cuts output into lines, reads them for events and sums these up. A line that its reader fails on is unread."""

    def __init__(self, read: Reader, *, secrets: Collection[str] = (), cwd: str = "") -> None:
        self._read = read
        self._cwd = cwd
        self._secrets = secrets
        self._line = bytearray()  #: the newest one, until its end arrives
        self._folding = d.Folding()

    def feed(self, chunk: bytes) -> None:
        first, newline, rest = chunk.partition(b"\n")
        self._line += first[: LONGEST_LINE - len(self._line)]
        if newline:
            *lines, last = rest.split(b"\n")
            for line in (bytes(self._line), *lines):
                self.read_line(line)
            self._line = bytearray(last[:LONGEST_LINE])

    def finish(self) -> None:
        if self._line:
            self.read_line(bytes(self._line))

    def read_line(self, line: bytes) -> None:
        try:
            self.add(self._read(line))
        except MISREAD:
            self.add((d.Unread(),))

    def add(self, events: tuple[d.AgentEvent, ...]) -> None:
        """Add events without secrets. One can be split over several messages, so the message is redacted whole."""
        for event in events:
            match event:
                case d.Trouble(words=words) | d.Finished(words=words) | d.Retrying(words=words):
                    event = replace(event, words=redact_text(words, self._secrets))
                case d.ToolUsed(tool=tool, path=path):  # the detail is only shown from the log, which is redacted
                    tool, path = redact_text(tool, self._secrets), redact_text(path, self._secrets)
                    event = replace(event, tool=tool, path=path, detail="")
                case d.Context(tokens=int(tokens), file=file) if file:
                    with contextlib.suppress(OSError, ValueError):  # a file that cannot be seen adds nothing
                        read = min(Path(self._cwd, file).stat().st_size, LONGEST_READ)
                        event = replace(event, tokens=tokens + tokens_in(read))
            self._folding.add_event(event)

    @property
    def message(self) -> str:
        """The end of the message without secrets, nor half of one where it was cut."""
        text = self._folding.message
        return redact_text(text if len(text) < d.MESSAGE_TAIL else text[LONGEST:], self._secrets)

    @property
    def tally(self) -> d.Tally:
        return self._folding.tally


class ShimRecord(Struct, frozen=True, kw_only=True):
    identity: str = ""
    reader: str = ""  #: kind of agent whose output this is; "" for a command of the project


class DispatchFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = directory / "lock"
        self.out = directory / "out.log"
        self.err = directory / "err.log"
        self.shim_file = directory / "shim.json"
        self.exit_file = directory / "exit.json"

    def standing(self) -> d.Outcome | d.NeverStarted:
        """How the dispatch ended; for a caller that knows that no shim holds the lock."""
        if outcome := _read(self.exit_file, d.Outcome):
            return outcome
        has_begun = os.path.lexists(self.shim_file) or os.path.lexists(self.exit_file)
        return self.lost() if has_begun else d.NeverStarted()

    def lost(self) -> d.Outcome:
        """The outcome of a dispatch whose shim died: its log shows what the agent used."""
        from runplan.adapters.configuration.load import list_agent_kinds  # slow to import, and rarely needed

        kind = self.shim().reader
        events = EventCollector(reader_of(kind if kind in list_agent_kinds() else ""))
        events.feed(read_bounded(self.out, largest=LARGEST) or b"")
        events.finish()
        tally = replace(events.tally, troubles=(), finished=None, denied=(), waiting="", unread=0)
        return d.Outcome(ending=d.Ending.LOST, code=None, signal=None, message="", tally=tally)

    def locked(self) -> bool:
        return is_held(self.lock)

    def shim(self) -> ShimRecord:
        return _read(self.shim_file, ShimRecord) or ShimRecord()

    def error(self) -> str:
        """The end of standard error, from its finished log; "" when an agent has left a pipe or a link there."""
        with contextlib.suppress(OSError), open_untrusted(self.err) as file:
            file.seek(-min(ERROR_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
            return file.read().decode(errors="replace")
        return ""


def _read(path: Path, kind: type[T]) -> T | None:
    """The record in the file; None when it is missing or incomplete, as after a power cut."""
    return decode_record(read_bounded(path, largest=LARGEST) or b"", kind)


def decode_record(content: bytes, kind: type[T]) -> T | None:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return decode_json(content, kind)
    return None
