"""The words after PLAN."""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.errors import NotFound, UsageError
from runplan.domain.plan.marks import read_name
from runplan.domain.run.kinds import Mode
from runplan.domain.settings.schedule import take_schedule
from runplan.domain.settings.schema import LANDINGS
from runplan.domain.text import nearest_word

WORDS = ("finish", "auto", "now", "every", *LANDINGS)


class Options(Struct, frozen=True, kw_only=True):
    phase: str = ""
    finish: bool = False
    auto: bool = False
    landing: str = ""  #: "" for that of the settings
    every: str = ""  #: the schedule in its canonical form, without `every`
    now: bool = False
    anew: bool = False  #: without the kept work of failed attempts
    memory: bool = True  #: tell agents what earlier runs have taught
    model: str = ""  #: of the implementer; "" for that of the settings
    effort: str = ""  #: likewise

    @property
    def mode(self) -> Mode:
        return Mode.FINISH if self.finish else Mode.PHASE if self.phase else Mode.NEXT


def parse_words(words: Sequence[str]) -> Options:
    """Read the words in any order. Any one word may be the phase; `in_plan` looks it up."""
    left = deque(" ".join(words).split())
    flags: set[str] = set()
    landings: dict[str, None] = {}
    named: dict[str, None] = {}
    every = ""
    while left:
        token = left.popleft()
        match token.lower():
            case "finish" | "auto" | "now" as flag:
                flags.add(flag)
            case landing if landing in LANDINGS:
                landings[landing] = None
            case "every" if not every:
                every = take_schedule(left).text
            case "every":
                raise UsageError("every: a plan has one schedule; say it once")
            case verb if verb in ("stop", "next", "status"):
                raise UsageError(f"{token}: a command of its own; say runplan {verb}")
            case _:
                named[token] = None
    if "finish" in flags and every:
        raise UsageError("finish with every: a schedule works on one phase at a time; leave out one of them")
    if len(landings) > 1:
        raise UsageError(f"{' and '.join(landings)}: a run lands one way; leave out one of them")
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: name one phase, or say finish")
    phase = next(iter(named), "")
    if phase and "finish" in flags:
        raise UsageError(f"{phase} with finish: finish works on all phases; leave out one of them")
    auto = "auto" in flags or bool(every)
    landing = next(iter(landings), "")
    return Options(phase=phase, finish="finish" in flags, auto=auto, landing=landing, every=every, now="now" in flags)


def in_plan(asked: Options, phases: Sequence[str]) -> Options:
    """The options with the id of the phase, which a schedule drops; case matters only if two ids differ by it alone."""
    token = asked.phase
    alike = [phase for phase in phases if phase.lower() == token.lower()]
    if token and token not in phases and len(alike) != 1:
        known = f"the phases are {', '.join(phases) or 'none'}"
        named = read_name(token)
        if named is not None and named.id == token and any(sign.isdigit() for sign in token):
            raise NotFound(f"{token}: no such phase; {known}")
        near = nearest_word(token.lower(), WORDS)
        hint = f"did you mean {near}?" if near else "see: runplan help start"
        raise UsageError(f"{token}: no such word or phase; {known}; {hint}")
    return replace(asked, phase="" if asked.every or not token else token if token in phases else alike[0])
