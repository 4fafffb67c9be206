"""Selects what of a caller's environment travels to the daemon, and tells what a restart has taken from a run.

Values are handed on and never kept: a run remembers the names that it needs, nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.commands import command

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: By these runplan itself fetches and pushes; agents get none of them.
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

#: Where tools lie and how they reach the network: without them a project's own checks would not be what they are
#: in a terminal.
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


def carried(
    caller: Mapping[str, str], *, names: Collection[str], prefixes: tuple[str, ...], withheld: Collection[str]
) -> dict[str, str]:
    """What travels: `names` and `prefixes`, what pushing and tools need, and never what is `withheld`."""
    wanted = PUSHING.union(TOOLS, names).difference(withheld)
    return {
        name: value
        for name, value in caller.items()
        if name in wanted or (name.startswith(prefixes) and name not in withheld)
    }


def needed(sent: Mapping[str, str], *, keys: Collection[str], pushes: bool) -> tuple[str, ...]:
    """The names without which the run cannot go on as it was started: its agents' keys, and the SSH agent to push."""
    wanted = {*keys, "SSH_AUTH_SOCK"} if pushes else set(keys)
    return tuple(sorted(name for name in wanted if sent.get(name)))


def missing(names: Sequence[str], *, at_hand: Mapping[str, str]) -> tuple[str, ...]:
    """Those of the names a run needs that are not at hand, as after a restart."""
    return tuple(name for name in names if not at_hand.get(name))


def variables(names: Sequence[str]) -> str:
    """Names of variables as a shell shows them: $A, $B."""
    return ", ".join(f"${name}" for name in names)


def told_missing(names: Sequence[str], *, plan: str) -> str:
    """Why a run waits, and the command that ends the wait."""
    it = "it" if len(names) == 1 else "them"
    resume = command("runplan", "resume", plan)
    return f"the daemon restarted and lost {variables(names)}; resume it from a shell that has {it}: {resume}"
