"""The log of the daemon, and its notifications.

Verbs that only read do not import this module, because structlog is slow to import.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import structlog
from msgspec import to_builtins

from runplan.checks.secrets import redact_text
from runplan.git.command import LongCalls
from runplan.report import notices

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from runplan.report.notices import Notice
    from runplan.settings.schema import NotifySettings

FILES = 5
FILE_BYTES = 5 * 1024 * 1024
FIRST_FIELDS = ("at", "level", "event", "repository", "plan", "run", "phase", "dispatch")
LIMITS_S = {"command": 30.0, "webhook": 10.0, "desktop": 5.0}  #: by channel
LONGEST_OUTPUT = 300
CALLS = LongCalls()  #: programs of all notifiers of this process

_APPLE = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")


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


# --- notifications ----------------------------------------------------------------------------------------


class Refused(Exception):
    """The notice was not sent, for this reason."""


class Notifier:
    """Sends each notice in a thread of its own; may be called from any thread."""

    def __init__(
        self, settings: NotifySettings, log: FilteringBoundLogger, *, env: Mapping[str, str], limit_s: float = 0.0
    ) -> None:
        """Without `limit_s`, each channel has its own time limit."""
        self.settings = settings
        self._log = log
        self._env = dict(env)
        self._limits_s = {channel: limit_s or own_s for channel, own_s in LIMITS_S.items()}
        self._threads: list[threading.Thread] = []

    def send(self, notice: Notice) -> None:
        """Send it soon, if the settings ask for notices of this kind; returns at once."""
        if not self._list_channels() or notice.kind not in self.settings.on:
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=self._send_notice, args=(notice,), name="notify", daemon=True)
        thread.start()
        self._threads.append(thread)

    def flush(self, *, within_s: float) -> bool:
        """Wait until everything is sent; False when the time was up before."""
        deadline = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _send_notice(self, notice: Notice) -> None:
        for channel, send in self._list_channels().items():
            try:
                send(notice)
            except (Refused, OSError, ValueError, http.client.HTTPException) as error:
                # ValueError: an address or argument that cannot be sent, such as one with a NUL.
                why = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
                # The address may be a secret itself; it is not logged.
                self._log.warning("notification_failed", channel=channel, why=why, plan=notice.plan, run=notice.run)

    def _list_channels(self) -> dict[str, Callable[[Notice], None]]:
        channels = {"command": self._run_command, "webhook": self._post_webhook, "desktop": self._show_on_desktop}
        return {name: send for name, send in channels.items() if getattr(self.settings, name)}

    def _run_command(self, notice: Notice) -> None:
        facts = {f"RUNPLAN_{name.upper()}": value for name, value in to_builtins(notice).items()}
        env = {name: value for name, value in self._env.items() if not name.startswith(("GIT_", "RUNPLAN_"))}
        argv = ("/bin/sh", "-c", self.settings.command)
        cwd = notice.repository or "/"
        _run_program(argv, env | facts, stdin=notices.as_json(notice), cwd=cwd, limit_s=self._limits_s["command"])

    def _post_webhook(self, notice: Notice) -> None:
        request = urllib.request.Request(  # noqa: S310 - the settings allow http and https only
            self.settings.webhook,
            data=notices.as_json(notice),
            headers={"Content-Type": "application/json", "User-Agent": "runplan"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=self._limits_s["webhook"]):  # noqa: S310
            pass

    def _show_on_desktop(self, notice: Notice) -> None:
        text = "\n".join(part for part in (notice.text, notice.command) if part)
        program = "osascript" if sys.platform == "darwin" else "notify-send"
        path = which(program, path=self._env.get("PATH"))
        if path is None:
            raise Refused(f"{program} is not installed")
        apple = [word for line in _APPLE for word in ("-e", line)]
        words = apple if program == "osascript" else ["-a", "runplan", "--"]
        _run_program(
            (path, *words, notice.title, text), self._env, stdin=b"", cwd="/", limit_s=self._limits_s["desktop"]
        )


def _run_program(argv: tuple[str, ...], env: Mapping[str, str], *, stdin: bytes, cwd: str, limit_s: float) -> None:
    """Run a program; at its time limit it is ended with all it started."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=output, stderr=output, env=env, cwd=cwd, start_new_session=True
        )
        try:
            with CALLS.bounded(process):
                process.communicate(stdin, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Refused(f"took longer than {limit_s:g} s and was ended") from None
        finally:
            process.wait()
        if process.returncode:
            output.seek(0)
            text = redact_text(output.read()[-LONGEST_OUTPUT:].decode("utf-8", "replace")).strip()
            raise Refused(f"exit code {process.returncode}" + (f": {text}" if text else ""))
