"""The log of the daemon, and its notifications.

Verbs that only read do not import this module, because structlog is slow to import.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from runplan.adapters.notify.channels import Channel, deliver, list_channels
from runplan.adapters.notify.notices import Notice
from runplan.domain.checks.secrets import redact_text
from runplan.domain.settings.schema import NotifySettings

FILES = 5
FILE_BYTES = 5 * 1024 * 1024
FIRST_FIELDS = ("at", "level", "event", "repository", "plan", "run", "phase", "dispatch")


@contextlib.contextmanager
def open_log(path: Path, *, files: int = FILES, file_bytes: int = FILE_BYTES) -> Iterator[FilteringBoundLogger]:
    """Log to a file: one JSON object per line, without secrets. Lines that the disk refuses are dropped."""
    handler = _LogFile(path, maxBytes=file_bytes, backupCount=files - 1, encoding="utf-8", delay=True)
    logger = logging.Logger("runplan")
    logger.addHandler(handler)
    with contextlib.closing(handler):
        yield structlog.wrap_logger(
            logger,
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
                _in_order,
                structlog.processors.JSONRenderer(separators=(",", ":"), default=str),
                lambda _logger, _name, line: redact_text(str(line)),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        )


class _LogFile(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the line, as on a full disk."""


def _in_order(_logger: object, _name: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {name: fields[name] for name in FIRST_FIELDS if name in fields} | dict(fields)


class Notifier(Struct, eq=False):
    """Sends each notice through each channel in a thread of its own; may be called from any thread."""

    settings: NotifySettings
    log: FilteringBoundLogger
    env: Mapping[str, str]
    limit_s: float = 0.0  #: without it, each channel has its own time limit
    sleep: Callable[[float], None] = time.sleep  #: between two attempts
    threads: list[threading.Thread] = []

    def send(self, notice: Notice) -> None:
        """Send it soon, through the channels that take notices of this kind; returns at once."""
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        for channel in list_channels(self.settings, self.env, limit_s=self.limit_s):
            if notice.kind in channel.on:
                # A thread per channel: one that fails is tried again, and delays no other.
                thread = threading.Thread(target=self._deliver, args=(channel, notice), name="notify", daemon=True)
                thread.start()
                self.threads.append(thread)

    def flush(self, *, within_s: float) -> bool:
        """Wait until everything is sent; False when the time was up before."""
        deadline = time.monotonic() + within_s
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self.threads)

    def _deliver(self, channel: Channel, notice: Notice) -> None:
        if why := deliver(channel, notice, self.env, self.sleep):
            # The address may be a secret itself; it is not logged.
            self.log.warning("notification_failed", channel=channel.name, why=why, plan=notice.plan, run=notice.run)
