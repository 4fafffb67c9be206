"""Selects the variables of a caller's environment that are sent to the daemon, and those a run needs.

Values are never stored: a run records only the names that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.run.reasons import variables
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: runplan itself fetches and pushes with these; agents get none of them.
PUSHING = frozenset(
    (
        "EMAIL",
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_PROXY_COMMAND",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GNUPGHOME",
        "SSH_AGENT_PID",
        "SSH_ASKPASS",
        "SSH_AUTH_SOCK",
    )
)

#: Locations of tools and network proxies: with them a project's checks run as in a terminal.
TOOLS = frozenset(
    (
        "ALL_PROXY",
        "CARGO_HOME",
        "CONDA_PREFIX",
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "DOCKER_HOST",
        "GOPATH",
        "GOROOT",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "JAVA_HOME",
        "NODE_EXTRA_CA_CERTS",
        "NO_PROXY",
        "NVM_DIR",
        "PYENV_ROOT",
        "REQUESTS_CA_BUNDLE",
        "RUSTUP_HOME",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "VIRTUAL_ENV",
        "WAYLAND_DISPLAY",
        "all_proxy",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    )
)


def forwarded(
    caller: Mapping[str, str], *, names: Collection[str], prefixes: tuple[str, ...], withheld: Collection[str]
) -> dict[str, str]:
    """The variables to send: `names`, `prefixes`, PUSHING and TOOLS, without those `withheld`."""
    wanted = PUSHING.union(TOOLS, names).difference(withheld)
    return {
        name: value
        for name, value in caller.items()
        if name in wanted or (name.startswith(prefixes) and name not in withheld)
    }


def needed(sent: Mapping[str, str], *, keys: Collection[str], pushes: bool) -> tuple[str, ...]:
    """The variables a run cannot continue without: its agents' keys, and the SSH agent to push."""
    wanted = {*keys, "SSH_AUTH_SOCK"} if pushes else set(keys)
    return tuple(sorted(name for name in wanted if sent.get(name)))


def missing(names: Sequence[str], *, at_hand: Mapping[str, str]) -> tuple[str, ...]:
    """The needed variables that are lost, as after a restart."""
    return tuple(name for name in names if not at_hand.get(name))


def describe_missing(names: Sequence[str], *, plan: str) -> str:
    """Why a run waits, and the command that ends the wait."""
    it = "it" if len(names) == 1 else "them"
    resume = command("runplan", "resume", plan)
    return f"the daemon restarted and lost {variables(names)}; resume it from a shell that has {it}: {resume}"
