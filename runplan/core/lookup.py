"""Which plan does a word mean? A path, a base name, or a part that only one of them has."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from runplan.core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_plan(word: str, plans: Sequence[str], *, place: str, gone: Sequence[str] = ()) -> str:
    """The one plan of `plans` (repository-relative paths) that is meant; `place` is where they are looked for.

    Those that are `gone`, and were worked once, go by their paths, and by less where no other is called so.
    """
    for tries, among in (
        (_same_path, (*plans, *gone)),
        (is_named, plans),
        (_part, plans),
        (is_named, gone),
        (_part, gone),
    ):
        found = [plan for plan in among if tries(word, plan)]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"{word} may be {_or(found)}; say which")
    from difflib import get_close_matches  # only an error needs it

    near = get_close_matches(PurePosixPath(word).name, [PurePosixPath(p).name for p in plans], n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(plans)}" if plans else ""
    raise NotFound(f"{word}: no such plan, neither as a path nor under {place}/{hint}")


def _same_path(word: str, plan: str) -> bool:
    return PurePosixPath(word) == PurePosixPath(plan)


def is_named(word: str, plan: str) -> bool:
    """Whether the word is the plan's base name."""
    name = PurePosixPath(plan).name
    return word.lower() in (name.lower(), name.removesuffix(".md").lower())


def _part(word: str, plan: str) -> bool:
    return word.lower() in plan.lower()


def _or(found: Sequence[str]) -> str:
    return f"{', '.join(found[:-1])} or {found[-1]}"
