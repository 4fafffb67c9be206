"""Plans and runs as JSON data, for `status` and `next` (docs/reference.md). Cheap to import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, tzinfo
from enum import StrEnum
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from runplan.domain.run.kinds import PLANNING_STEPS, UNFINISHED, RunStatus, WaitKind
from runplan.domain.run.rows import PlanFacts, RunRow, ScheduleRow, Work, wait_of
from runplan.domain.settings.schedule import describe_delay, next_slot
from runplan.domain.text import clock, command, counted, escaped, in_words
from runplan.domain.times import iso, parse_iso, zone as zone_of


class PhaseOutline(Struct, frozen=True):
    id: str
    title: str
    status: str
    commit: str
    depends: tuple[str, ...]
    hindrance: str = ""  #: why an open phase cannot be worked now


class PlanOutline(Struct, frozen=True, kw_only=True):
    """A plan without its texts; one that cannot be parsed has an error and no phases."""

    title: str = ""
    status: str = ""
    complete: bool = False
    phases: tuple[PhaseOutline, ...] = ()
    error: str = ""
    is_page: bool = False  #: the error is that it is no plan


class Need(StrEnum):
    """Why a person looks at a plan, the most urgent first: the order of `status`."""

    WAITING = "waiting"  #: for a person
    FAILED = "failed"
    RUNNING = "running"
    SCHEDULED = "scheduled"  #: or paused by a person
    OPEN = "open"
    DONE = "done"
    PAGE = "page"  #: no plan


def need_of(view: dict[str, Any]) -> Need:
    run = view["run"]
    is_complete = view["status"] == "complete"
    is_active = run is not None and run["state"] in UNFINISHED
    if is_active and run["stuck"]["level"] == "look":
        return Need.WAITING
    has_failed = run is not None and run["state"] == RunStatus.FAILED and not is_complete
    if has_failed or any(phase["failed"] for phase in view["phases"]):
        return Need.FAILED
    if view["queued"] or (is_active and not wait_of(run["waiting_for"]).is_asked):
        return Need.RUNNING
    if view["schedule"] or is_active:
        return Need.SCHEDULED
    if not view["is_plan"] and run is None:
        return Need.PAGE
    return Need.DONE if is_complete else Need.OPEN


def by_need(views: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The views with the needs of their plans, the most urgent first."""
    order = list(Need)
    needs = ({**view, "need": need_of(view)} for view in views)
    return sorted(needs, key=lambda view: (order.index(view["need"]), view["plan"]))


def status_view(path: str, plan: PlanOutline, facts: PlanFacts, *, landing: str, now: datetime) -> dict[str, Any]:
    """One plan as `status --json` prints it; one that cannot be parsed, or is gone, has an error and no phases."""
    facts = replace(facts, run=_with_queued_request(facts)) if facts.run is not None else facts
    run = facts.run
    done = {phase.id for phase in plan.phases if phase.status == "done"}
    is_free = (phase.id for phase in plan.phases if phase.status != "done" and not phase.hindrance)
    is_active = run is not None and run.is_active
    worked = [work.phase for work in (run, *run.lanes) if not work.failed] if run is not None and is_active else []
    failures = {
        failure.phase: {
            "reason": failure.reason,
            "why": next(iter(failure.detail.splitlines()), ""),
            "output": failure.output,
            "command": command("runplan", "retry", path, failure.phase),
        }
        for failure in facts.failures
    }
    refused_at, verb, refused = facts.refused
    is_refused = refused and (run is None or refused_at > run.started)
    return {
        "plan": path,
        "title": plan.title or path,
        "status": "unreadable" if plan.error else "complete" if plan.complete else plan.status or "active",
        "landing": run.landing if run is not None and is_active else landing,
        "phases": [_view_phase(phase, done, phase.id in worked, failures.get(phase.id)) for phase in plan.phases],
        "next": None if plan.complete or plan.status not in ("", "active") else next(is_free, None),
        "run": None if run is None else _view_run(run, facts, now),
        "claim": {"owner": facts.owner, "alive": facts.alive} if facts.owner else None,
        "schedule": None if facts.schedule is None else schedule_view(facts.schedule, now),
        "queued": facts.queued or None,
        "refused": refused if is_refused else None,
        "refused_verb": verb if is_refused else None,
        "is_plan": not plan.is_page,
        **({"error": plan.error} if plan.error else {}),
    }


def _with_queued_request(facts: PlanFacts) -> RunRow:
    """The run with the stop or pause that is queued, and with the wait of the daemon."""
    run = facts.run
    assert run is not None
    asked = "stop" if facts.queued == "stop" else run.asked or ("pause" if facts.queued == "pause" else None)
    is_over = not run.is_active or (asked == "pause" and run.waiting_for == WaitKind.PAUSED)
    run = replace(run, asked=None if is_over else asked)
    if facts.wait is None or not run.is_active or run.waiting_for is not None:
        return run
    return replace(run, waiting_for=facts.wait.kind, about=facts.wait.about, wake=facts.wait.wake)


def _view_phase(phase: PhaseOutline, done: set[str], is_worked: bool, failure: dict[str, str] | None) -> dict[str, Any]:
    is_open = phase.status != "done"
    if is_open and is_worked:
        phase = replace(phase, status="in-progress", hindrance="")
    blocked_by = [other for other in phase.depends if other not in done] if is_open else []
    view = {**to_builtins(phase), "commit": phase.commit or None, "blocked_by": blocked_by}
    return {**view, "failed": failure if is_open and not is_worked else None}


#: Fields of a run that `status --json` prints with the plan, or not at all.
_OF_PLAN = ("plan", "title", "slug", "landing", "target", "remote", "concludes")
_INTERNAL = ("started", "began", "dispatch", "failed")


def _view_run(run: RunRow, facts: PlanFacts, now: datetime) -> dict[str, Any]:
    view: dict[str, Any] = to_builtins(run)
    for work in (view, *view["lanes"]):
        work["usd"] = round(work["usd"], 4)
    # Of several lanes, the one that needs a person most; a phase ahead waits for one of the others.
    lanes = [lane for lane in run.lanes if not lane.failed and lane.waiting_for != WaitKind.PHASE]
    lanes = [] if run.waiting_for else lanes
    answers = [assess_progress(work, facts, now=now) for work in lanes or [run]] if run.is_active else []
    view = {name: value for name, value in view.items() if name not in (*_OF_PLAN, *_INTERNAL)}
    return {**view, "stuck": max(answers, key=lambda answer: list(LEVELS).index(answer["level"]), default=None)}


def format_cost(usd: float, *, unpriced: bool = False, estimated: bool = False) -> str:
    """The cost in dollars; `unpriced` when an agent did not report its own, and `-` when none did."""
    return f"{'≥ ' if unpriced else '≈ ' if estimated else ''}${usd:.2f}" if usd else "-"


def token_count(tokens: int, *, estimated: bool = False) -> str:
    return f"{'≈ ' if estimated else ''}{tokens:,}"


def format_usage(tokens: int, usd: float, *, unpriced: bool, estimated: bool) -> str:
    """The tokens and the cost; "" for neither."""
    parts = (
        f"{token_count(tokens, estimated=estimated)} tokens" if tokens else "",
        format_cost(usd, unpriced=unpriced, estimated=estimated) if usd else "cost -" if tokens else "",
    )
    return ", ".join(part for part in parts if part)


# --- is it stuck? -------------------------------------------------------------------------------------

LEVELS = {"fine": "Running", "slow": "Slow", "look": "Needs attention"}  #: how much a person is needed, least first
LONG_S = 30 * 60.0  #: a step this long is never fine
MANY_RETRIES = 2  #: nor are this many retries
QUIET_S = 5 * 60.0  #: an agent without output for this long is slow
SILENT_S = 15 * 60.0  #: and a person should look at it after this long
OVERSLEPT_S = 5 * 60.0  #: a wait that ends this late has failed to end


def assess_progress(work: Work, facts: PlanFacts, *, now: datetime, zone: tzinfo | None = None) -> dict[str, str]:
    """A level for scripts and a sentence; never `fine` after half an hour in a step or two retries."""
    # A wait for a person needs no process.
    is_free = facts.in_fleet and not facts.owner  # a host takes it, at the latest when its wait ends
    interrupted = not (facts.alive or is_free or (wait_of(work.waiting_for).is_for_person and work.wake is None))
    level = "look" if interrupted or facts.stopped else _stuck_level(work, now)
    step = f"{work.step} {', '.join(work.gates)}" if work.gates else work.step
    is_planning = work.step in PLANNING_STEPS
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
        elif work.waiting_for or span != in_words(_seconds_ago(work.since, now)):
            parts.append(f"{', '.join(work.gates) or work.step or 'command'} running {span}")
        parts.append(f"last output {in_words(_seconds_ago(work.output, now))} ago" if work.output else "no output yet")
    parts += _describe_wait(work, now, zone)
    if work.retries:
        parts.append(counted(work.retries, "retry", "retries"))
    asked = facts.run.asked if facts.run else None
    verdict = LEVELS[level]
    if asked and level == "fine":
        verdict = {"stop": "Stopping", "pause": "Pausing"}[asked]
    elif asked:
        parts.append(f"a {asked} was requested")
    elif level == "fine" and (work.waiting_for or is_free):
        verdict = "Paused" if wait_of(work.waiting_for).is_asked else "Waiting"
    return {"level": level, "sentence": f"{verdict}: {', '.join(parts)}"}


def _stuck_level(work: Work, now: datetime) -> str:
    is_long = max(_seconds_ago(moment, now) for moment in (work.since, work.began, work.dispatched)) >= LONG_S
    many = work.retries >= MANY_RETRIES
    quiet_s = 0.0
    if wait_of(work.waiting_for).is_asked:
        return "fine"
    if work.waiting_for:
        needs_look = wait_of(work.waiting_for).is_for_person or _seconds_ago(work.wake, now) >= OVERSLEPT_S
    else:
        quiet_s = _seconds_ago(work.output or work.dispatched, now)
        needs_look = (is_long and (many or not work.dispatched)) or quiet_s >= SILENT_S
    return "look" if needs_look else "slow" if is_long or many or quiet_s >= QUIET_S else "fine"


def _seconds_ago(moment: str | None, now: datetime) -> float:
    return max((now - parse_iso(moment)).total_seconds(), 0.0) if moment else 0.0


def _describe_wait(work: Work, now: datetime, zone: tzinfo | None) -> list[str]:
    if not work.waiting_for:
        return []
    span = in_words(_seconds_ago(work.since, now))
    if work.waiting_for == WaitKind.PAUSED:
        return [f"for {span}{(work.about or '').removeprefix('paused')}"]
    parts = [f"waiting {span}: {work.about}" if work.about else f"waiting {span} for {work.waiting_for}"]
    if (late_s := _seconds_ago(work.wake, now)) >= OVERSLEPT_S:
        parts.append(f"should have continued {in_words(late_s)} ago")
    elif work.wake:
        wake = parse_iso(work.wake)
        until = f"{wait_of(work.waiting_for).until} {clock(wake, zone, now=now)}"
        parts.append(f"{until} ({in_words((wake - now).total_seconds())})")
    return parts


def as_json(value: object, indent: int | None = 2) -> str:
    """A view as JSON. Not by msgspec.json: a text need not be valid Unicode, and json escapes it."""
    return escaped(json.dumps(to_builtins(value), ensure_ascii=False, indent=indent))


# --- schedules ----------------------------------------------------------------------------------------


def schedule_view(row: ScheduleRow, now: datetime) -> dict[str, str | bool | None]:
    """The schedule of a plan; `next` is null when this machine cannot compute it."""
    following, is_due = next_slot(row, now)
    return {
        "spec": f"every {row.spec}",
        "next": iso(following) if following else None,
        "zone": row.zone,
        "moved": describe_delay(row.spec, row.plan) if following else "",
        "paused": row.paused,
        "due": is_due,
    }


def describe_schedule(schedule: Mapping[str, Any], *, now: datetime) -> str:
    """`every 4h, next 20:30 CET (in 2h 15m)` in the schedule's zone, or why not."""
    if schedule["next"] is None:  # as of an unknown zone
        when = "next time unknown on this machine"
    else:
        moment = datetime.fromisoformat(schedule["next"])
        span = in_words((moment - now).total_seconds())
        moved = f"; {schedule['moved']}" if schedule["moved"] else ""
        when = f"next {clock(moment, zone_of(schedule['zone']), now=now)} (in {span}{moved})"
    if why := schedule["paused"]:
        return f"{schedule['spec']}, {why if why.startswith('paused') else f'paused: {why}'}; otherwise {when}"
    return f"{schedule['spec']}, {'due now, then ' if schedule['due'] else ''}{when}"
