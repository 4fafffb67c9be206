"""The note with which a fresh agent goes on where another had no room left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.names import shown
from runplan.core.prompts import one_line
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

LINES = 40

#: What an agent is told that has no room left, where it can be told anything.
WRAP_UP = """\
Your context is nearly full, and a fresh agent will go on in your place. You have two minutes. Finish the item you are
at if that is a matter of moments, else leave it where somebody else can take it up; begin nothing new, and start no
long command. Leave what you changed in the worktree. Then write your return as you were told to: "partial", or "done"
if every item is proven, with an entry for each item that is. Its summary is what your successor gets, a few lines: the
next step first, with file and line, then what you decided and why, and what not to try again. Then stop."""
_MOST = 6  #: files or items that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of the work when it changes hands, or might have to."""

    number: int  #: which hand-over of the phase this is, from 1
    why: str
    plan: str
    phase: str
    items: tuple[tuple[str, str], ...]  #: (id, text) of the phase's items
    done: tuple[str, ...]  #: ids the agent itself called passed
    summary: str  #: its return's, if it wrote one
    files: tuple[str, ...]  #: changed so far, and committed
    message: str  #: the end of what it said
    commit: str  #: where its work stands on the branch
    at_work: bool = False  #: it goes on, and may come further than this tells


def note(standing: Standing) -> str:
    """At most LINES lines: the next step first, then where things stand; its words have the rest."""
    left = [(item, text) for item, text in standing.items if item not in standing.done]
    first = f"{left[0][0]}: {one_line(left[0][1])}" if left else "Prove that every item holds, then finish."
    lines = [
        f"# Hand-over {standing.number}",
        "",
        _opening(standing),
        "",
        "## Immediate next action",
        "",
        first,
        "",
        "## Current state",
        "",
        _state(standing),
        *_some([f"- {shown(path)}" for path in standing.files], "files"),
        "",
        "## Not yet proven",
        "",
        *_some([f"- {item}" for item, _ in left], "items"),
        "",
        "## References",
        "",
        f"{one_line(standing.plan)}, phase {one_line(standing.phase)}",
        "",
        "## What it said",
        "",
    ]
    said = [line for line in (standing.summary or standing.message).splitlines() if line.strip()] or ["Nothing."]
    lines += [f"> {line}"[:300] for line in said[len(lines) - LINES :]]
    return "\n".join(lines) + "\n"


def _opening(standing: Standing) -> str:
    was = "at work when this was written, and may have come further" if standing.at_work else "ended"
    return f"The agent before you was {was}: {one_line(standing.why)}."


def _state(standing: Standing) -> str:
    there = standing.commit[:12]
    if standing.at_work:
        return f"Its work is on your branch, up to {there} or further; what it had not committed lies in your worktree."
    return f"Its work is on your branch, up to {there}. Look at it before you go on."


def _some(lines: Sequence[str], what: str) -> list[str]:
    more = [f"- and {len(lines) - _MOST} more {what}"] if len(lines) > _MOST else []
    return [*lines[:_MOST], *more] or [f"No {what}."]
