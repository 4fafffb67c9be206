"""What an agent has used, as reported or estimated, how full its context is, and what it may still use."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.run.dispatch import Launch, Tally, Usage
from runplan.domain.run.events import DispatchEnded, DispatchStarted
from runplan.domain.run.recorded import Recorded
from runplan.domain.text import in_words
from runplan.domain.times import parse_iso

_CACHED = 0.1  #: share of the price for cached tokens
LATE_S = 300.0  #: the end of a dispatch is recorded this long after its time limit, or its runner died
NEAR = 0.8  #: the share of a limit at which a person is warned
UNSURE = 15  #: points added to a threshold when the fill level is an estimate
DEFAULT_WINDOW = 200_000
#: Context windows in tokens by model name; the first match counts.
_WINDOWS = (
    (r"\[1m\]$|sonnet-(?:5|4-[6-9](?!\d))", 1_000_000),
    (r"haiku|sonnet", DEFAULT_WINDOW),
    (r"(?:^|/)gpt-5", 272_000),  # input only; its window of 400,000 includes the answer
    (r"claude-(?:opus|fable|mythos)|(?:^|/)gemini-(?:2\.5|[3-9])", 1_000_000),
)
#: Each measure with its name in the settings, and how its amounts are shown.
_MEASURES: tuple[tuple[str, str, Callable[[float, float], str]], ...] = (
    ("tokens", "tokens", lambda used, limit: f"{used} of {limit} tokens"),
    ("usd", "usd", lambda used, limit: f"${used:.2f} of ${limit:.2f}"),
    ("seconds", "wall", lambda used, limit: f"{in_words(used)} of {in_words(limit)}"),
)


def tokens_in(characters: int) -> int:
    return characters // 4  # an estimate


def meter_usage(tally: Tally, *, prompt: int, usd_in: float, usd_out: float) -> Usage:
    """The usage with its dollars; `prompt` is its length in characters, prices are per million tokens, 0 if unknown.

    An estimate: each request sends the prompt and the conversation so far, of which the provider has cached the rest.
    """
    used = tally.usage
    if is_estimate(tally):
        fresh = tokens_in(prompt) + tally.context
        sent = max(fresh, tokens_in(prompt) * (tally.requests + 1) + tally.resent)
        used = Usage(input_tokens=sent, cached_tokens=sent - fresh)
    return used if used.usd else price_usage(used, usd_in, usd_out)


def is_estimate(tally: Tally) -> bool:
    """Whether the agent has reported no usage, but its output shows some."""
    return tally.estimated and tally.usage == Usage()


def price_usage(used: Usage, usd_in: float, usd_out: float) -> Usage:
    fresh = max(0.0, used.input_tokens - used.cached_tokens * (1 - _CACHED))
    return replace(used, usd=(fresh * usd_in + used.output_tokens * usd_out) / 1_000_000)


def context_percent(tally: Tally, launch: Launch) -> int:
    """How full the context is. An estimate leaves out the prompt, so that is added."""
    tokens = tally.context + (tokens_in(launch.prompt) if tally.estimated else 0)
    model = tally.model or launch.model
    known = (window for pattern, window in _WINDOWS if re.search(pattern, model, re.IGNORECASE))
    return tokens * 100 // (launch.window or tally.window or next(known, DEFAULT_WINDOW))


def has_reached(threshold: int, tally: Tally, launch: Launch) -> bool:
    """Whether the context is filled to this percentage; a threshold of 0 is never reached."""
    return 0 < threshold <= context_percent(tally, launch) - (UNSURE if tally.estimated else 0)


class Cost(Struct, frozen=True, kw_only=True):
    """Usage in one scope, or its limits: tokens sent and received, dollars, time. As a limit 0 means none."""

    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0

    def plus(self, other: "Cost") -> "Cost":
        return Cost(tokens=self.tokens + other.tokens, usd=self.usd + other.usd, seconds=self.seconds + other.seconds)


class Left(Cost, frozen=True, kw_only=True):
    """What the next dispatch may use, by the tightest scope; 0 means no limit."""

    bounds: tuple[str, str, str] = ("", "", "")  #: the settings that limit tokens, dollars and time
    near: tuple[str, ...] = ()  #: limits of which four fifths are used, each with its figures and its setting


class UsedUp(Struct, frozen=True):
    """Nothing may be started any more."""

    why: str


class GivenOut(Struct, frozen=True):
    """The rest is reserved for running agents; what they do not use becomes free."""

    why: str


def sum_usage(
    started: Iterable[Recorded[DispatchStarted]],
    ended: Collection[Recorded[DispatchEnded]],
    *,
    prefix: str,
    now: datetime,
    phase: str = "",
    since: str = "",
    until: str = "~",
) -> tuple[Cost, Cost]:
    """What agents have used, and what agents outside of this lane, whose ids begin with `prefix`, may still use."""
    spent = reserved = Cost()
    for fact in ended:
        if fact.event.agent and since <= fact.at <= until and phase in ("", fact.event.phase):
            tokens = fact.event.usage.tokens
            spent = spent.plus(Cost(tokens=tokens, usd=fact.event.usd, seconds=fact.event.seconds))
    over = {fact.event.id for fact in ended}
    for begun in started:
        event = begun.event
        late = parse_iso(begun.at) + timedelta(seconds=event.seconds + LATE_S)
        runs = event.agent and event.id not in over and begun.at <= until and now <= late
        if runs and not event.id.startswith(prefix) and phase in ("", event.phase):
            count = 1 + len(event.beside)  # each of them has these limits
            most = Cost(tokens=count * event.tokens, usd=count * event.usd, seconds=count * event.seconds)
            reserved = reserved.plus(most)
    return spent, reserved


def remaining_budget(
    budgets: Mapping[str, Cost], spent: Mapping[str, Cost], reserved: Mapping[str, Cost] | None = None
) -> Left | UsedUp | GivenOut:
    """What is left for the next dispatch; `reserved` is what running agents may still use, by scope."""
    rests: dict[str, tuple[float, str]] = {}
    waits: GivenOut | None = None
    near: list[str] = []
    for scope, budget in budgets.items():
        used = spent.get(scope, Cost())
        if why := next(_list_reached(scope, budget, used), ""):
            return UsedUp(f"the {scope}'s budget is used up: {why}")
        near += _list_reached(scope, budget, used, NEAR)
        used = used.plus((reserved or {}).get(scope, Cost()))
        if why := next(_list_reached(scope, budget, used), ""):
            waits = GivenOut(f"the rest of the {scope}'s budget, which running agents may use: {why}")
        for measure, name, _ in _MEASURES:
            if limit := getattr(budget, measure):
                rest = (limit - getattr(used, measure), _setting_name(scope, name))
                rests[measure] = min(rest, rests.get(measure, rest))
    tokens, usd, seconds = (rests.get(measure, (0, "")) for measure, _, _ in _MEASURES)
    bounds = (tokens[1], usd[1], seconds[1])
    left = Left(tokens=int(tokens[0]), usd=float(usd[0]), seconds=float(seconds[0]), bounds=bounds, near=tuple(near))
    return waits or left


def _setting_name(scope: str, name: str) -> str:
    return f"limits.{name}" if scope == "dispatch" else f"limits.{scope}_{name}"


def _list_reached(scope: str, budget: Cost, used: Cost, share: float = 1.0) -> Iterator[str]:
    """The limits of which this share is used: `$4.10 of $5.00 (limits.plan_usd)`."""
    for measure, name, shown in _MEASURES:
        limit = getattr(budget, measure)
        amount = getattr(used, measure)
        if limit and amount >= limit * share:
            yield f"{shown(amount, limit)} ({_setting_name(scope, name)})"
