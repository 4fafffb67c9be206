"""What a run is at, by its journal: who works, what was used so far, and whether it is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct

from runplan.text import believable, clock, in_words

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, tzinfo


#: What a person asks of a run, and takes back.
ASKED = {"StopRequested": "stop", "Halted": "pause", "Continued": None, "RunResumed": None}
TOLD = (
    *("PlanRead", "DispatchStarted", "HandoverArmed", "DispatchEnded", "Paused", "Woke", "RunResumed", "RunEnded"),
    *("StopRequested", "Halted", "Continued"),
)


class Step(Struct, frozen=True):
    """What one event tells of it; what it does not tell is None."""

    at: str
    type: str  #: one of TOLD
    id: str | None = None
    role: str | None = None
    agent: str | None = None
    version: str | None = None
    cycle: int | None = None
    tree: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    percent: int | None = None
    lane: str | None = None
    phase: str | None = None
    outcome: str | None = None
    reason: str | None = None
    kind: str | None = None
    until: str | None = None
    words: str | None = None


class Work(Struct, frozen=True, kw_only=True):
    """What is known so far."""

    dispatch: str | None = None  #: the process that was started last, if nobody has seen it end
    agent: str | None = None  #: who that is; None for the project's own commands
    version: str | None = None
    dispatched: str | None = None
    context: int | None = None  #: per cent of its context that was full when its hand-over was prepared
    retries: int = 0  #: fix cycles, handovers and repeated dispatches of the phase
    tokens: int = 0  #: sent and received, by agents that have ended
    usd: float = 0.0
    phase: str = ""  #: the one that was begun last
    step: str | None = None  #: the role of the process
    since: str = ""  #: of the last step
    role: str | None = None  #: of the process that was started last
    began: str | None = None  #: when the first was that had its errand: others may have gone on with it since
    waiting_for: str | None = None  #: what time will mend
    about: str | None = None
    wake: str | None = None
    asked: str | None = None  #: stop or pause: what a person wants of the run
    failed: str | None = None  #: why a lane ended without having landed
    lanes: tuple[Work, ...] = ()  #: the same of each phase side by side with others that goes on, or has failed

    def at_rest(self) -> Work:
        """The same, when the process has ended and nobody has recorded it."""
        return Work(
            retries=self.retries,
            tokens=self.tokens,
            usd=self.usd,
            phase=self.phase,
            since=self.since,
            role=self.role,
            began=self.began,
            asked=self.asked,
            lanes=self.lanes,
        )


def work_of(steps: Iterable[Step]) -> Work:
    """What these steps of one run, in order, come to."""
    open_states: dict[str, list[Step]] = {}
    asked: str | None = None
    for step in steps:
        if step.type in ASKED:
            asked = asked if asked == "stop" else ASKED[step.type]  # which nobody takes back
            if step.type != "RunResumed":
                continue
        open_states.setdefault(step.lane or "", []).append(step)
        if step.type == "RunResumed":  # whatever any of them waited for is looked at again
            for lane in open_states.keys() - {""}:
                open_states[lane].append(step)
    own = _work(open_states.pop("", []), asked)
    if not open_states:
        return own
    each = {lane: _work(told) for lane, told in open_states.items()}
    goes_on = [each[lane] for lane, told in open_states.items() if not any(step.type == "RunEnded" for step in told)]
    first = goes_on[0] if goes_on else own
    return Work(
        dispatch=first.dispatch,
        agent=first.agent,
        version=first.version,
        dispatched=first.dispatched,
        context=first.context,
        retries=max([first.retries, *(work.retries for work in goes_on)]),
        tokens=own.tokens + sum(work.tokens for work in each.values()),
        usd=own.usd + sum(work.usd for work in each.values()),
        phase=first.phase,
        step=first.step,
        since=first.since,
        role=first.role,
        began=first.began,
        asked=asked,
        lanes=tuple(work for work in each.values() if work in goes_on or work.failed) if goes_on else (),
    )


def _work(steps: Iterable[Step], asked: str | None = None) -> Work:
    phase = since = ""
    failed: str | None = None
    pause: Step | None = None
    running: Step | None = None
    context: int | None = None
    tokens, usd, retries = 0, 0.0, 0
    begun: set[tuple[object, ...]] = set()
    last: Step | None = None  #: the first that had the errand of the process that was started last
    for step in steps:
        since = step.at
        pause = step if step.type == "Paused" else None
        if step.type == "PlanRead":  # another phase
            begun.clear()
            retries, phase, last = 0, step.phase or "", None
        elif step.type == "DispatchStarted":
            running, context = step, None
            retries += _is_retry(step, begun)
            begun.add(_errand(step))
            last = last if last and _errand(last) == _errand(step) else step
        elif step.type == "HandoverArmed" and running and running.id == step.id:
            context = step.percent
        elif step.type == "RunEnded" and step.outcome not in ("done", "nothing-to-do"):
            failed = step.reason or step.outcome
        elif step.type == "DispatchEnded":
            running = None if running and running.id == step.id else running
            # An earlier version recorded whatever an agent wrote into its return.
            tokens += believable(step.input_tokens) + believable(step.output_tokens)
            usd += step.usd or 0.0
    if running is None:
        return Work(
            retries=retries,
            tokens=tokens,
            usd=usd,
            phase=phase,
            since=since,
            role=last.role if last else None,
            began=last.at if last else None,
            waiting_for=pause.kind if pause else None,
            about=_about(pause) if pause else None,
            wake=pause.until if pause else None,
            asked=asked,
            failed=failed,
        )
    return Work(
        dispatch=running.id,
        agent=running.agent or None,
        version=running.version or None,
        dispatched=running.at,
        context=context,
        retries=retries,
        tokens=tokens,
        usd=usd,
        phase=phase,
        step=running.role,
        since=since,
        role=running.role,
        began=last.at if last else None,
        asked=asked,
    )


def _about(pause: Step) -> str | None:
    told = {"limit": f"{pause.agent} usage limit", "overloaded": f"{pause.agent} is overloaded"}
    return told.get(pause.kind or "", pause.words)


def _errand(step: Step) -> tuple[object, ...]:
    # A verifier looks at a tree: another one, after the target has moved, is no repetition.
    return step.role, step.cycle, step.tree if step.role == "verify" else None


def _is_retry(step: Step, begun: set[tuple[object, ...]]) -> bool:
    """A fix is one, and so is an agent that is sent on the same errand again; checks that run twice are not."""
    return bool(step.agent) and (step.role == "fix" or _errand(step) in begun)


# --- is it stuck? ---------------------------------------------------------------------------------------

Level: TypeAlias = Literal["fine", "slow", "look"]
LEVELS: tuple[Level, ...] = get_args(Level)  #: how much a person is needed, least first
LONG_S = 30 * 60.0  #: from here on in one step nothing is called fine
MANY_RETRIES = 2  #: nor from here on
QUIET_S = 5 * 60.0  #: silence that is worth a word
SILENT_S = 15 * 60.0  #: silence that a person should look into
OVERSLEPT_S = 5 * 60.0  #: a wake-up that is late by this much has not come
PERSONS = ("approval", "checkout", "paused", "key")  #: what only a person can give
ASKED_FOR = {"stop": "Stopping", "pause": "Pausing"}  #: what a person wants, while that is being done


class Doing(Struct, frozen=True, kw_only=True):
    """What is known of a run that has not ended."""

    phase: str | None  #: None between phases
    step: str | None
    since: datetime  #: when the step began, or what it waits for now
    began: datetime | None = None  #: when the step began, where that is another time
    carried: bool = True  #: whether the process that carries the run is alive
    dispatched: datetime | None = None  #: when the agent was started; None when none runs
    output: datetime | None = None  #: when it last said something; None when it has not yet
    retries: int = 0  #: fix cycles and repeated dispatches of the phase
    asked: str | None = None  #: stop or pause: what a person wants of it and it has not come to yet
    waiting_for: str | None = None
    about: str | None = None  #: what exactly is waited for
    wake: datetime | None = None


class Answer(Struct, frozen=True):
    """A level for scripts and a sentence for people."""

    level: Level
    sentence: str


def answer(doing: Doing, *, now: datetime, zone: tzinfo) -> Answer:
    """Whether it goes on as it should; never `fine` after half an hour in a step or two retries."""
    level = _level(doing, now)
    said = [_place(doing, now), *_agent(doing, now), *_waiting(doing, now, zone)]
    if doing.retries:
        said.append(f"{doing.retries} {'retry' if doing.retries == 1 else 'retries'}")
    if doing.asked and level != "fine":
        said.append(f"a {doing.asked} was asked for")
    verdict = {"fine": ASKED_FOR.get(doing.asked or "", "Going on"), "slow": "Slow", "look": "Have a look"}[level]
    return Answer(level, f"{verdict}: {', '.join(said)}")


def _level(doing: Doing, now: datetime) -> Level:
    if not doing.carried or doing.waiting_for in PERSONS:
        return "look"
    long = max(_ago(moment, now) for moment in (doing.since, doing.began, doing.dispatched)) >= LONG_S
    many = doing.retries >= MANY_RETRIES
    if doing.waiting_for:
        return "look" if _overslept(doing, now) else "slow" if long or many else "fine"
    quiet = _silence(doing, now)
    if (long and (many or doing.dispatched is None)) or quiet >= SILENT_S:
        return "look"
    return "slow" if long or many or quiet >= QUIET_S else "fine"


def _overslept(doing: Doing, now: datetime) -> bool:
    return doing.wake is not None and _ago(doing.wake, now) >= OVERSLEPT_S


def _silence(doing: Doing, now: datetime) -> float:
    """Seconds since the agent last said something; who has not yet is silent since its start."""
    return _ago(doing.output or doing.dispatched, now) if doing.dispatched else 0.0


def _ago(moment: datetime | None, now: datetime) -> float:
    return max((now - moment).total_seconds(), 0.0) if moment else 0.0


def _place(doing: Doing, now: datetime) -> str:
    where = f"phase {doing.phase}, {doing.step or 'beginning'}" if doing.phase else "between phases"
    # How long it waits is said with what it waits for.
    place = where if doing.waiting_for else f"{where} for {in_words(_ago(doing.since, now))}"
    return place if doing.carried else f"{place}, interrupted: nobody carries it on"


def _agent(doing: Doing, now: datetime) -> list[str]:
    if doing.dispatched is None:
        return []
    said = [f"agent running {in_words(_ago(doing.dispatched, now))}"]
    said.append("no output yet" if doing.output is None else f"last output {in_words(_ago(doing.output, now))} ago")
    return said


def _waiting(doing: Doing, now: datetime, zone: tzinfo) -> list[str]:
    if not doing.waiting_for:
        return []
    span = in_words(_ago(doing.since, now))
    if doing.waiting_for == "paused":
        return [f"paused for {span}{_by(doing.about)}"]
    overslept = _overslept(doing, now)
    until = f" until {clock(doing.wake, zone, now=now)}" if doing.wake and not overslept else ""
    late = [f"should have gone on {in_words(_ago(doing.wake, now))} ago"] if overslept else []
    what = f"{until} ({doing.about})" if doing.about else f" for {doing.waiting_for}{until}"
    return [f"waiting {span}{what}", *late]


def _by(about: str | None) -> str:
    """Who has paused it."""
    return f" {about.removeprefix('paused ')}" if about else ""
