"""How full an agent's context is, and the note with which a fresh agent continues its work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.prompts import one_line
from runplan.names import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.run.dispatch import Launch
    from runplan.run.usage import Tally

UNSURE = 15  #: points added to a threshold when the fill level is an estimate
DEFAULT_WINDOW = 200_000
_CHARACTERS = 4  #: per token, in an estimate

#: Context windows in tokens by model name; the first match counts.
_WINDOWS = tuple(
    (re.compile(pattern, re.IGNORECASE), window)
    for pattern, window in (
        (r"\[1m\]$|sonnet-(?:5|4-[6-9](?!\d))", 1_000_000),
        (r"haiku|sonnet", DEFAULT_WINDOW),
        (r"(?:^|/)gpt-5", 272_000),  # input only; its window of 400,000 includes the answer
        (r"claude-(?:opus|fable|mythos)|(?:^|/)gemini-(?:2\.5|[3-9])", 1_000_000),
    )
)


def tokens_in(characters: int) -> int:
    """The approximate number of tokens of a text of this length."""
    return characters // _CHARACTERS


def window_of(model: str, reported: int = 0) -> int:
    """The context window in tokens; a window that the agent reported counts first."""
    return reported or next((window for pattern, window in _WINDOWS if pattern.search(model)), DEFAULT_WINDOW)


def percent(tally: Tally, launch: Launch) -> int:
    """How full the context is. An estimate leaves out the prompt, so that is added."""
    tokens = tally.context + (tokens_in(launch.prompt) if tally.estimated else 0)
    return tokens * 100 // (launch.window or window_of(tally.model or launch.model, tally.window))


def reached(threshold: int, tally: Tally, launch: Launch) -> bool:
    """Whether the context is filled to this percentage; a threshold of 0 is never reached."""
    return 0 < threshold <= percent(tally, launch) - (UNSURE if tally.estimated else 0)


#: Sent to an agent with a full context, if it takes messages.
WRAP_UP = """\
Your context is nearly full, and a fresh agent will continue your work. You have two minutes. Finish the current item if
that takes moments, else leave it in a state that another agent can continue; begin nothing new, and start no long
command. Leave your changes in the worktree. Then write your return as described in your task: "partial", or "done"
if every item is proven, with an entry for each item that is. Its summary goes to your successor, a few lines: the
next step first, with file and line, then your decisions and their reasons, and what not to try again. Then stop."""

LINES = 40  #: the most that a note has
_MOST = 6  #: files or items that are named


class Standing(Struct, frozen=True, kw_only=True):
    """The state of the work at a hand-over."""

    number: int  #: which hand-over of the phase this is, from 1
    why: str
    plan: str
    phase: str
    items: tuple[tuple[str, str], ...]  #: (id, text) of the phase's items
    done: tuple[str, ...]  #: ids that the agent itself reported as passed
    summary: str  #: of its return, if it wrote one
    files: tuple[str, ...]  #: changed and committed so far
    message: str  #: the end of its message
    commit: str  #: the tip of its branch


def note(standing: Standing) -> str:
    """At most LINES lines: the next step, the state of the work, the agent's own words."""
    left = [(item, text) for item, text in standing.items if item not in standing.done]
    lines = [
        f"# Hand-over {standing.number}",
        "",
        f"The agent before you was ended: {one_line(standing.why)}.",
        "",
        "## Immediate next action",
        "",
        f"{left[0][0]}: {one_line(left[0][1])}" if left else "Prove that every item holds, then finish.",
        "",
        "## Current state",
        "",
        f"Its work is on your branch, up to {standing.commit[:12]}. Look at it before you continue.",
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


def _some(lines: Sequence[str], what: str) -> list[str]:
    more = [f"- and {len(lines) - _MOST} more {what}"] if len(lines) > _MOST else []
    return [*lines[:_MOST], *more] or [f"No {what}."]
