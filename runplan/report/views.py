"""What is shown of plans and runs, as data: the same for people and for scripts. Cheap to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan.run.rows import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, tzinfo

    from runplan.plan.model import Phase, Plan
    from runplan.run.progress import Work
    from runplan.run.rows import RunRow, ScheduleRow


class Seen(Struct, frozen=True, kw_only=True):
    """What is known of a plan besides its text."""

    run: RunRow | None = None  #: the newest
    work: Work | None = None  #: what that run is at
    outputs: Mapping[str, datetime] | None = None  #: when its processes last said something
    owner: str = ""  #: of the plan's claim
    alive: bool = False
    wished: str = ""  #: stop or pause: what a person wants of it, and nobody has begun to do
    schedule: ScheduleRow | None = None


def status_view(plan: Plan, seen: Seen, *, landing: str, now: datetime, zone: tzinfo) -> dict[str, Any]:
    """One plan as `status --json` gives it (docs/reference.md)."""
    done = {phase.id for phase in plan.phases if phase.status == "done"}
    run = seen.run
    active = run is not None and run.state in UNFINISHED
    return {
        "plan": plan.path,
        "title": plan.title,
        "status": "complete" if plan.complete else plan.status or "active",
        "landing": run.landing if run is not None and active else landing,
        "phases": [_phase(phase, done, _worked(seen) if active else ()) for phase in plan.phases],
        "next": _next(plan, done),
        **_doings(seen, now, zone),
    }


def unreadable_view(path: str, error: str, seen: Seen, *, now: datetime, zone: tzinfo) -> dict[str, Any]:
    """A plan that cannot be understood, or is gone, in the same form, with the reason."""
    return {
        "plan": path,
        "title": path,
        "status": "unreadable",
        "landing": seen.run.landing if seen.run is not None else None,
        "phases": [],
        "next": None,
        **_doings(seen, now, zone),
        "error": error,
    }


def _doings(seen: Seen, now: datetime, zone: tzinfo) -> dict[str, Any]:
    """What is done about a plan."""
    return {
        "run": None if seen.run is None else _run(seen.run, seen, now, zone),
        "claim": {"owner": seen.owner, "alive": seen.alive} if seen.owner else None,
        "schedule": None if seen.schedule is None else schedule_view(seen.schedule, now),
    }


def _worked(seen: Seen) -> tuple[str | None, ...]:
    """The phases that somebody is at."""
    lanes = [lane.phase for lane in seen.work.lanes if not lane.failed] if seen.work else []
    return (*lanes, seen.run.phase if seen.run else None)


def _phase(phase: Phase, done: set[str], worked: tuple[str | None, ...]) -> dict[str, Any]:
    status = str(phase.status)
    if phase.id in worked:
        status = "in-progress"
    elif status == "in-progress":
        status = "todo"  # a mark in the plan without a run behind it
    return {
        "id": phase.id,
        "title": phase.title,
        "status": status,
        "commit": phase.commit or None,
        "depends": list(phase.depends),
        "blocked_by": [other for other in phase.depends if other not in done] if phase.id not in done else [],
    }


def _next(plan: Plan, done: set[str]) -> str | None:
    if plan.complete:
        return None
    free = (p.id for p in plan.phases if p.status not in ("done", "blocked") and all(d in done for d in p.depends))
    return next(free, None)


def _run(run: RunRow, seen: Seen, now: datetime, zone: tzinfo) -> dict[str, Any]:
    return {
        "id": run.id,
        "state": run.state,
        "phase": run.phase,
        "step": run.step,
        "since": run.since,
        "attempt": run.attempt,
        "outcome": run.outcome,
        "reason": run.reason,
        "waiting_for": run.waiting_for,
        "about": run.about,
        "wake": run.wake,
        "asked": _asked(run, seen),
        **_at_work(seen.work, seen),
        "stuck": _stuck(run, seen, now, zone) if run.state in UNFINISHED else None,
        "lanes": [_lane(lane, seen) for lane in seen.work.lanes] if seen.work and run.state in UNFINISHED else [],
    }


def _asked(run: RunRow, seen: Seen) -> str | None:
    """What a person wants of the run that it has not come to yet."""
    asked = "stop" if seen.wished == "stop" else (seen.work.asked if seen.work else None) or seen.wished or None
    over = run.state not in UNFINISHED or (asked == "pause" and run.waiting_for == "paused")
    return None if over else asked


def _lane(work: Work, seen: Seen) -> dict[str, Any]:
    """One of several phases that are worked side by side."""
    return {
        "phase": work.phase,
        "step": work.step,
        "since": work.since,
        **_at_work(work, seen),
        "waiting_for": work.waiting_for,
        "about": work.about,
        "wake": work.wake,
        "failed": work.failed,
    }


def _at_work(work: Work | None, seen: Seen) -> dict[str, Any]:
    output = _output(work, seen)
    return {
        "agent": work.agent if work else None,
        "version": work.version if work else None,
        "dispatched": work.dispatched if work else None,
        "output": _iso(output) if output else None,
        "context": work.context if work else None,
        "handover": "armed" if work and work.context is not None else None,
        "retries": work.retries if work else None,
        "tokens": work.tokens if work else None,
        "usd": round(work.usd, 4) if work else None,
    }


def _output(work: Work | None, seen: Seen) -> datetime | None:
    return seen.outputs.get(work.dispatch) if work and work.dispatch and seen.outputs else None


def _stuck(run: RunRow, seen: Seen, now: datetime, zone: tzinfo) -> dict[str, str]:
    """The honest answer, for a run that has not ended; of lanes, the one that needs looking at most."""
    lanes = [lane for lane in seen.work.lanes if not lane.failed] if seen.work and not run.waiting_for else []
    if not lanes:
        return _answer(run, seen, seen.work, now, zone)
    from msgspec.structs import replace

    from runplan.run.progress import LEVELS

    each = [_answer(replace(run, **_standing(lane)), seen, lane, now, zone) for lane in lanes]
    return max(each, key=lambda one: LEVELS.index(one["level"]))


def _standing(lane: Work) -> dict[str, Any]:
    named = ("phase", "step", "since", "waiting_for", "about", "wake")
    return {name: getattr(lane, name) for name in named}


def _answer(run: RunRow, seen: Seen, work: Work | None, now: datetime, zone: tzinfo) -> dict[str, str]:
    from runplan.run.progress import PERSONS, Doing, answer
    from runplan.times import parse_iso

    doing = Doing(
        phase=run.phase,
        step=run.step,
        since=parse_iso(run.since),
        began=parse_iso(work.began) if work and work.began and work.role == run.step else None,
        # Whoever waits for a person needs no process to do so.
        carried=seen.alive or (run.waiting_for in PERSONS and run.wake is None),
        dispatched=parse_iso(work.dispatched) if work and work.dispatched else None,
        output=_output(work, seen),
        retries=work.retries if work else 0,
        asked=_asked(run, seen),
        waiting_for=run.waiting_for,
        about=run.about,
        wake=parse_iso(run.wake) if run.wake else None,
    )
    found = answer(doing, now=now, zone=zone)
    return {"level": found.level, "sentence": found.sentence}


def schedule_view(row: ScheduleRow, now: datetime) -> dict[str, str | bool | None]:
    """When a plan is worked again; `next` is null when that cannot be told here."""
    from runplan.settings.slots import is_due, upcoming

    following = upcoming(row, now)
    return {
        "spec": f"every {row.spec}",
        "next": _iso(following) if following else None,
        "paused": row.paused,
        "due": is_due(row, now),
    }


def _iso(moment: datetime) -> str:
    from runplan.times import iso

    return iso(moment)
