"""Paths outside of a repository: the user's settings file, worktrees, the daemon's state and its socket."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from runplan.errors import RefusedEarly, Unreachable
from runplan.settings.schema import FILES, Settings

SOCKET = "daemon.sock"

#: Profiles of browsers, in the home and in `.config`. They hold the cookie of `runplan web`, which approves.
BROWSERS = (".mozilla", ".librewolf", ".var/app", "snap/firefox", "snap/chromium")
CONFIG_BROWSERS = ("mozilla", "chromium", "google-chrome", "BraveSoftware", "microsoft-edge", "vivaldi", "opera")

#: Files of the user with keys, in the home. PostgreSQL's hold those to the database of a fleet.
KEY_FILES = (
    *(".git-credentials", ".git-credential-cache", ".netrc", ".ssh", ".gnupg", ".python-gitlab.cfg"),
    *(".pgpass", ".pg_service.conf", ".postgresql"),
)
#: Variables that name such a file or directory, or the socket of a program that signs.
KEY_VARIABLES = (
    *("GITHUB_APP_PRIVATE_KEY_FILE", "PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY"),
    *("GNUPGHOME", "PYTHON_GITLAB_CFG", "SSH_AUTH_SOCK"),
)

#: Output of the daemon before its log is open, and when it crashes.
OUTPUT = "daemon.out"


def home(env: Mapping[str, str]) -> Path:
    directory = env.get("HOME")
    return Path(directory) if directory else Path.home()


def user_file(env: Mapping[str, str]) -> Path:
    """The settings file for all repositories of this user; it need not exist."""
    below = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return Path(env.get("XDG_CONFIG_HOME") or home(env) / below) / "runplan" / "runplan.toml"


def credential_files(env: Mapping[str, str]) -> Iterator[Path]:
    """The files and directories with keys of the user; they need not exist.

    The user's settings are among them: they name the database of a fleet, and channels that get links that approve.
    """
    yield from (user_file(env), key_directory(env))
    own_home = home(env)
    config = Path(env.get("XDG_CONFIG_HOME") or own_home / ".config")
    cache = Path(env.get("XDG_CACHE_HOME") or own_home / ".cache")
    yield from (own_home / name for name in KEY_FILES)
    yield from (config / "git/credentials", cache / "git/credential")
    yield from (own_home / name for name in BROWSERS)
    yield from (config / name for name in CONFIG_BROWSERS)
    yield Path(env.get("GH_CONFIG_DIR") or config / "gh")
    yield Path(env.get("GLAB_CONFIG_DIR") or config / "glab-cli")
    yield from (Path(env[name]) for name in KEY_VARIABLES if env.get(name))


def repository_file(root: Path) -> Path | None:
    return next((path for name in FILES if (path := root / name).is_file()), None)


def worktree_root(root: Path, settings: Settings, env: Mapping[str, str]) -> Path:
    """The directory of the worktrees: `~` is the home, a relative path begins at `root`.

    By default it is next to the checkout, or in the home where that is not writable or hidden. Worktrees of two
    checkouts of the same name have different names in it.
    """
    written = settings.run.worktrees
    if written:
        return home(env) / written[2:] if written == "~" or written.startswith("~/") else root / written
    neighbour = root.parent / f"{root.name}.runplan"
    if not is_hidden(neighbour) and (neighbour.is_dir() or os.access(root.parent, os.W_OK | os.X_OK)):
        return neighbour
    place = home(env) / "runplan" / root.name.lstrip(".")
    if place.resolve().is_relative_to(root):  # the home is in the checkout
        raise RefusedEarly(f"{place} is in the checkout {root}; set run.worktrees to a directory outside of it")
    return place


def is_hidden(path: Path) -> bool:
    """Whether a part of the path begins with a dot. Many programs ignore or refuse the files there."""
    return any(part.startswith(".") for part in path.parts)


def remove_unused_root(root: Path, settings: Settings) -> None:
    """Remove the default directory of the worktrees when it is empty; the user's own directory stays."""
    if settings.run.worktrees:
        return
    with contextlib.suppress(OSError):  # it has worktrees
        root.rmdir()
        if root.parent.name == "runplan":
            root.parent.rmdir()


def state_directory(env: Mapping[str, str]) -> Path:
    """The directory of the daemon's lock, its log and the list of repositories; it need not exist."""
    return Path(env.get("XDG_STATE_HOME") or home(env) / ".local/state") / "runplan"


def key_directory(env: Mapping[str, str]) -> Path:
    """The directory of runplan's own keys; it need not exist."""
    return state_directory(env) / "keys"


def socket_path(env: Mapping[str, str]) -> Path:
    """Where the daemon listens. Not in $XDG_RUNTIME_DIR, which a logout removes."""
    return state_directory(env) / SOCKET


def own_directory(path: Path) -> Path:
    """The directory, created if missing, with access for this user only."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.stat()
        if status.st_uid != os.geteuid():
            raise Unreachable(f"{path} belongs to another user; move it away")
        if status.st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise Unreachable(f"{path} cannot be used: {error.strerror}") from error
    return path
