"""Matches repository paths against patterns with `*`, `?`, `[…]` and `**`, from the root of the repository."""

import re
from collections.abc import Iterable
from functools import lru_cache

_WILD = re.compile(r"[*?\[]")
_PIECES = re.compile(r"(?:\*\*/)+|\*\*|\*|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)


def covers(patterns: Iterable[str], path: str) -> bool:
    return any(matches(pattern, path) for pattern in patterns)


def matches(pattern: str, path: str) -> bool:
    """Whether the pattern covers the path; the name of a directory covers everything in it."""
    return _compiled(pattern).fullmatch(path) is not None


def literal(pattern: str) -> str:
    """The part of the pattern before its first wildcard; all of it when it has none."""
    return _WILD.split(_plain(pattern), maxsplit=1)[0]


def _plain(pattern: str) -> str:
    return pattern.strip().removeprefix("./").lstrip("/")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    plain = _plain(pattern)
    # A name without wildcards may be a directory; `src/*` covers only its files.
    below = "/.*" if plain.endswith("/") else "" if _WILD.search(plain.rpartition("/")[2]) else "(?:/.*)?"
    parts = []
    for piece in _PIECES.findall(plain.rstrip("/")):
        if piece.startswith("[") and len(piece) > 1:
            inside = piece[1:-1].replace("\\", r"\\").replace("[", r"\[")
            parts.append(f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]")
        elif piece.endswith("**/"):
            parts.append("(?:.*/)?")
        else:
            parts.append({"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece, re.escape(piece)))
    try:
        return re.compile("".join(parts) + below, re.DOTALL)
    except re.error:  # a range such as [z-a]: no path is meant
        return re.compile(re.escape(plain))
