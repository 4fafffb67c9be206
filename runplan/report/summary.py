"""Sums up the phases of a plan from its journal: results, tests, and the time, tokens and cost of its agents.

A crash changes these figures, so they are shown by `runplan report` and are not part of the landed report.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from runplan.plan.marks import Status
from runplan.report.text import code, inline, row
from runplan.run import events as e
from runplan.run.rows import UNFINISHED
from runplan.text import command, elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.plan.model import Phase, Plan
    from runplan.run.rows import RunRow
    from runplan.store.sqlite import Store

SHORT = 7  #: digits of a commit
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

    @property
    def spent(self) -> Spent:
        total = Spent()
        for phase in self.phases:
            total = total.plus(phase.spent)
        return total

    def of(self, *states: str) -> list[PhaseSummary]:
        return [phase for phase in self.phases if phase.state in states]


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
                after = replace(before, before=_counts(one.event.results))
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


def _counts(results: str) -> str:
    found = json.loads(results) if results else {}
    passed = found.get("passed")
    return "" if passed is None else f"{passed} passed, {found.get('failed') or 0} failed"


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
    is_active = newest is not None and newest.state in UNFINISHED
    if newest is not None and is_active and newest.phase == one.id and newest.state != "running":
        verb = _ANSWERS.get(newest.waiting_for or "")
        words = f"waits for {newest.waiting_for or 'its turn'}" + (f": {newest.about}" if newest.about else "")
        if verb is None:
            return replace(one, state="running", why=words, command=command("runplan", "status", path))
        return replace(one, state="waiting", why=words, command=command("runplan", verb, path))
    if one.state == "running":
        if newest is not None and is_active and newest.id == one.run:
            return replace(one, why="in progress", command=command("runplan", "status", path))
        return replace(one, state="stopped", why="its run has ended", command=command("runplan", "retry", path))
    return replace(one, command=command("runplan", "retry", path)) if one.state == "failed" else one


# --- as Markdown ----------------------------------------------------------------------------------------


def summary_section(summary: PlanSummary) -> str:
    """The section that `runplan report` puts on top of the landed report."""
    done = len(summary.of("done"))
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
        f"**Done:** {done} of {len(summary.phases)} phases. Agents took {summary.spent.words}.",
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
