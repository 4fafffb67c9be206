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
FETCH_S = 300.0  #: for a later one


def open_clone(url: str, directory: Path, env: Mapping[str, str]) -> Path:
    """Make the clone or bring it up to date; git signs in with the token for the forge, where this host has one."""
    own_directory(directory.parent)
    with file_lock(directory.with_name(f"{directory.name}.lock")):
        is_new = not directory.exists()
        place = directory.with_name(f"{directory.name}.new") if is_new else directory  # cloned whole or not at all
        if is_new:
            shutil.rmtree(place, ignore_errors=True)
            own_directory(place)
        for name in ("config", "HEAD", "index"):
            remove_stale_lock(place / f".git/{name}.lock", sure_s=LOCKED_S)
        with Git(place, env=env) as git:

            @functools.cache
            def sign_in() -> tuple[str, ...]:
                try:
                    return find_forge(git, remote=REMOTE, env=env).git_settings()
                except RunplanError:
                    return ()

            if is_new:
                git.run("init", "-q")
            git.run("remote", "add" if is_new else "set-url", REMOTE, url)
            timeout_s = FIRST_S if is_new else FETCH_S
            remote = Remote(
                git, REMOTE, branch="*", common_dir=place / ".git", caller=env, sign_in=sign_in, timeout_s=timeout_s
            )
            if is_new and (branch := remote.find_default()):
                git.run("symbolic-ref", HEAD, f"refs/remotes/{REMOTE}/{branch}")
            remote.fetch_ref(f"+refs/heads/*:refs/remotes/{REMOTE}/*")
            if (tip := git.tip(HEAD)) and git.tip("HEAD") != tip:
                git.run("checkout", "-q", "--force", "--detach", tip)  # no work is done on it
        if is_new:
            place.rename(directory)
    return directory


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
    return git.run("symbolic-ref", "-q", HEAD, ok=(0, 1)).text.removeprefix(f"refs/remotes/{REMOTE}/")


def open_checkout(url: str, directory: Path, env: Mapping[str, str]) -> None:
    """Open the clone, with the files of the default branch as the remote has them now."""
    with Git(open_clone(url, directory, env), env=env) as git:
        if branch := read_default(git):
            git.run("checkout", "-q", "-f", "-B", branch, f"{REMOTE}/{branch}")
