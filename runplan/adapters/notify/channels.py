"""The channels of notifications: a command, a webhook, the desktop, and the services that Apprise knows."""

import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import which

import msgspec
from msgspec import Struct, to_builtins

from runplan.adapters.configuration.places import own_directory, state_directory
from runplan.adapters.forge.retry import Calls, Outage
from runplan.adapters.git.command import LongCalls
from runplan.adapters.notify import notices
from runplan.adapters.notify.apprise_child import UNUSABLE, AppriseMessage, redact_parts
from runplan.adapters.notify.notices import Notice
from runplan.adapters.store.files import publish
from runplan.domain.checks.secrets import redact_text
from runplan.domain.decoding import decode_json
from runplan.domain.errors import Unreachable
from runplan.domain.names import digest_of
from runplan.domain.settings.schema import NotifySettings, NotifyTarget
from runplan.domain.times import iso

LIMITS_S = {"command": 30.0, "webhook": 10.0, "desktop": 5.0, "url": 30.0}  #: by kind of channel
LONGEST_OUTPUT = 300  #: characters of the output of a program that are shown
LARGEST_OUTPUT = 64 * 1024  #: bytes of it that are read
CALLS = LongCalls()  #: programs of all notifiers of this process
FAILURES = "notify"  #: directory of the state, with one file per channel that failed
_APPLE = (
    *("-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)"),
    *("-e", "end run"),
)
_APPRISE = (sys.executable, "-P", "-m", "runplan.adapters.notify.apprise_child")
_CHILDREN = threading.BoundedSemaphore(2)  #: each takes the memory of a Python with Apprise


class Channel(Struct, frozen=True, kw_only=True):
    name: str  #: for people; without the address, which may be a secret
    id: str  #: changes with its settings
    on: tuple[str, ...]  #: the notices that it gets
    send: Callable[[Notice], None]


class Failure(Struct, frozen=True, kw_only=True):
    """The last failure of a channel that has not worked since."""

    channel: str
    at: str  #: UTC ISO-8601 with Z
    why: str


def list_channels(settings: NotifySettings, env: Mapping[str, str], *, limit_s: float = 0.0) -> list[Channel]:
    """The channels of the settings. Without `limit_s`, each kind has its own time limit."""
    sender = _Sender(settings, env, {kind: limit_s or own_s for kind, own_s in LIMITS_S.items()})
    senders = {"command": sender.run_command, "webhook": sender.post_webhook, "desktop": sender.show_on_desktop}
    channels = [
        Channel(name=name, id=_identify(name, value), on=settings.on, send=send)
        for name, send in senders.items()
        if (value := getattr(settings, name))
    ]
    for number, target in enumerate(settings.targets, 1):
        name = f"url {number} ({target.scheme})"
        send = partial(sender.send_by_apprise, target)
        channels.append(Channel(name=name, id=_identify("url", target.url), on=target.on, send=send))
    return channels


def _identify(kind: str, value: object) -> str:
    return digest_of(f"{kind} {value}".encode("utf-8", "surrogateescape"))[:16]


def deliver(channel: Channel, notice: Notice, env: Mapping[str, str], sleep: Callable[[float], None] | None) -> str:
    """Send the notice, with `sleep` again after an Outage, and record the result for `doctor`; why not, or ""."""
    faults = (OSError, ValueError, http.client.HTTPException)  # ValueError: an address or argument with a NUL
    calls = Calls(
        faults,
        lambda _name, fault, _now: Outage(redact_text(f"{type(fault).__name__}: {fault}")),
        sleep=sleep or time.sleep,
    )
    why = ""
    try:
        (calls.attempt if sleep else calls.call_once)(channel.name, partial(channel.send, notice))
    except Unreachable as error:
        why = str(error)
    file = _failure_file(env, channel)
    with contextlib.suppress(Unreachable, OSError):  # a full disk is no failure of the channel
        if why:
            own_directory(file.parent)
            failure = Failure(channel=channel.name, at=iso(datetime.now(UTC)), why=_encodable(why))
            publish(file, msgspec.json.encode(failure), sync=False)
        else:
            file.unlink(missing_ok=True)
    return why


def _failure_file(env: Mapping[str, str], channel: Channel) -> Path:
    return state_directory(env) / FAILURES / f"{channel.id}.json"


def list_failures(env: Mapping[str, str], channels: Sequence[Channel]) -> list[Failure]:
    failures = []
    for channel in channels:
        try:
            failures.append(decode_json(_failure_file(env, channel).read_bytes(), Failure))
        except (OSError, msgspec.DecodeError):
            continue
    return failures


def _encodable(text: str) -> str:
    """The text with a mark for what is not UTF-8, as in a file name."""
    return text.encode("utf-8", "replace").decode()


class _Sender(Struct, frozen=True):
    settings: NotifySettings
    env: Mapping[str, str]
    limits_s: Mapping[str, float]  #: by kind

    def run_command(self, notice: Notice) -> None:
        facts = {f"RUNPLAN_{name.upper()}": value for name, value in to_builtins(notice).items()}
        argv = ("/bin/sh", "-c", self.settings.command)
        run = partial(_run_program, argv, self._clean_env() | facts, stdin=notices.as_json(notice), secret=notice.link)
        run(cwd=notice.repository or "/", limit_s=self.limits_s["command"])

    def _clean_env(self) -> dict[str, str]:
        return {name: value for name, value in self.env.items() if not name.startswith(("GIT_", "RUNPLAN_"))}

    def post_webhook(self, notice: Notice) -> None:
        request = urllib.request.Request(  # noqa: S310 - the settings allow http and https only
            self.settings.webhook,
            data=notices.as_json(notice),
            headers={"Content-Type": "application/json", "User-Agent": "runplan"},
            method="POST",
        )
        try:
            urllib.request.urlopen(request, timeout=self.limits_s["webhook"]).close()  # noqa: S310
        except urllib.error.HTTPError as error:
            error.close()
            raise Outage(f"the answer was {error.code} {error.reason}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # some of them quote the address
            raise Outage(redact_parts(f"{type(error).__name__}: {error}", self.settings.webhook)) from None

    def show_on_desktop(self, notice: Notice) -> None:
        # The command and not the link: arguments can be read by other processes.
        text = "\n".join(part for part in (notice.text, notice.command) if part)
        program = "osascript" if sys.platform == "darwin" else "notify-send"
        path = which(program, path=self.env.get("PATH"))
        if path is None:
            raise Unreachable(f"{program} is not installed")
        words = _APPLE if program == "osascript" else ("-a", "runplan", "--")
        argv = (path, *words, notice.title, text)
        _run_program(argv, self.env, limit_s=self.limits_s["desktop"])

    def send_by_apprise(self, target: NotifyTarget, notice: Notice) -> None:
        """Send it in a process of its own: the daemon stays small, and a service that hangs is ended."""
        body = "\n\n".join(part for part in (notice.text, notice.link or notice.command) if part)
        title = _encodable(notice.title)
        message = AppriseMessage(url=target.url, kind=notice.kind, title=title, body=_encodable(body))
        stdin = msgspec.json.encode(message)
        with _CHILDREN:
            _run_program(_APPRISE, self._clean_env(), stdin=stdin, limit_s=self.limits_s["url"])


def _run_program(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    *,
    stdin: bytes = b"",
    cwd: str = "/",
    limit_s: float,
    secret: str = "",
) -> None:
    """Run a program; at its time limit it is ended with all it started. `secret` is not shown if it fails."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=output, stderr=output, env=env, cwd=cwd, start_new_session=True
        )
        try:
            with CALLS.bounded(process):
                process.communicate(stdin, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Outage(f"took longer than {limit_s:g} s and was ended") from None
        finally:
            process.wait()
        if process.returncode:
            output.seek(max(0, output.seek(0, os.SEEK_END) - LARGEST_OUTPUT))
            text = redact_text(output.read().decode("utf-8", "replace"), [secret] if secret else [])
            text = text.strip()[-LONGEST_OUTPUT:]
            if argv == _APPRISE and text:
                raise (Unreachable if process.returncode == UNUSABLE else Outage)(text)
            raise Outage(f"exit code {process.returncode}" + (f": {text}" if text else ""))
