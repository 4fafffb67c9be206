"""Builds the call of bubblewrap: the machine as the user has it, with some paths mounted read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

#: With process ids of their own, programs can signal nothing outside. The network stays.
#: Without CAP_SYS_ADMIN root cannot mount anything writable again; other users have no capability in there anyway.
_BASE = ("--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent", "--cap-drop", "CAP_SYS_ADMIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why bubblewrap does not work on this machine, and how to get it."""

    why: str
    remedy: str


def sandboxed(
    argv: Sequence[str], *, bwrap: str, cwd: str, read_only: Sequence[str] = (), writable: Sequence[str] = ()
) -> tuple[str, ...]:
    """The same call under bubblewrap. Paths are real ones; those of `writable` exist and may lie in read-only ones."""
    closed = (word for path in sorted(read_only) for word in ("--ro-bind-try", path, path))
    opened = (word for path in sorted(writable) for word in ("--bind", path, path))
    return (bwrap, *_BASE, *closed, *opened, "--chdir", cwd, "--", *argv)


def is_sandboxed(argv: Sequence[str]) -> bool:
    """Whether the program is called by way of bubblewrap, which stays in between until it has ended."""
    return bool(argv) and argv[0].rpartition("/")[2] == "bwrap"
