"""Shuts agents in with bubblewrap: says what of the machine each may change, and whether that works here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import first_line
from runplan.core.errors import RefusedEarly
from runplan.core.sandbox import PRIVATE, Room, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runplan.adapters.agentkit.task import Task

#: What a commit in a linked worktree writes besides its own entry, its ref and that ref's log.
_STORES = ("objects", "lfs")
#: Read-only among it: packs hold the history of everybody, `info` names further stores.
_STORES_KEPT = ("objects/pack", "objects/info")
#: By these files git knows a worktree and its repository.
_LINKS = ("commondir", "gitdir", "locked")
#: What git obeys in a worktree, where `extensions.worktreeConfig` is set: it names programs that git runs.
_CONFIG = "config.worktree"
#: The records of a dispatch that are not the agent's to write.
_RECORDS = ("guard.json", "lock", "shim.json", "out.log", "err.log", "prompt.md")
#: Whoever may speak to these can have anything written anywhere.
_SOCKETS = ("/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")

PROBE_S = 10.0


def require(caller: Mapping[str, str], *, setting: str) -> None:
    """Refuse before any work where it cannot be done."""
    if wrong := _obstacle(caller):
        raise RefusedEarly(f'{setting}: sandbox = "bwrap" cannot work here: {wrong}; or set sandbox = "none"')


def _obstacle(caller: Mapping[str, str]) -> str:
    if sys.platform != "linux":
        return "bubblewrap is for Linux only"
    bwrap = _bwrap(caller)
    if bwrap is None:
        return "bwrap is not on PATH; install the package bubblewrap"
    argv = wrapped(("true",), Room(writable=()), bwrap=bwrap, cwd="/", root=os.geteuid() == 0)
    path = {"PATH": caller.get("PATH", "")}
    try:
        ran = subprocess.run(
            argv, env=path, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{bwrap} does not run ({error}); mend it"
    if ran.returncode == 0:
        return ""
    told = " ".join(ran.stderr.decode(errors="replace").split()) or f"it ended with code {ran.returncode}"
    return f"{told[:300]}; allow user namespaces to ordinary users (sysctl user.max_user_namespaces, AppArmor, seccomp)"


def _bwrap(caller: Mapping[str, str]) -> str | None:
    return shutil.which("bwrap", path=caller.get("PATH", ""))


def shut_in(
    argv: tuple[str, ...], task: Task, *, worktree: Path, state: Iterable[Path], caller: Mapping[str, str]
) -> tuple[str, ...]:
    """The call of an agent inside a room of its own; `state` is what it writes besides its work."""
    bwrap = _bwrap(caller) or "bwrap"
    room = _room(argv, task, worktree=worktree, state=state, caller=caller)
    return wrapped(argv, room, bwrap=bwrap, cwd=os.path.realpath(worktree), root=os.geteuid() == 0)


def _room(
    argv: tuple[str, ...], task: Task, *, worktree: Path, state: Iterable[Path], caller: Mapping[str, str]
) -> Room:
    entry = _entry(worktree)
    common = _common(entry)
    writable = [task.directory, *_made(state)]
    if task.writes:
        writable += [worktree, entry, *_branch_places(entry, common)]
        writable += [common / name for name in _STORES if (common / name).is_dir()]
    kept = [worktree / ".git", _there(entry / _CONFIG), *(entry / name for name in _LINKS)]
    kept += [common / name for name in _STORES_KEPT]
    kept += [task.directory / name for name in _RECORDS]
    # A script agent is played by this package, wherever that is installed.
    seen = [task.root, common, worktree, Path(__file__).parent.parent, *_programs(argv, caller)]
    runtime = caller.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return Room(
        writable=_real(writable),
        kept=_real(kept),
        seen=tuple(path for path in _real(seen) if path.startswith(tuple(f"{top}/" for top in PRIVATE))),
        emptied=tuple(path for path in _real([Path(runtime)]) if Path(path).is_dir()),
        closed=tuple(path for path in _SOCKETS if Path(path).exists()),
    )


def _real(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


def _entry(worktree: Path) -> Path:
    """The worktree's own directory of git."""
    told = first_line(worktree / ".git") or ""
    return worktree / told.removeprefix("gitdir:").strip()


def _common(entry: Path) -> Path:
    return entry / (first_line(entry / "commondir") or "").strip()


def _branch_places(entry: Path, common: Path) -> list[Path]:
    """Where the ref of its branch and that ref's log lie: with those of the same plan, and nobody else's."""
    head = (first_line(entry / "HEAD") or "").strip()
    ref = head.removeprefix("ref: ")
    if ref == head:
        return []
    # A packed ref has no folder, and inside of the room none can be made.
    return _made([(common / ref).parent, (common / "logs" / ref).parent])


def _made(places: Iterable[Path]) -> list[Path]:
    """The places, folders that are not there made: a room has to have them before anybody is in it."""
    found = []
    for place in places:
        if not place.exists():
            place.mkdir(parents=True, exist_ok=True)
        found.append(place)
    return found


def _there(file: Path) -> Path:
    """The file, an empty one made where there is none: what is not there cannot be kept from being made."""
    if not os.path.lexists(file):
        file.touch()
    return file


def _programs(argv: tuple[str, ...], caller: Mapping[str, str]) -> Iterable[Path]:
    """The user's home and the folders of the program: they may lie where the sandbox has folders of its own."""
    if home := caller.get("HOME"):
        yield Path(home)
    yield Path(sys.prefix)
    for word in argv[:2]:
        if found := shutil.which(word, path=caller.get("PATH", "")):
            yield from (Path(found).parent, Path(os.path.realpath(found)).parent)
