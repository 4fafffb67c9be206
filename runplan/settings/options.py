"""The words after PLAN, and the options of a run."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.errors import NotFound, UsageError
from runplan.plan.ids import read_name
from runplan.settings.schema import LANDINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.settings.schema import Settings

_VERBS = ("stop", "next", "status")


class Mode(StrEnum):
    NEXT = "next"  #: the first phase that is not done
    PHASE = "phase"  #: the one named
    FINISH = "finish"  #: all that are left


class Options(Struct, frozen=True, kw_only=True):
    """The words after PLAN; `resolve` adds the settings, and the result is stored with the run."""

    phase: str | None = None  #: set exactly when mode is PHASE
    mode: Mode = Mode.NEXT
    auto: bool = False
    landing: str = ""
    target: str = ""
    every: str | None = None  #: the schedule in its canonical form, without `every`
    now: bool = False


def parse_words(words: Sequence[str], *, phases: Sequence[str] | None) -> Options:
    """Read the words in any order; while `phases` is unknown (None), any one word may be the phase."""
    left = deque(" ".join(words).split())
    flags: set[str] = set()
    landings: dict[str, None] = {}
    named: list[str] = []
    every: str | None = None
    while left:
        token = left.popleft()
        match token.lower():
            case "finish" | "auto" | "now" as flag:
                flags.add(flag)
            case landing if landing in LANDINGS:
                landings[landing] = None
            case "every" if every is None:
                from runplan.settings.schedule import take  # few starts need it

                every = take(left).text
            case "every":
                raise UsageError("every: a plan has one schedule; say it once")
            case _:
                named.append(_phase(token, phases))
    _refuse_contradictions(flags, tuple(landings), named, every)
    phase = named[0] if named and every is None else None
    return Options(
        phase=phase,
        mode=Mode.FINISH if "finish" in flags else Mode.PHASE if phase else Mode.NEXT,
        auto="auto" in flags or every is not None,
        landing=next(iter(landings), ""),
        every=every,
        now="now" in flags,
    )


def resolve(words: Options, settings: Settings) -> Options:
    return replace(words, landing=words.landing or settings.run.landing, target=settings.run.target)


def _refuse_contradictions(flags: set[str], landings: tuple[str, ...], named: list[str], every: str | None) -> None:
    if "finish" in flags and every is not None:
        raise UsageError("finish with every: a schedule works on one phase at a time; leave out one of them")
    if len(landings) > 1:
        raise UsageError(f"{' and '.join(landings)}: a run lands one way; leave out one of them")
    if len(set(named)) > 1:
        raise UsageError(f"{' and '.join(named)}: name one phase, or say finish")
    if named and "finish" in flags:
        raise UsageError(f"{named[0]} with finish: finish works on all phases; leave out one of them")


def _phase(token: str, phases: Sequence[str] | None) -> str:
    """The phase with the id `token`; case matters only if two ids differ by nothing else."""
    if token.lower() in _VERBS and token not in (phases or ()):
        raise UsageError(f"{token}: a command of its own; say runplan {token.lower()}")
    if phases is None or token in phases:
        return token
    alike = [phase for phase in phases if phase.lower() == token.lower()]
    if len(alike) == 1:
        return alike[0]
    known = f"the phases are {', '.join(phases) or 'none'}"
    named = read_name(token)
    if named is not None and named.id == token and any(sign.isdigit() for sign in token):
        raise NotFound(f"{token}: no such phase; {known}")
    raise UsageError(f"{token}: no such word or phase; {known}")
