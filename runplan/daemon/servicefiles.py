"""The files of a service manager for the daemon: a systemd user unit, a launchd property list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIT = "runplan.service"
LABEL = "runplan.daemon"

#: The daemon sends a sign of life once a minute; after two missing ones it counts as stuck.
WATCHDOG_S = 180

#: Time to stop: `daemon.grace` and the current step. With a longer grace the daemon asks for more time itself.
STOP_S = 120

#: Variables of the login that the daemon needs and the service manager does not set.
VARIABLES = ("PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")


class Service(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    env: Mapping[str, str]
    umask: int
    output: str  #: file for its output under launchd


_UNIT = """\
# Written by `runplan service install`, which overwrites it each time.
[Unit]
Description=runplan works through plans

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
WatchdogSec={watchdog}
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


def systemd_unit(service: Service) -> str:
    return _UNIT.format(
        command=" ".join((_literal(service.argv[0]), *(_word(word) for word in service.argv[1:]))),
        watchdog=WATCHDOG_S,
        stop=STOP_S,
        umask=service.umask,
        environment="".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in _variables(service)),
    )


def launchd_list(service: Service) -> str:
    import plistlib  # slow to import, and for one platform

    entries = {
        "Label": LABEL,
        "ProgramArguments": list(service.argv),
        "EnvironmentVariables": dict(_variables(service)),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        # Agents outlive the daemon; the next one adopts them.
        "AbandonProcessGroup": True,
        "ExitTimeOut": STOP_S,
        "Umask": service.umask,
        "WorkingDirectory": "/",
        "StandardOutPath": service.output,
        "StandardErrorPath": service.output,
    }
    return plistlib.dumps(entries, sort_keys=False).decode()


def _variables(service: Service) -> list[tuple[str, str]]:
    return [(name, service.env[name]) for name in VARIABLES if service.env.get(name)]


def _word(word: str) -> str:
    """One argument of a systemd command line, in which variables are expanded (systemd.service(5))."""
    return _literal(word.replace("$", "$$"))


def _literal(word: str) -> str:
    """The program of a systemd command line, in which variables are not expanded."""
    return word.replace("%", "%%") if re.fullmatch(r"[\w./+:@=%$-]+", word) else _quoted(word)


def _quoted(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n").replace("\t", "\\t")
    )
    return f'"{escaped}"'
