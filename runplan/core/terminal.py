"""Words that somebody else chose, fit for a terminal: without what it would obey, or what misleads who reads them."""

from __future__ import annotations

import re

LONGEST = 4_000  #: characters of one detail
_CUT = " […]"

# Neither is compiled before it is needed: that takes a millisecond, and hardly any text needs it.
#: Sequences that terminals obey, whole; what is left of broken ones are control characters.
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)
#: All but line end and tab; also what turns the direction of writing around, with which words can be faked.
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"


def plain(text: str) -> str:
    """The text without anything that a terminal would obey; line ends and tabs stay."""
    if _harmless(text):
        return text
    return re.sub(_CONTROL, "", re.sub(_SEQUENCE, "", text.replace("\r\n", "\n").replace("\r", "\n")))


def bounded(text: str, most: int = LONGEST) -> str:
    """The text, or its beginning with a mark that it goes on."""
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def escaped(text: str) -> str:
    """JSON that means the same, with the control characters that it may hold as they are written out."""
    return text if _harmless(text) else re.sub(_CONTROL, _written_out, text)


def _harmless(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


def _written_out(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
