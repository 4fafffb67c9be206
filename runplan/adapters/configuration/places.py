"""Paths outside of a repository: the user's settings file, worktrees, the daemon's state and its socket."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from runplan.domain.errors import RefusedEarly, Unreachable
from runplan.domain.settings.schema import FILES, Settings

SOCKET = "daemon.sock"
#: Entries of the home that hold keys, and why; a sandbox shows none of them.
SECRETS = {
    "keys of other machines": (".ssh", ".gnupg", ".kube", ".docker", ".vault-token", ".terraform.d", ".config/sops"),
    "keys of clouds": (".aws", ".azure", ".boto", ".s3cfg", ".config/gcloud", ".config/doctl", ".config/rclone"),
    "logins of forges and registries": (
        *(".git-credentials", ".git-credential-cache", ".netrc", ".python-gitlab.cfg", ".pypirc", ".gem/credentials"),
        *(".config/gh", ".config/glab-cli", ".config/hub", ".cargo/credentials", ".cargo/credentials.toml"),
        *(".gitconfig", ".config/git/config", ".config/git/credentials"),  # a view has a copy without keys
    ),
    "keys of databases": (".pgpass", ".pg_service.conf", ".postgresql", ".my.cnf"),
    "passwords": (".password-store", ".config/op", ".local/share/keyrings", ".config/keepassxc"),
    "cookies, also of runplan's page, which approves": (
        *(".mozilla", ".librewolf", ".var/app", "snap/firefox", "snap/chromium", ".config/mozilla", ".config/chromium"),
        *(".config/google-chrome", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi"),
        ".config/opera",
    ),
}
#: Variables that name such a file or directory, or the socket of a program that signs.
KEY_VARIABLES = (
    *("GITHUB_APP_PRIVATE_KEY_FILE", "PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY"),
    *("GNUPGHOME", "PYTHON_GITLAB_CFG", "SSH_AUTH_SOCK", "GH_CONFIG_DIR", "GLAB_CONFIG_DIR"),
)
#: Output of the daemon before its log is open, and when it crashes.
OUTPUT = "daemon.out"


def home(env: Mapping[str, str]) -> Path:
    directory = env.get("HOME")
    return Path(directory) if directory else Path.home()


def base_directory(env: Mapping[str, str], variable: str, below: str) -> Path:
    """The directory that an XDG variable names, else `below` in the home; a relative one is invalid and ignored."""
    named = Path(env.get(variable) or "")
    return named if named.is_absolute() else home(env) / below


def user_file(env: Mapping[str, str]) -> Path:
    """The settings file for all repositories of this user; it need not exist."""
    below = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return base_directory(env, "XDG_CONFIG_HOME", below) / "runplan" / "runplan.toml"


def credential_files(env: Mapping[str, str]) -> Iterator[Path]:
    """The files and directories with keys of the user; they need not exist.

    The user's settings are among them: they name the database of a fleet, and channels that get links that approve.
    """
    yield from (user_file(env), key_directory(env))
    own_home = home(env)
    yield base_directory(env, "XDG_CACHE_HOME", ".cache") / "git/credential"
    for name in (name for names in SECRETS.values() for name in names):
        yield own_home / name
        if name.startswith(".config/"):
            yield base_directory(env, "XDG_CONFIG_HOME", ".config") / name.removeprefix(".config/")
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
    return base_directory(env, "XDG_STATE_HOME", ".local/state") / "runplan"


def key_directory(env: Mapping[str, str]) -> Path:
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
