"""Knows where runplan keeps what belongs to the user and to no repository: its state, and the daemon's socket."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET = "daemon.sock"

#: What the daemon says where nobody looks: before its log is open, and when it breaks.
OUTPUT = "daemon.out"


def state_directory(env: Mapping[str, str]) -> Path:
    """Where the lock of the daemon, its log and the list of repositories lie; it need not exist."""
    home = env.get("HOME")
    base = env.get("XDG_STATE_HOME") or (Path(home) if home else Path.home()) / ".local/state"
    return Path(base) / "runplan"


def socket_path(env: Mapping[str, str]) -> Path:
    """Where a daemon with this environment listens: among what ends with the login, else with the state."""
    runtime = env.get("XDG_RUNTIME_DIR")
    # `su` and `sudo` leave the variable as it was, naming a folder of somebody else.
    if runtime and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.geteuid():  # noqa: PTH112, PTH116 - pathlib is no cheaper
        return Path(runtime) / "runplan" / SOCKET
    return state_directory(env) / SOCKET


def socket_paths(env: Mapping[str, str]) -> tuple[Path, ...]:
    """The same, and where it listens when it cannot there."""
    return tuple(dict.fromkeys((socket_path(env), state_directory(env) / SOCKET)))


def own_directory(path: Path) -> Path:
    """The directory, made where it is missing, that nobody but this user can look into."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = path.stat()
        if found.st_uid != os.geteuid():
            raise Unreachable(f"{path} belongs to another user; move it away")
        if found.st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise Unreachable(f"{path} cannot be used: {error.strerror}") from error
    return path
