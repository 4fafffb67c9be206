"""The socket protocol: one JSON object a line, and who is at the other end."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import socket
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from runplan.errors import Exit
from runplan.processes import agent_above

if TYPE_CHECKING:
    from collections.abc import Mapping


_LINUX = hasattr(socket, "SO_PEERCRED")

#: Not known to Python's socket module: <asm-generic/socket.h>, from Linux 6.5 on; <sys/un.h> of macOS.
_SO_PEERPIDFD = 77
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_UCRED = struct.Struct("3i")
_XUCRED = struct.Struct("2I")  #: version and user, of 76 bytes in all


#: Answers of a kernel that has no such option.
_CANNOT_TELL = (errno.ENOPROTOOPT, errno.EINVAL)


class Peer(Struct, frozen=True, kw_only=True):
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


#: The version of the protocol (docs/daemon.md). It grows when a field changes its meaning, not when one is added.
PROTOCOL = 1

#: The longest line, with its end.
LONGEST = 1024 * 1024

#: Allowed for every process of the user, agents too.
READING = ("ping", "status", "metrics", "follow")

#: Refused for descendants of an agent.
ACTING = ("lend", "submit", "drain", "reload")

#: The same in every version: they identify a daemon of another version and end it.
LASTING = ("ping", "drain")


class Request(Struct, frozen=True, kw_only=True):
    """What a caller asks for."""

    verb: str
    fields: Mapping[str, Any]  #: unknown names are ignored


class Refusal(Struct, frozen=True, kw_only=True):
    """An error answer."""

    error: str
    exit: int = Exit.USAGE


class Granted(Struct, frozen=True, kw_only=True):
    """A successful answer."""

    fields: Mapping[str, Any]


class Told(Struct, frozen=True, kw_only=True):
    """One event of a stream."""

    event: Mapping[str, Any]


Reply: TypeAlias = Granted | Refusal | Told


class Hello(Struct, frozen=True, kw_only=True):
    """The answer to a ping."""

    version: str
    pid: int
    since: str  #: UTC, ISO 8601
    speaks: tuple[int, ...]  #: protocols
    draining: str = ""  #: why it begins nothing new


# --- writing ------------------------------------------------------------------------------------------


def request_line(verb: str, fields: Mapping[str, Any]) -> bytes:
    return _line({**fields, "v": PROTOCOL, "verb": verb})


def granted_line(fields: Mapping[str, Any]) -> bytes:
    return _line({**fields, "ok": True, "v": PROTOCOL})


def refusal_line(refusal: Refusal) -> bytes:
    return _line({"ok": False, "v": PROTOCOL, "error": refusal.error, "exit": int(refusal.exit)})


def told_line(event: Mapping[str, Any]) -> bytes:
    return _line({"event": event})


def _line(record: Mapping[str, Any]) -> bytes:
    # In ASCII a file name that is no text survives, and no byte of a value can be taken for the end of the line.
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


# --- reading ------------------------------------------------------------------------------------------


def read_request(line: bytes) -> Request | Refusal:
    """What the line asks for, or what is wrong with it."""
    record = _record(line)
    if record is None:
        return Refusal(error="a request is one JSON object on a line of its own")
    spoken, verb = record.pop("v", None), record.pop("verb", None)
    if type(spoken) is not int or not isinstance(verb, str):
        return Refusal(error='a request names its protocol and its verb: {"v": 1, "verb": "ping"}')
    if spoken != PROTOCOL and verb not in LASTING:
        return Refusal(error=f"this daemon speaks protocol {PROTOCOL}, not {spoken}", exit=Exit.UNREACHABLE)
    if verb not in READING and verb not in ACTING:
        known = ", ".join((*READING, *ACTING))
        return Refusal(error=f"this daemon does not know the verb {verb!r}; there are: {known}")
    return Request(verb=verb, fields=record)


def read_reply(line: bytes) -> Reply:
    """The reply; an invalid one is a refusal."""
    match _record(line):
        case {"event": dict() as event}:
            return Told(event=event)
        case {"ok": True, **fields}:
            return Granted(fields={str(name): value for name, value in fields.items() if name != "v"})
        case {"ok": False, "error": str(error), "exit": int(code)}:
            return Refusal(error=error, exit=code)
        case _:
            return Refusal(error=f"the daemon sent an invalid answer: {line[:80]!r}", exit=Exit.UNREACHABLE)


def read_hello(fields: Mapping[str, Any]) -> Hello:
    """What a daemon said of itself; a name that it left out is empty."""
    speaks = fields.get("speaks")
    pid = fields.get("pid")
    return Hello(
        version=str(fields.get("version", "")),
        pid=pid if isinstance(pid, int) else 0,
        since=str(fields.get("since", "")),
        speaks=tuple(one for one in speaks if isinstance(one, int)) if isinstance(speaks, list) else (),
        draining=str(fields.get("draining") or ""),
    )


def hello_fields(hello: Hello) -> dict[str, Any]:
    fields = {"version": hello.version, "pid": hello.pid, "since": hello.since, "speaks": list(hello.speaks)}
    return {**fields, "draining": hello.draining} if hello.draining else fields


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


class TooLong(Exception):
    """A line that is longer than any may be."""


class Lines:
    """Cuts what comes through a stream into lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole with this chunk, without their ends."""
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = bytes(self._rest) + whole[0]
            self._rest.clear()
        self._rest += rest
        if max(map(len, (self._rest, *whole))) >= LONGEST:
            raise TooLong
        return whole


# --- versions ----------------------------------------------------------------------------


def is_older(one: str, other: str) -> bool:
    """Whether the version `one` came before `other`; versions that cannot be told apart are equally old."""
    return _age(one) < _age(other)


def _age(version: str) -> tuple[tuple[int, ...], bool]:
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    # 1.2rc1 and 1.2.dev3 come before 1.2.
    early = re.match(r"\.?(?:a|b|rc|dev)\d", version[found.end() :]) if found else None
    return tuple(numbers), early is None
