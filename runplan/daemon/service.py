"""The login service of the daemon, and its messages to the service manager."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import RefusedEarly, Unreachable
from runplan.ops.servicefiles import LABEL, STOP_S, UNIT, Service, launchd_list, systemd_unit
from runplan.settings.places import OUTPUT, state_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

#: -P: what lies in the current directory must not be taken for a library.
DAEMON = (sys.executable, "-P", "-m", "runplan", "daemon")

ANSWER_S = 30.0
ENDING_S = STOP_S + ANSWER_S  #: the daemon lets its agents end first


class Manager(Struct, frozen=True, kw_only=True):
    """A service manager: where its file goes, and what it is told."""

    file: Path
    text: str
    asks: tuple[str, ...]  #: whether it answers this user at all
    enables: tuple[tuple[str, ...], ...]
    disables: tuple[tuple[str, ...], ...]
    starts: tuple[str, ...]
    is_active: tuple[str, ...]


class Standing(Struct, frozen=True, kw_only=True):
    """How the service is."""

    file: str
    installed: bool
    current: bool  #: the file is what this version would write
    active: bool  #: as the service manager says
    answers: bool  #: whether the service manager answers at all


def manager(env: Mapping[str, str]) -> Manager:
    """The service manager of this machine; refused where there is none that is known."""
    path = env.get("PATH")
    if shutil.which("systemctl", path=path):
        return _systemd(env)
    if shutil.which("launchctl", path=path):
        return _launchd(env)
    raise RefusedEarly("there is neither systemd nor launchd here; start it by what there is: runplan daemon")


def _systemd(env: Mapping[str, str]) -> Manager:
    user = ("systemctl", "--user")
    base = Path(env.get("XDG_CONFIG_HOME") or _home(env) / ".config")
    return Manager(
        file=base / "systemd" / "user" / UNIT,
        text=systemd_unit(_service(env)),
        asks=(*user, "show-environment"),
        enables=((*user, "daemon-reload"), (*user, "enable", "--now", UNIT)),
        disables=((*user, "disable", "--now", UNIT), (*user, "daemon-reload")),
        starts=(*user, "start", UNIT),
        is_active=(*user, "is-active", "--quiet", UNIT),
    )


def _launchd(env: Mapping[str, str]) -> Manager:
    domain = f"gui/{os.getuid()}"
    file = _home(env) / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    return Manager(
        file=file,
        text=launchd_list(_service(env)),
        asks=("launchctl", "print", domain),
        enables=(("launchctl", "bootstrap", domain, str(file)),),
        disables=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
        starts=("launchctl", "kickstart", f"{domain}/{LABEL}"),
        is_active=("launchctl", "print", f"{domain}/{LABEL}"),
    )


def _service(env: Mapping[str, str]) -> Service:
    umask = os.umask(0o077)
    os.umask(umask)
    return Service(argv=DAEMON, env=env, umask=umask, output=str(state_directory(env) / OUTPUT))


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


# --- deeds --------------------------------------------------------------------------------------------


def install(manager: Manager, env: Mapping[str, str]) -> bool:
    """Write the file and have the daemon started, now and at each login; False when its manager does not answer."""
    try:
        manager.file.parent.mkdir(parents=True, exist_ok=True)
        manager.file.write_text(manager.text, encoding="utf-8")
    except OSError as error:
        raise Unreachable(f"{manager.file} cannot be written: {error.strerror}") from error
    return _told(manager, manager.enables, env)


def uninstall(manager: Manager, env: Mapping[str, str]) -> bool:
    """Take the file away and have the daemon ended; False when there was none."""
    if not manager.file.exists():
        return False
    _told(manager, manager.disables[:1], env, within_s=ENDING_S)
    manager.file.unlink(missing_ok=True)
    _told(manager, manager.disables[1:], env)
    return True


def start(env: Mapping[str, str]) -> bool:
    """Have the daemon started by its manager, so that it stays in its care; False where it was not put into it."""
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


def _told(
    manager: Manager, commands: tuple[tuple[str, ...], ...], env: Mapping[str, str], within_s: float = ANSWER_S
) -> bool:
    if _run(manager.asks, env).returncode:
        return False
    for command in commands:
        done = _run(command, env, within_s)
        if done.returncode:
            said = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"it ended with code {done.returncode}"
            raise Unreachable(f"{' '.join(command)}: {said[:300]}")
    return True


def _run(
    command: tuple[str, ...], env: Mapping[str, str], within_s: float = ANSWER_S
) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which(command[0], path=env.get("PATH")) or command[0]
    try:
        return subprocess.run(
            [program, *command[1:]],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=within_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, returncode=1, stdout=b"", stderr=str(error).encode())


READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def extended(seconds: float) -> str:
    """What asks for so much time until the next word, however short the time that is set for it."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"


def notify(env: Mapping[str, str], *words: str) -> bool:
    """Send the states to the service manager without blocking; False when there is none."""
    address = env.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream, contextlib.suppress(OSError):
        stream.setblocking(False)
        stream.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        stream.send("\n".join(words).encode())
        return True
    return False


def watchdog_s(env: Mapping[str, str]) -> float:
    """How long it waits for WATCHDOG before it calls us stuck; 0.0 when it does not watch us."""
    limit, of = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not limit.isascii() or not limit.isdigit() or of not in ("", str(os.getpid())):
        return 0.0
    return int(limit) / 1_000_000
