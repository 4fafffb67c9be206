"""One setting: what it is called, what it may hold, and how a value is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runplan.core import values
from runplan.core.quickclass import dataclass
from runplan.core.values import Shape, Unfit

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting."""

    section: str
    name: str
    default: str | bool | int | float | tuple[str, ...]
    why: str
    shape: Shape = Shape.TEXT
    choices: tuple[str, ...] = ()
    rule: Callable[[Any], str] | None = None  #: what is wrong with a well-shaped value; "" for nothing

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def field(self) -> str:
        """The attribute that holds it: durations say their unit."""
        return f"{self.name}_s" if self.shape is Shape.DURATION else self.name


def read(key: Key, value: object) -> Any:
    """The typed value of `key`, as its attribute holds it, or Unfit."""
    typed = values.shaped(key.shape, value)
    if isinstance(typed, Unfit):
        return typed
    if key.choices and typed not in key.choices:
        return Unfit(why=f"must be one of {', '.join(key.choices)}, not {value!r}")
    if key.rule and (wrong := key.rule(typed)):
        return Unfit(why=wrong)
    return typed


def nearest(word: str, valid: tuple[str, ...]) -> str:
    """The valid word that resembles `word` most."""
    from difflib import get_close_matches  # only an error needs it

    return get_close_matches(word.lower(), valid, n=1, cutoff=0.0)[0]
