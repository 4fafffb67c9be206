"""How a run stands: why its schedule pauses, since when it waits, and whether it is stuck."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from runplan.quickclass import NamedTuple, dataclass
from runplan.run.decide import decide
from runplan.run.state import awaiting, failure, strands
from runplan.run.wording import step_of
from runplan.text import clock, command, in_words

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from runplan.run.state import RunState


def pause_reason(state: RunState) -> str:
    """Why the plan's schedule pauses after this run, until a person resumes it; "" when it does not."""
    ended = state.ended
    if phase := rejected_phase(state):
        return f"phase {phase} was rejected"
    if state.started is None or not state.started.daemon:  # a person works it in the foreground
        return ""
    if ended is None or ended.outcome not in ("failed", "refused"):
        return ""
    if not (state.phase or state.lanes):
        # A blocked phase may be free the next time; a plan that cannot be read needs a person.
        return ended.detail if state.plan is not None and state.plan.choice == "unreadable" else ""
    failed = failure(state)
    phase = failed.phase if failed else ""
    return f"phase {phase} failed ({ended.reason})" if phase else f"the run failed ({ended.reason})"


def rejected_phase(state: RunState) -> str:
    """The phase whose rejection ended the run; "" for none."""
    phases = (one.phase for one in (state, *(lane.state for lane in state.lanes)) if one.phase is not None)
    return (
        next((phase.read.phase for phase in phases if phase.rejected is not None), "")
        if state.ended is not None
        else ""
    )


def pending_answer(state: RunState, plan: str) -> str:
    """Why a schedule may not continue the plan's unfinished run; "" when it may.

    A run without `auto` lands only what a person approved, so a schedule may not turn it into one with `auto`.
    """
    if state.started is None or state.ended is not None or state.auto:
        return ""
    phase = awaiting(state)
    if decide(state).waiting != "approval" or phase is None:
        return f"a run of {plan} without `auto` has not ended; continue it: {command('runplan', 'retry', plan)}"
    answers = f"{command('runplan', 'approve', plan)}, or: {command('runplan', 'reject', plan)}"
    return f"phase {phase.read.phase} of {plan} needs your approval: {answers}"


def describe_rejection(phase: str, plan: str) -> str:
    """Why `now` starts nothing after a rejection, and the commands that help."""
    again = f"retry it: {command('runplan', 'retry', plan)}"
    on = f"or resume the schedule: {command('runplan', 'resume', plan)}"
    return f"phase {phase} was rejected; {again}; {on}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What was shown last, and since when."""

    at: str = ""
    steps: tuple[str, ...] = ()
    stepped: str = ""  #: when they were begun
    waiting: str = ""
    ended: bool = False


def moved(before: Since, state: RunState, at: str) -> Since:
    """The same after a fact that was recorded `at` then, and made the state of it."""
    if state.ended is not None:
        return before if before.ended else replace(before, at=at, ended=True)
    steps = tuple(step_of(one.phase) if one.phase is not None else "" for _, one in strands(state))
    stepped = before.stepped if before.stepped and steps == before.steps else at
    waiting = decide(state).waiting
    if before.waiting and not waiting and stepped == before.stepped and any(one.waits for _, one in strands(state)):
        return before  # it is looked at again, and may well have to wait on
    waits = before.at if waiting == before.waiting else at
    return Since(at=waits if waiting else stepped, steps=steps, stepped=stepped, waiting=waiting)


Level: TypeAlias = Literal["fine", "slow", "look"]
LEVELS: tuple[Level, ...] = get_args(Level)  #: how much a person is needed, least first

LONG_S = 30 * 60.0  #: from here on in one step nothing is called fine
MANY_RETRIES = 2  #: nor from here on
QUIET_S = 5 * 60.0  #: silence that is worth a word
SILENT_S = 15 * 60.0  #: silence that a person should look into
OVERSLEPT_S = 5 * 60.0  #: a wake-up that is late by this much has not come
PERSONS = ("approval", "checkout", "paused", "key")  #: what only a person can give
ASKED = {"stop": "Stopping", "pause": "Pausing"}  #: what a person wants, while that is being done


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
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


class Answer(NamedTuple):
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
    verdict = {"fine": ASKED.get(doing.asked or "", "Going on"), "slow": "Slow", "look": "Have a look"}[level]
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


# --- words ---------------------------------------------------------------------------------------------


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
