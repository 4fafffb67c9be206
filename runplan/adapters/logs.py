"""Writes the daemon's log: one JSON object a line, in files that are turned over before they grow large.

Only the daemon imports this: structlog costs more than a whole reading verb.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import structlog

from runplan.adapters.logfiles import Files
from runplan.adapters.places import own_directory
from runplan.core.secrets import REDACTED, redacted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, MutableMapping
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
        """Write no more; what is said afterwards opens the file again."""
        self._close()


def open_log(
    path: Path,
    *,
    level: str = "info",
    secrets: Collection[str] = (),
    files: int = FILES,
    file_bytes: int = FILE_BYTES,
) -> Log:
    """The log at `path`, its directory made where it is missing; `secrets` are values that it must not tell."""
    own_directory(path.parent)
    kept = Files(path, files=files, file_bytes=file_bytes)
    bound = structlog.wrap_logger(
        _Sink(kept),
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
    return Log(bound, kept.close)


class _Sink:
    """Where structlog puts its lines."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def msg(self, line: str) -> None:
        self._files.write(line)

    info = warning = error = msg


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
