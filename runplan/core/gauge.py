"""How full an agent's context is, and when a fresh one has to take over."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runplan.core.tally import Tally

CRITICAL = 60  #: per cent of the window at which the agent is ended and its work handed over
UNSURE = 15  #: points more, where the gauge is only estimated
DEFAULT_WINDOW = 200_000
_LARGE = 1_000_000
_CHARACTERS = 4  #: of text, that make one token in an estimate

_MILLION = re.compile(r"\[1m\]$", re.IGNORECASE)
_LARGE_SONNET = re.compile(r"sonnet-(?:5|4-[6-9](?!\d))")
_SMALL = re.compile(r"haiku|sonnet")
_LARGE_MODEL = re.compile(r"claude-(?:opus|fable|mythos)")


def window_of(model: str, told: int = 0) -> int:
    """The context window in tokens; what the agent itself told counts first."""
    if told > 0:
        return told
    if _MILLION.search(model) or _LARGE_SONNET.search(model):
        return _LARGE
    if _SMALL.search(model):
        return DEFAULT_WINDOW
    return _LARGE if _LARGE_MODEL.search(model) else DEFAULT_WINDOW


def percent(tally: Tally, *, prompt: int = 0) -> int:
    """How full the context is; `prompt` is its length in characters, which an estimate has to add."""
    tokens = tally.context + (prompt // _CHARACTERS if tally.estimated else 0)
    return tokens * 100 // window_of(tally.model, tally.window)


def must_hand_over(tally: Tally, *, prompt: int = 0) -> bool:
    """Whether a fresh agent has to go on."""
    return percent(tally, prompt=prompt) >= CRITICAL + (UNSURE if tally.estimated else 0)
