"""Reads one line of JSON of which nothing can be taken for granted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runplan.agents.context import tokens_in
from runplan.run.usage import MOST, Context, ToolUsed, believable

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Programs cut what a command printed before they send it; more of it never fills a context.
_MOST_OUTPUT = 10_000

#: Where the tools of the different programs say which file they touch.
_PATHS = ("file_path", "filePath", "path", "notebook_path", "absolute_path")


def record(line: bytes) -> dict[str, Any] | None:
    """The object that the line holds; None when it holds none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def at(tree: object, *names: str) -> Any:
    """What lies below these names; None when there is nothing."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def text(tree: object, *names: str) -> str:
    """The text there; half a character, which JSON can spell and nobody can print, becomes a question mark."""
    found = at(tree, *names)
    if not isinstance(found, str):
        return ""
    return found if found.isascii() else found.encode("utf-8", "replace").decode()


def count(tree: object, *names: str) -> int:
    """The number there, if it can be one of tokens or seconds."""
    return believable(at(tree, *names))


def money(tree: object, *names: str) -> float:
    found = at(tree, *names)
    sound = isinstance(found, (int, float)) and not isinstance(found, bool) and 0 <= found < MOST
    return float(found) if sound else 0.0


def objects(tree: object, *names: str) -> Iterator[dict[str, Any]]:
    """The objects of the list there."""
    found = at(tree, *names)
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict):
            yield each


def tool(name: str, given: object, *, denied: bool = False) -> ToolUsed:
    """The use of a tool, with the file that its input names."""
    path = next(filter(None, (text(given, key) for key in _PATHS)), "")
    return ToolUsed(tool=name[:200], path=path[:4_096], denied=denied)


def estimate(said: str, output: str = "") -> Context:
    """For programs that tell what they used only at their end: a guess, from what went by, how full they are."""
    return Context(tokens=tokens_in(len(said) + min(len(output), _MOST_OUTPUT)), estimated=True)
