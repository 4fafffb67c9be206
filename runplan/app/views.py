"""What is shown of plans and runs, as data: the same for people and for scripts. Cheap to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from runplan.core.plan import Phase, Plan
    from runplan.core.rows import RunRow, ScheduleRow
    from runplan.core.work import Work

IN_FLIGHT = ("queued", "running", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a plan besides its text."""

    run: RunRow | None = None  #: the newest
    work: Work | None = None  #: what that run is at
    output: datetime | None = None  #: when its agent last said something
    owner: str = ""  #: of the plan's claim
    alive: bool = False
    schedule: ScheduleRow | None = None


def status_view(plan: Plan, seen: Seen, *, landing: str, now: datetime, zone: tzinfo) -> dict[str, Any]:
    """One plan as `status --json` gives it (docs/json.md)."""
    done = {phase.id for phase in plan.phases if phase.status == "done"}
    run = seen.run
    active = run is not None and run.state in IN_FLIGHT
    return {
        "plan": plan.path,
        "title": plan.title,
        "status": "complete" if plan.complete else plan.status or "active",
        "landing": run.landing if run is not None and active else landing,
        "phases": [_phase(phase, done, run if active else None) for phase in plan.phases],
        "next": _next(plan, done),
        "run": None if run is None else _run(run, seen, now, zone),
        "claim": {"owner": seen.owner, "alive": seen.alive} if seen.owner else None,
        "schedule": None if seen.schedule is None else schedule_view(seen.schedule, now),
    }


def unreadable_view(path: str, error: str) -> dict[str, Any]:
    """A plan that cannot be understood, in the same form, with the reason."""
    nothing: dict[str, Any] = {
        "landing": None,
        "phases": [],
        "next": None,
        "run": None,
        "claim": None,
        "schedule": None,
    }
    return {"plan": path, "title": path, "status": "unreadable", **nothing, "error": error}


def _phase(phase: Phase, done: set[str], run: RunRow | None) -> dict[str, Any]:
    working = run is not None and run.phase == phase.id
    status = str(phase.status)
    if working:
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
    work = seen.work
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
        "agent": work.agent if work else None,
        "version": work.version if work else None,
        "dispatched": work.dispatched if work else None,
        "output": _iso(seen.output) if seen.output else None,
        "context": work.context if work else None,
        "handover": "armed" if work and work.context is not None else None,
        "retries": work.retries if work else None,
        "tokens": work.tokens if work else None,
        "usd": round(work.usd, 4) if work else None,
        "stuck": _stuck(run, seen, now, zone) if run.state in IN_FLIGHT else None,
    }


def _stuck(run: RunRow, seen: Seen, now: datetime, zone: tzinfo) -> dict[str, str]:
    """The honest answer, for a run that has not ended."""
    from runplan.core.stuck import PERSONS, Doing, answer
    from runplan.core.times import parse_iso

    work = seen.work
    doing = Doing(
        phase=run.phase,
        step=run.step,
        since=parse_iso(run.since),
        # Whoever waits for a person needs no process to do so.
        carried=seen.alive or run.waiting_for in (*PERSONS, "paused"),
        dispatched=parse_iso(work.dispatched) if work and work.dispatched else None,
        output=seen.output,
        retries=work.retries if work else 0,
        waiting_for=run.waiting_for,
        about=run.about,
        wake=parse_iso(run.wake) if run.wake else None,
    )
    level, sentence = answer(doing, now=now, zone=zone)
    return {"level": level, "sentence": sentence}


def schedule_view(row: ScheduleRow, now: datetime) -> dict[str, str | None]:
    """When a plan is worked again; `next` is null when that cannot be told here."""
    from runplan.core.upcoming import spelled, upcoming

    following = upcoming(row, now)
    return {"spec": spelled(row), "next": _iso(following) if following else None, "paused": row.paused}


def _iso(moment: datetime) -> str:
    from runplan.core.times import iso

    return iso(moment)
