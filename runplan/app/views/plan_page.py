"""One plan in depth: its dispatches, and of one phase the items with their evidence and the tests of its checks."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.store.journal import list_records
from runplan.adapters.store.outputs import Outputs
from runplan.app.views.board import Card, make_card
from runplan.app.views.changes import JudgedItem, judge_items, list_questions, proof_of
from runplan.app.views.journal import describe_duration, describe_event, event_words, list_steps
from runplan.app.views.plans import PlanReader
from runplan.app.views.status import PlanState, PlanView
from runplan.app.views.transcript import read_process
from runplan.domain.checks.results import read_results
from runplan.domain.checks.runners.naming import FILES
from runplan.domain.errors import NotFound
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import Proof, TrialJudged
from runplan.domain.run.attempts import Attempt, begin_attempt
from runplan.domain.run.dispatch import OWN, Ending
from runplan.domain.run.kinds import GateAnswer, Role
from runplan.domain.run.reasons import describe_proof
from runplan.domain.run.recorded import Recorded
from runplan.domain.run.rows import RunRow
from runplan.domain.run.state import RunState, apply, open_states
from runplan.domain.standing.usage import AgentUsage
from runplan.domain.text import bounded, command, localized
from runplan.domain.times import parse_iso
from runplan.engine.loop.context import RepositoryContext, known_plans
from runplan.engine.report.summary import KINDS, PhaseRecord, summarise_attempts
from runplan.engine.steps.gates import JUNIT_READ

MOST_RUNS = 5  #: whose dispatches are read
MOST_EVENTS = 2_000  #: no earlier run is read after so many events
MOST_DISPATCHES = 36
MOST_TESTS = 150  #: that are named
MOST_LINES = 300  #: of the output of agents
MOST_CHARACTERS = 10_000  #: of it
LOG_SHARE = 10.0  #: of both, where a page has nothing but one log
LONGEST_LINE = 400
LONGEST = 1_000  #: characters of a sentence there
LOG_READ = 4 * 1024 * 1024  #: bytes at the end of the output of a check


class Dispatch(Struct, frozen=True, kw_only=True):
    started: e.DispatchStarted
    run: str
    ended: e.DispatchEnded | None = None
    running_s: float = 0.0  #: so far
    is_alive: bool = True  #: False when the process has ended, and its work is not recorded yet

    @property
    def who(self) -> str:
        return self.started.agent or ", ".join(self.started.gates) or "command"

    @property
    def seconds(self) -> float:
        return self.ended.seconds if self.ended else self.running_s

    @property
    def usage(self) -> AgentUsage:
        return self.ended.usage if self.ended else AgentUsage()

    @property
    def result(self) -> str:
        """`ok`, `running`, `ended` before it is recorded, or how it ended."""
        if self.ended is None:
            return "running" if self.is_alive else "ended"
        is_exit = self.ended.ending is Ending.EXITED
        if self.ended.succeeded or (is_exit and self.started.role is Role.PROVE):  # the proof says what it shows
            return "ok"
        return self.ended.kind or (f"exit {self.ended.code}" if is_exit else self.ended.ending.value)

    @property
    def is_good(self) -> bool:
        """Whether it has not failed so far."""
        return self.result in ("ok", "running", "ended")


class NamedTest(Struct, frozen=True):
    name: str
    is_passed: bool
    why: str = ""


class CheckResult(Struct, frozen=True, kw_only=True):
    gate: e.GateJudged
    tests: tuple[NamedTest, ...] = ()  #: the failed ones first
    failed: int = 0
    passed: int = 0


class PlanPage(Struct, frozen=True, kw_only=True):
    card: Card
    phases: dict[str, PhaseRecord]  #: time and use of the attempted ones
    dispatches: tuple[Dispatch, ...]  #: the oldest first
    selected: str  #: the phase that is shown in depth
    attempt: Attempt | None  #: the newest one at that phase
    failures: tuple[e.PhaseFailed, ...]  #: of the phases that failed and are not worked on
    checks: tuple[CheckResult, ...]
    logs: tuple[tuple[Dispatch, list[str]], ...]  #: the end of the output of the running agents, else of the last one
    questions: tuple[e.QuestionAsked, ...]  #: of the newest run, without an answer

    @property
    def proof(self) -> Proof:
        return proof_of(self.attempt)

    @property
    def items(self) -> list[JudgedItem]:
        return judge_items(self.attempt) if self.attempt else []

    @property
    def proof_lines(self) -> list[str]:
        return [describe_proof(run) for run in self.proof.newest_runs.values()]


def require_plan(context: RepositoryContext, plan: str) -> None:
    """Fail for a path that is no plan of the repository: it may name any file."""
    store = context.store()
    is_recorded = store.get_newest_run(plan) is not None or store.get_schedule(plan) is not None
    if not is_recorded and plan not in known_plans(context, store.list_active_plans()):
        raise NotFound(f"{context.root} has no plan {plan!r}; see: runplan status")


def read_plan_page(context: RepositoryContext, repo: str, plan: str, phase: str, *, now: datetime) -> PlanPage:
    """The plan; `phase` is shown in depth, or (empty) the one that matters most now."""
    require_plan(context, plan)
    (view,), _ = PlanReader(context, plan, now).read()
    if view.state is PlanState.PAGE:
        raise NotFound(f"{plan} has no phases, so it is no plan; see: {command('runplan', 'check', plan)}")
    store = context.store()
    records: list[Recorded[e.Event]] = []
    for row in store.list_runs(plan, limit=MOST_RUNS):  # the newest first
        if len(records) < MOST_EVENTS:
            records = [*list_records(store, row.id), *records]
    attempts = fold_phases(records)
    outputs = context.outputs(store)
    looked_at = (look_at(outputs, dispatch) for dispatch in list_dispatches(records, now)[-MOST_DISPATCHES:])
    dispatches = [dispatch for dispatch in looked_at if dispatch.is_alive or dispatch.running_s]  # others only begin
    agents = [dispatch for dispatch in dispatches if dispatch.started.agent]
    shown = [dispatch for dispatch in agents if dispatch.result == "running"] or agents[-1:]
    selected = phase or choose_phase(view, attempts)
    failed = (attempts[phase.id].failure for phase in view.failed_phases if phase.id in attempts)
    return PlanPage(
        card=make_card(context, view, repo),
        phases=summarise_attempts(fact for fact in records if isinstance(fact.event, KINDS)),
        dispatches=tuple(dispatches),
        selected=selected,
        attempt=attempts.get(selected),
        failures=tuple(failure for failure in failed if failure is not None),
        checks=tuple(read_checks(outputs, proof_of(attempts.get(selected)))),
        logs=tuple((agent, cut_log(read_process(outputs, agent.started), share=1 / len(shown))) for agent in shown),
        questions=tuple(list_questions(context, plan)),
    )


def read_log(context: RepositoryContext, plan: str, id_: str, *, now: datetime) -> tuple[Dispatch, list[str]]:
    require_plan(context, plan)
    store = context.store()
    outputs = context.outputs(store)
    for row in store.list_runs(plan, limit=MOST_RUNS):
        for dispatch in list_dispatches(list_records(store, row.id), now):
            if dispatch.started.id == id_:
                return look_at(outputs, dispatch), cut_log(read_process(outputs, dispatch.started), share=LOG_SHARE)
    raise NotFound("the newest runs of the plan have no such step; see its journal")


def read_trial_file(context: RepositoryContext, plan: str, dispatch: str, name: str) -> bytes:
    require_plan(context, plan)
    store = context.store()
    for row in store.list_runs(plan, limit=MOST_RUNS):
        trials = (fact.event for fact in list_records(store, row.id) if isinstance(fact.event, TrialJudged))
        is_kept = any(trial.dispatch == dispatch and name in trial.kept for trial in trials)
        if is_kept and (content := context.outputs(store).read(dispatch, name)[0]):
            return content
    raise NotFound("there is no such file of a trial; gc removes them with the logs of landed phases")


def choose_phase(view: PlanView, attempts: Mapping[str, Attempt]) -> str:
    """The phase that matters most: at work, else failed, else last worked on, else the next one."""
    current = view.run.phase if view.run is not None and view.run.is_active else ""
    failed = next((phase.id for phase in view.failed_phases), "")
    return current or failed or next(reversed(list(attempts)), "") or view.next or ""


def fold_phases(records: Iterable[Recorded[e.Event]]) -> dict[str, Attempt]:
    """The newest attempt at each phase, the last one worked on last."""
    attempts: dict[str, Attempt] = {}
    current: dict[tuple[str, str], str] = {}  #: the phase by run and lane
    for fact in records:
        event = fact.event
        strand = (fact.run, event.lane)
        if isinstance(event, e.Chosen):
            current[strand] = event.phase
            attempts.pop(event.phase, None)
            if event.items or event.phase:
                attempts[event.phase] = begin_attempt(event)
        elif (phase := current.get(strand)) in attempts:
            attempts[phase] = attempts[phase].record(event)
    return attempts


def list_dispatches(records: Iterable[Recorded[e.Event]], now: datetime) -> list[Dispatch]:
    """The processes, oldest first. One without a recorded end runs only in the newest run."""
    dispatches: dict[str, Dispatch] = {}
    newest = ""
    for fact in records:
        event = fact.event
        newest = fact.run
        match event:
            case e.DispatchStarted(at=at):
                so_far = max((now - parse_iso(at)).total_seconds(), 0.0)
                for id_ in (event.id, *event.beside):
                    dispatches[id_] = Dispatch(started=replace(event, id=id_), run=fact.run, running_s=so_far)
            case e.DispatchEnded(id=id_) if id_ in dispatches:
                dispatches[id_] = replace(dispatches[id_], ended=event)
            case e.RunEnded():
                newest = ""
    return [dispatch for dispatch in dispatches.values() if dispatch.ended or dispatch.run == newest]


def read_checks(outputs: Outputs, proof: Proof) -> Iterator[CheckResult]:
    """The checks of the attempt, each with the tests that its output names. A second run counts for its tests."""
    tests: dict[str, dict[str, NamedTest]] = {}
    for gate in proof.gates:
        rows = tests.setdefault(gate.name, {})
        if (ran := gate.ran) is not None:  # it names none when the log was removed
            output = outputs.read(ran.dispatch, PurePath(ran.file).name, -LOG_READ)[0].decode("utf-8", "replace")
            read = {key: outputs.read(ran.dispatch, f"{OWN}/{file}")[0][:JUNIT_READ] for key, file in FILES.items()}
            names = tuple((key, content.decode("utf-8", "replace")) for key, content in read.items() if content)
            rows |= {row.name: row for row in _parse_tests(output, names, gate.code)}
        is_failed = gate.answer is GateAnswer.FAILED
        rows |= {name: NamedTest(name, False) for name in gate.failures if is_failed and name not in rows}
    for gate in proof.newest_gates.values():
        named = sorted(tests[gate.name].values(), key=lambda row: (row.is_passed, row.name))
        passed = sum(row.is_passed for row in named)
        yield CheckResult(gate=gate, tests=tuple(named[:MOST_TESTS]), failed=len(named) - passed, passed=passed)


@lru_cache(maxsize=16)
def _parse_tests(output: str, names: tuple[tuple[str, str], ...], code: int | None) -> tuple[NamedTest, ...]:
    results = read_results(output, exit_code=code, names={key: (text,) for key, text in names})
    failed = (NamedTest(name, False, bounded(results.reasons.get(name, ""), LONGEST_LINE)) for name in results.failures)
    return (*failed, *(NamedTest(name, True) for name in results.passes))


def look_at(outputs: Outputs, dispatch: Dispatch) -> Dispatch:
    """The dispatch; without a recorded end its process may be gone, and its last output tells how long it ran."""
    is_running, written = (True, None) if dispatch.ended else outputs.get_standing(dispatch.started.id)
    if is_running:
        return dispatch
    ran_s = max(written - parse_iso(dispatch.started.at).timestamp(), 0.0) if written else 0.0
    return replace(dispatch, is_alive=False, running_s=ran_s)


def cut_log(lines: list[str], *, share: float = 1.0) -> list[str]:
    """The last lines, as far as they are small enough for their share of a page."""
    left = int(MOST_CHARACTERS * share)
    kept: list[str] = []
    for line in reversed(lines[-max(int(MOST_LINES * share), 1) :]):
        text = bounded(line, LONGEST_LINE)
        left -= len(text)
        if left < 0:
            break
        kept.append(text)
    return kept[::-1]


class EventLine(Struct, frozen=True, kw_only=True):
    seq: int
    at: str
    lane: str
    name: str
    phase: str
    step: str  #: of the phase, to which it belongs; "" between phases
    text: str  #: the sentence of `logs`; "" for facts that only the journal needs
    then: str  #: the reason of `explain`


class JournalView(Struct, frozen=True, kw_only=True):
    runs: list[RunRow]  #: the newest ones of the plan
    run: RunRow | None  #: the one whose events are shown
    lines: list[EventLine]  #: the newest first
    titles: dict[str, str]  #: of the phases


def read_journal(context: RepositoryContext, plan: str, run: str, *, now: datetime) -> JournalView:
    """The events of a run of the plan, or (empty) of its newest one."""
    require_plan(context, plan)
    store = context.store()
    runs = store.list_runs(plan, limit=50)
    row = store.get_run(run) if run else next(iter(runs), None)
    if runs and (row is None or row.plan != plan):
        raise NotFound("the plan has no such run; see its journal for the newest ones")
    records = list_records(store, row.id) if row and runs else []
    chosen = (record.event for record in records if isinstance(record.event, e.Chosen))
    titles = {event.phase: event.title for event in chosen if event.phase}
    return JournalView(runs=runs, run=row if runs else None, lines=describe_records(records, now=now), titles=titles)


def describe_records(records: list[Recorded[e.Event]], *, now: datetime) -> list[EventLine]:
    """The events of a run with the decisions that followed, the newest first."""
    state = RunState()
    lines = []
    for record, step in zip(records, list_steps(records), strict=True):
        event = record.event
        before = _find_lane(state, event.lane).attempt
        state = apply(state, event)
        # The step that an event ends, unless it begins one.
        is_first = before is None or isinstance(event, (e.Chosen, e.DispatchStarted))
        attempt = _find_lane(state, event.lane).attempt if is_first else before
        text = describe_event(event)
        if not text and isinstance(event, e.DispatchEnded):
            text = describe_duration(event, event.seconds)
        line = EventLine(
            seq=record.seq,
            at=record.at,
            lane=event.lane,
            name=event_words(step.event),
            phase=step.phase,
            step=attempt.step.value if attempt is not None else "",
            text=bounded("\n".join(line.strip() for line in text.strip().splitlines()), LONGEST),
            then=bounded(localized(step.why, now=now), LONGEST),
        )
        lines.append(line)
    return lines[::-1]


def _find_lane(state: RunState, name: str) -> RunState:
    return next((lane for lane in open_states(state) if lane.lane == name), state)
