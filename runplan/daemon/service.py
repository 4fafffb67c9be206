"""The login service of the daemon, and its messages to the service manager."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.daemon.servicefiles import LABEL, STOP_S, UNIT, Service, launchd_list, systemd_unit
from runplan.errors import RefusedEarly, Unreachable
from runplan.settings.places import OUTPUT, home, state_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Words: TypeAlias = tuple[str, ...]

#: -P: modules in the current directory must not be imported.
DAEMON = (sys.executable, "-P", "-m", "runplan", "daemon")

ANSWER_S = 30.0
ENDING_S = STOP_S + ANSWER_S  #: the daemon lets its agents end first


class Manager(Struct, frozen=True, kw_only=True):
    """A service manager: its file for the daemon, and its commands."""

    file: Path
    text: str
    asks: Words  #: fails when it does not serve this user
    enables: tuple[Words, ...]
    disables: tuple[Words, ...]
    starts: Words
    is_active: Words


class Standing(Struct, frozen=True, kw_only=True):
    file: str
    installed: bool
    current: bool  #: the file is what this version would write
    active: bool
    answers: bool  #: whether the service manager serves this user


def manager(env: Mapping[str, str]) -> Manager:
    """The service manager of this machine; refused where no known one is."""
    umask = os.umask(0o077)
    os.umask(umask)
    daemon = Service(argv=DAEMON, env=env, umask=umask, output=str(state_directory(env) / OUTPUT))
    if shutil.which("systemctl", path=env.get("PATH")):
        user = ("systemctl", "--user")
        return Manager(
            file=Path(env.get("XDG_CONFIG_HOME") or home(env) / ".config") / "systemd" / "user" / UNIT,
            text=systemd_unit(daemon),
            asks=(*user, "show-environment"),
            enables=((*user, "daemon-reload"), (*user, "enable", "--now", UNIT)),
            disables=((*user, "disable", "--now", UNIT), (*user, "daemon-reload")),
            starts=(*user, "start", UNIT),
            is_active=(*user, "is-active", "--quiet", UNIT),
        )
    if shutil.which("launchctl", path=env.get("PATH")):
        domain = f"gui/{os.getuid()}"
        file = home(env) / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        return Manager(
            file=file,
            text=launchd_list(daemon),
            asks=("launchctl", "print", domain),
            enables=(("launchctl", "bootstrap", domain, str(file)),),
            disables=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
            starts=("launchctl", "kickstart", f"{domain}/{LABEL}"),
            is_active=("launchctl", "print", f"{domain}/{LABEL}"),
        )
    raise RefusedEarly("neither systemd nor launchd is here; start the daemon another way: runplan daemon")


def install(manager: Manager, env: Mapping[str, str]) -> bool:
    """Write the file and enable the service; False when the manager does not serve this user."""
    try:
        manager.file.parent.mkdir(parents=True, exist_ok=True)
        manager.file.write_text(manager.text, encoding="utf-8")
    except OSError as error:
        raise Unreachable(f"{manager.file} cannot be written: {error.strerror}") from error
    return _run_all(manager, manager.enables, env)


def uninstall(manager: Manager, env: Mapping[str, str]) -> bool:
    """Disable the service and remove the file; False when there was none."""
    if not manager.file.exists():
        return False
    _run_all(manager, manager.disables[:1], env, within_s=ENDING_S)
    manager.file.unlink(missing_ok=True)
    _run_all(manager, manager.disables[1:], env)
    return True


def start(env: Mapping[str, str]) -> bool:
    """Have an installed service start the daemon; False when none is installed."""
    try:
        found = manager(env)
    except RefusedEarly:
        return False
    return found.file.is_file() and _run(found.starts, env).returncode == 0


def standing(manager: Manager, env: Mapping[str, str]) -> Standing:
    installed = manager.file.is_file()
    return Standing(
        file=str(manager.file),
        installed=installed,
        current=installed and manager.file.read_text(encoding="utf-8", errors="replace") == manager.text,
        active=_run(manager.is_active, env).returncode == 0,
        answers=_run(manager.asks, env).returncode == 0,
    )


def _run_all(manager: Manager, commands: Sequence[Words], env: Mapping[str, str], within_s: float = ANSWER_S) -> bool:
    if _run(manager.asks, env).returncode:
        return False
    for command in commands:
        done = _run(command, env, within_s)
        if done.returncode:
            output = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"exit code {done.returncode}"
            raise Unreachable(f"{' '.join(command)}: {output[:300]}")
    return True


def _run(command: Words, env: Mapping[str, str], within_s: float = ANSWER_S) -> subprocess.CompletedProcess[bytes]:
    argv = [shutil.which(command[0], path=env.get("PATH")) or command[0], *command[1:]]
    try:
        return subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, returncode=1, stdout=b"", stderr=str(error).encode())


# --- messages to the service manager (sd_notify) ----------------------------------------------------------

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def extended(seconds: float) -> str:
    """Asks for more time until the next message."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"


def notify(env: Mapping[str, str], *messages: str) -> bool:
    """Send the messages without blocking; False when no manager listens."""
    address = env.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream, contextlib.suppress(OSError):
        stream.setblocking(False)
        stream.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        stream.send("\n".join(messages).encode())
        return True
    return False


def watchdog_s(env: Mapping[str, str]) -> float:
    """The interval in which the manager expects WATCHDOG; 0.0 when it does not."""
    limit, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not limit.isascii() or not limit.isdigit() or pid not in ("", str(os.getpid())):
        return 0.0
    return int(limit) / 1_000_000
