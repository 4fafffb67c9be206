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


def must_hand_over(tally: Tally, *, prompt: int = 0, window: int = 0, model: str = "") -> bool:
    """Whether a fresh agent has to go on."""
    full = percent(tally, prompt=prompt, window=window, model=model)
    return full >= CRITICAL + (UNSURE if tally.estimated else 0)
