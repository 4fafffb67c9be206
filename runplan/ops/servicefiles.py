"""Writes the files by which a service manager keeps the daemon: a systemd user unit, a launchd property list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIT = "runplan.service"
LABEL = "runplan.daemon"

#: The daemon says that it lives once a minute; twice unheard is stuck.
WATCHDOG_S = 180

#: What the end may take: `daemon.grace`, and the step that is being taken. A longer grace asks for its time itself.
STOP_S = 120

#: What the daemon has to know of a login that the service manager does not.
VARIABLES = ("PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")


class Service(Struct, frozen=True, kw_only=True):
    """How the daemon is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    umask: int
    output: str  #: where launchd puts what it says


_UNIT = """\
# Written by `runplan service install`, which writes it anew each time.
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
# Another daemon runs, or the settings are wrong: to try again would not help.
RestartPreventExitStatus=2
# Agents outlive the daemon: the next one takes them up.
KillMode=process
# Each agent gets a control group below the daemon's, by which everything it leaves behind is found and ended.
Delegate=yes
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
        environment="".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in _told(service)),
    )


def launchd_list(service: Service) -> str:
    import plistlib  # dear, and for one platform

    entries = {
        "Label": LABEL,
        "ProgramArguments": list(service.argv),
        "EnvironmentVariables": dict(_told(service)),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        # Agents outlive the daemon: the next one takes them up.
        "AbandonProcessGroup": True,
        "ExitTimeOut": STOP_S,
        "Umask": service.umask,
        "WorkingDirectory": "/",
        "StandardOutPath": service.output,
        "StandardErrorPath": service.output,
    }
    return plistlib.dumps(entries, sort_keys=False).decode()


def _told(service: Service) -> list[tuple[str, str]]:
    return [(name, service.env[name]) for name in VARIABLES if service.env.get(name)]


def _word(word: str) -> str:
    """One argument on a command line of systemd, in which variables are expanded (systemd.service(5))."""
    return _literal(word.replace("$", "$$"))


def _literal(word: str) -> str:
    """The same for its program, in which they are not."""
    return word.replace("%", "%%") if re.fullmatch(r"[\w./+:@=%$-]+", word) else _quoted(word)


def _quoted(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n").replace("\t", "\\t")
    )
    return f'"{escaped}"'
