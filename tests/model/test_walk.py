"""Walks through everything that people, agents, clocks and crashes do to one plan; invariants after every step."""

import json
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import to_builtins
from msgspec.structs import replace

from runplan.adapters.notify.notices import of_waiting
from runplan.app.views.status import PlanState, view_plan
from runplan.domain.decoding import to_json
from runplan.domain.errors import Unreachable
from runplan.domain.plan.model import Status
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import PlanningChosen, StepCrashed
from runplan.domain.run.attempts import PlanningAttempt, WorkAttempt
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import ANSWERED, FOR_ANSWER, Mode, Role, RunOutcome, RunStatus, WaitKind
from runplan.domain.run.requests import RunRequest, Timing
from runplan.domain.run.rows import wait_of
from runplan.domain.run.state import RunState, list_running, open_states
from runplan.domain.settings.schema import TrySettings
from runplan.domain.standing.phases import PlanOutline
from runplan.engine.loop.runs import state_of
from runplan.engine.report.inbox import EntryKind, _list_entries
from tests.model.simulation import PLAN, PLANNED, START, SUBPLAN, MemoryStore, Simulation
from tests.support.builders import a_plan, keep
from tests.support.environment import pinned

SEEDS = st.integers(0, 2**16)
WALKS = int(os.environ.get("WALKS", "200"))
STEPS = int(os.environ.get("WALK_STEPS", "20"))
BATCH = 200  #: walks after which Hypothesis begins anew; it remembers all of them, so that each takes longer
ORDERED = (e.LanesChosen, e.DispatchStarted, e.DispatchEnded, e.CandidateBuilt, e.LandingStarted, e.Landed)


def plan_run(started: e.RunStarted, then: bool, **options: Any) -> e.RunStarted:
    """A run that writes a plan, and with `then` one that works on it."""
    later = RunRequest(started=replace(started, plan=PLANNED, mode=Mode.FINISH, settings=None))
    planning = e.Planning(goal="z", then=to_json(later) if then else "", **options)
    return replace(started, plan=PLANNED, mode=Mode.PLAN, planning=planning)


def count_followers(simulation: Simulation) -> Counter[str]:
    """The starts by the planning runs that asked for them."""
    started = simulation.store.query("SELECT arguments FROM commands WHERE verb='start'")
    return Counter(json.loads(arguments).get("origin", "") for (arguments,) in started)


class Walk(RuleBasedStateMachine):
    """One plan of three phases in one repository; another plan may do its second phase."""

    @initialize(
        parallel=st.sampled_from([1, 2]),
        pipeline=st.sampled_from([0, 1]),
        touches=st.sampled_from(["", "12", "123"]),
        max_fix_cycles=st.integers(0, 2),
        setup=st.sampled_from(["", "make setup"]),
        trial=st.sampled_from([TrySettings(), TrySettings(serve="serve", paths=("*.py",))]),
        prove=st.sampled_from(["off", "report", "require"]),
        changed=st.sampled_from(["verify", "ask", "refuse"]),
        sign_off=st.sampled_from([(), ("*.py",)]),
        landing=st.sampled_from(["cherry-pick", "cherry-pick", "pr"]),
        body=st.sampled_from(["Text.", "Text.", "Sign-off: required", f"Execution: plan {SUBPLAN}"]),
        slots=st.integers(0, 2),
        mode=st.sampled_from([Mode.FINISH, Mode.FINISH, Mode.NEXT]),
        auto=st.booleans(),
        luck=st.sampled_from([0.9, 0.6]),
        seed=SEEDS,
    )
    def begin(
        self,
        *,
        body: str,
        touches: str,
        landing: str,
        slots: int,
        mode: Mode,
        auto: bool,
        luck: float,
        seed: int,
        **options: Any,
    ) -> None:
        """Phases that touch different paths are worked next to each other in a run of several lanes."""
        bodies = {number: f"Touches: {number}/" for number in touches}
        bodies["2"] = f"{body}\n\n{bodies.get('2', '')}"
        text = a_plan({"1": "todo", "2": "todo", "3": "todo"}, bodies)
        self.simulation = Simulation(text, a_plan({"4": "todo", "5": "todo"}), slots=slots)
        self.luck = luck  #: how often what leads to a landing happens
        self.options = keep(START, landing=landing, concludes=landing == "pr", **options)
        self.start(mode, auto, False, seed)

    # --- people ------------------------------------------------------------------------------------------

    def _submit_run(self, started: e.RunStarted, **more: Any) -> None:
        self.simulation.submit("start", started.plan, **to_builtins(RunRequest(started=started, **more)))

    @rule(mode=st.sampled_from([Mode.NEXT, Mode.FINISH]), auto=st.booleans(), anew=st.booleans(), seed=SEEDS)
    def start(self, mode: Mode, auto: bool, anew: bool, seed: int) -> None:
        self._submit_run(replace(self.options, mode=mode, auto=auto, anew=anew))
        self._proceed(seed)

    @rule(phase=st.sampled_from("123"), fresh=st.booleans(), seed=SEEDS)
    def retry(self, phase: str, fresh: bool, seed: int) -> None:
        self._submit_run(replace(self.options, mode=Mode.PHASE, wanted=phase, anew=fresh), again=True)
        self._proceed(seed)

    @rule(phase=st.sampled_from("123"), seed=SEEDS)
    def undo(self, phase: str, seed: int) -> None:
        row = self.simulation.world.plan.phase(phase)
        if row is not None and row.status is Status.DONE:
            self._submit_run(replace(self.options, mode=Mode.UNDO, wanted=phase))
        self._proceed(seed)

    @precondition(lambda self: PLANNED not in self.simulation.world.texts[self.simulation.world.tip])
    @rule(
        approval=st.sampled_from(["required", "none"]),
        quick=st.sampled_from([True, True, False]),
        asks=st.booleans(),
        then=st.sampled_from([True, True, False]),
        seed=SEEDS,
    )
    def plan(self, approval: str, quick: bool, asks: bool, then: bool, seed: int) -> None:
        """Have a plan written, and worked on when it has landed."""
        self._submit_run(plan_run(self.options, then, quick=quick, approval=approval, asks=asks))
        self._proceed(seed)

    @rule(verb=st.sampled_from(["stop", "pause", "resume"]), plan=st.sampled_from([PLAN, PLAN, PLANNED]), seed=SEEDS)
    def command(self, verb: str, plan: str, seed: int) -> None:
        self.simulation.submit(verb, plan)
        self._proceed(seed)

    @rule(seed=SEEDS)
    def schedule(self, seed: int) -> None:
        timing = Timing(every="4h", now=False, zone="UTC", misfire="run-once")
        self._submit_run(replace(self.options, mode=Mode.FINISH), timing=timing)
        self._proceed(seed)

    @precondition(lambda self: self.simulation.store.get_schedule(PLAN))
    @rule(seed=SEEDS)
    def now(self, seed: int) -> None:
        self.simulation.submit("now")
        self._proceed(seed)

    def _list_states(self) -> list[RunState]:
        """Of each run, and of each of its lanes."""
        return [lane for state in self.simulation.states() for lane in open_states(state)]

    def _list_changes(self) -> list[tuple[e.RunStarted, str]]:
        states = [(state.options, state.attempt) for state in self._list_states()]
        return [(options, attempt.answerable) for options, attempt in states if attempt and attempt.answerable]

    def _answer_change(self, number: int, seed: int, why: str = "", *, approved: bool) -> None:
        changes = self._list_changes()
        options, tree = changes[number % len(changes)]
        change = tree.partition("@")[0]
        answer = e.Answered(tree=tree, change=change, approved=approved, why=why, by="Uma (terminal)")
        self._submit_run(options, answer=answer)
        self._proceed(seed)

    @precondition(lambda self: self._list_changes())
    @rule(number=st.integers(0, 2), seed=SEEDS)
    def approve(self, number: int, seed: int) -> None:
        self._answer_change(number, seed, approved=True)

    @precondition(lambda self: self._list_changes())
    @rule(number=st.integers(0, 2), seed=SEEDS)
    def reject(self, number: int, seed: int) -> None:
        self._answer_change(number, seed, approved=False)

    @precondition(lambda self: self._list_changes())
    @rule(number=st.integers(0, 2), seed=SEEDS)
    def reject_with_words(self, number: int, seed: int) -> None:
        self._answer_change(number, seed, "use a table", approved=False)

    def _list_questions(self) -> list[tuple[e.RunStarted, str]]:
        states = self._list_states()
        return [(state.options, question.id) for state in states for question in state.questions]

    @precondition(lambda self: self._list_questions())
    @rule(seed=SEEDS)
    def answer_question(self, seed: int) -> None:
        options, question = self._list_questions()[0]
        self._submit_run(options, answered=e.QuestionAnswered(id=question, text="8080"))
        self._proceed(seed)

    @rule(edited=st.booleans(), seed=SEEDS)
    def use_checkout(self, edited: bool, seed: int) -> None:
        self.simulation.world.is_edited = edited
        self._proceed(seed)

    @rule(seed=SEEDS)
    def move_target(self, seed: int) -> None:
        self.simulation.world.commit()
        self._proceed(seed)

    @rule(phase=st.sampled_from("123"), seed=SEEDS)
    def reword_phase(self, phase: str, seed: int) -> None:
        world = self.simulation.world
        row = world.plan.phase(phase)
        if row is not None and row.status is not Status.DONE:
            heading = row.text.splitlines()[0].encode()
            text = world.texts[world.tip][PLAN]
            world.commit(text.replace(heading, heading + b" again", 1))
        self._proceed(seed)

    # --- time and chance ------------------------------------------------------------------------------------

    def _proceed(self, seed: int) -> None:
        """Let the process work, so that the next rule meets a run somewhere on its way; one time in four later."""
        if seed % 4:
            chance = random.Random(seed)

            def choose(words: Sequence[str]) -> str:
                """Mostly the first, which is the one that leads to a landing."""
                return words[0] if chance.random() < self.luck else chance.choice(words)

            self.simulation.work(choose, chance.choice, may_crash=not seed % 5)

    @rule(hours=st.sampled_from([0.01, 1, 5, 30, -8]), seed=SEEDS)
    def let_time_pass(self, hours: float, seed: int) -> None:
        """Backwards where the clock is set."""
        self.simulation.clock.jump(timedelta(hours=hours).total_seconds())
        self._proceed(seed)

    @rule(seed=SEEDS)
    def crash(self, seed: int) -> None:
        self.simulation.restart()
        self._proceed(seed)

    # --- invariants -----------------------------------------------------------------------------------------

    @invariant()
    def a_phase_lands_once(self) -> None:
        standing: Counter[str] = Counter()
        for landing in self.simulation.world.landings:
            standing[landing.phase] += -1 if landing.undoes else 1
            assert not landing.phase or standing[landing.phase] in (0, 1), landing

    @invariant()
    def a_rejected_change_lands_only_by_a_person(self) -> None:
        store = self.simulation.store
        if all(fact.event.approved for fact in store.list_facts(e.Answered)):
            return
        for landed in store.list_facts(e.Landed):
            landing = next(known for known in self.simulation.world.landings if known.id == landed.event.id)
            assert not self._is_rejected(landing.change, landed.seq), f"{landing} was rejected"

    def _is_rejected(self, change: str, until: float = math.inf) -> bool:
        """Whether the newest answer of a person to this change was no."""
        store = self.simulation.store
        trees = {fact.event.tree for fact in store.list_facts(e.CandidateBuilt) if fact.event.patch == change} | {
            change
        }
        answers = [fact.event for fact in store.list_facts(e.Answered) if fact.seq < until]
        return not next((answer.approved for answer in reversed(answers) if answer.tree in trees), True)

    @invariant()
    def the_run_that_follows_a_plan_is_asked_for_once(self) -> None:
        store = self.simulation.store
        asked = count_followers(self.simulation)
        ended = {fact.run: fact.event.outcome for fact in store.list_facts(e.RunEnded, plan=PLANNED)}
        for chosen in store.list_facts(PlanningChosen):
            is_due = bool(chosen.event.planning.then) and ended.get(chosen.run) is RunOutcome.DONE
            assert asked[chosen.run] == is_due or chosen.run not in ended, chosen.run
            assert asked[chosen.run] <= 1, chosen.run

    @invariant()
    def a_change_waits_under_its_own_name(self) -> None:
        """For a sign-off where the plan, the settings, a test or an earlier answer demands one; else without `auto`."""
        for state in self._list_states():
            waiting, attempt = decide(state).waiting, state.attempt
            if waiting not in ANSWERED or not isinstance(attempt, WorkAttempt):
                continue
            is_signed = "Sign-off" in attempt.chosen.text or self._is_rejected(attempt.built.patch)
            is_signed |= bool(state.options.kept.run.sign_off) and "a.py" in attempt.changed_files
            is_signed |= state.options.kept.tests.changed == "ask" and bool(attempt.proof.questions)
            assert (waiting is WaitKind.SIGN_OFF) == is_signed, decide(state)
            assert is_signed or not (state.options.auto or state.options.concludes), "nobody has to approve it"

    @invariant()
    def what_waits_for_a_person_is_in_the_inbox(self) -> None:
        store, waits = self.simulation.store, Counter[str]()
        known = self.simulation.owner.runs
        rows = store.list_unfinished_runs()
        runs = [known[row.plan].state if row.plan in known else state_of(store, row) for row in rows]
        for state in (lane for run in runs for lane in open_states(run)):
            waiting = decide(state).waiting
            change = "proposal" if isinstance(state.attempt, PlanningAttempt) else "change"
            name = {WaitKind.APPROVAL: change, WaitKind.CRASHED: "crash"}.get(waiting, waiting) if waiting else ""
            if waiting in (*FOR_ANSWER, WaitKind.CRASHED):
                waits[str(name)] += len(state.questions) if waiting is WaitKind.QUESTION else 1
        entries = [entry for entry in _list_entries(store, "/") if entry.kind != EntryKind.FAILED]
        assert Counter(str(entry.kind) for entry in entries) == waits
        assert all(entry.actions for entry in entries)

    @invariant()
    def no_two_phases_share_a_worktree(self) -> None:
        for state in self.simulation.states():
            zones = [lane.zone for lane in open_states(state) if lane.leased]
            assert len(zones) == len({*zones}), zones

    @invariant()
    def a_permit_is_held_by_work(self) -> None:
        limit = self.simulation.host.limit
        for _, plan in limit.working if limit else ():
            state = self.simulation.owner.runs[plan].state
            assert list_running(state) or not decide(state).waiting, f"{plan} waits and keeps others from working"

    @invariant()
    def nothing_crashes(self) -> None:
        assert not self.simulation.store.list_facts(StepCrashed)
        errors = [answer.error for _, answer in self.simulation.answers if answer.error]
        assert not [error for error in errors if "unexpected" in error], errors
        assert not self.simulation.host.troubles

    @invariant()
    def one_run_works_on_a_plan(self) -> None:
        plans = [row.plan for row in self.simulation.store.list_unfinished_runs()]
        assert len(plans) == len(set(plans))

    @invariant()
    def each_wait_is_named_and_shown(self) -> None:
        """The owner's decision, the notice, and the view that status, page and inbox render agree."""
        for state in self.simulation.states():
            decision = decide(state)
            assert decision.why
            if list_running(state) or not decision.waiting or self.simulation.store.list_queued_commands():
                continue
            plan = state.options.plan
            facts = self.simulation.store.read_plan_facts(plan)[plan]
            view = view_plan(
                plan,
                PlanOutline(title="X"),
                replace(facts, alive=True),
                landing="cherry-pick",
                now=self.simulation.clock.now(),
            )
            assert view.run is not None
            assert view.run.waiting_for is decision.waiting
            assert view.actions, decision
            if decision.waiting in FOR_ANSWER:
                assert view.state is PlanState.WAITING, decision
            if wait_of(decision.waiting).is_notified and state.waits <= 1:
                notice = of_waiting(state, decision, plan=plan)
                assert notice is not None, decision

    def teardown(self) -> None:
        if hasattr(self, "simulation"):
            self._end_runs()
            self._check_order()
            self.simulation.store.close()

    def _end_runs(self) -> None:
        """Each run ends when people answer and all goes well; one whose phase was reworded, when it is stopped."""
        simulation = self.simulation
        simulation.world.is_edited = False
        for plan in (PLAN, PLANNED):
            simulation.store.drop_schedule(plan)
        for number in range(24):
            simulation.work(first, first)
            if not (rows := simulation.store.list_unfinished_runs()):
                return
            for options, question in self._list_questions():
                self._submit_run(options, answered=e.QuestionAnswered(id=question, text="8080"))
            for options, tree in self._list_changes():
                answer = e.Answered(tree=tree, change=tree.partition("@")[0], approved=True, by="Uma (terminal)")
                self._submit_run(options, answer=answer)
            for row in rows:
                simulation.submit("resume" if number < 20 else "stop", row.plan)
            simulation.clock.jump(timedelta(days=1).total_seconds())
        raise AssertionError([decide(state).why for state in self.simulation.states()])

    def _check_order(self) -> None:
        """A lane has one process at a time. A phase ahead is proven, and lands, after the one below has landed."""
        below: dict[tuple[str, str], str] = {}
        landed = set[tuple[str, str]]()
        running = set[tuple[str, str]]()
        for fact in self.simulation.store.list_facts(*ORDERED):
            event, lane = fact.event, (fact.run, fact.event.lane)
            match event:
                case e.LanesChosen(ahead=ahead):
                    below |= {(fact.run, name): after for name, after, _ in ahead}
                case e.DispatchStarted(role=role):
                    assert lane not in running, event
                    running.add(lane)
                    is_early = lane in below and (fact.run, below[lane]) not in landed
                    assert not (is_early and role in (Role.GATE, Role.VERIFY, Role.PROVE, Role.BASELINE)), event
                case e.DispatchEnded():
                    running.discard(lane)
                case e.Landed(phase=phase):
                    landed.add((fact.run, phase))
                case _:
                    assert lane not in below or (fact.run, below[lane]) in landed, event


@pytest.mark.timeout(0)  # as long as it is asked to walk
@pytest.mark.parametrize("_batch", range(math.ceil(WALKS / BATCH)))
def test_every_walk_keeps_the_promises(_batch: int) -> None:
    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=min(WALKS, BATCH),
            stateful_step_count=STEPS,
            deadline=None,
            derandomize="WALKS" not in os.environ,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_number_of_walks_is_taken_from_the_caller(tmp_path: Path) -> None:
    asked = {"WALKS": "7", "WALK_STEPS": "9", "NIGHT": "3", "NIGHTS": "2"}
    assert asked.items() <= pinned({**asked, "PATH": "/bin"}, tmp_path).items()


def test_a_start_that_cannot_be_recorded_leaves_the_plan_free() -> None:
    class FullStore(MemoryStore):
        def append(self, *_: object, **_options: object) -> None:
            raise Unreachable("the disk is full")

    simulation = Simulation(a_plan({"1": "todo"}))
    simulation.store = FullStore(simulation.owners)
    simulation.restart()
    with pytest.raises(Unreachable):
        simulation.owner.begin(RunRequest(started=START))
    assert simulation.store.list_owners() == {}


def first(words: Sequence[str]) -> str:
    """Everything goes well."""
    return words[0]


def start(simulation: Simulation, plan: str, choose: Callable[[Sequence[str]], str] = first) -> None:
    started = replace(START, plan=plan, mode=Mode.FINISH)
    simulation.submit("start", plan, **to_builtins(RunRequest(started=started)))
    simulation.work(choose, first)


def list_waits(simulation: Simulation) -> dict[str, WaitKind | None]:
    return {state.options.plan: decide(state).waiting for state in simulation.states()}


def test_a_planning_run_that_is_killed_anywhere_goes_on_and_asks_for_its_run_once() -> None:
    is_killed = True
    point = 0
    while is_killed:
        point += 1
        words_left = iter([*["no"] * (point - 1), "crash"])

        def toss(words: Sequence[str], left: Iterator[str] = words_left) -> str:
            return next(left, "no") if "crash" in words else words[0]

        simulation = Simulation(a_plan({"1": "todo"}))
        started = plan_run(START, True, quick=True, approval="none")
        simulation.submit("start", PLANNED, **to_builtins(RunRequest(started=started)))
        for _ in range(3):
            simulation.work(first, toss, may_crash=True)
        followers = count_followers(simulation)
        assert [followers[run] for run in followers if run] == [1], point
        assert [landing.phase for landing in simulation.world.landings] == ["", "7"]
        is_killed = simulation.crashes > 0


def test_a_start_resumes_the_sub_plan_that_the_run_waits_for() -> None:
    """The checkout is in the way of its landing, which would be tried again in a minute; both share one permit."""
    text = a_plan({"1": "todo"}, {"1": f"Execution: plan {SUBPLAN}"})
    simulation = Simulation(text, a_plan({"4": "todo"}), slots=1)
    simulation.world.is_edited = True
    start(simulation, PLAN)
    assert list_waits(simulation) == {PLAN: WaitKind.SUBPLAN, SUBPLAN: WaitKind.CHECKOUT}
    simulation.world.is_edited = False
    simulation.work(first, first)
    assert simulation.world.landings == []
    start(simulation, PLAN)
    assert [landing.phase for landing in simulation.world.landings] == ["4", "1"]
    assert (simulation.world.plan.complete, simulation.states()) == (True, [])


def test_a_run_beyond_the_limit_waits_for_its_turn() -> None:
    simulation = Simulation(a_plan({"1": "todo"}), a_plan({"4": "todo"}), slots=1)

    def keep_running(words: Sequence[str]) -> str:
        return "running" if "running" in words else words[0]

    start(simulation, PLAN, keep_running)
    start(simulation, SUBPLAN, keep_running)
    assert list_waits(simulation) == {PLAN: None, SUBPLAN: WaitKind.SLOT}
    assert simulation.store.get_newest_run(SUBPLAN).state == RunStatus.QUEUED  # type: ignore[union-attr]
    simulation.restart()
    simulation.work(keep_running, first)  # the agent has outlived its process
    assert list_waits(simulation) == {PLAN: None, SUBPLAN: WaitKind.SLOT}
    simulation.work(first, first)
    simulation.work(first, first)
    assert [landing.phase for landing in simulation.world.landings] == ["1", "4"]
