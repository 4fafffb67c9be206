"""Asks the kernel who is at the other end of a socket."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct

from runplan.adapters.ancestry import agent_above
from runplan.core.quickclass import dataclass

_LINUX = hasattr(socket, "SO_PEERCRED")

#: Not known to Python's socket module: <asm-generic/socket.h>, from Linux 6.5 on; <sys/un.h> of macOS.
_SO_PEERPIDFD = 77
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_UCRED = struct.Struct("3i")
_XUCRED = struct.Struct("2I")  #: version and user, of 76 bytes in all


#: Answers of a kernel that has no such option.
_CANNOT_TELL = (errno.ENOPROTOOPT, errno.EINVAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who made the connection."""

    uid: int
    pid: int  #: 0 when it cannot be seen from here
    agent: str  #: what shows that it descends from an agent; "" when nothing does


def peer_of(connection: socket.socket) -> Peer:
    """Who made this connection, looked at now: what it becomes later does not matter."""
    uid, pid = user_of(connection), pid_of(connection)
    return Peer(uid=uid, pid=pid, agent=_agent(connection, pid) if uid == os.geteuid() else "")


def user_of(connection: socket.socket) -> int:
    """The user of the process at the other end."""
    if _LINUX:
        _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return int(uid)
    _, uid = _XUCRED.unpack(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)[: _XUCRED.size])
    return int(uid)


def pid_of(connection: socket.socket) -> int:
    """The process at the other end."""
    if _LINUX:
        pid, _, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return int(pid)
    return connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)


def _agent(connection: socket.socket, pid: int) -> str:
    if pid <= 0:
        return "who calls cannot be seen from here"
    agent = agent_above(pid)
    # Somebody else may have been given the pid of a caller that is gone.
    return agent or (f"process {pid} ended before it could be looked at" if _ended(connection) else "")


def _ended(connection: socket.socket) -> bool:
    """Whether the caller's process has ended; kernels that cannot tell say no."""
    try:
        handle = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        return error.errno not in _CANNOT_TELL
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(0))
    finally:
        os.close(handle)
