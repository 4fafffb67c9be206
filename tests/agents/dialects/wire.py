"""The parts that all dialects of the scripted model server share."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.agents.scenario import Answer, Asked, FaultKind


class Malformed(Exception):
    """The provider would refuse this body, with these words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response: one document, or a stream of events."""

    status: int = 200
    body: bytes = b""
    events: tuple[bytes, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)


class Dialect(Protocol):
    """One provider's way of being asked and of answering."""

    def serves(self, method: str, path: str, headers: Mapping[str, str]) -> bool: ...

    def key(self, headers: Mapping[str, str], query: Mapping[str, str]) -> str:
        """The key the request carries; "" for none."""

    def asked(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Asked:
        """The request in provider-independent form, or Malformed."""

    def reply(self, path: str, asked: Asked, answer: Answer) -> Reply: ...

    def plain(self, method: str, path: str, body: dict[str, Any]) -> Reply | None:
        """The reply to what needs no model, such as the list of models; None when this needs one."""

    def fault(self, kind: FaultKind, resets_in: int, now: float) -> Reply:
        """LIMIT, OVERLOAD and AUTH in the provider's own shape."""

    def refused(self, status: int, words: str) -> Reply:
        """Any other error in the provider's own shape."""


def document(status: int, content: object, headers: dict[str, str] | None = None) -> Reply:
    return Reply(status=status, body=json.dumps(content).encode(), headers=headers or {})


def event(content: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(content)}\n\n".encode()


def need(found: bool, words: str) -> None:
    if not found:
        raise Malformed(words)


def bearer(headers: Mapping[str, str]) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ").strip()


def words_of(content: object) -> str:
    """All text in a content that may be a string, a list of blocks, or blocks in blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, (words_of(each) for each in content)))
    if isinstance(content, dict):
        return words_of(content.get("text") or content.get("content") or content.get("output") or "")
    return ""
