"""Plans and runs as frozen values, for every interface. `status --json` is these values encoded. Cheap to import."""

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import astuple, replace

from runplan.domain.decoding import convert
from runplan.domain.plan.marks import PUT_OFF
from runplan.domain.run.kinds import PLANNING_STEPS, UNFINISHED, Mode, RunOutcome, RunStatus, WaitKind
from runplan.domain.run.rows import PlanFacts, RunRow, ScheduleRow, Work, WorkProgress, wait_of
from runplan.domain.settings.schedule import describe_delay, next_slot
from runplan.domain.standing.actions import NextAction, list_actions, make_action
from runplan.domain.standing.phases import PhaseOutline, PhaseState, PlanOutline, describe_phase, state_of_work
from runplan.domain.text import clock, command, counted, in_words
from runplan.domain.times import iso, parse_iso, zone as zone_of


class PlanState(StrEnum):
    """Why a person looks at a plan, the most urgent first: the order of `status`."""

    WAITING = "waiting"  #: for a person
    FAILED = "failed"
    RUNNING = "running"
    SCHEDULED = "scheduled"  #: or paused by a person
    OPEN = "open"
    DONE = "done"
    PAGE = "page"  #: no plan


class Level(StrEnum):
    FINE = "fine"
    SLOW = "slow"
    LOOK = "look"


class Stuck(Struct, frozen=True):
    level: Level
    sentence: str


class PhaseFailure(Struct, frozen=True, kw_only=True):
    reason: str
    why: str  #: one line
    output: str  #: the last lines of the command that failed
    command: str  #: that tries again


class PhaseView(PhaseOutline, frozen=True, kw_only=True):
    """A phase of a plan; an open one that is worked on is in progress."""

    blocked_by: tuple[str, ...] = ()  #: unfinished phases that it depends on
    failed: PhaseFailure | None = None
    state: PhaseState
    words: str


class RunView(Work, frozen=True, kw_only=True):
    id: str
    state: RunStatus
    mode: Mode
    daemon: bool
    attempt: int
    outcome: RunOutcome | None
    reason: str | None
    asked: str | None
    lanes: tuple[Work, ...]
    questions: tuple[str, ...]
    near: tuple[str, ...] = ()  #: limits that are nearly used up
    pulls: tuple[str, ...] = ()  #: number and address of each open pull request
    stuck: Stuck | None = None  #: None after its end

    @property
    def is_active(self) -> bool:
        return self.state in UNFINISHED

    @property
    def warning(self) -> str:
        return f"Nearly used up: {'; '.join(self.near)}" if self.near and self.is_active else ""

    @property
    def words(self) -> str:
        if self.stuck is not None:
            return self.stuck.sentence
        return f"{self.state} ({self.reason})" if self.reason not in (None, "", self.state) else str(self.state)


class ClaimView(Struct, frozen=True):
    owner: str
    alive: bool


class ScheduleView(Struct, frozen=True, kw_only=True):
    """The schedule of a plan; `next` is None when this machine cannot compute it."""

    spec: str
    next: str | None
    zone: str
    moved: str  #: why it fires later than it says
    paused: str | None
    due: bool  #: a slot has passed without a daemon


class Look(Struct, frozen=True):
    at: str
    answer: str
    why: str

    @property
    def words(self) -> str:
        return f"{self.answer}, {self.why}".rstrip(", ")


class HostView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    state: str  #: closed, absent
    error: str
    pid: int = 0
    version: str = ""
    since: str = ""
    until: str = ""  #: the next try


class PlanView(Struct, frozen=True, kw_only=True):
    """One plan (docs/reference.md); one that cannot be parsed, or is gone, has an error and no phases."""

    plan: str
    title: str
    status: str
    landing: str
    phases: tuple[PhaseView, ...]
    next: str | None
    run: RunView | None
    claim: ClaimView | None
    schedule: ScheduleView | None
    queued: str | None
    refused: str | None
    refused_verb: str | None
    is_plan: bool
    error: str | UnsetType = UNSET
    answered: Look | UnsetType | None = UNSET  #: of a watch
    state: PlanState = field(name="need", default=PlanState.OPEN)
    words: str = ""  #: how it stands; "" where its phases say it all
    actions: tuple[NextAction, ...] = ()  #: the most useful first
    repository: str = ""  #: its root
    daemon: HostView | None = None

    @property
    def is_active(self) -> bool:
        return self.run is not None and self.run.is_active

    @property
    def is_complete(self) -> bool:
        return self.status == "complete"

    @property
    def is_put_off(self) -> bool:
        """Whether nothing works on it because its front matter says so, as of a draft."""
        return self.state is PlanState.OPEN and self.status in PUT_OFF

    @property
    def done(self) -> int:
        return sum(phase.state is PhaseState.DONE for phase in self.phases)

    @property
    def failed_phases(self) -> list[PhaseView]:
        return [phase for phase in self.phases if phase.failed is not None]

    @property
    def needed_actions(self) -> tuple[NextAction, ...]:
        return tuple(action for action in self.actions if not action.is_usual)

    @property
    def can_start(self) -> bool:
        return self.next is not None and not (self.is_active or self.queued)

    @property
    def queued_sentence(self) -> str:
        """The command that is not executed yet; "" for a stop or pause of a run, whose own words say it."""
        if not self.queued or (self.is_active and self.queued in ("stop", "pause")):
            return ""
        return f"Queued: {self.queued}; the daemon, or a worker of the fleet, executes it when it responds"

    @property
    def refusal(self) -> str:
        return f"The last {self.refused_verb} was refused: {self.refused}" if self.refused else ""


def count_plans(views: Iterable[PlanView]) -> str:
    """How many plans need a person, run and so on; the most urgent first."""
    words = {state.value: state.value for state in PlanState if state is not PlanState.PAGE}
    words[PlanState.WAITING] = "waiting for you"
    plans = [view for view in views if view.answered is UNSET]  # a watch, as of the queue, is no plan
    states = [view.status if view.is_put_off else view.state for view in plans]
    words |= {view.status: view.status for view in plans if view.is_put_off}
    return ", ".join(f"{count} {word}" for state, word in words.items() if (count := states.count(state)))


def describe_put_off(views: Iterable[PlanView]) -> str:
    """A clause about the plans that are not worked because of their own status; "" for none."""
    listed = ", ".join(f"{view.plan} ({view.status})" for view in views if view.is_put_off)
    return f"; to have a plan worked, write status: active into it: {listed}" if listed else ""


def view_plan(
    path: str,
    plan: PlanOutline,
    facts: PlanFacts,
    *,
    landing: str,
    now: datetime,
    stands_still: bool = False,
    answered: Look | UnsetType | None = UNSET,
) -> PlanView:
    """The plan with its state, its words and its actions; `stands_still`: the daemon cannot work on its run."""
    run = facts.run
    if run is not None:  # with the stop or pause that is queued, and with the wait of the daemon
        asked = "stop" if facts.queued == "stop" else run.asked or ("pause" if facts.queued == "pause" else None)
        is_over = not run.is_active or (asked == "pause" and run.waiting_for)
        run = replace(run, asked=None if is_over else asked)
        if facts.wait is not None and run.is_active and run.waiting_for is None:
            run = replace(run, waiting_for=facts.wait.kind, about=facts.wait.about, wake=facts.wait.wake)
        facts = replace(facts, run=run)
    is_active = run is not None and run.is_active
    is_planning = run is not None and run.mode is Mode.PLAN  # which can be retried for a plan that was abandoned
    free = (phase.id for phase in plan.phases if phase.status != "done" and not phase.hindrance)
    following = None if plan.complete or plan.status not in ("", "active") else next(free, None)
    refused_at, verb, refused = facts.refused
    is_refused = refused and (run is None or refused_at > run.started)
    view = PlanView(
        plan=path,
        title=plan.title or path,
        status="unreadable" if plan.error else "complete" if plan.complete else plan.status or "active",
        landing=run.landing if run is not None and is_active else landing,
        phases=tuple(_view_phases(path, plan, facts, following)),
        next=following,
        run=None if run is None else _view_run(run, facts, now, stands_still=stands_still),
        claim=ClaimView(facts.owner, facts.alive) if facts.owner else None,
        schedule=None if facts.schedule is None else view_schedule(facts.schedule, now),
        queued=facts.queued or None,
        refused=refused if is_refused else None,
        refused_verb=verb if is_refused else None,
        is_plan=not plan.is_page,
        error=plan.error or UNSET,
        answered=answered,
    )
    failed = [phase.id for phase in view.failed_phases]
    is_stuck = view.run is not None and view.run.stuck is not None and view.run.stuck.level is Level.LOOK
    actions = list_actions(
        path,
        facts,
        failed=failed,
        following=following,
        is_complete=view.is_complete,
        is_stuck=is_stuck,
        is_shelved=plan.is_gone or (plan.status in PUT_OFF and not is_planning),
    )
    return replace(view, state=judge_state(view), words=describe_standing(view), actions=actions)


def view_work(view: PlanView, work: WorkProgress, wake: str | None, plan: PlanView | None, now: datetime) -> PlanView:
    """The view of a work on the queue; `plan` is the one that has to end before it begins the next."""
    state = PlanState.RUNNING
    words = "Running: it begins the next plan"
    actions = [make_action("pause", view.plan), make_action("stop", view.plan)]
    if work.paused:
        state = PlanState.SCHEDULED
        words = f"Paused: by {work.paused}; it begins no further plan"
        actions[0] = make_action("resume", view.plan)
    elif work.trouble:
        state = PlanState.WAITING
        again = f"; it tries again at {clock(parse_iso(wake), None, now=now)}" if wake else ""
        words = f"Needs attention: it cannot begin the next plan: {work.trouble}{again}"
    elif plan is not None:
        state = plan.state
        verdict, _, about = plan.words.partition(": ")
        words = f"{verdict}: {plan.plan}, {about}"
        actions = [*plan.needed_actions, *actions]
    begun = f"; begun: {', '.join(work.begun)}" if work.begun else ""
    return replace(view, answered=None, state=state, words=f"{words}{begun}", actions=tuple(actions))


def judge_state(view: PlanView) -> PlanState:
    run = view.run
    if run is not None and run.stuck is not None and run.stuck.level is Level.LOOK:
        return PlanState.WAITING
    is_paused = run is not None and run.is_active and wait_of(run.waiting_for).is_asked
    if view.queued or (view.is_active and not is_paused):
        return PlanState.RUNNING
    has_failed = run is not None and run.state is RunStatus.FAILED and not view.is_complete
    if has_failed or (view.failed_phases and not is_paused):
        return PlanState.FAILED
    if view.schedule or is_paused:
        return PlanState.SCHEDULED
    if not view.is_plan and run is None:
        return PlanState.PAGE
    return PlanState.DONE if view.is_complete else PlanState.OPEN


def describe_standing(view: PlanView) -> str:
    """How a plan stands, in one sentence; "" where its phases say it all."""
    run = view.run
    if view.error:
        return view.error
    if run is not None and run.is_active:
        return run.words
    if view.refused:
        return view.refusal
    if view.failed_phases:
        phase = view.failed_phases[0]
        assert phase.failed is not None
        return f"Phase {phase.id} {phase.words}: {phase.failed.why}".rstrip(": ")
    if view.answered:
        return f"Last look: {view.answered.words}"
    return f"The last run {run.words}" if run is not None and run.state is not RunStatus.DONE else ""


def _view_phases(path: str, plan: PlanOutline, facts: PlanFacts, following: str | None) -> Iterator[PhaseView]:
    done = {phase.id for phase in plan.phases if phase.status == "done"}
    run = facts.run if facts.run is not None and facts.run.is_active else None
    works = {work.phase: work for work in (run, *run.lanes) if not work.failed} if run is not None else {}
    failures = {failure.phase: failure for failure in facts.failures}
    for phase in plan.phases:
        is_open = phase.status != "done"
        work = works.get(phase.id) if is_open else None
        row = failures.get(phase.id) if is_open and work is None else None
        failed = None
        if row is not None:
            why = next(iter(row.detail.splitlines()), "")
            retry = command("runplan", "retry", path, phase.id)
            failed = PhaseFailure(reason=row.reason, why=why, output=row.output, command=retry)
        blocked_by = tuple(other for other in phase.depends if other not in done) if is_open else ()
        if not is_open:
            state = PhaseState.DONE
        elif failed is not None:
            state = PhaseState.FAILED
        elif work is not None:
            state = state_of_work(work)
        elif blocked_by and phase.status == "todo":
            state = PhaseState.TODO
        elif phase.hindrance:
            state = PhaseState.ELSEWHERE if phase.status == "in-progress" else PhaseState.BLOCKED
        else:
            state = PhaseState.NEXT if phase.id == following else PhaseState.TODO
        about = failed.reason if failed is not None else phase.commit or ""
        words = describe_phase(state, work=work, about=about, after=blocked_by)
        view = PhaseView(*astuple(phase), blocked_by=blocked_by, failed=failed, state=state, words=words)
        view = replace(view, commit=phase.commit or None)
        yield view if work is None else replace(view, status="in-progress", hindrance="")


def _view_run(run: RunRow, facts: PlanFacts, now: datetime, *, stands_still: bool) -> RunView:
    # Of several lanes, the one that needs a person most; a phase ahead waits for one of the others.
    lanes = [lane for lane in run.lanes if not lane.failed and lane.waiting_for != WaitKind.PHASE]
    lanes = [] if run.waiting_for else lanes
    answers = [assess_progress(work, facts, now=now) for work in lanes or [run]] if run.is_active else []
    if stands_still:
        answers = [Stuck(Level.LOOK, "Stands still: the daemon cannot work in this repository for now.")]
    return replace(
        convert(run, RunView, from_attributes=True),
        usd=round(run.usd, 4),
        lanes=tuple(replace(lane, usd=round(lane.usd, 4)) for lane in run.lanes),
        stuck=max(answers, key=lambda answer: list(Level).index(answer.level), default=None),
    )


VERDICTS = {Level.FINE: "Running", Level.SLOW: "Slow", Level.LOOK: "Needs attention"}
LONG_S = 30 * 60.0  #: a step this long is never fine
MANY_RETRIES = 2  #: nor are this many retries
QUIET_S = 5 * 60.0  #: an agent without output for this long is slow
SILENT_S = 15 * 60.0  #: and a person should look at it after this long
OVERSLEPT_S = 5 * 60.0  #: a wait that ends this late has failed to end


def assess_progress(work: Work, facts: PlanFacts, *, now: datetime, zone: tzinfo | None = None) -> Stuck:
    """A level for scripts and a sentence; never `fine` after half an hour in a step or two retries."""
    # A wait for a person needs no process.
    is_free = facts.in_fleet and not facts.owner  # a host takes it, at the latest when its wait ends
    interrupted = not (facts.alive or is_free or (wait_of(work.waiting_for).is_for_person and work.wake is None))
    level = Level.LOOK if interrupted or facts.stopped else _stuck_level(work, now)
    step = f"{work.step} {', '.join(work.gates)}" if work.gates else work.step
    is_planning = work.step in PLANNING_STEPS or (facts.run is not None and facts.run.mode is Mode.PLAN)
    where = f"{'planning' if is_planning else f'phase {work.phase}'}, {step or 'starting'}"
    where = where if work.phase or is_planning else "between phases"
    parts = [where if work.waiting_for else f"{where} for {in_words(_seconds_ago(work.since, now))}"]
    if interrupted and facts.in_fleet:
        parts.append(f"its host {facts.owner.partition('/')[0]} is dead; another one continues it")
    elif interrupted:
        parts.append("interrupted; no process is working on it")
    elif is_free and not work.waiting_for:
        parts.append("no host has it in hand; the next free one continues it")
    if facts.stopped:
        parts.append(f"its process is stopped; continue it: kill -CONT {facts.owner.partition(':')[0]}")
    if work.dispatched and (facts.alive or not facts.in_fleet):
        span = in_words(_seconds_ago(work.dispatched, now))
        if work.agent:
            parts.append(f"agent running {span}")
            parts += work.fill
        elif work.waiting_for or span != in_words(_seconds_ago(work.since, now)):
            parts.append(f"{', '.join(work.gates) or work.step or 'command'} running {span}")
        parts.append(f"last output {in_words(_seconds_ago(work.output, now))} ago" if work.output else "no output yet")
    waited = in_words(_seconds_ago(work.since, now))
    if work.waiting_for == WaitKind.PAUSED:
        parts.append(f"for {waited}{(work.about or '').removeprefix('paused')}")
    elif work.waiting_for:
        parts.append(f"waiting {waited}: {work.about}" if work.about else f"waiting {waited} for {work.waiting_for}")
        if (late_s := _seconds_ago(work.wake, now)) >= OVERSLEPT_S:
            parts.append(f"should have continued {in_words(late_s)} ago")
        elif work.wake:
            wake = parse_iso(work.wake)
            until = f"{wait_of(work.waiting_for).until} {clock(wake, zone, now=now)}"
            parts.append(f"{until} ({in_words((wake - now).total_seconds())})")
    if work.retries:
        parts.append(counted(work.retries, "retry", "retries"))
    asked = facts.run.asked if facts.run else None
    verdict = VERDICTS[level]
    if asked and level is Level.FINE:
        verdict = {"stop": "Stopping", "pause": "Pausing"}[asked]
    elif asked:
        parts.append(f"a {asked} was requested")
    elif level is Level.FINE and (work.waiting_for or is_free):
        verdict = "Paused" if wait_of(work.waiting_for).is_asked else "Waiting"
    return Stuck(level, f"{verdict}: {', '.join(parts)}")


def _stuck_level(work: Work, now: datetime) -> Level:
    is_long = max(_seconds_ago(moment, now) for moment in (work.since, work.began, work.dispatched)) >= LONG_S
    many = work.retries >= MANY_RETRIES
    quiet_s = 0.0
    if wait_of(work.waiting_for).is_asked:
        return Level.FINE
    if work.waiting_for:
        needs_look = wait_of(work.waiting_for).is_for_person or _seconds_ago(work.wake, now) >= OVERSLEPT_S
    else:
        quiet_s = _seconds_ago(work.output or work.dispatched, now)
        needs_look = (is_long and (many or not work.dispatched)) or quiet_s >= SILENT_S
    if needs_look:
        return Level.LOOK
    return Level.SLOW if is_long or many or quiet_s >= QUIET_S else Level.FINE


def _seconds_ago(moment: str | None, now: datetime) -> float:
    return max((now - parse_iso(moment)).total_seconds(), 0.0) if moment else 0.0


def view_schedule(row: ScheduleRow, now: datetime) -> ScheduleView:
    following, is_due = next_slot(row, now)
    return ScheduleView(
        spec=f"every {row.spec}",
        next=iso(following) if following else None,
        zone=row.zone,
        moved=describe_delay(row.spec, row.plan) if following else "",
        paused=row.paused,
        due=is_due,
    )


def describe_schedule(schedule: ScheduleView, *, now: datetime) -> str:
    """`every 4h, next 20:30 CET (in 2h 15m)` in the schedule's zone, or why not."""
    if schedule.next is None:  # as of an unknown zone
        when = "next time unknown on this machine"
    else:
        moment = datetime.fromisoformat(schedule.next)
        span = in_words((moment - now).total_seconds())
        moved = f"; {schedule.moved}" if schedule.moved else ""
        when = f"next {clock(moment, zone_of(schedule.zone), now=now)} (in {span}{moved})"
    if why := schedule.paused:
        return f"{schedule.spec}, {why if why.startswith('paused') else f'paused: {why}'}; otherwise {when}"
    return f"{schedule.spec}, {'due now, then ' if schedule.due else ''}{when}"
