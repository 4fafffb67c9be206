"""Runs agents and checks under bubblewrap: the user's repository and runplan's records are read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import RefusedEarly
from runplan.run.dispatch import Role
from runplan.settings.places import state_directory, user_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from runplan.git.repository import Checkouts


#: With a pid namespace, programs can signal no process outside. The network stays.
#: Without CAP_SYS_ADMIN root cannot remount anything writable; other users have no capability in there.
_BASE = ("--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent", "--cap-drop", "CAP_SYS_ADMIN")


class Obstacle(Struct, frozen=True, kw_only=True):
    """Why bubblewrap does not work on this machine, and the remedy."""

    why: str
    remedy: str


def sandboxed(
    argv: Sequence[str], *, bwrap: str, cwd: str, read_only: Sequence[str] = (), writable: Sequence[str] = ()
) -> tuple[str, ...]:
    """The command under bubblewrap. Paths are resolved; `writable` ones exist and can be inside read-only ones."""
    closed = (word for path in sorted(read_only) for word in ("--ro-bind-try", path, path))
    opened = (word for path in sorted(writable) for word in ("--bind", path, path))
    return (bwrap, *_BASE, *closed, *opened, "--chdir", cwd, "--", *argv)


def is_sandboxed(argv: Sequence[str]) -> bool:
    """Whether the command runs under bubblewrap, which lives as long as the program."""
    return bool(argv) and argv[0].rpartition("/")[2] == "bwrap"


PROBE_S = 10.0


class Sandbox:
    """The sandbox of one repository's dispatches; `lanes` has one repository for each worktree."""

    def __init__(self, checkouts: Checkouts, *, worktrees: Path, lanes: Path, env: Mapping[str, str]) -> None:
        self._checkouts = checkouts
        self._worktrees = worktrees
        self._lanes = lanes
        self._env = env

    def wrap(self, argv: tuple[str, ...], *, role: Role, worktree: Path, own: Path) -> tuple[str, ...]:
        """The command of a dispatch under bubblewrap; `own` is the directory for its return and configuration."""
        if _which(str(worktree / argv[0]) if "/" in argv[0] else argv[0], self._env) is None:
            return argv  # the shim reports a missing program by name; bwrap would only exit with 1
        # A verifier must not change its worktree.
        work = () if role is Role.VERIFY else (worktree, self._lanes / f"{worktree.name}.git")
        bwrap, cwd = _which("bwrap", self._env) or "bwrap", os.path.realpath(worktree)
        return sandboxed(argv, bwrap=bwrap, cwd=cwd, read_only=_real(self._read_only()), writable=_real((own, *work)))

    def _read_only(self) -> Iterable[Path]:
        common = self._checkouts.common_dir
        yield common
        if common.name == ".git":  # the main checkout, also when runplan was started in a linked one
            yield common.parent
        yield from (checkout.root for checkout in self._checkouts.all())
        yield self._worktrees
        yield user_file(self._env).parent
        yield state_directory(self._env)


def obstacle(env: Mapping[str, str]) -> Obstacle | None:
    """Why bubblewrap does not work here; None when it works. Each bwrap is tried once per process."""
    if sys.platform != "linux":
        return Obstacle(why="bubblewrap is for Linux only", remedy="run runplan on Linux")
    bwrap = _which("bwrap", env)
    if bwrap is None:
        return Obstacle(why="bwrap is not on PATH", remedy="apt install bubblewrap")
    if failed := _probe(bwrap):
        allow = "sudo sysctl -w user.max_user_namespaces=10000 (Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0)"
        return Obstacle(why=failed, remedy=f"allow user namespaces, e.g. {allow}")
    return None


@cache
def _probe(bwrap: str) -> str:
    """The error of a bwrap that cannot make a sandbox, else ""."""
    argv = sandboxed(("/bin/sh", "-c", ":"), bwrap=bwrap, cwd="/", read_only=("/usr",))
    try:
        ran = subprocess.run(argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{bwrap} does not run: {error}"
    message = " ".join(ran.stderr.decode(errors="replace").split())[:300]
    return "" if ran.returncode == 0 else message or f"{bwrap} ends with code {ran.returncode}"


def is_used(mode: str, env: Mapping[str, str]) -> bool:
    """Whether a dispatch with this setting runs in the sandbox."""
    return mode == "bwrap" or (mode == "auto" and obstacle(env) is None)


def require(modes: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Refuse a start when a setting demands a sandbox that does not work; else a warning for `auto`, or "".

    `modes` has the value of each setting by its key.
    """
    wanted = {mode: key for key, mode in modes.items() if mode != "none"}
    found = obstacle(env) if wanted else None
    if found is None:
        return ""
    if key := wanted.get("bwrap"):
        raise RefusedEarly(f'{key} = "bwrap" does not work here: {found.why}; to get it: {found.remedy}')
    without = f"agents run without a sandbox ({found.why}), so they can write to your checkout and repository"
    return f'{without}; to get one: {found.remedy}; to silence this: agents.sandbox = "none"'


def _which(program: str, env: Mapping[str, str]) -> str | None:
    return shutil.which(program, path=env.get("PATH", ""))


def _real(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))
