"""Plans and runs as JSON data, for `status` and `next` (docs/reference.md). Cheap to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from runplan.run.rows import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runplan.plan.model import Plan
    from runplan.run.progress import Work
    from runplan.run.rows import RunRow, ScheduleRow, WaitRow


class Seen(Struct, frozen=True, kw_only=True):
    """The run, claim and schedule of a plan."""

    run: RunRow | None = None  #: the newest
    work: Work | None = None
    outputs: Mapping[str, datetime] | None = None  #: last output by dispatch
    owner: str = ""  #: of the plan's claim
    alive: bool = False
    stopped: bool = False  #: the owner is suspended, as by Ctrl-Z
    queued: str = ""  #: the verb of the newest command that is not executed yet
    refused: str = ""  #: why the newest start was refused
    schedule: ScheduleRow | None = None
    wait: WaitRow | None = None  #: of the daemon, for this plan

    @property
    def is_active(self) -> bool:
        return self.run is not None and self.run.state in UNFINISHED


class PhaseSummary(Struct, frozen=True):
    """A phase without its text."""

    id: str
    title: str
    status: str
    commit: str
    depends: tuple[str, ...]


class PlanSummary(Struct, frozen=True, kw_only=True):
    """A plan without its texts; one that cannot be parsed has an error and no phases."""

    title: str = ""
    status: str = ""
    complete: bool = False
    phases: tuple[PhaseSummary, ...] = ()
    error: str = ""


def summary_of(plan: Plan) -> PlanSummary:
    return convert(plan, PlanSummary, from_attributes=True)


def to_json(value: Struct) -> str:
    import json  # not msgspec.json: a text need not be valid Unicode, and json escapes it

    return json.dumps(to_builtins(value))


def status_view(path: str, plan: PlanSummary, seen: Seen, *, landing: str, now: datetime) -> dict[str, Any]:
    """One plan as `status --json` prints it."""
    done = {phase.id for phase in plan.phases if phase.status == "done"}
    is_free = (p.id for p in plan.phases if p.status not in ("done", "blocked") and all(d in done for d in p.depends))
    return {
        "plan": path,
        "title": plan.title,
        "status": "complete" if plan.complete else plan.status or "active",
        "landing": seen.run.landing if seen.run is not None and seen.is_active else landing,
        "phases": [_phase(phase, done, _worked(seen)) for phase in plan.phases],
        "next": None if plan.complete else next(is_free, None),
        **_activity(seen, now),
    }


def unreadable_view(path: str, error: str, seen: Seen, *, now: datetime) -> dict[str, Any]:
    """A plan that cannot be parsed, or is gone, in the same form, with the reason."""
    return {
        "plan": path,
        "title": path,
        "status": "unreadable",
        "landing": seen.run.landing if seen.run is not None else None,
        "phases": [],
        "next": None,
        **_activity(seen, now),
        "error": error,
    }


def _activity(seen: Seen, now: datetime) -> dict[str, Any]:
    return {
        "run": None if seen.run is None else _run(seen.run, seen, now),
        "claim": {"owner": seen.owner, "alive": seen.alive} if seen.owner else None,
        "schedule": None if seen.schedule is None else schedule_view(seen.schedule, now),
        "queued": seen.queued or None,
        "refused": seen.refused or None,
    }


def _worked(seen: Seen) -> tuple[str | None, ...]:
    """The phases that run now."""
    if seen.run is None or not seen.is_active:
        return ()
    lanes = seen.work.lanes if seen.work else ()
    return (*(lane.phase for lane in lanes if not lane.failed), seen.run.phase)


def _phase(phase: PhaseSummary, done: set[str], worked: tuple[str | None, ...]) -> dict[str, Any]:
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
_WAIT = ("phase", "step", "since", "waiting_for", "about", "wake")


def _run(run: RunRow, seen: Seen, now: datetime) -> dict[str, Any]:
    return {
        **{name: getattr(run, name) for name in _RUN},
        **_daemon_wait(run, seen),
        "asked": _asked(run, seen),
        **_usage(seen.work, seen),
        "stuck": _stuck(run, seen, now) if seen.is_active else None,
        "lanes": [_lane(lane, seen) for lane in seen.work.lanes] if seen.work and seen.is_active else [],
    }


def _daemon_wait(run: RunRow, seen: Seen) -> dict[str, str | None]:
    """The wait of the daemon for a run that does not wait itself."""
    wait = seen.wait
    if wait is None or not seen.is_active or run.waiting_for is not None:
        return {}
    return {"waiting_for": wait.kind, "about": wait.about, "wake": wait.wake}


def _asked(run: RunRow, seen: Seen) -> str | None:
    """The stop or pause that was requested and is not done yet."""
    queued = seen.queued if seen.queued in ("stop", "pause") else ""
    asked = "stop" if queued == "stop" else (seen.work.asked if seen.work else None) or queued or None
    over = not seen.is_active or (asked == "pause" and run.waiting_for == "paused")
    return None if over else asked


def _lane(work: Work, seen: Seen) -> dict[str, Any]:
    wait = {name: getattr(work, name) for name in _WAIT}
    return {**dict.fromkeys(_WAIT[:3]), **_usage(work, seen), **wait, "failed": work.failed}


def _usage(work: Work | None, seen: Seen) -> dict[str, Any]:
    output = _output(work, seen)
    return {
        "agent": work.agent if work else None,
        "dispatched": work.dispatched if work else None,
        "output": _iso(output) if output else None,
        "gates": list(work.gates) if work else [],
        "retries": work.retries if work else None,
        "tokens": work.tokens if work else None,
        "usd": round(work.usd, 4) if work else None,
        "unpriced": bool(work and work.unpriced),
    }


def _output(work: Work | None, seen: Seen) -> datetime | None:
    return seen.outputs.get(work.dispatch) if work and work.dispatch and seen.outputs else None


def _stuck(run: RunRow, seen: Seen, now: datetime) -> dict[str, str]:
    """Whether the run makes progress; of several lanes, the one that needs a person most."""
    from runplan.run.progress import LEVELS

    lanes = [lane for lane in seen.work.lanes if not lane.failed] if seen.work and not run.waiting_for else []
    if not lanes:
        return _answer(run, seen.work, seen, now)
    rows = (replace(run, **{name: getattr(lane, name) for name in _WAIT}) for lane in lanes)
    answers = [_answer(row, lane, seen, now) for row, lane in zip(rows, lanes, strict=True)]
    return max(answers, key=lambda one: LEVELS.index(one["level"]))


def _answer(run: RunRow, work: Work | None, seen: Seen, now: datetime) -> dict[str, Any]:
    from runplan.run.progress import PERSONS, Doing, answer
    from runplan.times import parse_iso

    doing = Doing(
        phase=run.phase,
        step=f"{run.step} {', '.join(work.gates)}" if work and work.gates and work.step == run.step else run.step,
        since=parse_iso(run.since),
        began=parse_iso(work.began) if work and work.began and work.role == run.step else None,
        suspended=seen.owner.partition(":")[0] if seen.stopped else "",
        carried=seen.alive or (run.waiting_for in PERSONS and run.wake is None),  # a wait for a person needs no process
        dispatched=parse_iso(work.dispatched) if work and work.dispatched else None,
        output=_output(work, seen),
        retries=work.retries if work else 0,
        asked=_asked(run, seen),
        waiting_for=run.waiting_for,
        about=run.about,
        wake=parse_iso(run.wake) if run.wake else None,
    )
    found = answer(doing, now=now, zone=None)
    return {"level": found.level, "sentence": found.sentence}


def schedule_view(row: ScheduleRow, now: datetime) -> dict[str, str | bool | None]:
    """The schedule of a plan; `next` is null when this machine cannot compute it."""
    from runplan.settings.schedule import is_due, upcoming

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
