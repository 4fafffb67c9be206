"""Tells people what became of runs: by a command of theirs, a webhook, or on the desktop; no run ever waits for it."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import deque
from shutil import which
from typing import TYPE_CHECKING

from runplan.checks.secrets import redacted
from runplan.git.command import LongCalls
from runplan.report import notices
from runplan.settings.load import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runplan.daemon.logs import Log
    from runplan.report.notices import Notice
    from runplan.settings.schema import NotifySettings

WEBHOOK_S = 10.0
COMMAND_S = 30.0
DESKTOP_S = 5.0

#: As many may wait to be sent; a person does not read more, and a dead webhook takes its time for each.
MOST_WAITING = 100
LAST_WORDS = 300
SLOW_S = 2.0  #: after which one that is being sent holds up the next no longer
MOST_AT_ONCE = 4
QUIET_S = 60.0  #: failures of one way, in a row, are logged no more often
CALLS = LongCalls()  #: programs of all notifiers of this process

_APPLE = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")


class Refused(Exception):
    """It was not sent, for this reason."""


class Notifier:
    """May be called from any thread; its own live only while there is something to send.

    One after the other is sent, in order. One that takes long is overtaken, by a few at a time.
    """

    def __init__(
        self,
        settings: NotifySettings,
        log: Log,
        *,
        env: Mapping[str, str] | None = None,
        command_s: float = COMMAND_S,
        webhook_s: float = WEBHOOK_S,
        slow_s: float = SLOW_S,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._settings = settings
        self._log = log
        self._env = dict(env if env is not None else environment())
        self._command_s = command_s
        self._webhook_s = webhook_s
        self._slow_s = slow_s
        self._quiet_s = quiet_s
        self._waiting: deque[Notice] = deque()
        self._changed = threading.Condition()
        self._workers = 0
        self._sending: set[threading.Timer] = set()  #: one for each that is being sent
        self._slow: set[threading.Timer] = set()  #: those of them that take long
        self._logged: dict[str, float] = {}  #: by way: when the last failure of this row was logged
        self._unlogged: dict[str, int] = {}  #: by way: failures since that have no line

    def send(self, notice: Notice) -> None:
        """Send it soon, if the person wants to know of such things; returns at once."""
        ways = self._ways()
        if not ways or notice.kind not in self._settings.on:
            return
        with self._changed:
            full = len(self._waiting) >= MOST_WAITING
            if not full:
                self._waiting.append(notice)
                self._wake()
        if full:
            self._fail("queue", notice, f"{MOST_WAITING} notices wait already")

    def flush(self, *, within_s: float) -> bool:
        """Wait until everything is sent; False when the time was up before."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._workers, within_s)

    def _wake(self) -> None:
        if self._workers > len(self._slow) or self._workers >= MOST_AT_ONCE:
            return
        # A daemon's thread: the process may end without it.
        worker = threading.Thread(target=self._work, name="runplan-notify", daemon=True)
        self._workers += 1
        try:
            worker.start()
        except RuntimeError:  # no thread is to be had now: the next notice tries again
            self._workers -= 1

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._workers -= 1
                    self._changed.notify_all()
                    return
                notice = self._waiting.popleft()
            self._send(notice)

    def _send(self, notice: Notice) -> None:
        timer = threading.Timer(self._slow_s, lambda: self._overtake(timer))
        timer.daemon = True
        with self._changed:
            self._sending.add(timer)
        with contextlib.suppress(RuntimeError):  # without it the next ones wait
            timer.start()
        for way, go in self._ways().items():
            self._try(way, go, notice)
        timer.cancel()
        with self._changed:
            self._sending.discard(timer)
            self._slow.discard(timer)

    def _overtake(self, timer: threading.Timer) -> None:
        with self._changed:
            if timer in self._sending:
                self._slow.add(timer)
            if self._waiting:
                self._wake()

    def _try(self, way: str, go: Callable[[Notice], None], notice: Notice) -> None:
        try:
            go(notice)
        except Refused as error:
            self._fail(way, notice, str(error))
        except (OSError, ValueError, http.client.HTTPException) as error:
            # ValueError: an address or a word that cannot be sent, such as a NUL in an argument.
            self._fail(way, notice, f"{type(error).__name__}: {error}")
        else:
            self._logged.pop(way, None)

    def _fail(self, way: str, notice: Notice, why: str) -> None:
        """The first of a row at once, then now and then, with how many have no line of their own."""
        now = time.monotonic()
        with self._changed:
            if now - self._logged.get(way, -self._quiet_s) < self._quiet_s:
                self._unlogged[way] = self._unlogged.get(way, 0) + 1
                return
            self._logged[way] = now
            unlogged = self._unlogged.pop(way, 0)
        # The address may be a secret itself; it is not logged.
        fields = {"way": way, "why": why, "plan": notice.plan, "run": notice.run}
        self._log.warning("notification_failed", **fields, unlogged=unlogged)

    # --- ways ---------------------------------------------------------------------------------------------

    def _ways(self) -> dict[str, Callable[[Notice], None]]:
        ways = {"command": self._command, "webhook": self._webhook, "desktop": self._desktop}
        return {name: way for name, way in ways.items() if getattr(self._settings, name)}

    def _command(self, notice: Notice) -> None:
        facts = {f"RUNPLAN_{name.upper()}": value for name, value in notices.facts(notice).items()}
        env = {name: value for name, value in self._env.items() if not name.startswith(("GIT_", "RUNPLAN_"))}
        argv = ("/bin/sh", "-c", self._settings.command)
        _run(argv, env | facts, stdin=notices.as_json(notice), cwd=notice.repository or "/", limit_s=self._command_s)

    def _webhook(self, notice: Notice) -> None:
        request = urllib.request.Request(  # noqa: S310 - the settings take nothing but http and https
            self._settings.webhook,
            data=notices.as_json(notice),
            headers={"Content-Type": "application/json", "User-Agent": "runplan"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=self._webhook_s):  # noqa: S310
            pass

    def _desktop(self, notice: Notice) -> None:
        text = "\n".join(part for part in (notice.text, notice.command) if part)
        program = "osascript" if sys.platform == "darwin" else "notify-send"
        found = which(program, path=self._env.get("PATH"))
        if found is None:
            raise Refused(f"{program} is not installed")
        words = (
            [word for line in _APPLE for word in ("-e", line)] if program == "osascript" else ["-a", "runplan", "--"]
        )
        _run((found, *words, notice.title, text), self._env, stdin=b"", cwd="/", limit_s=DESKTOP_S)


def _run(argv: tuple[str, ...], env: Mapping[str, str], *, stdin: bytes, cwd: str, limit_s: float) -> None:
    """Run it to its end, or to the end of its time with all it started."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=said, stderr=said, env=env, cwd=cwd, start_new_session=True
        )
        try:
            with CALLS.bounded(process):
                process.communicate(stdin, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Refused(f"took longer than {limit_s:g} s and was ended") from None
        finally:
            process.wait()
        if process.returncode:
            said.seek(0)
            words = redacted(said.read()[-LAST_WORDS:].decode("utf-8", "replace")).strip()
            raise Refused(f"exit code {process.returncode}" + (f": {words}" if words else ""))
