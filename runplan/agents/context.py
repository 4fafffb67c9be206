"""How full an agent's context is, and the note with which a fresh agent goes on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.prompts import one_line
from runplan.names import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.run.dispatch import Launch
    from runplan.run.usage import Tally


UNSURE = 15  #: points more than a threshold says, where the gauge is only estimated
MESSAGE = 8_000  #: characters of the end of the agent's message that a reading holds
READING = "gauge.json"  #: the file of a dispatch that holds one
DEFAULT_WINDOW = 200_000
_LARGE = 1_000_000
_GPT = 272_000  #: what may be sent; its window of 400,000 counts the answer too
_CHARACTERS = 4  #: of text, that make one token in an estimate

_MILLION = re.compile(r"\[1m\]$", re.IGNORECASE)
_LARGE_SONNET = re.compile(r"sonnet-(?:5|4-[6-9](?!\d))")
_SMALL = re.compile(r"haiku|sonnet")
_LARGE_MODEL = re.compile(r"claude-(?:opus|fable|mythos)|(?:^|/)gemini-(?:2\.5|[3-9])")
_GPT_MODEL = re.compile(r"(?:^|/)gpt-5")


def tokens_in(characters: int) -> int:
    """About how many tokens a text of this length is."""
    return characters // _CHARACTERS


def window_of(model: str, told: int = 0) -> int:
    """The context window in tokens; what the agent itself told counts first."""
    if told > 0:
        return told
    if _MILLION.search(model) or _LARGE_SONNET.search(model):
        return _LARGE
    if _SMALL.search(model):
        return DEFAULT_WINDOW
    if _GPT_MODEL.search(model):
        return _GPT
    return _LARGE if _LARGE_MODEL.search(model) else DEFAULT_WINDOW


def percent(tally: Tally, *, prompt: int = 0, window: int = 0, model: str = "") -> int:
    """How full the context is; `prompt` is its length in characters, which an estimate has to add.

    `window` is the one that was set, and `model` the one that was asked for, for programs that tell neither.
    """
    tokens = tally.context + (tokens_in(prompt) if tally.estimated else 0)
    return tokens * 100 // (window or window_of(tally.model or model, tally.window))


def reached(threshold: int, tally: Tally, launch: Launch) -> bool:
    """Whether the context is as full as that, in per cent; a threshold of 0 is never reached.

    The margin of an estimate goes for every threshold: what is too unsure to end an agent alarms nobody either.
    """
    margin = UNSURE if tally.estimated else 0
    return 0 < threshold <= full(tally, launch) - margin


def full(tally: Tally, launch: Launch) -> int:
    """How full the context of a process is, in per cent."""
    return percent(tally, prompt=launch.prompt, window=launch.window, model=launch.model)


class Reading(Struct, frozen=True, kw_only=True):
    """What was seen when a context had filled so far that a hand-over is prepared."""

    percent: int
    estimated: bool
    message: str  #: the end of what the agent had said


def reading_text(reading: Reading) -> str:
    """A reading as it is written down."""
    return json.dumps(
        {"percent": reading.percent, "estimated": reading.estimated, "message": reading.message[-MESSAGE:]}
    )


def reading_of(text: str | None) -> Reading | None:
    """What is read back; None when there is none, or after a power cut no whole one."""
    try:
        return Reading(**json.loads(text)) if text else None
    except (TypeError, ValueError):
        return None


LINES = 40

#: What an agent is told that has no room left, where it can be told anything.
WRAP_UP = """\
Your context is nearly full, and a fresh agent will go on in your place. You have two minutes. Finish the item you are
at if that is a matter of moments, else leave it where somebody else can take it up; begin nothing new, and start no
long command. Leave what you changed in the worktree. Then write your return as you were told to: "partial", or "done"
if every item is proven, with an entry for each item that is. Its summary is what your successor gets, a few lines: the
next step first, with file and line, then what you decided and why, and what not to try again. Then stop."""
_MOST = 6  #: files or items that are named


class Standing(Struct, frozen=True, kw_only=True):
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
