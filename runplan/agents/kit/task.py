"""What an agent's module is told when it has to say how its program is started, and what all of them share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan.run.dispatch import OWN, WRITERS, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The variables in which each provider's key and address are kept, by the word before the slash of a model's name.
PROVIDERS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "gemini": ("GEMINI_API_KEY",),
    "google": ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
    "openrouter": ("OPENROUTER_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
}


class Task(Struct, frozen=True, kw_only=True):
    """One dispatch, seen from the agent's side."""

    role: Role
    phase: str  #: phase id
    cycle: int  #: from 1; grows with each fix
    root: Path  #: the main checkout
    directory: Path  #: the directory of the dispatch, for files that the program reads
    keyed: bool = False  #: whether one of its keys is in the caller's environment
    home: Path | None = None  #: the folder for its private configuration; None: the user's own is used
    sandboxed: bool = False  #: whether it is shut in from outside
    hears: bool = False  #: whether it can be told something while it works: its prompt is then the first message
    usd: float = 0.0  #: the dollars it may use, for a program that keeps to a limit itself; 0: no limit

    @property
    def writes(self) -> bool:
        return self.role in WRITERS

    @property
    def own(self) -> Path:
        """The folder that the program may write besides its worktree."""
        return self.directory / OWN

    @property
    def prompt(self) -> Path:
        return self.directory / "prompt.md"


def under_home(caller: Mapping[str, str], *parts: str) -> Path:
    """A place in the user's own home."""
    return Path(caller.get("HOME") or "/").joinpath(*parts)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a configuration file; an empty one when there is none, or it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def provider_names(model: str) -> tuple[str, ...]:
    """The variables of the provider that serves the model; of every known one when the model does not say which.

    Of a provider that is not known it gets none: one on this machine needs none, and any other is named by `env`.
    """
    if "/" in model:
        return PROVIDERS.get(model.partition("/")[0], ())
    return tuple(dict.fromkeys(name for names in PROVIDERS.values() for name in names))


def provider_keys(model: str = "") -> tuple[str, ...]:
    """Of these, the keys."""
    return tuple(name for name in provider_names(model) if name.endswith("_API_KEY"))


def first_set(caller: Mapping[str, str], *names: str) -> str:
    """The first of the names that has a value in the caller's environment; "" for none."""
    return next((name for name in names if caller.get(name)), "")
