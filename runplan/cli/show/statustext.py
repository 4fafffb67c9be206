"""What is shown of plans and runs, for people: a block for each plan, and one line for each run in flight."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runplan.run.rows import UNFINISHED
from runplan.text import command

if TYPE_CHECKING:
    from datetime import tzinfo

WORDS = {"done": "Done", "todo": "Todo", "in-progress": "In progress", "blocked": "Blocked"}
HEADINGS = ("PLAN", "PHASE", "STEP", "AGENT", "SINCE", "RUNNING", "OUTPUT", "RETRIES", "TOKENS", "COST", "NEXT")


def block(view: dict[str, Any], *, now: datetime, zone: tzinfo) -> str:
    """One plan: its phases, its run, its schedule, and last the answer to whether the run is stuck."""
    lines = [f"{view['title']}  ({view['plan']}, {view['status']})" if view["phases"] else str(view["error"])]
    width = max((len(phase["id"]) for phase in view["phases"]), default=0)
    lines += [
        f"  {phase['id']:<{width}}  {_standing(phase, view['next']):<24}  {phase['title']}" for phase in view["phases"]
    ]
    run = view["run"]
    if run is not None:
        lines.append(f"  {_running(view, now)}")
        lines += [f"    phase {lane['phase']}: {_doing(lane)}" for lane in run["lanes"]]
        if used := _used(run):
            lines.append(f"  so far: {used}")
    if view["schedule"] is not None:
        lines.append(f"  {scheduled(view['schedule'], now=now, zone=zone)}")
    if run is not None and run["stuck"]:
        lines.append(f"  {run['stuck']['sentence']}")
    return "\n".join(lines)


def _standing(phase: dict[str, Any], following: str | None) -> str:
    if phase["status"] == "done":
        return f"Done ({phase['commit']})" if phase["commit"] else "Done"
    if phase["status"] == "todo" and phase["blocked_by"]:
        return f"Blocked (needs {', '.join(phase['blocked_by'])})"
    return WORDS[phase["status"]] + (" <- next" if phase["id"] == following and phase["status"] == "todo" else "")


def _running(view: dict[str, Any], now: datetime) -> str:
    run = view["run"]
    if run["state"] in UNFINISHED:
        where = _where(run)
        if run["asked"] == "stop":
            return f"run {run['id']}: stopping ({where}, since {run['since']})"
        if run["wake"] and run["waiting_for"]:
            return f"run {run['id']}: waiting until {_moment(run['wake'], now)} ({run['about']}; {where})"
        if run["waiting_for"]:
            return f"run {run['id']}: {_waiting(run)} ({where}, since {run['since']}); {_help(view)}"
        if _interrupted(view):
            return f"run {run['id']}: interrupted at {where} ({run['since']}); start the plan again to go on"
        then = "; pauses after that" if run["asked"] == "pause" else ""
        if run["lanes"]:
            return f"run {run['id']}: {where}{then}"
        doing = f"phase {run['phase']}, {_doing(run)}" if run["phase"] else f"{where}, since {run['since']}"
        return f"run {run['id']}: {doing}{then}"
    why = f": {run['reason']}" if run["reason"] not in (None, run["state"]) else ""
    more = f"; see: {command('runplan', 'report', view['plan'])}" if run["state"] in ("failed", "stopped") else ""
    return f"last run {run['id']}: {run['state']}{why} ({run['since']}){more}"


def _interrupted(view: dict[str, Any]) -> bool:
    """Whether nobody is there who would go on with it; who waits needs nobody."""
    return not view["run"]["waiting_for"] and not (view["claim"] and view["claim"]["alive"])


def _waiting(run: dict[str, Any]) -> str:
    match run["waiting_for"]:
        case "paused" | "key" as what:
            return str(run["about"] or what)
        case "slot":
            return "waiting for its turn"
        case what:
            return f"waiting for {what}"


def _where(run: dict[str, Any]) -> str:
    beside = [lane["phase"] for lane in run["lanes"] if not lane["failed"]]
    if len(beside) > 1:
        return f"phases {', '.join(beside)} side by side"
    return f"phase {run['phase']}, {run['step']}" if run["phase"] else "between phases"


def _doing(run: dict[str, Any]) -> str:
    """What is done for a phase, by whom, since when."""
    if run.get("failed"):
        return f"failed ({run['failed']}), so nothing new begins"
    if run.get("wake") and run.get("waiting_for"):
        return f"waiting until {run['wake'][11:16]} UTC ({run['about']})"
    by = f" by {_agent(run)}" if run["agent"] else ""
    armed = f"; context {run['context']} %, hand-over armed" if run["handover"] else ""
    return f"{run['step'] or 'between steps'}{by}, since {run['since']}{armed}"


def _moment(wake: str, now: datetime) -> str:
    """The time of day, with its date where that is not today."""
    today = now.strftime("%Y-%m-%d")
    return f"{wake[11:16]} UTC" if wake.startswith(today) else f"{wake[:10]} {wake[11:16]} UTC"


def _help(view: dict[str, Any]) -> str:
    match view["run"]["waiting_for"]:
        case "approval":
            diff, approve = (command("runplan", verb, view["plan"]) for verb in ("diff", "approve"))
            return f"to see it: {diff}; to land it: {approve}"
        case "key":
            return f"from a shell that has it: {command('runplan', 'resume', view['plan'])}"
        case "paused":
            return f"to let it go on: {command('runplan', 'resume', view['plan'])}"
        case _:
            return f"see: {command('runplan', 'explain', view['plan'])}"


def _agent(run: dict[str, Any]) -> str:
    return f"{run['agent']} {run['version']}" if run["version"] else str(run["agent"] or "")


def _used(run: dict[str, Any]) -> str:
    told = [f"attempt {run['attempt']}" if run["attempt"] > 1 else "", f"{run['retries']} retries"]
    told[1] = {0: "", 1: "1 retry"}.get(run["retries"] or 0, told[1])
    told += [f"{short(run['tokens'])} tokens" if run["tokens"] else "", f"${run['usd']:.2f}" if run["usd"] else ""]
    return ", ".join(part for part in told if part)


def short(count: int) -> str:
    """A number as people read it: 950, 12.3k, 4.6M."""
    if count < 1000:
        return str(count)
    size, unit = (1e3, "k") if count < 999_950 else (1e6, "M")
    return f"{count / size:.1f}".removesuffix(".0") + unit


def scheduled(schedule: dict[str, Any], *, now: datetime, zone: tzinfo) -> str:
    """`every 4h  next 20:30 CET in 2h 15m`, or why not."""
    from runplan.text import clock, in_words

    if schedule["next"] is None:
        when = "when, cannot be told here"
    else:
        moment = datetime.fromisoformat(schedule["next"])
        when = f"{clock(moment, zone, now=now)} in {in_words((moment - now).total_seconds())}"
    if schedule["paused"]:
        return f"{schedule['spec']}  paused: {schedule['paused']}; else next {when}"
    due = "due now, then " if schedule["due"] else ""
    return f"{schedule['spec']}  {due}next {when}"


# --- the table ----------------------------------------------------------------------------------------


def overview(views: list[dict[str, Any]], *, now: datetime) -> list[str]:
    """What every run in flight is doing now, as one table; none when nothing is in flight."""
    going = (view for view in views if view["run"] is not None and view["run"]["stuck"])
    rows = [_row(view, at_work, now) for view in going for at_work in (view["run"]["lanes"] or [view["run"]])]
    if not rows:
        return []
    widths = [max(len(row[column]) for row in (HEADINGS, *rows)) for column in range(len(HEADINGS))]
    lines = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in (HEADINGS, *rows)
    )
    return ["\n".join(line.rstrip() for line in lines)]


def _row(view: dict[str, Any], run: dict[str, Any], now: datetime) -> tuple[str, ...]:
    """A run, or one of the phases that it works side by side."""
    return (
        view["plan"],
        run["phase"] or "-",
        _step(view, run),
        _agent(run) or "-",
        _age(run["since"], now),
        _age(run["dispatched"], now),
        _age(run["output"], now),
        str(run["retries"] or 0),
        short(run["tokens"] or 0),
        f"${run['usd'] or 0.0:.2f}",
        _wake(view, now),
    )


def _step(view: dict[str, Any], run: dict[str, Any]) -> str:
    """In one word."""
    if run.get("failed"):
        return "failed"
    if view["run"]["asked"] == "stop":
        return "stopping"
    return "interrupted" if _interrupted(view) else str(view["run"]["waiting_for"] or run["step"] or "-")


def _age(since: str | None, now: datetime) -> str:
    from runplan.text import in_words

    return in_words((now - datetime.fromisoformat(since)).total_seconds()) if since else "-"


def _wake(view: dict[str, Any], now: datetime) -> str:
    """When something happens by itself: the run goes on, or the schedule fires."""
    from runplan.text import in_words

    schedule = view["schedule"]
    wake = view["run"]["wake"] or (schedule["next"] if schedule and not schedule["paused"] else None)
    if wake is None:
        return "-"
    left = (datetime.fromisoformat(wake).astimezone(UTC) - now).total_seconds()
    return f"in {in_words(left)}" if left > 0 else "due"
