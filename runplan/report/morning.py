"""The report over all repositories of a user since a moment: what landed, what did not, and what waits for a person."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.errors import RunplanError
from runplan.report.notices import Notice
from runplan.report.summary import PhaseSummary, PlanSummary, Spent, attempted, not_done, recorded, summary_of, tests_of
from runplan.report.text import code, inline
from runplan.run.rows import UNFINISHED
from runplan.store.sqlite import Store
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

COMMAND = command("runplan", "report", "--since", "yesterday")
#: States of a phase that a person has to do something about.
_OPEN = ("waiting", "stopped")


class RepositoryNews(Struct, frozen=True, kw_only=True):
    repository: str  #: its root
    plans: tuple[PlanSummary, ...] = ()
    paused: tuple[tuple[str, str], ...] = ()  #: plans with a paused schedule, and why
    error: str = ""  #: why its journal cannot be read


# --- from the journals ----------------------------------------------------------------------------------


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


# --- as text --------------------------------------------------------------------------------------------


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
    total = Spent()
    for phase in phases:
        total = total.plus(phase.spent)
    used = f"; agents took {total.words}" if total != Spent() else ""
    return f"Phases: {words}{used}" if words else "Nothing landed, failed or waits for you"


def of_morning(news: Sequence[RepositoryNews]) -> Notice | None:
    """The notice of the day; None when nothing happened and nothing waits."""
    if not news:
        return None
    names = ", ".join(one.repository.rstrip("/").rpartition("/")[2] for one in news)
    return Notice(kind="morning", title=f"runplan: {counted(news)}", text=f"Repositories: {names}.", command=COMMAND)
