"""How full an agent's context is, and whether that is so much that something has to be done about it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from runplan.core.dispatch import Launch
    from runplan.core.tally import Tally

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
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
