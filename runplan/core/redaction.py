"""Takes secrets out of a stream that is cut anywhere: what might be the beginning of one waits for what comes next."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.core.secrets import LONGEST, LONGEST_CLAIMS, LONGEST_TOKEN, REDACTED, byte_spans, redacted_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

_BLANKS = (b"\n", b" ", b"\t")

#: A word as long as this is no token, so that an endless line does not wait for its end.
_LONGEST_WORD = LONGEST_CLAIMS + 3 * LONGEST_TOKEN

#: Blanks may stand in these: a name and its token are near each other, a key goes on to its last line.
_NAME, _NAME_SPAN = b":_authToken", 64
_KEY = b"-----BEGIN"
_KEY_END = re.compile(rb"-----END [A-Z ]{0,60}-----")


class Redactor:
    """One stream; what it hands out may be written down."""

    def __init__(self, values: Collection[str] = ()) -> None:
        self._values = tuple(values)
        self._encoded = tuple(value.encode(errors="surrogateescape") for value in values)
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be said of the stream so far, without its secrets."""
        known = self._held + chunk if self._held else chunk
        sure = self._sure(known)
        pieces, at = [], 0
        for start, end in byte_spans(known, self._values):
            # A secret that reaches the end may go on there; what is too long for one is not waited for.
            if (end > sure or end == len(known)) and end - start < LONGEST:
                sure = min(sure, start)
                break
            pieces += [known[at:start], REDACTED.encode()]
            at, sure = end, max(sure, end)
        self._held = known[sure:]
        return b"".join((*pieces, known[at:sure]))

    def take_rest(self) -> bytes:
        """What still waits, as it came; it waits no longer."""
        rest, self._held = self._held, b""
        return rest

    def finish(self) -> bytes:
        """What still waited, when nothing comes any more."""
        return redacted_bytes(self.take_rest(), self._values)

    def _sure(self, known: bytes) -> int:
        """Up to where no secret of which the rest is still to come can have begun."""
        size = len(known)
        word = max(known.rfind(blank, max(0, size - _LONGEST_WORD)) for blank in _BLANKS) + 1
        sure = word or max(0, size - _LONGEST_WORD)
        if (at := known.rfind(_NAME, max(0, size - _NAME_SPAN))) >= 0:
            sure = min(sure, at)
        if (at := known.rfind(_KEY, max(0, size - LONGEST))) >= 0 and not _KEY_END.search(known, at):
            sure = min(sure, at)
        return min([sure, *(size - _begun(known, value) for value in self._encoded)])


def redacted_end(data: bytes, values: Collection[str] = (), *, size: int) -> bytes:
    """The last `size` bytes or less; what stands before them is looked at, lest half a secret be left."""
    start = max(0, len(data) - size)
    across = (end for begin, end in byte_spans(data, values) if begin < start < end)
    return redacted_bytes(data[next(across, start) :], values)


def overlap(values: Collection[str]) -> int:
    """How much has to be known before a place to see every secret that lies across it."""
    return max(LONGEST, *(4 * len(value) for value in values), 0)


def _begun(known: bytes, value: bytes) -> int:
    """How much of the value stands at the end."""
    last = known[1 - len(value) :]
    at = last.find(value[:1])
    while at >= 0:
        if value.startswith(last[at:]):
            return len(last) - at
        at = last.find(value[:1], at + 1)
    return 0
