"""One caller of the daemon: what it asks, one thing at a time, and what it is told, without ever waiting for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from runplan.core import control
from runplan.core.control import Lines, Refusal, TooLong
from runplan.core.errors import Exit

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from runplan.adapters.control.peers import Peer

CHUNK = 64 * 1024

#: What a caller may leave unread before it is dropped.
UNREAD = 4 * control.LONGEST


class Connection:
    """A caller, as the handler sees it: each request is answered or refused once, now or later."""

    def __init__(self, stream: socket.socket, peer: Peer, *, changed: Callable[[Connection], None]) -> None:
        """`changed` is called whenever there is something else to wait for."""
        self.stream = stream
        self.peer = peer
        self.open = ""  #: the verb that is neither answered nor refused yet
        self.gone = False  #: nobody hears what is said here any more
        self.leaving = False  #: it goes when everything has been told
        self._changed = changed
        self._lines = Lines()
        self._unsent = bytearray()

    # --- for the handler ----------------------------------------------------------------------------

    def answer(self, fields: Mapping[str, Any]) -> None:
        """Grant what was asked for."""
        line = control.granted_line(fields)
        if len(line) > control.LONGEST:
            error = f"the answer to {self.open} is longer than a line may be; ask for less"
            line = control.refusal_line(Refusal(error=error, exit=Exit.UNREACHABLE))
        self.open = ""
        self._say(line)

    def refuse(self, refusal: Refusal) -> None:
        """Say why not."""
        self.open = ""
        self._say(control.refusal_line(refusal))

    def tell(self, event: Mapping[str, Any]) -> None:
        """One event for a follower; its request stays open until it is answered or refused."""
        if self.gone:
            return
        line = control.told_line(event)
        self._say(line if len(line) <= control.LONGEST else control.told_line({"left_out": len(line)}))

    # --- for the server -----------------------------------------------------------------------------

    @property
    def unsent(self) -> bool:
        return bool(self._unsent)

    def take(self) -> list[bytes]:
        """The lines that have come."""
        try:
            chunk = self.stream.recv(CHUNK)
            lines = self._lines.take(chunk)
        except BlockingIOError:
            return []
        except TooLong:
            self.refuse(Refusal(error=f"a line has at most {control.LONGEST} bytes"))
            self.leave()
            return []
        except OSError:
            self.drop()
            return []
        if not chunk:
            self.leave()
        return lines

    def send(self) -> None:
        """Hand over what the other side takes without waiting."""
        try:
            while self._unsent:
                del self._unsent[: self.stream.send(self._unsent[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()
            self.leaving = True
        if self.leaving and not self._unsent:
            self.drop()
        else:
            self._changed(self)

    def leave(self) -> None:
        """Go as soon as everything has been told."""
        self.leaving = True
        self.send()

    def drop(self) -> None:
        """Go at once."""
        if not self.gone:
            self.gone = True
            self._changed(self)
            with contextlib.suppress(OSError):
                self.stream.close()

    def _say(self, line: bytes) -> None:
        if self.gone or self.leaving:
            return
        if len(self._unsent) + len(line) > UNREAD:
            self.drop()
            return
        self._unsent += line
        self.send()
