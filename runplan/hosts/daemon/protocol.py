"""The messages between the daemon and its callers: one JSON object per line (docs/daemon.md)."""

import socket
import struct
from typing import TypeAlias

from msgspec import Struct

from runplan.domain.decoding import parse_json, to_json
from runplan.domain.errors import Exit, UsageError
from runplan.hosts.daemon.state import Known


class Request(Struct, frozen=True, kw_only=True, tag_field="verb", tag=str.lower):
    """Unknown fields are ignored."""


class Ping(Request, frozen=True):
    """Which daemon is this, and how is it? Every version understands this."""


class Metrics(Request, frozen=True): ...


class Environment(Request, frozen=True, kw_only=True):
    """Keep the caller's environment in memory for the command that names it."""

    repository: Known
    name: str
    env: dict[str, str]


class Wake(Request, frozen=True, kw_only=True):
    """Have the worker of the repository execute the queued commands."""

    repository: Known


AnyRequest: TypeAlias = Ping | Metrics | Environment | Wake
ACTING = (Environment, Wake)  #: requests that an agent may not send


class Done(Struct, frozen=True):
    """The result of a request that has nothing to return."""


class Closed(Struct, frozen=True, kw_only=True):
    """A repository that cannot be opened for now."""

    root: str
    error: str
    since: str  #: UTC, ISO 8601
    again: str  #: when it is tried again, likewise


class Hello(Struct, frozen=True, kw_only=True):
    version: str
    pid: int
    since: str  #: UTC, ISO 8601
    draining: str = ""  #: why it begins nothing new
    closed: tuple[Closed, ...] = ()


class MetricsText(Struct, frozen=True):
    text: str


class Reply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    result: dict[str, object] | None = None
    error: str = ""
    exit: int = Exit.USAGE


def line_of(message: Request | Reply) -> bytes:
    return to_json(message).encode("ascii") + b"\n"


def read_request(line: bytes) -> AnyRequest:
    try:
        return parse_json(line, AnyRequest)  # type: ignore[arg-type]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"invalid request: {error}") from error


def read_reply(line: bytes) -> Reply:
    try:
        return parse_json(line, Reply)
    except (ValueError, RecursionError):
        return Reply(error=f"the daemon sent an invalid answer: {line[:80]!r}", exit=Exit.UNREACHABLE)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid, uid
    # <sys/un.h> of macOS: SOL_LOCAL is 0, LOCAL_PEERPID 2, LOCAL_PEERCRED 1 with version and user first.
    _, uid = struct.unpack("2I", connection.getsockopt(0, 1, 76)[:8])
    return connection.getsockopt(0, 2), uid
