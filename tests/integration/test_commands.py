"""Commands are executed in order and answered once; a stop overrides earlier starts."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from runplan.adapters.store.claims import Claims
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.decoding import to_json
from runplan.domain.errors import Fenced, RefusedEarly, RunplanError, Unreachable
from runplan.domain.names import QUEUE, WATCH
from runplan.domain.run.attempt_parts import PlanningChosen, StartQueued
from runplan.domain.run.events import Event, Planning, RunStarted
from runplan.domain.run.kinds import WaitKind
from runplan.domain.run.requests import QueueWork, RunRequest
from runplan.domain.run.rows import Answer, Command, ScheduleRow, WaitRow
from runplan.domain.run.state import RunState, fold
from runplan.domain.standing.queue import QueueEntry
from runplan.engine.loop.repository import ENVIRONMENT, Environments
from runplan.engine.loop.runs import ActiveRun
from runplan.engine.steps import planning
from runplan.hosts.commands import Executor, continue_work, fire_schedule
from runplan.hosts.foreground import ForegroundHost, Interruption
from runplan.hosts.owner import RunOwner
from tests.support.builders import started

A, B = "plans/A.md", "plans/B.md"
NOW = "2026-03-01T12:00:00Z"
#: The variables that a start sends along.
KEYS = {"KEY": "secret"}


class Runs:
    """Runs in memory; those that are `ending` have to end before the plan's next one begins."""

    def __init__(self, repository: "Repository") -> None:
        self.repository = repository
        self.environments = Environments({})
        self.ending: set[str] = set()
        self.done: list[str] = []
        self.runs: dict[str, ActiveRun] = {}
        self.trouble: RunplanError | None = None
        self.is_waiting = False  #: a run of the plan waits, which a start resumes

    latest = RunState()
    host = ForegroundHost(Interruption(0.0), {})

    def work(self) -> None:
        self.done += [f"work on {plan}" for plan in self.runs]

    def disown(self, plan: str) -> None:
        del self.runs[plan]

    def begin(self, request: RunRequest) -> Answer | None:
        plan = request.started.plan
        if plan in self.ending:
            return None
        self.done.append(f"begin {plan}")
        return Answer(run=f"run of {plan}", fresh=True)

    def decline(self, _request: RunRequest) -> None: ...

    def record(self, plan: str, event: Event) -> bool:
        if self.trouble is not None:
            raise self.trouble
        self.done.append(f"{type(event).__name__} {plan}")
        return True

    def adopt(self, _plan: str) -> str:
        return ""

    def is_at_work(self, _plan: str) -> bool:
        return False

    def resumes(self, _request: RunRequest) -> bool:
        return self.is_waiting

    def newest(self, _plan: str) -> RunState:
        return self.latest


class Repository:
    """An open repository, as far as commands need it."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.claims = Claims(store, store.path.parent / "locks")
        self.clock = self

    def now(self) -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC)


class Bench:
    """A real queue with an executor, and runs that do nothing."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.runs = Runs(Repository(store))
        self.environments = self.runs.environments
        self.executor = Executor(cast("RunOwner", self.runs))

    def queue(self, verb: str, plan: str = A, **more: str) -> int:
        given = {**arguments(verb, plan), **more}
        return self.store.add_command(Command(plan=plan, verb=verb, arguments=given, by="a person", at=NOW))

    def execute(self, *, begins: bool = True) -> list[tuple[int, str]]:
        """Execute what is queued; the numbers and the errors of what was answered."""
        return [(command.seq, answer.error) for command, answer in self.executor.execute_queued(begins=begins)]

    @property
    def queued(self) -> list[int]:
        return [one.seq for one in self.store.list_queued_commands()]


def arguments(verb: str, plan: str, needs: tuple[str, ...] = ()) -> Mapping[str, Any]:
    begun = replace(started("next"), plan=plan, daemon=True, needs=needs)
    return {"started": to_builtins(begun)} if verb == "start" else {}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with closing(SqliteStore(tmp_path)) as store:
        yield Bench(store)


# --- order ----------------------------------------------------------------------------------------------


def test_commands_are_executed_in_order_and_leave_the_queue(bench: Bench) -> None:
    start, pause, stop = bench.queue("start"), bench.queue("pause", B), bench.queue("stop")
    assert bench.execute() == [(start, ""), (pause, ""), (stop, "")]
    assert bench.runs.done == [f"begin {A}", f"Halted {B}", f"StopRequested {A}"]
    assert bench.queued == []
    assert bench.execute() == []
    assert bench.store.get_answer(start) == Answer(run=f"run of {A}", fresh=True)


def test_a_command_that_is_refused_is_answered_and_the_next_one_is_executed(bench: Bench) -> None:
    now, pause = bench.queue("now"), bench.queue("pause")
    refused = f"{A} has no schedule; see: runplan next"
    assert bench.execute() == [(now, refused), (pause, "")]
    assert bench.store.get_answer(now) == Answer(error=refused, exit=3)


@pytest.mark.parametrize(("verb", "text"), [("pause", "[]"), ("pause", "{"), ("fly", "{}")])
def test_a_command_that_cannot_be_read_is_refused_and_the_next_executed(bench: Bench, verb: str, text: str) -> None:
    row = f"INSERT INTO commands (plan, verb, arguments, by, at) VALUES ('{A}', '{verb}', '{text}', 'me', '{NOW}')"
    bench.store.execute_alone(row)
    pause = bench.queue("pause")
    refused = "the command cannot be read; give it again with the runplan of this host"
    assert bench.execute() == [(pause - 1, refused), (pause, "")]


# --- a run that has to end first ------------------------------------------------------------------------


def test_a_start_that_has_to_wait_keeps_the_later_commands_of_its_plan_queued(bench: Bench) -> None:
    bench.runs.ending.add(A)
    start, pause, other = bench.queue("start"), bench.queue("pause"), bench.queue("pause", B)
    assert bench.execute() == [(other, "")]
    assert bench.queued == [start, pause]
    bench.runs.ending.clear()
    assert bench.execute() == [(start, ""), (pause, "")]
    assert bench.runs.done == [f"Halted {B}", f"begin {A}", f"Halted {A}"]


def test_a_stop_does_not_wait_and_refuses_the_starts_before_it(bench: Bench) -> None:
    bench.runs.ending.add(A)
    first, second, other = bench.queue("start"), bench.queue("start"), bench.queue("start", B)
    stop, after = bench.queue("stop"), bench.queue("start")
    refused = f"{A} was stopped before it began"
    assert sorted(bench.execute()) == [(first, refused), (second, refused), (other, ""), (stop, "")]
    assert bench.runs.done == [f"begin {B}", f"StopRequested {A}"]
    bench.runs.ending.clear()
    assert bench.execute() == [(after, "")]


def test_a_run_has_the_keys_that_its_command_names_and_they_are_kept_no_longer(bench: Bench) -> None:
    bench.environments.receive("mine", KEYS)
    for plan in (A, A, B):
        bench.queue("start", plan, **{ENVIRONMENT: "mine"})
        bench.execute()
    assert (bench.environments.of(A), bench.environments.of(B)) == (KEYS, {})


def test_a_start_that_resumes_a_run_adds_to_the_keys_of_its_first_caller(bench: Bench) -> None:
    for name, keys in {"first": KEYS, "second": {"OTHER": "x"}}.items():
        bench.environments.receive(name, keys)
        bench.queue("start", **{ENVIRONMENT: name})
        bench.execute()
        bench.runs.is_waiting = True
    assert bench.environments.of(A) == {**KEYS, "OTHER": "x"}


def test_a_start_whose_keys_are_gone_is_begun_and_waits_for_them(bench: Bench) -> None:
    """It was queued when the last daemon ended, with the keys in its memory."""
    needs = arguments("start", A, needs=("KEY",))
    bench.store.add_command(Command(plan=A, verb="start", arguments=needs, by="a person", at=NOW))
    bench.execute()
    assert bench.runs.done == [f"begin {A}", f"Halted {A}"]


def test_the_keys_of_a_start_that_a_stop_refuses_are_forgotten(bench: Bench) -> None:
    bench.runs.ending.add(A)
    bench.environments.receive("mine", KEYS)
    bench.queue("start", **{ENVIRONMENT: "mine"})
    bench.queue("stop")
    bench.queue("start", B, **{ENVIRONMENT: "mine"})
    bench.execute()
    assert bench.environments.of(B) == {}


@pytest.mark.rest
def test_commands_stay_queued_while_another_process_holds_their_lock(bench: Bench) -> None:
    pause = bench.queue("pause")
    with bench.runs.repository.claims.command_lock(), pytest.raises(match="the request stays queued"):
        bench.execute()
    assert bench.execute() == [(pause, "")]


def test_a_draining_worker_leaves_starts_and_what_follows_them_to_the_next_one(bench: Bench) -> None:
    start, pause, other = bench.queue("start"), bench.queue("pause"), bench.queue("pause", B)
    assert bench.execute(begins=False) == [(other, "")]
    assert bench.queued == [start, pause]
    assert bench.execute() == [(start, ""), (pause, "")]


def test_a_watch_that_reaches_no_forge_skips_its_slot_and_says_why(bench: Bench) -> None:
    watch = f"{WATCH}bug"
    request = json.dumps(arguments("start", watch)["started"])
    begun = "2026-03-01T11:00:00Z"
    row = ScheduleRow(plan=watch, spec="1h", zone="UTC", misfire="skip", request=request, anchor=begun, made=begun)
    bench.store.put_schedule(row)
    runs: Any = bench.runs

    def context_for(_asked: RunStarted) -> NoReturn:
        raise Unreachable("the forge does not answer")

    runs.context_for = context_for
    [firing] = fire_schedule(row, runs, bench.runs.repository.now())
    assert (firing.answer, firing.why) == ("skipped", "the forge does not answer")


def test_a_work_on_the_queue_begins_no_plan_while_the_start_of_another_is_queued(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that has to wait has no run yet, and holds the queue up like one."""
    monkeypatch.setattr("runplan.hosts.commands.read_queue", lambda *_: [QueueEntry(plan=B, title="B")])
    monkeypatch.setattr("runplan.hosts.commands.slug_of", lambda *_: "b")
    runs: Any = bench.runs
    runs.context_for = lambda _: None
    work = QueueWork(started=replace(started("next"), plan=f"{QUEUE}all"), begun=(A,))
    row = WaitRow(kind=WaitKind.QUEUE, plan=f"{QUEUE}all", about=to_json(work), since=NOW)
    start = bench.queue("start")

    assert not continue_work(row, runs, bench.runs.repository.now())
    assert bench.queued == [start]
    bench.execute()
    assert continue_work(row, runs, bench.runs.repository.now())
    assert [command.plan for command in bench.store.list_queued_commands()] == [B]


# --- a stop that cannot be recorded -----------------------------------------------------------------------


def test_a_stop_that_cannot_be_recorded_ends_the_work_here_and_is_tried_again(bench: Bench) -> None:
    bench.queue("stop")
    bench.runs.trouble = Unreachable("no space left")
    with pytest.raises(Unreachable, match="no space left"):
        list(bench.executor.execute_queued(begins=True))
    bench.runs.trouble = None
    assert len(list(bench.executor.execute_queued(begins=True))) == 1
    assert (bench.runs.done, bench.queued) == ([f"StopRequested {A}"], [])


@pytest.mark.parametrize("trouble", [Fenced("another process took it"), RefusedEarly("no")])
def test_a_stop_of_a_run_of_another_process_is_refused(bench: Bench, trouble: RunplanError) -> None:
    stop = bench.queue("stop")
    bench.runs.trouble = trouble
    assert bench.execute() == [(stop, str(trouble))]


def test_a_pause_that_cannot_be_recorded_is_refused(bench: Bench) -> None:
    pause = bench.queue("pause")
    bench.runs.trouble = Unreachable("no space left")
    assert bench.execute() == [(pause, "no space left")]


# --- without a daemon -----------------------------------------------------------------------------------


def test_a_command_that_another_process_has_executed_is_returned_with_its_answer(bench: Bench) -> None:
    """Two callers without a daemon execute each other's commands."""
    numbers = [bench.queue("pause"), bench.queue("pause", B)]
    ours = [one for one in bench.store.list_queued_commands() if one.seq in numbers]
    bench.store.answer_command(numbers[0], Answer(lines=("done by another",)))
    answers = local(bench).execute(ours)
    assert [answer.lines for answer in answers if answer] == [("done by another",), (f"Paused {B}",)]


def test_a_caller_without_a_daemon_begins_nothing_that_others_asked_for(bench: Bench) -> None:
    start = bench.queue("start", B)
    bench.queue("pause")
    ours = bench.store.list_queued_commands()[1:]
    local(bench).execute(ours)
    assert (bench.runs.done, bench.queued) == ([f"Halted {A}"], [start])


def test_a_caller_without_a_daemon_works_on_stopped_runs_alone(bench: Bench) -> None:
    """An approval, or a pause, leaves its run to the next process, which may start agents."""
    runs = {A: RunState(stop="a person"), B: RunState()}
    bench.runs.runs = {plan: cast("ActiveRun", SimpleNamespace(state=state)) for plan, state in runs.items()}
    local(bench).execute([])
    assert bench.runs.done == [f"work on {A}"]


def local(bench: Bench) -> ForegroundHost:
    host = ForegroundHost(Interruption(0.0), {})
    host.owner = cast("RunOwner", bench.runs)
    return host


def test_a_planning_run_finds_the_start_that_it_queued_and_takes_no_other_for_it(bench: Bench) -> None:
    """An approval that was not answered when its daemon was killed is a start as well."""
    bench.queue("start")
    then = json.dumps(arguments("start", A))
    chosen = PlanningChosen(tip="c", title="A", planning=Planning(goal="A", then=then))
    state = fold([started("plan"), chosen])
    context: Any = SimpleNamespace(store=bench.store, plan=A, run="r1", iso=lambda: NOW)
    [queued] = planning.queue_start(state, context)
    assert list(planning.queue_start(state, context)) == [queued]
    assert isinstance(queued, StartQueued)
    assert bench.queued[-1] == queued.command
    context.run = "r2"
    assert list(planning.queue_start(state, context)) != [queued]
