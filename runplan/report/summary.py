"""Sums up the phases of a plan, and the news of all repositories, from the journals.

Time, tokens and cost differ after a crash, so `runplan report` shows them, and the landed report has none.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from runplan.errors import RunplanError
from runplan.plan.marks import Status
from runplan.report.notices import Notice
from runplan.report.sections import SHORT, counts
from runplan.report.text import code, inline, row
from runplan.report.views import cost, usage
from runplan.run import events as e
from runplan.run.rows import wait_of
from runplan.store.sqlite import Store
from runplan.text import command, elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from runplan.plan.model import Phase, Plan
    from runplan.run.rows import RunRow

_OPEN = ("waiting", "stopped")  #: states of a phase that a person has to do something about
KINDS = (e.Leased, e.BaselineKnown, e.DispatchEnded, e.GateJudged, e.PhaseFailed, e.Landed)


class Spent(Struct, frozen=True, kw_only=True):
    """The use of agents."""

    seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0
    unpriced: bool = False  #: an agent reported tokens but no cost

    @property
    def cost(self) -> str:
        return cost(self.usd, unpriced=self.unpriced)

    @property
    def words(self) -> str:
        used = usage(self.tokens, self.usd, unpriced=self.unpriced)
        return ", ".join(part for part in (elapsed(self.seconds), used) if part)


def total(*parts: Spent) -> Spent:
    return Spent(
        seconds=sum(one.seconds for one in parts),
        tokens=sum(one.tokens for one in parts),
        usd=sum(one.usd for one in parts),
        unpriced=any(one.unpriced for one in parts),
    )


class PhaseSummary(Struct, frozen=True, kw_only=True):
    id: str
    title: str = ""
    state: str = "todo"  #: todo, blocked, running, waiting, stopped, failed, done, undone
    run: str = ""  #: of the newest attempt
    commit: str = ""  #: the last landed code commit
    at: str = ""  #: time of the landing or failure
    before: str = ""  #: tests on the base
    after: str = ""  #: tests on the result
    attempts: int = 0
    spent: Spent = Spent()
    why: str = ""  #: why it is not done
    command: str = ""  #: the next step of a person

    @property
    def name(self) -> str:
        return inline(f"{self.id} {self.title}".rstrip())

    @property
    def tests(self) -> str:
        """Before and after."""
        return inline(" → ".join(part for part in (self.before, self.after) if part))


class PlanSummary(Struct, frozen=True, kw_only=True):
    plan: str
    title: str
    phases: tuple[PhaseSummary, ...]


# --- from the journal -----------------------------------------------------------------------------------


def recorded(store: Store, plan: str) -> list[e.Recorded[Any]]:
    """The events of the plan that a summary needs, oldest first."""
    return sorted((one for kind in KINDS for one in store.facts(kind, plan=plan)), key=lambda one: one.seq)


def attempted(records: Iterable[e.Recorded[Any]], *, since: str = "") -> dict[str, PhaseSummary]:
    """The phases that were attempted; only agents that ended from `since` on count as spent."""
    found: dict[str, PhaseSummary] = {}
    current: dict[tuple[str, str], str] = {}  #: phase by run and lane
    for one in records:
        strand = (one.run, one.event.lane)
        worked = current.get(strand, "")
        name = getattr(one.event, "phase", "") or worked
        if name:
            if isinstance(one.event, e.Leased):
                current[strand] = name
            found[name] = _after(found.get(name) or PhaseSummary(id=name), one, worked, since)
    return found


def _after(phase: PhaseSummary, one: e.Recorded[Any], worked: str, since: str) -> PhaseSummary:
    """The phase after one more event of a run that works on the phase `worked`."""
    match one.event:
        case e.Leased():
            attempts = phase.attempts + 1
            return replace(phase, state="running", run=one.run, attempts=attempts, before="", after="", why="")
        case e.DispatchEnded(agent=agent) as ended if agent and one.at >= since:
            tokens = ended.input_tokens + ended.output_tokens
            unpriced = bool(tokens and not ended.usd)
            used = Spent(seconds=ended.seconds, tokens=tokens, usd=ended.usd, unpriced=unpriced)
            return replace(phase, spent=total(phase.spent, used))
        case e.BaselineKnown(name=e.TESTS):
            return replace(phase, before=counts(one.event.results))
        case e.GateJudged(name=e.TESTS):
            return replace(phase, after="skipped" if one.event.answer == "skipped" else one.event.line)
        case e.PhaseFailed(reason=reason, step=step, title=title):
            why, title = f"{reason} at {step}", title or phase.title
            return replace(phase, state="failed", run=one.run, at=one.at, why=why, title=title)
        case e.Landed():
            state = "done" if phase.id == worked else "undone"  # an undo lands without an attempt
            return replace(phase, state=state, at=one.at, commit=one.event.code[:SHORT])
        case _:
            return phase


# --- with the plan --------------------------------------------------------------------------------------


def summary_of(path: str, plan: Plan | None, newest: RunRow | None, found: dict[str, PhaseSummary]) -> PlanSummary:
    """The phases in the order of the plan; `plan` is None when it is gone or cannot be parsed."""
    title, phases = path, list(found.values())
    if plan is not None:
        done = {phase.id for phase in plan.phases if phase.status is Status.DONE}
        title, phases = plan.title, [_planned(path, phase, found, done) for phase in plan.phases]
    return PlanSummary(plan=path, title=title, phases=tuple(_with_run(path, one, newest) for one in phases))


def _planned(path: str, phase: Phase, found: dict[str, PhaseSummary], done: set[str]) -> PhaseSummary:
    """The phase with its title and its status in the plan."""
    one = replace(found.get(phase.id) or PhaseSummary(id=phase.id), title=phase.title)
    waits = [other for other in phase.depends if other not in done]
    if phase.id in done:
        return replace(one, state="done", commit=phase.commit or one.commit, why="")
    if one.state in ("running", "failed"):
        return one
    if phase.status is Status.BLOCKED:
        return replace(one, state="blocked", why="the plan marks it as blocked")
    if waits:
        return replace(one, state="todo", why=f"after {', '.join(waits)}")
    return replace(one, state="todo", why="not started", command=command("runplan", "start", path, phase.id))


def _with_run(path: str, one: PhaseSummary, newest: RunRow | None) -> PhaseSummary:
    """The phase with the state of the newest run."""
    active = newest if newest is not None and newest.is_active else None
    if one.state == "done":
        return one
    if active is not None and active.phase == one.id and active.state != "running":
        wait = wait_of(active.waiting_for)
        words = f"waits for {active.waiting_for or 'its turn'}" + (f": {active.about}" if active.about else "")
        state, verb = ("waiting", wait.verb) if wait.is_for_person else ("running", "status")
        return replace(one, state=state, why=words, command=command("runplan", verb, path))
    if one.state == "running" and active is not None and active.id == one.run:
        return replace(one, why="in progress", command=command("runplan", "status", path))
    if one.state == "running":
        return replace(one, state="stopped", why="its run has ended", command=command("runplan", "retry", path))
    return replace(one, command=command("runplan", "retry", path)) if one.state == "failed" else one


# --- as Markdown ----------------------------------------------------------------------------------------


def summary_section(summary: PlanSummary) -> str:
    """The section that `runplan report` puts on top of the landed report."""
    done = sum(phase.state == "done" for phase in summary.phases)
    used = total(*(phase.spent for phase in summary.phases))
    rows = [row("Phase", "State", "Commit", "Tests", "Attempts", "Time", "Tokens", "Cost"), f"|{'---|' * 8}"]
    for phase in summary.phases:
        spent = phase.spent
        cells = (
            phase.name,
            phase.state,
            code(phase.commit) if phase.commit else "",
            phase.tests,
            str(phase.attempts or ""),
            elapsed(spent.seconds) if spent.seconds else "",
            f"{spent.tokens:,}" if spent.tokens else "",
            spent.cost if spent.tokens or spent.usd else "",
        )
        rows.append(row(*cells))
    parts = [
        "## Summary",
        f"**Done:** {done} of {len(summary.phases)} phases. Agents took {used.words}.",
        "\n".join(rows),
    ]
    left = [f"- {_not_done(phase)}" for phase in summary.phases if phase.state != "done"]
    return "\n\n".join([*parts, *(["**Not done:**", "\n".join(left)] if left else [])]) + "\n"


def _not_done(phase: PhaseSummary) -> str:
    """Why the phase is not done, and the command that helps."""
    state = f"{phase.state}, " if phase.state in ("failed", "blocked", "stopped", "undone") else ""
    helps = f": {code(phase.command)}" if phase.command else ""
    return f"Phase {phase.name}: {state}{inline(phase.why)}{helps}"


# --- the news of all repositories -----------------------------------------------------------------------


class RepositoryNews(Struct, frozen=True, kw_only=True):
    repository: str  #: its root
    plans: tuple[PlanSummary, ...] = ()
    paused: tuple[tuple[str, str], ...] = ()  #: plans with a paused schedule, and why
    error: str = ""  #: why its journal cannot be read


def news_of(states: Mapping[str, Path], *, since: str) -> list[RepositoryNews]:
    """The news of the repositories with these journals, without those that have none."""
    found = [_repository(root, state, since) for root, state in sorted(states.items()) if Store.exists(state)]
    return [one for one in found if one.plans or one.paused or one.error]


def _repository(root: str, state: Path, since: str) -> RepositoryNews:
    query = "SELECT DISTINCT plan FROM events WHERE type IN ('Landed', 'PhaseFailed', 'DispatchEnded') AND at >= ?"
    try:
        with contextlib.closing(Store(state, writable=False)) as store:
            touched = {*(plan for (plan,) in store.query(query, since)), *(row.plan for row in store.unfinished())}
            plans = tuple(one for plan in sorted(touched) if (one := _plan(store, plan, since)).phases)
            paused = tuple((row.plan, row.paused) for row in store.schedules.all() if row.paused)
            return RepositoryNews(repository=root, plans=plans, paused=paused)
    except (RunplanError, OSError) as error:
        return RepositoryNews(repository=root, error=str(error))


def _plan(store: Store, plan: str, since: str) -> PlanSummary:
    newest = store.newest(plan)
    found = attempted(recorded(store, plan), since=since)
    if newest is not None and newest.is_active and newest.phase:
        found.setdefault(newest.phase, PhaseSummary(id=newest.phase))
    read = "SELECT json_extract(body, '$.phase'), json_extract(body, '$.title') FROM events WHERE plan=? AND type=?"
    titles = dict(store.query(f"{read} ORDER BY seq", plan, "PlanRead"))
    whole = summary_of(plan, None, newest, found)
    title = newest.title if newest is not None and newest.title else plan
    news = [one for one in whole.phases if one.at >= since or one.state in (*_OPEN, "running") or one.spent != Spent()]
    phases = tuple(replace(one, title=titles.get(one.id) or one.title) for one in news)
    return replace(whole, title=title, phases=phases)


def morning_report(news: Sequence[RepositoryNews], *, since: str) -> str:
    """The report as Markdown; `since` in words."""
    parts = [f"# Report since {since}", f"{counted(news)}."]
    for one in news:
        parts.append(f"## {inline(one.repository)}")
        if one.error:
            parts.append(f"Cannot be read: {inline(one.error)}")
        for plan in one.plans:
            lines = (f"- {_line(phase)}" for phase in plan.phases)
            parts += [f"### {inline(f'{plan.title} ({plan.plan})')}", "\n".join(lines)]
        paused = (
            f"- Schedule of {code(plan)} is paused: {inline(why)}: {code(command('runplan', 'resume', plan))}"
            for plan, why in one.paused
        )
        parts += ["\n".join(paused)] if one.paused else []
    return "\n\n".join(parts) + "\n"


def _line(phase: PhaseSummary) -> str:
    used = phase.spent.words if phase.spent != Spent() else ""
    if phase.state not in ("done", "undone"):
        return _not_done(phase) + (f" ({used})" if used else "")
    word = "Landed" if phase.state == "done" else "Undone"
    return ", ".join(part for part in (f"{word}: {phase.name}", code(phase.commit), phase.tests, used) if part)


def counted(news: Iterable[RepositoryNews]) -> str:
    """One line: how many phases landed, failed and wait, and what the agents used."""
    phases = [phase for one in news for plan in one.plans for phase in plan.phases]
    names = {"landed": ("done",), "failed": ("failed",), "waiting for you": _OPEN, "running": ("running",)}
    counts = {name: sum(phase.state in states for phase in phases) for name, states in names.items()}
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    spent = total(*(phase.spent for phase in phases))
    used = f"; agents took {spent.words}" if spent != Spent() else ""
    return f"Phases: {words}{used}" if words else "Nothing landed, failed or waits for you"


def of_morning(news: Sequence[RepositoryNews]) -> Notice | None:
    """The notice of the day; None when nothing happened and nothing waits."""
    if not news:
        return None
    names = ", ".join(one.repository.rstrip("/").rpartition("/")[2] for one in news)
    since = command("runplan", "report", "--since", "yesterday")
    return Notice(kind="morning", title=f"runplan: {counted(news)}", text=f"Repositories: {names}.", command=since)
