"""Tells the service manager how the daemon is (sd_notify(3)); without one it tells nobody."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def extended(seconds: float) -> str:
    """What asks for so much time until the next word, however short the time that is set for it."""
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}"


def notify(env: Mapping[str, str], *words: str) -> bool:
    """Tell it; False when there is nobody to tell. One that does not listen is not waited for."""
    address = env.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream, contextlib.suppress(OSError):
        stream.setblocking(False)
        stream.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        stream.send("\n".join(words).encode())
        return True
    return False


def watchdog_s(env: Mapping[str, str]) -> float:
    """How long it waits for WATCHDOG before it calls us stuck; 0.0 when it does not watch us."""
    told, of = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not told.isascii() or not told.isdigit() or of not in ("", str(os.getpid())):
        return 0.0
    return int(told) / 1_000_000
