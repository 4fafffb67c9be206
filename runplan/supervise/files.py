"""The directory of one dispatch: its files, its state, and the bell that wakes who waits for it.

own/       the agent's return and private configuration
lock       held by the shim for as long as it lives
shim.json  identity of the shim; written before the agent is started
out.log    output of the agent, capped; err.log likewise
gauge.json how full the context was when a hand-over had to be prepared
exit.json  how the dispatch ended; written by rename as the shim's last act

A free lock without a whole exit.json means that the shim died.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

from runplan.run.dispatch import RETURN, Ending, NeverStarted, Outcome, Running, Spent, ToolUsed
from runplan.run.usage import Finished, Tally, Trouble, TroubleKind, Usage
from runplan.store.files import is_held, publish as publish, read_bounded, read_text as read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.run.dispatch import DispatchStanding


_LONGEST_NAME = 120


def directory_name(dispatch: str) -> str:
    """A file name that no other id gets; the id itself where that is harmless."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", dispatch)
    if plain == dispatch and len(dispatch) <= _LONGEST_NAME and not dispatch.startswith("."):
        return dispatch
    import hashlib  # dear, and our own ids are plain

    # "~" stands in no plain name, so the two kinds cannot meet.
    return f"{plain[:_LONGEST_NAME].lstrip('.')}~{hashlib.sha256(dispatch.encode()).hexdigest()[:12]}"


#: What may be read whole: an exit holds the end of the message, too.
LARGEST_EXIT = 64 * 1024 * 1024
LARGEST_LOG = 64 * 1024 * 1024

#: Reading a record that is incomplete fails with one of these.
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class DispatchFiles:
    """The directory of one dispatch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = directory / "lock"
        self.shim = directory / "shim.json"
        self.out = directory / "out.log"
        self.err = directory / "err.log"
        self.exit = directory / "exit.json"

    def standing(self) -> DispatchStanding:
        """What has become of the dispatch, asked of the kernel's lock first and of the files after it."""
        # In this order: the shim writes exit.json before it lets go of the lock.
        return Running() if self.locked() else self.standing_unlocked()

    def standing_unlocked(self) -> Outcome | NeverStarted:
        """The same for somebody who knows that no shim holds the lock."""
        if outcome := self._outcome():
            return outcome
        if os.path.lexists(self.shim) or os.path.lexists(self.exit):
            return self.lost()
        return NeverStarted()

    def lost(self) -> Outcome:
        """What is known of a dispatch whose shim has gone without a word."""
        return Outcome(ending=Ending.LOST, code=None, signal=None, message="", tally=self._told())

    def _told(self) -> Tally:
        """What an agent that was lost had used, by the log of what it said; whatever else it said counts no more."""
        reader = self.reader()
        said = read_bounded(self.out, largest=LARGEST_LOG)
        from runplan.settings.load import kinds  # dear, and only what was lost is asked for it
        from runplan.supervise.output import told_in

        if reader not in kinds() or not said:
            return Tally()
        told = told_in(said, reader)
        return Tally(
            session=told.session,
            model=told.model,
            version=told.version,
            usage=told.usage,
            context=told.context,
            estimated=told.estimated,
        )

    def reader(self) -> str:
        """The kind of agent whose output this is; "" for a command of the project."""
        return str(self._shim_record().get("reader") or "")

    def locked(self) -> bool:
        """Tell whether somebody holds the lock."""
        return is_held(self.lock)

    def shim_identity(self) -> str | None:
        """The identity of the shim's process, once it has written it."""
        told = self._shim_record().get("identity")
        return told if isinstance(told, str) else None

    def cgroup(self) -> str:
        """The control group it said that it would make for its agent; "" for none."""
        told = self._shim_record().get("cgroup")
        return told if isinstance(told, str) else ""

    def _shim_record(self) -> dict[str, object]:
        with contextlib.suppress(*_MISREAD):
            record = json.loads(read_text(self.shim) or "{}")
            return record if isinstance(record, dict) else {}
        return {}

    def write_shim(self, identity: str, *, reader: str = "", cgroup: str = "") -> None:
        """Say who the shim is and where its agent will be."""
        place = {"cgroup": cgroup} if cgroup else {}
        record = {"identity": identity, "reader": reader, **place}
        publish(self.shim, json.dumps(record).encode(), sync=False)

    def write_exit(self, outcome: Outcome, *, held: int | None = None) -> None:
        """Say how the dispatch ended, when what the agent returned is on the disk; on the disk before it returns.

        `held` is its directory, open: where the repository was moved away, that has gone with it.
        """
        _sync(self.directory / RETURN)
        tools = [[event.tool, event.path] for event in outcome.events if isinstance(event, ToolUsed)]
        spent = [event.usage for event in outcome.events if isinstance(event, Spent)]
        record = {
            "ending": outcome.ending.value,
            "code": outcome.code,
            "signal": outcome.signal,
            "message": outcome.message,
            "tools": tools,
            "tools_left_out": outcome.events_left_out,
            "usage": [usage_record(usage) for usage in spent],
            "output_bytes": outcome.output_bytes,
            "leftovers": outcome.leftovers,
            "tally": record_of(outcome.tally),
            "error": outcome.error,
            "ended_at": outcome.ended_at,
            "seconds": round(outcome.seconds, 3),
        }
        content = json.dumps(record).encode()
        try:
            publish(self.exit, content, sync=True)
        except FileNotFoundError:
            if held is None:
                raise
            publish(self.exit.relative_to(self.directory), content, sync=True, at=held)

    def _outcome(self) -> Outcome | None:
        text = read_text(self.exit, largest=LARGEST_EXIT)
        with contextlib.suppress(*_MISREAD):
            return _outcome_of(json.loads(text or ""))
        return None


def _outcome_of(record: Mapping[str, Any]) -> Outcome:
    tools = tuple(ToolUsed(tool=tool, path=path) for tool, path in record["tools"])
    spent = tuple(Spent(usage=usage_of(usage), total=True) for usage in record["usage"])
    return Outcome(
        ending=Ending(record["ending"]),
        code=None if record["code"] is None else int(record["code"]),
        signal=None if record["signal"] is None else int(record["signal"]),
        message=str(record["message"]),
        events=tools + spent,
        events_left_out=int(record["tools_left_out"]),
        output_bytes=int(record["output_bytes"]),
        leftovers=int(record["leftovers"]),
        tally=tally_of(record["tally"]),
        error=str(record["error"]),
        ended_at=float(record["ended_at"]),
        seconds=float(record["seconds"]),
    )


def _sync(path: Path) -> None:
    """Let a file that somebody else has written reach the disk."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


# --- a tally in exit.json -------------------------------------------------------------------------------------

_PLAIN = ("session", "model", "version", "context", "window", "estimated", "retries", "waiting", "unread")


def record_of(tally: Tally) -> dict[str, object]:
    """What is written."""
    ended = tally.finished
    return {
        **{name: getattr(tally, name) for name in _PLAIN},
        "usage": usage_record(tally.usage),
        "troubles": [[each.kind.value, each.words, each.resets] for each in tally.troubles],
        "finished": None if ended is None else [ended.ok, ended.words, ended.so_far],
        "denied": [[each.tool, each.path] for each in tally.denied],
    }


def tally_of(record: dict[str, Any]) -> Tally:
    """What is read back."""
    ended = record["finished"]
    return Tally(
        **{name: record[name] for name in _PLAIN},
        usage=usage_of(record["usage"]),
        troubles=tuple(
            Trouble(kind=TroubleKind(kind), words=words, resets=resets) for kind, words, resets in record["troubles"]
        ),
        finished=None if ended is None else Finished(ok=ended[0], words=ended[1], so_far=ended[2]),
        denied=tuple(ToolUsed(tool=tool, path=path, denied=True) for tool, path in record["denied"]),
    )


def usage_record(usage: Usage) -> list[object]:
    return [usage.input_tokens, usage.output_tokens, usage.usd, usage.cached_tokens]


def usage_of(record: list[Any]) -> Usage:
    sent, answered, usd, cached = record
    return Usage(input_tokens=sent, output_tokens=answered, usd=usd, cached_tokens=cached)


NAME = "bell"


def hang(directory: Path) -> None:
    """Put the bell there; what is in its place stays."""
    with contextlib.suppress(OSError):
        os.mkfifo(directory / NAME, 0o600)


def listen(directory: Path) -> int | None:
    """A descriptor that becomes readable when the bell rings; None when there is none."""
    try:
        # For writing, too: else it would look like the end of a file for as long as nobody rings.
        return os.open(directory / NAME, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def ring(directory: Path) -> None:
    """Wake who listens; nobody needs to."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory / NAME, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)


def take_down(directory: Path) -> None:
    """Leave no pipe behind: whoever copies or reads the directory would hang on it."""
    with contextlib.suppress(OSError):
        (directory / NAME).unlink()
