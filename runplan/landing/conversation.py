"""The conversation on a pull request: which messages runplan acts on, how an agent sees them, and what is answered.

Nothing here permits anything: words of the forge are quoted, and only accounts with write access start work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.text import bounded, plain

if TYPE_CHECKING:
    from runplan.forge.model import Message

MARK = "<!-- runplan"  #: begins the hidden mark in every comment of runplan, whichever account wrote it


class Due(Struct, frozen=True, kw_only=True):
    """The messages that no run has handled."""

    requests: tuple[Message, ...] = ()  #: of accounts with write access
    strangers: tuple[Message, ...] = ()  #: like requests, of other accounts


def find_due(
    messages: Sequence[Message], *, handled: Collection[str], login: str, may_write: Callable[[str], bool]
) -> Due:
    """The messages that ask for work: reviews, line comments, and comments that mention the token's account."""
    asked = [message for message in messages if message.id not in handled and _is_request(message, login)]
    return Due(
        requests=tuple(message for message in asked if may_write(message.author)),
        strangers=tuple(message for message in asked if not may_write(message.author)),
    )


def _is_request(message: Message, login: str) -> bool:
    if MARK in message.text or message.is_approval:
        return False
    mention = rf"(?i)(?<![\w@/-])@{re.escape(login.removesuffix('[bot]'))}(?![\w/-])"
    return not message.id.startswith("comment ") or re.search(mention, message.text) is not None


def quote_message(message: Message, *, is_stranger: bool = False) -> str:
    lines = plain(bounded(message.text)).splitlines()
    author = f"{message.author} (without write access)" if is_stranger else message.author
    where = f" on {message.place}" if message.place else ""
    return "\n".join([f"{author}{where}:", *(f"> {line}" for line in lines)])
