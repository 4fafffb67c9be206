"""The daemon's log: one JSON object a line, in files that are rotated by size.

Only one process writes the log: the daemon, while it holds its lock. Reading verbs do not import this module, because
structlog is slow to import.
"""

from __future__ import annotations

import contextlib
import logging
import os
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import structlog

from runplan.checks.secrets import REDACTED, redacted
from runplan.settings.places import own_directory

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, MutableMapping
    from io import TextIOWrapper
    from pathlib import Path

FILES = 5
FILE_BYTES = 5 * 1024 * 1024
LONGEST_TEXT = 4096
DEEPEST = 4
MOST_ENTRIES = 100
LARGEST = 1e300

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}  #: as structlog counts them
_FIRST = ("at", "level", "event", "repository", "plan", "run", "phase", "dispatch")
_OURS = frozenset(("at", "level", "event"))
_SECRET_NAMES = ("key", "token", "secret", "password", "authorization", "cookie")


class Log:
    """Facts with fields; a call never raises, whatever it is given and whatever the disk says."""

    def __init__(self, bound: Any, close: Any) -> None:
        """Use `open_log`."""
        self._bound = bound
        self._close = close

    def info(self, event: str, /, **fields: object) -> None:
        self._bound.info(_plain(event), **_fields(fields))

    def warning(self, event: str, /, **fields: object) -> None:
        self._bound.warning(_plain(event), **_fields(fields))

    def error(self, event: str, /, **fields: object) -> None:
        self._bound.error(_plain(event), **_fields(fields))

    def bind(self, **fields: object) -> Log:
        """The same log, which tells these of every fact: run, phase, dispatch."""
        return Log(self._bound.bind(**_fields(fields)), self._close)

    def close(self) -> None:
        """Close the file; the next fact opens it again."""
        self._close()


def open_log(
    path: Path,
    *,
    level: str = "info",
    secrets: Collection[str] = (),
    files: int = FILES,
    file_bytes: int = FILE_BYTES,
) -> Log:
    """Open the log at `path` and make its directory; the values in `secrets` are redacted."""
    own_directory(path.parent)
    handler = _File(path, maxBytes=file_bytes, backupCount=files - 1, delay=True)
    logger = logging.Logger("runplan")
    logger.addHandler(handler)
    bound = structlog.wrap_logger(
        logger,
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            _in_order,
            structlog.processors.JSONRenderer(separators=(",", ":")),
            lambda _logger, _name, line: redacted(str(line), secrets),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        context_class=dict,
    )
    return Log(bound, handler.close)


class _File(RotatingFileHandler):
    """A file only its user can read. A line that the disk refuses is dropped whole, and no error reaches the caller."""

    _whole = 0  #: size of the file before the current line

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._whole = os.fstat(descriptor).st_size
        return open(descriptor, "a", encoding="ascii")

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream:
            self._whole = os.fstat(self.stream.fileno()).st_size
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        stream, self.stream = self.stream, None
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
            with contextlib.suppress(OSError):
                os.truncate(self.baseFilename, self._whole)


def _in_order(_logger: object, _name: str, facts: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """When, what and of whom first."""
    return {name: facts[name] for name in _FIRST if name in facts} | dict(facts)


# --- values that can be written ---------------------------------------------------------------------------


def _fields(fields: dict[str, object]) -> dict[str, Any]:
    return {f"{name}_" if name in _OURS else name: _told(name, value, DEEPEST) for name, value in fields.items()}


def _told(name: object, value: object, depth: int) -> Any:
    secret = isinstance(name, str) and name.lower().endswith(_SECRET_NAMES) and isinstance(value, (str, bytes))
    return REDACTED if secret and value else _plain(value, depth)


def _plain(value: object, depth: int = DEEPEST) -> Any:
    """The value as JSON knows it; of what is none, only its type is told, since its own words might fail."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        # JSON has no infinity, and Python writes no number of many thousand digits.
        return value if abs(value) < LARGEST else f"<{type(value).__name__}>"
    if isinstance(value, (str, PurePath)):
        return _short(str(value))
    if isinstance(value, bytes):
        return _short(value[: 2 * LONGEST_TEXT].decode("utf-8", "replace"))
    if isinstance(value, (dict, list, tuple, set, frozenset)) and depth:
        return _many(value, depth - 1)
    return _of_object(value)


def _many(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        some = list(value.items())[:MOST_ENTRIES]
        return {_short(f"{_plain(name, 0)}"): _told(name, one, depth) for name, one in some}
    return [_plain(one, depth) for one in list(value)[:MOST_ENTRIES]]


def _of_object(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Exception) and all(isinstance(part, (str, int)) for part in value.args):
        return _short(f"{type(value).__name__}: {', '.join(map(str, value.args))}")
    return f"<{type(value).__name__}>"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
