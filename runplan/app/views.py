"""What is shown of plans and runs, as data: the same for people and for scripts. Cheap to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runplan.core.plan import Phase, Plan
    from runplan.core.rows import RunRow


def status_view(plan: Plan, *, run: RunRow | None, owner: str, alive: bool, landing: str) -> dict[str, Any]:
    """One plan as `status --json` gives it (docs/json.md)."""
    done = {phase.id for phase in plan.phases if phase.status == "done"}
    active = run is not None and run.state in ("queued", "running", "waiting")
    return {
        "plan": plan.path,
        "title": plan.title,
        "status": "complete" if plan.complete else plan.status or "active",
        "landing": run.landing if run is not None and active else landing,
        "phases": [_phase(phase, done, run if active else None) for phase in plan.phases],
        "next": _next(plan, done),
        "run": None if run is None else _run(run),
        "claim": {"owner": owner, "alive": alive} if owner else None,
        "schedule": None,
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


def _run(run: RunRow) -> dict[str, Any]:
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
    }
