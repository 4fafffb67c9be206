"""Clones of the repositories of a fleet, made and brought up to date by runplan."""

import functools
import shutil
from collections.abc import Mapping
from pathlib import Path

from runplan.adapters.configuration.places import own_directory
from runplan.adapters.forge.access import find_forge
from runplan.adapters.git.command import Git
from runplan.adapters.git.remote import Remote
from runplan.adapters.git.repository import remove_stale_lock
from runplan.adapters.store.files import file_lock
from runplan.domain.errors import RunplanError

REMOTE = "origin"
HEAD = f"refs/remotes/{REMOTE}/HEAD"
LOCKED_S = 1.0  #: a lock of git that is as old was left by one that was killed
LEAST_FREE = 16 << 20  #: bytes of its disk that a host needs to take plans
FIRST_S = 3600.0  #: for the first fetch, of the whole history


def open_clone(url: str, directory: Path, env: Mapping[str, str]) -> Path:
    own_directory(directory.parent)
    with file_lock(directory.with_name(f"{directory.name}.lock")):
        if not directory.exists():  # cloned whole or not at all
            draft = directory.with_name(f"{directory.name}.new")
            shutil.rmtree(draft, ignore_errors=True)
            own_directory(draft)
            with Git(draft, env=env) as git:
                git.run("init", "-q")
                git.run("remote", "add", REMOTE, url)
                remote = _open_remote(git, draft, env, FIRST_S)
                if branch := remote.find_default():
                    git.run("symbolic-ref", HEAD, f"refs/remotes/{REMOTE}/{branch}")
                _fetch(git, remote)
            draft.rename(directory)
        else:
            for name in ("config", "HEAD", "index"):
                remove_stale_lock(directory / f".git/{name}.lock", sure_s=LOCKED_S)
            with Git(directory, env=env) as git:
                git.run("remote", "set-url", REMOTE, url)
                _fetch(git, _open_remote(git, directory, env))
    return directory


def _open_remote(git: Git, directory: Path, env: Mapping[str, str], timeout_s: float = 300.0) -> Remote:
    """The remote; git signs in with the token for the forge, where this host has one."""

    @functools.cache
    def sign_in() -> tuple[str, ...]:
        try:
            return find_forge(git, remote=REMOTE, env=env).git_settings()
        except RunplanError:
            return ()

    common = directory / ".git"
    return Remote(git, name=REMOTE, branch="*", common_dir=common, caller=env, sign_in=sign_in, timeout_s=timeout_s)


def _fetch(git: Git, remote: Remote) -> None:
    """Fetch the branches, and check out the default one, which no work is done on."""
    remote.fetch_ref(f"+refs/heads/*:refs/remotes/{REMOTE}/*")
    if (tip := git.tip(HEAD)) and git.tip("HEAD") != tip:
        git.run("checkout", "-q", "--force", "--detach", tip)


def find_sickness(remotes: Mapping[str, str], directory: Path, env: Mapping[str, str]) -> str:
    """Why this machine can work on no plan: its disk is full, or no remote, by schema, answers it; "" if it can."""
    if why := find_full_disk(directory):
        return why
    clones = {directory / "repositories" / schema: remote for schema, remote in remotes.items()}
    why = ""
    for clone in sorted(clones, key=lambda path: not path.exists()):  # a fetch is cheaper than a clone
        try:
            open_clone(clones[clone], clone, env)
        except (RunplanError, OSError) as error:
            why = str(error)
        else:
            return ""
    return why


def find_full_disk(directory: Path) -> str:
    free = shutil.disk_usage(directory).free
    return f"its disk has {free >> 20} MB left, and {LEAST_FREE >> 20} MB are needed" if free < LEAST_FREE else ""


def read_default(git: Git) -> str:
    """The default branch of the remote; "" when it has none."""
    ran = git.run("symbolic-ref", "-q", HEAD, ok=(0, 1))
    return ran.text.removeprefix(f"refs/remotes/{REMOTE}/")


def open_checkout(url: str, directory: Path, env: Mapping[str, str]) -> None:
    """Open the clone, with the files of the default branch as the remote has them now."""
    with Git(open_clone(url, directory, env), env=env) as git:
        if branch := read_default(git):
            git.run("checkout", "-q", "-f", "-B", branch, f"{REMOTE}/{branch}")
