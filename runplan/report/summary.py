"""Sums up the phases of a plan, and the news of all repositories, from the journals.

Time, tokens and cost differ after a crash, so `runplan report` shows them, and the landed report has none.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from runplan.errors import RunplanError
from runplan.plan.marks import Status
from runplan.report.notices import Notice
from runplan.report.sections import SHORT, counts
from runplan.report.text import code, inline, row
from runplan.run import events as e
from runplan.run.rows import UNFINISHED
from runplan.store.sqlite import Store
from runplan.text import command, elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from runplan.plan.model import Phase, Plan
    from runplan.run.rows import RunRow

COMMAND = command("runplan", "report", "--since", "yesterday")
#: States of a phase that a person has to do something about.
_OPEN = ("waiting", "stopped")
KINDS = (e.Leased, e.BaselineKnown, e.DispatchEnded, e.GateJudged, e.PhaseFailed, e.Landed)
#: The verb that helps when a run waits for a person; the others wait for a time.
_ANSWERS = {"approval": "diff", "sign-off": "diff", "checkout": "explain", "paused": "resume", "key": "resume"}


class Spent(Struct, frozen=True, kw_only=True):
    """The use of agents."""

    seconds: float = 0.0
    tokens: int = 0
    usd: float = 0.0
    unpriced: bool = False  #: an agent reported tokens but no cost

    def plus(self, other: Spent) -> Spent:
        return Spent(
            seconds=self.seconds + other.seconds,
            tokens=self.tokens + other.tokens,
            usd=self.usd + other.usd,
            unpriced=self.unpriced or other.unpriced,
        )

    @property
    def cost(self) -> str:
        if not self.usd:
            return "-"
        return f"{'≥ ' if self.unpriced else ''}${self.usd:.2f}"

    @property
    def words(self) -> str:
        tokens = f"{self.tokens:,} tokens" if self.tokens else ""
        return ", ".join(part for part in (elapsed(self.seconds), tokens, self.cost.strip("-")) if part)


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


class PlanSummary(Struct, frozen=True, kw_only=True):
    plan: str
    title: str
    phases: tuple[PhaseSummary, ...]


def _total(phases: Iterable[PhaseSummary]) -> Spent:
    return functools.reduce(Spent.plus, (phase.spent for phase in phases), Spent())


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
        if not name:
            continue
        before = found.get(name) or PhaseSummary(id=name)
        match one.event:
            case e.Leased():
                current[strand] = name
                attempts = before.attempts + 1
                after = replace(before, state="running", run=one.run, attempts=attempts, before="", after="", why="")
            case e.DispatchEnded(agent=agent) as ended:
                is_new = agent and one.at >= since
                after = replace(before, spent=before.spent.plus(_spent(ended))) if is_new else before
            case e.BaselineKnown(name=e.TESTS):
                after = replace(before, before=counts(one.event.results))
            case e.GateJudged(name=e.TESTS):
                after = replace(before, after="skipped" if one.event.answer == "skipped" else one.event.line)
            case e.BaselineKnown() | e.GateJudged():
                after = before
            case e.PhaseFailed():
                why = f"{one.event.reason} at {one.event.step}"
                title = one.event.title or before.title
                after = replace(before, state="failed", run=one.run, at=one.at, why=why, title=title)
            case _:  # an undo lands without an attempt
                state = "done" if name == worked else "undone"
                after = replace(before, state=state, at=one.at, commit=one.event.code[:SHORT])
        found[name] = after
    return found


def _spent(ended: e.DispatchEnded) -> Spent:
    tokens = ended.input_tokens + ended.output_tokens
    return Spent(seconds=ended.seconds, tokens=tokens, usd=ended.usd, unpriced=bool(tokens and not ended.usd))


# --- with the plan --------------------------------------------------------------------------------------


def summary_of(path: str, plan: Plan | None, newest: RunRow | None, found: dict[str, PhaseSummary]) -> PlanSummary:
    """The phases in the order of the plan; `plan` is None when it is gone or cannot be parsed."""
    if plan is None:
        return PlanSummary(plan=path, title=path, phases=tuple(_open(path, one, newest) for one in found.values()))
    return PlanSummary(plan=path, title=plan.title, phases=tuple(_phases(plan, newest, found)))


def _phases(plan: Plan, newest: RunRow | None, found: dict[str, PhaseSummary]) -> Iterator[PhaseSummary]:
    done = {phase.id for phase in plan.phases if phase.status is Status.DONE}
    for phase in plan.phases:
        one = replace(found.get(phase.id) or PhaseSummary(id=phase.id), title=phase.title)
        if phase.id in done:
            yield replace(one, state="done", commit=phase.commit or one.commit, why="")
        else:
            yield _open(plan.path, _planned(plan.path, phase, one, done), newest)


def _planned(path: str, phase: Phase, one: PhaseSummary, done: set[str]) -> PhaseSummary:
    """A phase that the plan shows as not done."""
    if one.state in ("running", "failed"):
        return one
    if phase.status is Status.BLOCKED:
        return replace(one, state="blocked", why="the plan marks it as blocked")
    waits = [other for other in phase.depends if other not in done]
    if waits:
        return replace(one, state="todo", why=f"after {', '.join(waits)}")
    return replace(one, state="todo", why="not started", command=command("runplan", "start", path, phase.id))


def _open(path: str, one: PhaseSummary, newest: RunRow | None) -> PhaseSummary:
    """The phase with the state of the newest run."""
    active = newest if newest is not None and newest.state in UNFINISHED else None
    if active is not None and active.phase == one.id and active.state != "running":
        verb = _ANSWERS.get(active.waiting_for or "")
        words = f"waits for {active.waiting_for or 'its turn'}" + (f": {active.about}" if active.about else "")
        state = "waiting" if verb else "running"
        return replace(one, state=state, why=words, command=command("runplan", verb or "status", path))
    if one.state == "running" and active is not None and active.id == one.run:
        return replace(one, why="in progress", command=command("runplan", "status", path))
    if one.state == "running":
        return replace(one, state="stopped", why="its run has ended", command=command("runplan", "retry", path))
    return replace(one, command=command("runplan", "retry", path)) if one.state == "failed" else one


# --- as Markdown ----------------------------------------------------------------------------------------


def summary_section(summary: PlanSummary) -> str:
    """The section that `runplan report` puts on top of the landed report."""
    done = sum(phase.state == "done" for phase in summary.phases)
    rows = [row("Phase", "State", "Commit", "Tests", "Attempts", "Time", "Tokens", "Cost"), f"|{'---|' * 8}"]
    for phase in summary.phases:
        spent = phase.spent
        cells = (
            inline(f"{phase.id} {phase.title}"),
            phase.state,
            code(phase.commit) if phase.commit else "",
            inline(tests_of(phase)),
            str(phase.attempts or ""),
            elapsed(spent.seconds) if spent.seconds else "",
            f"{spent.tokens:,}" if spent.tokens else "",
            spent.cost if spent.tokens or spent.usd else "",
        )
        rows.append(row(*cells))
    parts = [
        "## Summary",
        f"**Done:** {done} of {len(summary.phases)} phases. Agents took {_total(summary.phases).words}.",
        "\n".join(rows),
    ]
    left = [f"- {not_done(phase)}" for phase in summary.phases if phase.state != "done"]
    return "\n\n".join([*parts, *(["**Not done:**", "\n".join(left)] if left else [])]) + "\n"


def tests_of(phase: PhaseSummary) -> str:
    """The tests before and after."""
    return " → ".join(part for part in (phase.before, phase.after) if part)


def not_done(phase: PhaseSummary) -> str:
    """A line of a list: why the phase is not done, and the command that helps."""
    name = inline(f"{phase.id} {phase.title}".rstrip())
    state = f"{phase.state}, " if phase.state in ("failed", "blocked", "stopped", "undone") else ""
    helps = f": {code(phase.command)}" if phase.command else ""
    return f"Phase {name}: {state}{inline(phase.why)}{helps}"


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
    try:
        with contextlib.closing(Store(state, writable=False)) as store:
            plans = tuple(one for plan in _touched(store, since) if (one := _plan(store, plan, since)).phases)
            paused = tuple((row.plan, row.paused) for row in store.schedules.all() if row.paused)
            return RepositoryNews(repository=root, plans=plans, paused=paused)
    except (RunplanError, OSError) as error:
        return RepositoryNews(repository=root, error=str(error))


def _touched(store: Store, since: str) -> list[str]:
    """The plans with a landing, a failure or an ended agent since then, and those with an unfinished run."""
    query = "SELECT DISTINCT plan FROM events WHERE type IN ('Landed', 'PhaseFailed', 'DispatchEnded') AND at >= ?"
    return sorted({*(plan for (plan,) in store.query(query, since)), *(row.plan for row in store.unfinished())})


def _plan(store: Store, plan: str, since: str) -> PlanSummary:
    newest = store.newest(plan)
    found = attempted(recorded(store, plan), since=since)
    if newest is not None and newest.state in UNFINISHED and newest.phase and newest.phase not in found:
        found[newest.phase] = PhaseSummary(id=newest.phase)
    read = "SELECT json_extract(body, '$.phase'), json_extract(body, '$.title') FROM events WHERE plan=? AND type=?"
    titles = dict(store.query(f"{read} ORDER BY seq", plan, "PlanRead"))
    whole = summary_of(plan, None, newest, found)
    title = store.started(newest.id).get("title") or plan if newest is not None else plan
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
            lines = (f"- {line}" for phase in plan.phases for line in _lines(phase))
            parts += [f"### {inline(f'{plan.title} ({plan.plan})')}", "\n".join(lines)]
        lines = (
            f"- Schedule of {code(plan)} is paused: {inline(why)}: {code(command('runplan', 'resume', plan))}"
            for plan, why in one.paused
        )
        parts += ["\n".join(lines)] if one.paused else []
    return "\n\n".join(parts) + "\n"


def _lines(phase: PhaseSummary) -> Iterator[str]:
    name = f"{phase.id} {phase.title}".rstrip()
    used = phase.spent.words if phase.spent != Spent() else ""
    if phase.state not in ("done", "undone"):
        yield not_done(phase) + (f" ({used})" if used else "")
        return
    word = "Landed" if phase.state == "done" else "Undone"
    details = ", ".join(part for part in (inline(tests_of(phase)), used) if part)
    yield f"{word}: {inline(name)}, {code(phase.commit)}" + (f", {details}" if details else "")


def counted(news: Iterable[RepositoryNews]) -> str:
    """One line: how many phases landed, failed and wait, and what the agents used."""
    phases = [phase for one in news for plan in one.plans for phase in plan.phases]
    names = {"landed": ("done",), "failed": ("failed",), "waiting for you": _OPEN, "running": ("running",)}
    counts = {name: sum(phase.state in states for phase in phases) for name, states in names.items()}
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    total = _total(phases)
    used = f"; agents took {total.words}" if total != Spent() else ""
    return f"Phases: {words}{used}" if words else "Nothing landed, failed or waits for you"


def of_morning(news: Sequence[RepositoryNews]) -> Notice | None:
    """The notice of the day; None when nothing happened and nothing waits."""
    if not news:
        return None
    names = ", ".join(one.repository.rstrip("/").rpartition("/")[2] for one in news)
    return Notice(kind="morning", title=f"runplan: {counted(news)}", text=f"Repositories: {names}.", command=COMMAND)
