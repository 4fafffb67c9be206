"""Plans and runs as JSON data, for `status` and `next` (docs/reference.md). Cheap to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import replace

from runplan.run.rows import UNFINISHED, Work
from runplan.text import clock, in_words
from runplan.times import iso, parse_iso

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, tzinfo

    from runplan.plan.model import Plan
    from runplan.run.rows import RunRow, ScheduleRow, WaitRow


class Seen(Struct, frozen=True, kw_only=True):
    """The run, claim and schedule of a plan."""

    run: RunRow | None = None  #: the newest
    work: Work = Work()  #: of that run
    outputs: Mapping[str, datetime] = field(default_factory=dict)  #: last output by dispatch
    owner: str = ""  #: of the plan's claim
    alive: bool = False
    stopped: bool = False  #: the owner is suspended, as by Ctrl-Z
    queued: str = ""  #: the verb of the newest command that is not executed yet
    refused: str = ""  #: why the newest start, `now` or `resume` was refused
    refused_verb: str = ""
    schedule: ScheduleRow | None = None
    wait: WaitRow | None = None  #: of the daemon, for this plan

    @property
    def is_active(self) -> bool:
        return self.run is not None and self.run.state in UNFINISHED


class PhaseOutline(Struct, frozen=True):
    """A phase without its text."""

    id: str
    title: str
    status: str
    commit: str
    depends: tuple[str, ...]


class PlanOutline(Struct, frozen=True, kw_only=True):
    """A plan without its texts; one that cannot be parsed has an error and no phases."""

    title: str = ""
    status: str = ""
    complete: bool = False
    phases: tuple[PhaseOutline, ...] = ()
    error: str = ""


def outline_of(plan: Plan) -> PlanOutline:
    return convert(plan, PlanOutline, from_attributes=True)


def to_json(value: Struct) -> str:
    import json  # not msgspec.json: a text need not be valid Unicode, and json escapes it

    return json.dumps(to_builtins(value))


def status_view(path: str, plan: PlanOutline, seen: Seen, *, landing: str, now: datetime) -> dict[str, Any]:
    """One plan as `status --json` prints it; one that cannot be parsed, or is gone, has an error and no phases."""
    done = {phase.id for phase in plan.phases if phase.status == "done"}
    is_free = (p.id for p in plan.phases if p.status not in ("done", "blocked") and all(d in done for d in p.depends))
    worked = [lane.phase for lane in seen.work.lanes if not lane.failed] if seen.is_active else []
    if seen.run is not None and seen.is_active:
        worked, landing = [*worked, seen.run.phase], seen.run.landing
    return {
        "plan": path,
        "title": plan.title or path,
        "status": "unreadable" if plan.error else "complete" if plan.complete else plan.status or "active",
        "landing": landing,
        "phases": [_phase(phase, done, worked) for phase in plan.phases],
        "next": None if plan.complete else next(is_free, None),
        "run": None if seen.run is None else _run(seen.run, seen, now),
        "claim": {"owner": seen.owner, "alive": seen.alive} if seen.owner else None,
        "schedule": None if seen.schedule is None else schedule_view(seen.schedule, now),
        "queued": seen.queued or None,
        "refused": seen.refused or None,
        "refused_verb": seen.refused_verb or None,
        **({"error": plan.error} if plan.error else {}),
    }


def _phase(phase: PhaseOutline, done: set[str], worked: list[str | None]) -> dict[str, Any]:
    status = phase.status
    if phase.id in worked and status != "done":
        status = "in-progress"
    elif status == "in-progress":
        status = "todo"  # a mark in the plan without a run
    return {
        "id": phase.id,
        "title": phase.title,
        "status": status,
        "commit": phase.commit or None,
        "depends": list(phase.depends),
        "blocked_by": [other for other in phase.depends if other not in done] if phase.id not in done else [],
    }


_RUN = ("id", "state", "phase", "step", "since", "attempt", "outcome", "reason", "waiting_for", "about", "wake")
_WAIT = ("phase", "step", "waiting_for", "about", "wake")
_WORK = ("agent", "version", "dispatched", "retries", "tokens", "unpriced")


def _run(run: RunRow, seen: Seen, now: datetime) -> dict[str, Any]:
    lanes = [(_lane_row(run, lane), lane) for lane in seen.work.lanes] if seen.is_active else []
    return {
        **{name: getattr(run, name) for name in _RUN},
        **_daemon_wait(run, seen),
        "asked": _asked(run, seen),
        **_usage(seen.work, seen),
        "stuck": _stuck(run, lanes, seen, now) if seen.is_active else None,
        "lanes": [
            {name: getattr(row, name) for name in (*_WAIT, "since")} | _usage(lane, seen) | {"failed": lane.failed}
            for row, lane in lanes
        ],
    }


def _lane_row(run: RunRow, lane: Work) -> RunRow:
    """The lane as if it were a run of its own."""
    since = lane.began or lane.dispatched or run.since
    return replace(run, since=since, **{name: getattr(lane, name) for name in _WAIT})


def _daemon_wait(run: RunRow, seen: Seen) -> dict[str, str | None]:
    """The wait of the daemon for a run that does not wait itself."""
    wait = seen.wait
    if wait is None or not seen.is_active or run.waiting_for is not None:
        return {}
    return {"waiting_for": wait.kind, "about": wait.about, "wake": wait.wake}


def _asked(run: RunRow, seen: Seen) -> str | None:
    """The stop or pause that was requested and is not done yet."""
    queued = seen.queued if seen.queued in ("stop", "pause") else ""
    asked = "stop" if queued == "stop" else seen.work.asked or queued or None
    over = not seen.is_active or (asked == "pause" and run.waiting_for == "paused")
    return None if over else asked


def _usage(work: Work, seen: Seen) -> dict[str, Any]:
    output = _output(work, seen)
    more = {"gates": list(work.gates), "usd": round(work.usd, 4), "output": iso(output) if output else None}
    return {name: getattr(work, name) for name in _WORK} | more


def _output(work: Work, seen: Seen) -> datetime | None:
    return seen.outputs.get(work.dispatch or "")


# --- is it stuck? -------------------------------------------------------------------------------------

LEVELS = {"fine": "Running", "slow": "Slow", "look": "Needs attention"}  #: how much a person is needed, least first
LONG_S = 30 * 60.0  #: a step this long is never fine
MANY_RETRIES = 2  #: nor are this many retries
QUIET_S = 5 * 60.0  #: an agent without output for this long is slow
SILENT_S = 15 * 60.0  #: and a person should look at it after this long
OVERSLEPT_S = 5 * 60.0  #: a wait that ends this late has failed to end
PERSONS = ("approval", "sign-off", "checkout", "review", "paused", "key")  #: waits that only a person can end


def _stuck(run: RunRow, lanes: list[tuple[RunRow, Work]], seen: Seen, now: datetime) -> dict[str, str]:
    """Whether the run makes progress; of several lanes, the one that needs a person most."""
    side_by_side = [] if run.waiting_for else [(row, lane) for row, lane in lanes if not lane.failed]
    answers = [answer(row, work, seen, now=now) for row, work in side_by_side or [(run, seen.work)]]
    return max(answers, key=lambda one: list(LEVELS).index(one["level"]))


def answer(run: RunRow, work: Work, seen: Seen, *, now: datetime, zone: tzinfo | None = None) -> dict[str, str]:
    """A level for scripts and a sentence; never `fine` after half an hour in a step or two retries."""
    # A wait for a person needs no process.
    interrupted = not (seen.alive or (run.waiting_for in PERSONS and run.wake is None))
    level = "look" if interrupted or seen.stopped else _level(run, work, seen, now)
    step = f"{run.step} {', '.join(work.gates)}" if work.gates else run.step
    where = f"phase {run.phase}, {step or 'starting'}" if run.phase else "between phases"
    parts = [where if run.waiting_for else f"{where} for {in_words(_ago(run.since, now))}"]
    if interrupted:
        parts.append("interrupted; no process is working on it")
    if seen.stopped:
        parts.append(f"its process is stopped; continue it: kill -CONT {seen.owner.partition(':')[0]}")
    if work.dispatched:
        output = _output(work, seen)
        parts.append(f"agent running {in_words(_ago(work.dispatched, now))}")
        parts.append(f"last output {in_words(_ago(output, now))} ago" if output else "no output yet")
    parts += _waiting(run, now, zone)
    if work.retries:
        parts.append(f"{work.retries} {'retry' if work.retries == 1 else 'retries'}")
    asked, verdict = _asked(run, seen), LEVELS[level]
    if asked and level == "fine":
        verdict = {"stop": "Stopping", "pause": "Pausing"}[asked]
    elif asked:
        parts.append(f"a {asked} was requested")
    elif level == "fine" and run.waiting_for:
        verdict = "Waiting"
    return {"level": level, "sentence": f"{verdict}: {', '.join(parts)}"}


def _level(run: RunRow, work: Work, seen: Seen, now: datetime) -> str:
    if run.waiting_for in PERSONS:
        return "look"
    is_long = max(_ago(moment, now) for moment in (run.since, work.began, work.dispatched)) >= LONG_S
    many = work.retries >= MANY_RETRIES
    if run.waiting_for:
        return "look" if _ago(run.wake, now) >= OVERSLEPT_S else "slow" if is_long or many else "fine"
    quiet_s = _ago(_output(work, seen) or work.dispatched, now) if work.dispatched else 0.0
    if (is_long and (many or not work.dispatched)) or quiet_s >= SILENT_S:
        return "look"
    return "slow" if is_long or many or quiet_s >= QUIET_S else "fine"


def _ago(moment: datetime | str | None, now: datetime) -> float:
    at = parse_iso(moment) if isinstance(moment, str) else moment
    return max((now - at).total_seconds(), 0.0) if at else 0.0


def _waiting(run: RunRow, now: datetime, zone: tzinfo | None) -> list[str]:
    if not run.waiting_for:
        return []
    span = in_words(_ago(run.since, now))
    if run.waiting_for == "paused":
        return [f"paused for {span}{(run.about or '').removeprefix('paused')}"]
    parts = [f"waiting {span}: {run.about}" if run.about else f"waiting {span} for {run.waiting_for}"]
    if (late_s := _ago(run.wake, now)) >= OVERSLEPT_S:
        parts.append(f"should have continued {in_words(late_s)} ago")
    elif run.wake:
        wake = parse_iso(run.wake)
        verb = {"limit": "resets", "checkout": "tries again"}.get(run.waiting_for, "until")
        parts.append(f"{verb} {clock(wake, zone, now=now)} ({in_words((wake - now).total_seconds())})")
    return parts


# --- schedules ----------------------------------------------------------------------------------------


def schedule_view(row: ScheduleRow, now: datetime) -> dict[str, str | bool | None]:
    """The schedule of a plan; `next` is null when this machine cannot compute it."""
    from runplan.settings.schedule import outlook

    following, is_due = outlook(row, now)
    return {
        "spec": f"every {row.spec}",
        "next": iso(following) if following else None,
        "paused": row.paused,
        "due": is_due,
    }
