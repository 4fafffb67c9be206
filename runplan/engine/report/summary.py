"""Sums up the phases of a plan, and the news of all repositories, from the journals."""

import contextlib
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from runplan.adapters.notify.notices import Notice
from runplan.adapters.store.location import FleetLocation, Location
from runplan.adapters.store.protocol import Store, open_store, store_exists
from runplan.domain.errors import RunplanError
from runplan.domain.plan.marks import Status
from runplan.domain.plan.model import Phase, Plan
from runplan.domain.plan.scan import scan_lines
from runplan.domain.plan.tracker import describe_hindrance, missing_dependencies
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import TrialJudged
from runplan.domain.run.kinds import GateAnswer, Reason, Role, RunOutcome, RunStatus
from runplan.domain.run.recorded import Recorded
from runplan.domain.run.rows import RunRow
from runplan.domain.standing.actions import actions_of_wait, make_action
from runplan.domain.standing.phases import PhaseState, describe_phase, state_of_work
from runplan.domain.standing.usage import AgentUsage, sum_usage
from runplan.domain.text import bounded, command, command_in, counted, elapsed, in_words
from runplan.domain.times import parse_iso
from runplan.engine.landing.description import PhaseProgress, PlanProgress
from runplan.engine.report.sections import LONGEST, SHORT, describe_counts
from runplan.engine.report.text import code_span, escape_inline, table_row

KINDS = (
    *(e.Leased, e.BaselineKnown, e.DispatchStarted, e.DispatchEnded, e.WorkTaken, e.GateJudged, e.VerdictGiven),
    *(TrialJudged, e.PhaseFailed, e.Landed),
)
REPAIR = "pull request"  #: stands for the id of a phase in a repair, which is in no plan
SIZES = (3, 6)  #: the fewest items of a middling and of a large phase
FEWEST_ALIKE = 3  #: phases like one, from which a forecast is made
SHORTEST_SHARED_S = 60.0  #: shares of less time say nothing
#: What shortens a plan, by the part that takes most of its time.
REMEDIES = {
    "agents": "`run.parallel` works on independent phases side by side; `run.pipeline` begins a phase while the one "
    "before it is proven",
    "set-up": "`run.setup_inputs` names the files on which set-up depends, so that it runs again only for them",
    "tests": "a line `Tests:` in a phase narrows its tests",
}
GOALS = ("goal", "goals", "objective", "overview", "summary")  #: headings above the paragraph with the goal
LABEL = "**goal:**"
LONGEST_GOAL = 1000
DOUBTS = ("Problem: ", "Next: ")  #: begin the remarks of an agent that a reviewer has to know
#: The sections of the report of all repositories, in the order in which a person needs them.
SECTIONS = {
    PhaseState.WAITING: "Needs you",
    PhaseState.FAILED: "Failed",
    PhaseState.DONE: "Landed",
    PhaseState.UNDONE: "Undone",
    PhaseState.STOPPED: "Stopped",
    PhaseState.RUNNING: "Running",
}


class PhaseSpending(AgentUsage, frozen=True, kw_only=True):
    seconds: float = 0.0  #: of agents
    setup_seconds: float = 0.0
    test_seconds: float = 0.0
    wall_seconds: float = 0.0  #: from the worktree to the newest event of the attempt, waits included

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part, without those that took none."""
        seconds = {"agents": self.seconds, "set-up": self.setup_seconds, "tests": self.test_seconds}
        return {name: spent for name, spent in seconds.items() if spent}

    @property
    def time_and_use(self) -> str:
        whole = sum(self.parts.values())
        words = [
            f"{name} {elapsed(seconds)}" + (f" = {seconds / whole:.0%}" if seconds < whole >= SHORTEST_SHARED_S else "")
            for name, seconds in self.parts.items()
        ]
        time = elapsed(self.wall_seconds) + (f" ({', '.join(words)})" if words else "")
        return ", ".join(filter(None, [time, self.words]))


class PhaseRecord(Struct, frozen=True, kw_only=True):
    id: str
    title: str = ""
    state: PhaseState = PhaseState.TODO
    run: str = ""  #: of the newest attempt
    commit: str = ""  #: the last landed code commit
    at: str = ""  #: time of the landing or failure
    before: str = ""  #: tests on the base
    after: str = ""  #: tests on the result
    evidence: tuple[tuple[str, bool, str], ...] = ()  #: of the newest verdict: item, passed, evidence
    remarks: tuple[str, ...] = ()  #: of the agent that wrote the work
    trial: tuple[str, ...] = ()  #: the lines of the newest one
    summary: str = ""  #: its own, of the work
    attempts: int = 0
    dispatched: tuple[tuple[str, str], ...] = ()  #: role and agent of each that has ended
    tested: tuple[str, ...] = ()  #: the tree of each run of the tests
    spent: PhaseSpending = PhaseSpending()
    why: str = ""  #: why it is not done
    command: str = ""  #: the next step of a person

    @property
    def name(self) -> str:
        return escape_inline(f"{self.id} {self.title}".rstrip())

    def count_dispatches(self, role: str) -> int:
        return sum(role == of_role for of_role, _ in self.dispatched)

    @property
    def implementer(self) -> str:
        return next((agent for role, agent in self.dispatched if role == Role.IMPLEMENT), "")

    @property
    def label(self) -> str:
        return self.name if self.id == REPAIR else f"phase {self.name}"

    @property
    def tests(self) -> str:
        return escape_inline(" → ".join(part for part in (self.before, self.after) if part))


class PlanSummary(Struct, frozen=True, kw_only=True):
    plan: str
    title: str
    phases: tuple[PhaseRecord, ...]


def summarise_attempts(records: Iterable[Recorded[Any]], *, since: str = "") -> dict[str, PhaseRecord]:
    """The phases that were attempted; only time and agents from `since` on count as spent."""
    phases: dict[str, PhaseRecord] = {}
    current: dict[tuple[str, str], tuple[str, str]] = {}  #: phase, and time of its newest event, by run and lane
    for record in records:
        lane = (record.run, record.event.lane)
        worked, previous = current.get(lane, ("", record.at))
        is_begin = isinstance(record.event, e.Leased)
        name = getattr(record.event, "phase", "") or (REPAIR if is_begin else worked)
        if not name:
            continue
        phase = _apply_fact(phases.get(name) or PhaseRecord(id=name), record, worked, since)
        if is_begin or worked:
            current[lane] = (name if is_begin else worked, record.at)
        if not is_begin and record.at > since:
            wall = parse_iso(record.at) - parse_iso(max(previous, since))
            spent = sum_usage(PhaseSpending, [phase.spent, PhaseSpending(wall_seconds=wall.total_seconds())])
            phase = replace(phase, spent=spent)
        phases[name] = phase
    return phases


def _apply_fact(phase: PhaseRecord, fact: Recorded[Any], worked: str, since: str) -> PhaseRecord:
    match fact.event:
        case e.Leased():
            attempts = phase.attempts + 1
            state = PhaseState.RUNNING
            reset = {"before": "", "after": "", "evidence": (), "remarks": (), "trial": (), "summary": "", "why": ""}
            return replace(phase, state=state, run=fact.run, attempts=attempts, **reset)
        case e.DispatchStarted(role=Role.BASELINE | Role.GATE | Role.PROVE, gates=gates, tree=tree) if e.TESTS in gates:
            return replace(phase, tested=(*phase.tested, tree))
        case e.DispatchEnded() as ended if fact.at >= since:
            spent = PhaseSpending(seconds=ended.seconds, **asdict(ended.usage))
            if ended.role is Role.SETUP:
                spent = PhaseSpending(setup_seconds=ended.seconds)
            elif not ended.agent:
                spent = PhaseSpending(test_seconds=ended.seconds)
            dispatched = (*phase.dispatched, (ended.role, ended.agent)) if ended.agent else phase.dispatched
            return replace(phase, spent=sum_usage(PhaseSpending, [phase.spent, spent]), dispatched=dispatched)
        case e.WorkTaken(remarks=remarks, summary=summary):
            return replace(phase, remarks=tuple(remarks.describe()), summary=summary or phase.summary)
        case TrialJudged() as trial:
            return replace(phase, trial=tuple(trial.describe()))
        case e.BaselineKnown(name=e.TESTS):
            return replace(phase, before=describe_counts(fact.event.results))
        case e.GateJudged(name=e.TESTS):
            return replace(phase, after="skipped" if fact.event.answer is GateAnswer.SKIPPED else fact.event.line)
        case e.VerdictGiven(scope="", items=items):
            return replace(phase, evidence=items)
        case e.PhaseFailed(reason=reason, step=step, title=title, detail=detail):
            is_stop = reason == Reason.STOPPED
            state, why = (PhaseState.STOPPED, detail) if is_stop else (PhaseState.FAILED, f"{reason} at {step}")
            return replace(phase, state=state, run=fact.run, at=fact.at, why=why, title=title or phase.title)
        case e.Landed():
            # An undo lands without an attempt.
            state = PhaseState.DONE if phase.id == worked else PhaseState.UNDONE
            return replace(phase, state=state, at=fact.at, commit=fact.event.code[:SHORT], why="")
        case _:
            return phase


class Outlook(Struct, frozen=True):
    """A phase that may be worked: who implements it, and its number of items; "" and 0 for unknown."""

    agent: str = ""
    items: int = 0


def forecast_phases(phases: Sequence[Outlook], landed: Sequence[PhaseRecord]) -> str:
    """What the phases take at the median and in nine of ten cases, by what landed phases like them have taken here.

    Like one is a phase of the same agent and of about its size; with few of them, of the same agent; else any.
    """
    if not landed:
        return "no history yet: two agents and up to two fix cycles a phase"
    likes = []
    for phase in phases:
        of_agent = [record for record in landed if phase.agent in ("", record.implementer)]
        size = bisect(SIZES, phase.items)
        of_size = [record for record in of_agent if not phase.items or bisect(SIZES, len(record.evidence)) == size]
        likes.append(next((like for like in (of_size, of_agent) if len(like) >= FEWEST_ALIKE), landed))

    def take(measure: Callable[[PhaseRecord], float]) -> tuple[float, float]:
        ordered = [sorted(map(measure, like)) for like in likes]
        return sum(part[len(part) // 2] for part in ordered), sum(part[len(part) * 9 // 10] for part in ordered)

    def span(middle: float, most: float) -> str:
        return f"{middle:.0f}" if middle == most else f"{middle:.0f} to {most:.0f}"

    roles = dict.fromkeys(role for record in landed for role, _ in record.dispatched)
    counts = {role: take(partial(PhaseRecord.count_dispatches, role=role)) for role in roles}
    by_role = ", ".join(f"{role} {span(*count)}" for role, count in counts.items() if count[1])
    dispatches = f"{span(*take(lambda record: len(record.dispatched)))} dispatches ({by_role}), " if by_role else ""
    time = " to ".join(dict.fromkeys(map(in_words, take(lambda record: sum(record.spent.parts.values())))))
    usd = take(lambda record: record.spent.usd)
    money = f", {' to '.join(dict.fromkeys(f'${part:.2f}' for part in usd))}" if usd[1] else ""
    runs = len({record.run for record in landed})
    rests_on = f"{counted(len(landed), 'landed phase')} of {counted(runs, 'run')} here"
    return f"{dispatches}{time}{money} (p50 to p90 of {rests_on})"


def list_landed(store: Store) -> list[PhaseRecord]:
    """The landed phases of the newest runs."""
    rows = store.list_runs()
    if not rows:
        return []
    plans = {row.id: row.plan for row in rows}
    facts = store.list_facts(*KINDS, since=min(row.started for row in rows))
    by_plan: dict[str, list[Recorded[Any]]] = {}
    for fact in facts:
        if fact.run in plans:
            by_plan.setdefault(plans[fact.run], []).append(fact)
    records = (record for facts_of_plan in by_plan.values() for record in summarise_attempts(facts_of_plan).values())
    return [record for record in records if record.state is PhaseState.DONE and record.id != REPAIR]


def summary_of(
    path: str, plan: Plan | None, newest: RunRow | None, attempts: dict[str, PhaseRecord], *, owned: bool = True
) -> PlanSummary:
    """The phases in the order of the plan, None when it cannot be read; `owned` by a live process, else interrupted."""
    title = path
    phases = list(attempts.values())
    if plan is not None:
        is_over = newest is None or newest.outcome is RunOutcome.DONE
        repair = [attempts[REPAIR]] if REPAIR in attempts else []
        repair = [replace(work, state=PhaseState.DONE, why="") if is_over else work for work in repair]
        title = plan.title
        phases = []
        for phase in plan.phases:
            record = replace(attempts.get(phase.id) or PhaseRecord(id=phase.id), title=phase.title)
            if phase.status is Status.DONE:
                record = replace(record, state=PhaseState.DONE, commit=phase.commit or record.commit, why="")
            elif record.state not in (PhaseState.RUNNING, PhaseState.FAILED, PhaseState.STOPPED):
                why = describe_hindrance(plan, phase)
                state = PhaseState.BLOCKED if why and not missing_dependencies(plan, phase) else PhaseState.TODO
                start = "" if why else make_action("start", plan.path, phase=phase.id).command
                record = replace(record, state=state, why=f"it {why}" if why else "not started", command=start)
            phases.append(record)
        phases += repair
    phases = [_with_run(path, phase, newest, owned=owned) for phase in phases]
    return PlanSummary(plan=path, title=title, phases=tuple(phases))


def _with_run(path: str, phase: PhaseRecord, newest: RunRow | None, *, owned: bool) -> PhaseRecord:
    active = newest if newest is not None and newest.is_active else None
    work = next((work for work in (*active.lanes, active) if work.phase == phase.id), None) if active else None
    # Without a phase, a retry continues the newest run.
    is_newest = newest is None or phase.run == newest.id or phase.id == REPAIR
    retry = make_action("retry", path, phase="" if is_newest else phase.id).command
    status = command("runplan", "status", path)
    if phase.state in (PhaseState.FAILED, PhaseState.STOPPED):
        return replace(phase, command=retry)
    if work is not None and work.waiting_for and phase.state is not PhaseState.DONE:
        state = state_of_work(work)
        words = describe_phase(state, work=work) + (f": {work.about}" if work.about else "")
        see = actions_of_wait(work.waiting_for, path, phase.id)[0].command
        return replace(phase, state=state, why=words, command=see if state is PhaseState.WAITING else status)
    if phase.state is not PhaseState.RUNNING:
        return phase
    if active is None or active.id != phase.run:
        return replace(phase, state=PhaseState.STOPPED, why="its run has ended", command=retry)
    if not owned:
        return replace(phase, state=PhaseState.WAITING, why="interrupted; no process works on it", command=retry)
    return replace(phase, why=describe_phase(PhaseState.RUNNING, work=work), command=status)


def summary_section(summary: PlanSummary) -> str:
    done = sum(phase.state is PhaseState.DONE for phase in summary.phases if phase.id != REPAIR)
    used = sum_usage(PhaseSpending, (phase.spent for phase in summary.phases))
    names = ("Phase", "State", "Commit", "Tests", "Attempts", "Time", "Agents", "Tokens", "Cost")
    rows = [table_row(*names), f"|{'---|' * len(names)}"]
    for phase in summary.phases:
        spent = phase.spent
        cells = (
            phase.name,
            phase.state,
            code_span(phase.commit) if phase.commit else "",
            phase.tests,
            str(phase.attempts or ""),
            elapsed(spent.wall_seconds) if phase.attempts else "",
            elapsed(spent.seconds) if spent.seconds else "",
            spent.token_words if spent.tokens else "",
            spent.cost if spent.tokens or spent.usd else "",
        )
        rows.append(table_row(*cells))
    tested = [tree for phase in summary.phases for tree in phase.tested]
    remarks = [f"Tests ran {counted(len(tested), 'time')} for {counted(len(set(tested)), 'tree')}."] if tested else []
    longest = max(used.parts, key=used.parts.__getitem__, default="")
    whole = sum(used.parts.values())
    if whole >= SHORTEST_SHARED_S and 2 * used.parts[longest] > whole:
        remarks.append(f"Most of the time went to {longest}: {REMEDIES[longest]}.")
    parts = [
        "## Summary",
        f"**Done:** {done} of {sum(phase.id != REPAIR for phase in summary.phases)} phases. Time: {used.time_and_use}.",
        *(["\n".join(rows)] if summary.phases else []),
        *([" ".join(remarks)] if remarks else []),
    ]
    shown = (PhaseState.FAILED, PhaseState.BLOCKED, PhaseState.STOPPED, PhaseState.UNDONE)
    left = []
    for phase in (phase for phase in summary.phases if phase.state is not PhaseState.DONE):
        state = f"{phase.state}, " if phase.state in shown else ""
        helps = f": {code_span(phase.command)}" if phase.command else ""
        left.append(f"- {phase.label[0].upper()}{phase.label[1:]}: {state}{escape_inline(phase.why)}{helps}")
    return "\n\n".join([*parts, *(["**Not done:**", "\n".join(left)] if left else [])]) + "\n"


class RepositoryNews(Struct, frozen=True, kw_only=True):
    repository: str  #: its root
    plans: tuple[PlanSummary, ...] = ()
    paused: tuple[tuple[str, str], ...] = ()  #: plans with a paused schedule, and why
    failed: tuple[tuple[str, str], ...] = ()  #: plans whose newest run failed without a failed phase, and why
    error: str = ""  #: why its journal cannot be read
    is_fleet: bool = False


def news_of(journals: Mapping[str, Location], *, since: str) -> list[RepositoryNews]:
    news = []
    for root, journal in sorted(journals.items()):
        if not store_exists(journal):
            continue
        try:
            with contextlib.closing(open_store(journal, writable=False)) as store:
                news_facts = store.list_facts(e.Landed, e.PhaseFailed, e.DispatchEnded, since=since)
                runs = {record.run for record in news_facts}
                rows = [*(row for run in runs if (row := store.get_run(run))), *store.list_unfinished_runs()]
                summaries = [_summarise_plan(store, plan, since) for plan in sorted({row.plan for row in rows})]
                plans = tuple(summary for summary in summaries if summary.phases)
                paused = tuple((row.plan, row.paused) for row in store.list_schedules() if row.paused)
                with_phase = {record.run for record in store.list_facts(e.PhaseFailed, since=since)}
                ends = {
                    record.run: f"{record.event.reason}: {record.event.detail}"
                    for record in store.list_facts(e.RunEnded, since=since)
                    if not record.event.lane and record.run not in with_phase
                }
                newest = [row for plan in store.list_plans() if (row := store.get_newest_run(plan)) is not None]
                lost = (row for row in newest if row.state == RunStatus.FAILED and row.id in ends)
                failed = tuple((row.plan, ends[row.id]) for row in lost)
        except (RunplanError, OSError) as error:
            news.append(RepositoryNews(repository=root, error=str(error)))
            continue
        if plans or paused or failed:
            is_fleet = isinstance(journal, FleetLocation)
            news.append(RepositoryNews(repository=root, plans=plans, paused=paused, failed=failed, is_fleet=is_fleet))
    return news


def _summarise_plan(store: Store, plan: str, since: str) -> PlanSummary:
    newest = store.get_newest_run(plan)
    attempts = summarise_attempts(store.list_facts(*KINDS, plan=plan), since=since)
    if newest is not None and newest.is_active and newest.phase:
        attempts.setdefault(newest.phase, PhaseRecord(id=newest.phase))
    titles = {record.event.phase: record.event.title for record in store.list_facts(e.PhaseChosen, plan=plan)}
    whole = summary_of(plan, None, newest, attempts, owned=bool(store.get_living_owner(plan)))
    title = newest.title if newest is not None and newest.title else plan
    is_open = (PhaseState.WAITING, PhaseState.RUNNING)
    spent = PhaseSpending()
    news = [phase for phase in whole.phases if phase.at >= since or phase.state in is_open or phase.spent != spent]
    phases = tuple(replace(phase, title=titles.get(phase.id) or phase.title) for phase in news)
    return replace(whole, title=title, phases=phases)


def morning_report(news: Sequence[RepositoryNews], *, since: str) -> str:
    parts = [f"# Report since {since}", f"{count_phases(news)}."]
    for state, title in SECTIONS.items():
        lines = [line for repository in news for line in _phase_lines(repository, state)]
        parts += [f"## {title}", "\n".join(f"- {line}" for line in lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def _phase_lines(news: RepositoryNews, state: PhaseState) -> Iterator[str]:
    name = news.repository.rstrip("/").rpartition("/")[2]
    locate = partial(command_in, news.repository, is_fleet=news.is_fleet)
    for plan in news.plans:
        for phase in (summary for summary in plan.phases if summary.state is state):
            used = phase.spent.time_and_use if phase.spent != PhaseSpending() else ""
            tests = f"tests {phase.tests}" if phase.tests else ""
            facts = (escape_inline(phase.why), code_span(phase.commit) if phase.commit else "", tests, used)
            then = phase.command or make_action("report", plan.plan).command
            head = f"{escape_inline(f'{name}: {plan.title}')}, {phase.label}"
            yield "\n  ".join([head, ", ".join(filter(None, facts)), code_span(locate(then))])
    if state is PhaseState.WAITING:
        for path, why in news.paused:
            then = code_span(locate(make_action("resume", path).command))
            yield f"{escape_inline(name)}: the schedule of {code_span(path)} is paused: {escape_inline(why)}\n  {then}"
        for path, why in news.failed:
            then = code_span(locate(make_action("retry", path).command))
            yield f"{escape_inline(name)}: the run of {code_span(path)} failed: {escape_inline(why)}\n  {then}"
        if news.error:
            yield f"{code_span(news.repository)} cannot be read: {escape_inline(news.error)}"


def count_phases(news: Sequence[RepositoryNews]) -> str:
    phases = [phase for repository in news for plan in repository.plans for phase in plan.phases]
    words = {state: title.lower() for state, title in SECTIONS.items()} | {PhaseState.WAITING: "waiting for you"}
    counts = {word: sum(phase.state is state for phase in phases) for state, word in words.items()}
    shown = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    spent = sum_usage(PhaseSpending, (phase.spent for phase in phases))
    used = f". Time: {spent.time_and_use}" if spent != PhaseSpending() else ""
    failed = sum(len(repository.failed) for repository in news)
    runs = f". Runs that need you: {failed}" if failed else ""
    return (f"Phases: {shown}" if shown else "No phase landed, failed or waits for you") + runs + used


def of_morning(news: Sequence[RepositoryNews]) -> Notice | None:
    if not news:
        return None
    names = ", ".join(repository.repository.rstrip("/").rpartition("/")[2] for repository in news)
    since = command("runplan", "report", "--since", "yesterday")
    return Notice(kind="morning", title=f"runplan: {count_phases(news)}", text=f"Repositories: {names}.", command=since)


def describe_plan(plan: Plan, text: bytes, list_facts: Callable[..., list[Recorded[Any]]], group: str) -> PlanProgress:
    """The progress from the plan's text and the journal; a phase that another clone worked on has no proof here."""
    attempts = summarise_attempts(list_facts(*KINDS, plan=plan.path))
    goal = escape_inline(bounded(find_goal(text, plan), LONGEST_GOAL))
    phases = tuple(_describe_phase(phase, attempts.get(phase.id)) for phase in plan.phases)
    done = [attempts[phase.id] for phase in plan.phases if phase.status is Status.DONE and phase.id in attempts]
    untested = [seen.id for seen in done if seen.after == "skipped"]
    doubts = [f"{'phases' if untested[1:] else 'phase'} {', '.join(untested)}: no tests ran"] if untested else []
    doubts += [f"phase {seen.id}: {line}" for seen in done for line in seen.remarks if line.startswith(DOUBTS)]
    repairs = list[str]()
    chosen: dict[str, e.RepairChosen | e.MergeChosen] = {}  #: the repair at work, by run
    for fact in list_facts(e.RepairChosen, e.MergeChosen, e.Landed, plan=plan.path):
        if not isinstance(fact.event, e.Landed):
            chosen[fact.run] = fact.event
        elif not fact.event.phase and fact.run in chosen and (repair := chosen.pop(fact.run)).group == group:
            commit = fact.event.tip if isinstance(repair, e.MergeChosen) else fact.event.code
            repairs.append(f"{_shorten(repair.title)}: {commit[:7]}")
    return PlanProgress(
        path=plan.path,
        title=plan.title,
        goal=goal,
        phases=phases,
        changes=tuple(_shorten(seen.summary) for seen in done if seen.summary),
        doubts=tuple(map(_shorten, doubts)),
        repairs=tuple(repairs),
        is_tested=any(seen.after not in ("", "skipped") for seen in done),
    )


def _describe_phase(phase: Phase, attempt: PhaseRecord | None) -> PhaseProgress:
    is_done = phase.status is Status.DONE
    seen = attempt if attempt and is_done else PhaseRecord(id=phase.id)
    has_cost = seen.spent.tokens or seen.spent.usd
    facts = [f"tests: {seen.tests}" if seen.tests else "", f"cost: {seen.spent.cost}" if has_cost else ""]
    proofs = {item: evidence for item, passed, evidence in seen.evidence if passed}
    line = " · ".join(filter(None, [_shorten(f"{phase.id} {phase.title}"), *facts]))
    proven = {item: f" — {_shorten(evidence)}" for item, evidence in proofs.items()}
    items = tuple(_shorten(item.text) + proven.get(item.id, "") for item in phase.items)
    remarks = tuple(_shorten(line) for line in (*seen.trial, *seen.remarks) if not line.startswith(DOUBTS))
    return PhaseProgress(line=line, items=items, is_done=is_done, remarks=remarks)


def _shorten(text: str) -> str:
    return escape_inline(bounded(text, LONGEST))


def find_goal(text: bytes, plan: Plan) -> str:
    """The first paragraph below a heading such as Goal, else below the title; "" for none."""
    lines = scan_lines(text, path=plan.path)
    titles = [heading for heading in lines.headings[:1] if heading.level == 1 and heading.text.endswith(plan.title)]
    named = [heading for heading in lines.headings if heading.text.lower().strip(" :") in GOALS]
    for heading in (*named[:1], *titles):
        below = next((other.at for other in lines.headings if other.at > heading.at), len(lines.texts))
        texts = ("" if lines.inert[i] else lines.texts[i].strip() for i in range(heading.at + 1, below))
        for paragraph in (" ".join(block) for has_text, block in groupby(texts, bool) if has_text):
            is_label = paragraph.lower().startswith(LABEL)
            if is_label or paragraph[0].isalnum():
                return paragraph[len(LABEL) :].strip() if is_label else paragraph
    return ""
