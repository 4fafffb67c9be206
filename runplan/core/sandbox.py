"""Builds the words by which bubblewrap shuts a program in: everything read-only but what is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Where a sandbox has a folder of its own, in which nothing of the machine is seen.
PRIVATE = ("/dev", "/proc", "/tmp", "/var/tmp")  # noqa: S108 - these are what is replaced

#: Namespaces of users and processes: nothing outside can be traced, signalled or mounted. The network stays.
_BASE = ("--unshare-user", "--unshare-pid", "--die-with-parent", "--cap-drop", "ALL")
_SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
#: Root owns these whatever its capabilities, and a write there reaches the whole machine.
_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a program may see and change; every path is absolute and free of links."""

    writable: tuple[str, ...]  #: they have to be there
    kept: tuple[str, ...] = ()  #: read-only inside of what is writable, where they are there
    seen: tuple[str, ...] = ()  #: read-only, also when they lie where the sandbox has a folder of its own
    emptied: tuple[str, ...] = ()  #: folders that are empty inside, besides the usual ones
    closed: tuple[str, ...] = ()  #: files and sockets that nobody inside can open


def wrapped(argv: tuple[str, ...], room: Room, *, bwrap: str, cwd: str, root: bool) -> tuple[str, ...]:
    """The same call inside the room; `root` when it is made by root."""
    # For others it would only keep a program from making a sandbox of its own inside.
    kernel = (word for path in _KERNEL if root for word in ("--ro-bind-try", path, path))
    emptied = (word for top in PRIVATE if top not in ("/dev", "/proc") for word in ("--tmpfs", top))
    return (bwrap, *_BASE, *_SYSTEM, *kernel, *emptied, *_mounts(room), "--chdir", cwd, "--", *argv)


def _mounts(room: Room) -> Iterable[str]:
    """Outer folders first, so that what is said of an inner one holds."""
    ways: dict[str, tuple[str, ...]] = {path: ("--ro-bind-try", path, path) for path in room.seen}
    ways |= {path: ("--tmpfs", path) for path in room.emptied}
    ways |= {path: ("--bind", path, path) for path in room.writable}
    ways |= {path: ("--ro-bind-try", path, path) for path in room.kept}
    ways |= {path: ("--ro-bind", "/dev/null", path) for path in room.closed}
    for path in sorted(ways, key=lambda one: (one.count("/"), one)):
        yield from ways[path]


def is_wrapped(argv: tuple[str, ...]) -> bool:
    """Whether the program is called by way of bubblewrap, which stays in between until it has ended."""
    return bool(argv) and argv[0].rpartition("/")[2] == "bwrap"
