"""The current work of a run, read from its journal, and whether the run is stuck."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from runplan.text import clock, in_words

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, tzinfo

#: Requests of a person, and the events that end them.
REQUESTS = {"StopRequested": "stop", "Halted": "pause", "Continued": None, "RunResumed": None}
#: The events that `Work` is built from.
TYPES = ("PlanRead", "DispatchStarted", "DispatchEnded", "Paused", "Woke", "RunEnded", *REQUESTS)

Task: TypeAlias = tuple[str | None, int | None, str | None]  #: role, cycle, and the tree of a verifier


class Step(Struct, frozen=True):
    """A row of the journal: the fields of these events that matter here."""

    at: str
    type: str  #: one of TYPES
    id: str | None = None
    role: str | None = None
    agent: str | None = None
    cycle: int | None = None
    tree: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    lane: str | None = None
    phase: str | None = None
    outcome: str | None = None
    reason: str | None = None
    kind: str | None = None
    until: str | None = None
    words: str | None = None
    gates: str | None = None  #: a JSON list


class Work(Struct, frozen=True, kw_only=True):
    """The current work of a run or lane, and its usage."""

    dispatch: str | None = None  #: the newest process, unless its end is recorded
    agent: str | None = None  #: its agent; None for a command of the project
    dispatched: str | None = None
    step: str | None = None  #: its role
    gates: tuple[str, ...] = ()  #: names of the checks that it runs
    retries: int = 0  #: fix cycles, hand-overs and repeated dispatches of the phase
    tokens: int = 0  #: sent and received, by agents that have ended
    usd: float = 0.0
    unpriced: bool = False  #: an agent reported tokens but no cost
    phase: str = ""
    since: str = ""  #: time of the newest event
    began: str | None = None  #: when the current task started; others may have continued it since
    tasks: tuple[Task, ...] = ()  #: of the phase, the newest last
    waiting_for: str | None = None
    about: str | None = None
    wake: str | None = None
    asked: str | None = None  #: stop or pause, requested by a person
    failed: str | None = None  #: why a lane ended without a landing
    lanes: tuple[Work, ...] = ()  #: open and failed lanes

    @property
    def role(self) -> str | None:
        return self.tasks[-1][0] if self.tasks else None

    def at_rest(self) -> Work:
        """The same without a running process."""
        return replace(self, dispatch=None, agent=None, dispatched=None, step=None, gates=())

    def after(self, step: Step) -> Work:
        work = replace(self, since=step.at, waiting_for=None, about=None, wake=None)
        match step.type:
            case "PlanRead":
                return replace(work, phase=step.phase or "", retries=0, began=None, tasks=())
            case "DispatchStarted":
                return _started(work, step)
            case "DispatchEnded":
                return _ended(work, step)
            case "Paused" if self.dispatch is None:
                about = awaited(step.kind, step.agent, step.words)
                return replace(work, waiting_for=step.kind, about=about, wake=step.until)
            case "RunEnded" if step.outcome not in ("done", "nothing-to-do"):
                return replace(work, failed=step.reason or step.outcome)
            case _:
                return work


def _started(work: Work, step: Step) -> Work:
    # A verifier of another tree, after the target has moved, is no repetition.
    task = (step.role, step.cycle, step.tree if step.role == "verify" else None)
    is_retry = bool(step.agent) and (step.role == "fix" or task in work.tasks)
    return replace(
        work,
        dispatch=step.id,
        agent=step.agent or None,
        dispatched=step.at,
        step=step.role,
        gates=tuple(json.loads(step.gates)) if step.gates else (),
        retries=work.retries + is_retry,
        began=work.began if work.tasks and work.tasks[-1] == task else step.at,
        tasks=(*work.tasks, task),
    )


def _ended(work: Work, step: Step) -> Work:
    tokens = (step.input_tokens or 0) + (step.output_tokens or 0)
    rest = work.at_rest() if step.id == work.dispatch else work
    unpriced = work.unpriced or bool(tokens and not step.usd)
    return replace(rest, tokens=work.tokens + tokens, usd=work.usd + (step.usd or 0.0), unpriced=unpriced)


def awaited(kind: str | None, agent: str | None, words: str | None) -> str | None:
    """The cause of a wait that time ends."""
    known = {"limit": f"{agent} usage limit", "overloaded": f"{agent} is overloaded"}
    return known.get(kind or "", words)


def work_of(steps: Iterable[Step]) -> Work:
    """The current work after these steps of one run, in order."""
    works: dict[str, Work] = {"": Work()}  #: by lane; "" is the run itself
    ended: set[str] = set()
    asked: str | None = None
    for step in steps:
        lane = step.lane or ""
        if step.type in REQUESTS:
            asked = asked if asked == "stop" else REQUESTS[step.type]
            if step.type == "RunResumed":  # every wait ends
                works = {name: work.after(step) for name, work in works.items()}
            continue
        works[lane] = works.get(lane, Work()).after(step)
        if step.type == "RunEnded":
            ended.add(lane)
    own = works.pop("")
    if not works:
        return replace(own, asked=asked)
    current = [work for lane, work in works.items() if lane not in ended]
    first = current[0] if current else own
    everything = (own, *works.values())
    return replace(
        first,
        retries=max([first.retries, *(work.retries for work in current)]),
        tokens=sum(work.tokens for work in everything),
        usd=sum(work.usd for work in everything),
        unpriced=any(work.unpriced for work in everything),
        waiting_for=None,
        about=None,
        wake=None,
        asked=asked,
        failed=None,
        lanes=tuple(work for work in works.values() if work in current or work.failed) if current else (),
    )


# --- is it stuck? -------------------------------------------------------------------------------------

Level: TypeAlias = Literal["fine", "slow", "look"]
LEVELS: tuple[Level, ...] = get_args(Level)  #: how much a person is needed, least first
LONG_S = 30 * 60.0  #: a step this long is never fine
MANY_RETRIES = 2  #: nor are this many retries
QUIET_S = 5 * 60.0  #: an agent without output for this long is slow
SILENT_S = 15 * 60.0  #: and a person should look at it after this long
OVERSLEPT_S = 5 * 60.0  #: a wait that ends this late has failed to end
PERSONS = ("approval", "sign-off", "checkout", "review", "paused", "key")  #: waits that only a person can end


class Doing(Struct, frozen=True, kw_only=True):
    """The situation of a run that has not ended."""

    phase: str | None  #: None between phases
    step: str | None
    since: datetime  #: start of the step or of the wait
    began: datetime | None = None  #: start of the step, where that differs
    carried: bool = True  #: the process that owns the run is alive
    suspended: str = ""  #: its pid, when it is stopped, as by Ctrl-Z
    dispatched: datetime | None = None  #: start of the agent; None when none runs
    output: datetime | None = None  #: its last output
    retries: int = 0
    asked: str | None = None  #: stop or pause, requested and not yet done
    waiting_for: str | None = None
    about: str | None = None
    wake: datetime | None = None


class Answer(Struct, frozen=True):
    """A level for scripts and a sentence for people."""

    level: Level
    sentence: str


def answer(doing: Doing, *, now: datetime, zone: tzinfo | None) -> Answer:
    """Whether the run makes progress; never `fine` after half an hour in a step or two retries."""
    level = _level(doing, now)
    where = f"phase {doing.phase}, {doing.step or 'starting'}" if doing.phase else "between phases"
    parts = [where if doing.waiting_for else f"{where} for {in_words(_ago(doing.since, now))}"]
    if not doing.carried:
        parts.append("interrupted; no process is working on it")
    if doing.suspended:
        parts.append(f"its process is stopped; continue it: kill -CONT {doing.suspended}")
    if doing.dispatched is not None:
        parts.append(f"agent running {in_words(_ago(doing.dispatched, now))}")
        last = f"last output {in_words(_ago(doing.output, now))} ago"
        parts.append("no output yet" if doing.output is None else last)
    parts += _waiting(doing, now, zone)
    if doing.retries:
        parts.append(f"{doing.retries} {'retry' if doing.retries == 1 else 'retries'}")
    if doing.asked and level != "fine":
        parts.append(f"a {doing.asked} was requested")
    fine = {"stop": "Stopping", "pause": "Pausing"}.get(
        doing.asked or "", "Waiting" if doing.waiting_for else "Running"
    )
    verdict = {"fine": fine, "slow": "Slow", "look": "Needs attention"}[level]
    return Answer(level, f"{verdict}: {', '.join(parts)}")


def _level(doing: Doing, now: datetime) -> Level:
    if not doing.carried or doing.suspended or doing.waiting_for in PERSONS:
        return "look"
    is_long = max(_ago(moment, now) for moment in (doing.since, doing.began, doing.dispatched)) >= LONG_S
    many = doing.retries >= MANY_RETRIES
    if doing.waiting_for:
        return "look" if _overslept(doing, now) else "slow" if is_long or many else "fine"
    quiet_s = _ago(doing.output or doing.dispatched, now) if doing.dispatched else 0.0
    if (is_long and (many or doing.dispatched is None)) or quiet_s >= SILENT_S:
        return "look"
    return "slow" if is_long or many or quiet_s >= QUIET_S else "fine"


def _overslept(doing: Doing, now: datetime) -> bool:
    return doing.wake is not None and _ago(doing.wake, now) >= OVERSLEPT_S


def _ago(moment: datetime | None, now: datetime) -> float:
    return max((now - moment).total_seconds(), 0.0) if moment else 0.0


def _waiting(doing: Doing, now: datetime, zone: tzinfo | None) -> list[str]:
    if not doing.waiting_for:
        return []
    span = in_words(_ago(doing.since, now))
    if doing.waiting_for == "paused":
        return [f"paused for {span}{(doing.about or '').removeprefix('paused')}"]
    parts = [f"waiting {span}: {doing.about}" if doing.about else f"waiting {span} for {doing.waiting_for}"]
    if _overslept(doing, now):
        parts.append(f"should have continued {in_words(_ago(doing.wake, now))} ago")
    elif doing.wake:
        left = in_words((doing.wake - now).total_seconds())
        verb = {"limit": "resets", "checkout": "tries again"}.get(doing.waiting_for, "until")
        parts.append(f"{verb} {clock(doing.wake, zone, now=now)} ({left})")
    return parts
