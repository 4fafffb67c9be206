"""The login service of the daemon (systemd, launchd), and its messages to the service manager."""

import contextlib
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from runplan.adapters.configuration.places import OUTPUT, base_directory, home, state_directory
from runplan.adapters.processes import run_program
from runplan.domain.errors import RefusedEarly, Unreachable

Words: TypeAlias = tuple[str, ...]

#: -P: modules in the current directory must not be imported.
DAEMON = (sys.executable, "-P", "-m", "runplan", "daemon")
UNIT = "runplan.service"
LABEL = "runplan.hosts.daemon"
ANSWER_S = 30.0
#: Time to stop: `daemon.grace` and the current step. With a longer grace the daemon asks for more time itself.
STOP_S = 120
#: Variables of the login that the daemon needs and the service manager does not set.
VARIABLES = ("PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")

_UNIT = """\
# Written by `runplan service install`, which overwrites it each time.
[Unit]
Description=runplan works through plans

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
# The daemon sends a sign of life once a minute; after two missing ones it counts as stuck.
WatchdogSec=180
TimeoutStopSec={stop}
Restart=on-failure
RestartSec=5
# Another daemon runs, or the settings are invalid: a restart would not help.
RestartPreventExitStatus=2
# Agents outlive the daemon; the next one adopts them.
KillMode=process
OOMPolicy=continue
UMask={umask:04o}
WorkingDirectory=/
{environment}
[Install]
WantedBy=default.target
"""
READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


class Manager(Struct, frozen=True, kw_only=True):
    file: Path
    text: str
    asks: Words  #: fails when it does not serve this user
    enables: tuple[Words, ...]
    disables: tuple[Words, ...]
    starts: Words
    is_active: Words


def find_manager(env: Mapping[str, str]) -> Manager:
    umask = os.umask(0o077)
    os.umask(umask)
    if shutil.which("systemctl", path=env.get("PATH")):
        user = ("systemctl", "--user")
        return Manager(
            file=base_directory(env, "XDG_CONFIG_HOME", ".config") / "systemd" / "user" / UNIT,
            text=systemd_unit(env, umask=umask),
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
            text=launchd_list(env, umask=umask),
            asks=("launchctl", "print", domain),
            enables=(("launchctl", "bootstrap", domain, str(file)),),
            disables=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
            starts=("launchctl", "kickstart", f"{domain}/{LABEL}"),
            is_active=("launchctl", "print", f"{domain}/{LABEL}"),
        )
    raise RefusedEarly("neither systemd nor launchd is here; start the daemon another way: runplan daemon")


def systemd_unit(env: Mapping[str, str], *, umask: int, argv: Sequence[str] = DAEMON) -> str:
    variables = (f"Environment={_quote_text(f'{name}={value}')}\n" for name, value in _list_variables(env).items())
    # Variables are expanded in the arguments, not in the program (systemd.service(5)).
    arguments = (_escape_word(word.replace("$", "$$")) for word in argv[1:])
    command = " ".join((_escape_word(argv[0]), *arguments))
    return _UNIT.format(command=command, stop=STOP_S, umask=umask, environment="".join(variables))


def launchd_list(env: Mapping[str, str], *, umask: int) -> str:
    import plistlib  # for one platform

    output = str(state_directory(env) / OUTPUT)
    entries = {
        "Label": LABEL,
        "ProgramArguments": list(DAEMON),
        "EnvironmentVariables": _list_variables(env),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        # Agents outlive the daemon; the next one adopts them.
        "AbandonProcessGroup": True,
        "ExitTimeOut": STOP_S,
        "Umask": umask,
        "WorkingDirectory": "/",
        "StandardOutPath": output,
        "StandardErrorPath": output,
    }
    return plistlib.dumps(entries, sort_keys=False).decode()


def _list_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in VARIABLES if env.get(name)}


def _escape_word(word: str) -> str:
    return word.replace("%", "%%") if re.fullmatch(r"[\w./+:@=%$-]+", word) else _quote_text(word)


def _quote_text(text: str) -> str:
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(character, escaped)
    return f'"{text}"'


def find_installed(env: Mapping[str, str]) -> Manager | None:
    try:
        service_manager = find_manager(env)
    except RefusedEarly:
        return None
    return service_manager if service_manager.file.is_file() else None


def succeeds(command: Words, env: Mapping[str, str]) -> bool:
    return run_program(command, env, within_s=ANSWER_S)[0] == 0


def run_all(manager: Manager, commands: Sequence[Words], env: Mapping[str, str], within_s: float = ANSWER_S) -> bool:
    if not succeeds(manager.asks, env):
        return False
    for command in commands:
        code, _, errors = run_program(command, env, within_s=within_s)
        if code:
            output = " ".join(errors.split()) or f"exit code {code}"
            raise Unreachable(f"{' '.join(command)}: {output[:300]}")
    return True


def extend_timeout(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"


def notify_manager(env: Mapping[str, str], *messages: str) -> bool:
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
    limit = env.get("WATCHDOG_USEC", "")
    if not limit.isascii() or not limit.isdigit() or env.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return 0.0
    return int(limit) / 1_000_000
