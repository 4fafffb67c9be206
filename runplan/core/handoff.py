"""The note with which a fresh agent goes on where another had no room left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.prompts import one_line
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

LINES = 40
_FILES = 12
_WORDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of the work when it changes hands."""

    number: int  #: which hand-over of the phase this is, from 1
    why: str
    items: tuple[tuple[str, str], ...]  #: (id, text) of the phase's items
    done: tuple[str, ...]  #: ids the agent itself called passed
    summary: str  #: its return's, if it wrote one
    files: tuple[str, ...]  #: changed so far
    message: str  #: the end of what it said
    commit: str  #: where its work stands on the branch


def note(standing: Standing) -> str:
    """At most LINES lines: the next step first, then where things stand."""
    left = [(item, text) for item, text in standing.items if item not in standing.done]
    first = f"{left[0][0]}: {one_line(left[0][1])}" if left else "Prove that every item holds, then finish."
    lines = [
        f"# Hand-over {standing.number}",
        "",
        f"The agent before you was ended: {one_line(standing.why)}.",
        "",
        "## Immediate next action",
        "",
        first,
        "",
        "## Current state",
        "",
        f"Its work is on your branch, up to {standing.commit[:12]}. Look at it before you go on.",
        *_some([f"- {path}" for path in standing.files], _FILES, "files"),
        "",
        "## Not yet proven",
        "",
        *_some([f"- {item}" for item, _ in left], _FILES, "items"),
        "",
        "## What it said",
        "",
        *[f"> {line}"[:300] for line in _tail(standing.summary or standing.message)],
    ]
    return "\n".join(lines[:LINES]) + "\n"


def _some(lines: Sequence[str], most: int, what: str) -> list[str]:
    more = [f"- and {len(lines) - most} more {what}"] if len(lines) > most else []
    return [*lines[:most], *more] or [f"No {what}."]


def _tail(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()][-_WORDS:] or ["Nothing."]
