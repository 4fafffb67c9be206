"""A repository without git, agents and waiting: the real store, owner, executor and decisions over a small world.

`World` stands in for git, the agents and the checks. What happens in it is drawn by `choose`, so a seed is a whole
night. Time is virtual. A crash leaves what is recorded and what the world has seen, and nothing else.
"""

import functools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.store.sql import Cursor, Store
from runplan.adapters.store.sqlite import TABLES
from runplan.domain.plan import tracker
from runplan.domain.plan.model import Plan, Status, parse_plan
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.actions import Decision
from runplan.domain.run.attempt_parts import StepJudged, TrialJudged
from runplan.domain.run.attempts import PlanningAttempt, WorkAttempt
from runplan.domain.run.dispatch import Ending, EndingKind
from runplan.domain.run.kinds import Beginning, GateAnswer, Mode, ProofKind, Reason, Role, WaitKind
from runplan.domain.run.reasons import beginning_after
from runplan.domain.run.recorded import Recorded
from runplan.domain.run.rows import Answer, ClaimResult, Command, OwnerState, WaitRow
from runplan.domain.run.rules.shared import MAX_MOVES
from runplan.domain.run.state import RunState
from runplan.domain.settings.schema import AgentsSettings, CheckSettings, RunSettings, Settings
from runplan.domain.times import iso
from runplan.engine.loop.advance import advance
from runplan.engine.loop.repository import Environments
from runplan.engine.loop.runs import ActiveRun
from runplan.engine.steps.land import find_rejection, record_move
from runplan.engine.steps.outcome import sleep
from runplan.engine.steps.planning import ask_questions, choose_goal, make_proposal, queue_start
from runplan.engine.steps.read_plan import read_plan
from runplan.hosts.commands import Executor, fire_schedule
from runplan.hosts.daemon.host import ConcurrencyLimit
from runplan.hosts.owner import RunOwner, RunRules
from tests.support.builders import a_plan

PLAN = "plans/x.md"
SUBPLAN = "plans/y.md"
PLANNED = "plans/z.md"  #: there when a planning run has landed it
START = e.RunStarted(
    plan=PLAN,
    title="X",
    mode=Mode.NEXT,
    wanted="",
    auto=True,
    daemon=True,
    landing="cherry-pick",
    target="main",
    slug="x",
    settings=Settings(
        run=RunSettings(max_fix_cycles=0),
        agents=AgentsSettings(verifier="robot"),
        tests=CheckSettings(command="make test"),
    ),
)
Choose = Callable[[Sequence[str]], str]


@functools.cache
def read_text(text: bytes, path: str) -> Plan:
    return parse_plan(text, path=path)


class Crash(BaseException):
    """The process dies here."""


class MemoryStore(Store):
    """The statements of the journal on a database in memory, which several owners share."""

    BEGIN = "BEGIN IMMEDIATE"

    def __init__(self, owners: Mapping[str, OwnerState], crash_perhaps: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._owners = owners
        self._crash_perhaps = crash_perhaps
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.executescript(TABLES.read_text())

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        yield

    def run_statement(self, sql: str, values: Sequence[object]) -> Cursor:
        return cast(Cursor, self._db.execute(sql, values))

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def get_owner_state(self, owner: str) -> OwnerState:
        return self._owners.get(owner, OwnerState.GONE)

    def add_command(self, command: Command, *, work: WaitRow | None = None) -> int:
        seq = super().add_command(command, work=work)
        self._crash_perhaps()
        return seq

    def close(self) -> None:
        self._db.close()


class VirtualClock:
    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self._now += timedelta(milliseconds=1)  # no two facts at the same moment
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class SimulatedClaims:
    """Claims whose locks are the set of living owners."""

    def __init__(self, store: Store, me: str) -> None:
        self._store = store
        self.me = me

    def take_plan(self, plan: str, *, run: str) -> ClaimResult:
        return self._store.claim_plan(plan, run=run, owner=self.me)

    def release_plan(self, plan: str, *, run: str) -> None:
        self._store.release_plan(plan, run=run, owner=self.me)

    def command_lock(self, _plan: str = "") -> Any:
        class Lock:
            def acquire(self, timeout: float) -> Any:
                return nullcontext()

        return Lock()


class Landing(Struct, frozen=True):
    id: str
    phase: str  #: "" for the plan's own completion
    tree: str
    change: str  #: what an agent wrote, whatever it stands on
    undoes: bool = False


class Work(Struct, frozen=True):
    """The newest commit of a phase's branch."""

    change: str
    base: str


class World:
    """Git, agents and checks: what the simulated steps read and change."""

    def __init__(self, clock: VirtualClock, texts: Mapping[str, bytes]) -> None:
        self.choose: Choose = lambda words: words[0]  #: mostly the first
        self.toss: Choose = lambda words: words[0]  #: each as often
        self.clock = clock
        self.path = next(iter(texts))  #: of the plan; others do phases of it
        self.texts = {"c0": dict(texts)}  #: the plans by commit
        self.tip = "c0"
        self.is_edited = False  #: the checkout is in the way of a landing
        self.landings: list[Landing] = []
        self.branches: dict[str, Work] = {}
        self.written: dict[str, str] = {}  #: the newest change of each phase; an agent may write it again
        self.may_crash = False
        self._number = 0

    def new(self, word: str) -> str:
        self._number += 1
        return f"{word}{self._number}"

    @property
    def plan(self) -> Plan:
        return read_text(self.texts[self.tip][self.path], self.path)

    def commit(self, text: bytes | None = None) -> str:
        """Move the target, with another text of the plan."""
        before = self.texts[self.tip]
        self.tip = self.new("c")
        self.texts[self.tip] = before if text is None else {**before, self.path: text}
        return self.tip

    def crash_perhaps(self) -> None:
        """Between any two effects the process may die."""
        if self.may_crash and self.toss(["no"] * 9 + ["crash"]) == "crash":
            raise Crash


class Target:
    """The lander and the objects of a run."""

    def __init__(self, world: World) -> None:
        self._world = world

    def tip(self, name: str = "") -> str:
        return name or self._world.tip


class SimulatedContext(Struct, frozen=True, kw_only=True):
    """The part of a run's context that the simulated steps use."""

    run: str
    plan: str
    store: Store
    clock: VirtualClock
    world: World
    env: Mapping[str, str]
    lander: Target
    running: dict[str, str]  #: on this machine: roles by dispatch
    lane: str = ""
    direct: None = None
    settings: Settings = START.kept

    def tip(self) -> str:
        return self.world.tip

    def iso(self) -> str:
        return iso(self.clock.now())

    def read_file(self, commit: str, path: str) -> str | None:
        text = self.world.texts[commit].get(path)
        return text.decode() if text is not None else None

    def for_state(self, state: RunState) -> "SimulatedContext":
        return replace(self, lane=state.lane)

    def plan_at(self, commit: str) -> tuple[Plan, bytes]:
        text = self.world.texts[commit][self.plan]
        return read_text(text, self.plan), text

    def failures(self, phase: str) -> list[Recorded[e.PhaseFailed]]:
        failed = [fact for fact in self.store.list_facts(e.PhaseFailed, plan=self.plan) if fact.event.phase == phase]
        landings = self.store.list_facts(e.Landed, plan=self.plan)
        landed = max((fact.seq for fact in landings if fact.event.phase == phase), default=0)
        return [fact for fact in failed if fact.seq > landed]

    @property
    def objects(self) -> Target:
        return self.lander

    @property
    def candidates(self) -> Target:
        return self.lander

    @property
    def mark(self) -> str:
        return f"{self.run}.{self.lane}" if self.lane else self.run

    # What a step asks of zones, workspace, removal and dispatches, and the world answers at once.

    @property
    def zones(self) -> "SimulatedContext":
        return self

    workspace = removal = dispatches = zones

    def hurry(self) -> None: ...
    def require_whole(self) -> None: ...
    def restore(self) -> None: ...
    def remove_stale_locks(self, refs: object) -> None: ...
    def end(self, ids: Sequence[str], grace_s: float) -> None:
        for id_ in ids:
            self.running.pop(id_, None)


class SimulatedRepository(Struct, frozen=True, kw_only=True):
    store: Store
    claims: SimulatedClaims
    clock: VirtualClock
    workspace: SimulatedContext
    dispatches: SimulatedContext
    labels: None = None


class SimulatedRules(RunRules):
    """The runs of a schedule have the settings that it was made with."""

    def settle(self, asked: e.RunStarted, context: Any) -> e.RunStarted:
        return asked if asked.settings else replace(asked, settings=START.settings)


class Here(Struct, frozen=True):
    """The context of a repository, as far as an owner needs it; the sub-plan has a short name already."""

    env: Mapping[str, str]

    def store(self) -> Any:
        return SimpleNamespace(get_newest_run=lambda _plan: SimpleNamespace(slug="y"))


# --- steps ----------------------------------------------------------------------------------------------


def act(action: a.Action, state: RunState, context: Any) -> Iterator[e.Event]:
    """Take the step of an action in the world."""
    world: World = context.world
    world.crash_perhaps()
    answer = STEPS[action.step](action, state, context)
    for event in (answer,) if isinstance(answer, e.Event) else answer:
        yield event
        world.crash_perhaps()


def _lease(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    world = context.world
    work = state.work
    phase = work.chosen.phase
    branch = f"refs/heads/runplan/x/{phase or 'repair'}"
    earlier = context.store.count_leases(context.plan, branch)
    tip = work.chosen.tip
    failures = context.failures(phase)
    kept = None
    if failures and not state.options.anew and (left := world.branches.get(phase)):
        failure = failures[-1].event
        beginning = beginning_after(failure, is_changed=False, has_fixers=state.options.kept.run.max_fix_cycles > 0)
        if beginning is not Beginning.ANEW:
            kept = e.KeptWork(
                ref=branch, head=left.change, tree=left.change, base=tip, beginning=beginning, complaint=failure.detail
            )
    if kept is None:
        world.branches.pop(phase, None)
    yield e.Leased(
        phase=phase, branch=branch, base=tip, base_tree=f"tree-{tip}", worktree="w", attempt=earlier + 1, kept=kept
    )


def _start(action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    assert isinstance(action, a.Start)
    world = context.world
    wanted = action.dispatch
    if wanted.role is Role.BASELINE and world.choose(["known", "new"]) == "known":
        yield from (e.BaselineKnown(key="k", tree=wanted.tree, results="", name=name) for name in wanted.gates)
        return
    started = replace(wanted, id=world.new("d"), agent="robot", at=iso(context.clock.now()))
    yield started
    context.running[started.id] = wanted.role


def _await(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    world = context.world
    started = state.current.dispatches.running
    assert started is not None
    common: dict[str, Any] = {"id": started.id, "role": started.role, "phase": started.phase}
    if started.id not in context.running:  # the process died between the record and its start
        yield e.DispatchEnded(**common, ending=Ending.LOST, code=None)
        return
    is_agent = bool(started.role.agent)
    endings = ["done", "running", "failed"]
    if is_agent:
        endings += ["limit", "timeout", "crashed", *(["asks"] if started.role.is_writer else [])]
    ending = world.choose(endings)
    if ending == "running":
        return
    del context.running[started.id]
    agent = "robot" if is_agent else ""
    match ending:
        case "limit":
            yield e.DispatchEnded(**common, ending=Ending.EXITED, code=1, agent=agent, kind=EndingKind.LIMIT)
            until = iso(context.clock.now() + timedelta(hours=2))
            yield e.AgentLimited(agent="robot", account="a", until=until, words="limit")
        case "timeout":
            yield e.DispatchEnded(
                **common, ending=Ending.TIMEOUT, code=None, agent=agent, kind=EndingKind.TIMED_OUT if is_agent else ""
            )
        case "asks":
            yield e.DispatchEnded(**common, ending=Ending.EXITED, code=0, agent=agent, said="blocked", detail="port?")
        case "failed" | "crashed":
            kind = EndingKind.CRASHED if is_agent else ""
            yield e.DispatchEnded(**common, ending=Ending.EXITED, code=1, agent=agent, kind=kind)
        case _:
            said = "done" if started.role.is_writer else ""
            yield e.DispatchEnded(**common, ending=Ending.EXITED, code=0, agent=agent, said=said)


def _end(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    started = state.current.dispatches.running
    assert started is not None
    context.running.pop(started.id, None)
    yield e.DispatchEnded(id=started.id, role=started.role, ending=Ending.ENDED, code=None, phase=started.phase)


def _take_work(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    world = context.world
    phase = state.work.chosen.phase
    left = world.branches.get(phase)
    kind = world.choose(["work", "nothing", "broken"])
    match world.toss(["new", "same"]) if kind == "work" and phase in world.written else kind:
        case "broken":
            yield e.RulesBroken(tree=world.new("t"), reason=Reason.TAMPERED, lines=("x",))
            return
        case "nothing" if left is None:
            yield e.WorkTaken(head=state.work.base, tree=f"tree-{state.work.base}", commits=0)
            return
        case "same":
            change = world.written[phase]
        case _:
            change = world.new("t")
    world.written[phase] = change
    world.branches[phase] = Work(change, state.work.base)
    yield e.WorkTaken(head=change, tree=change, commits=1, files=(world.toss(["a.py", "a.txt"]),))


def _merge_target(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    world = context.world
    made, tip = world.new("t"), state.work.chosen.tip
    world.branches[""] = Work(made, tip)
    if world.choose(["merged", "conflict"]) == "merged":
        yield e.WorkTaken(head=made, tree=made, commits=1)
        return
    yield e.CandidateConflicted(onto=tip, paths=("a",))
    yield e.BranchRebuilt(base=made, base_tree=made, parked="refs/runplan/parked/x", complaint="a conflict in a")


def _build(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    world = context.world
    work = state.work
    assert work.work is not None
    onto = world.tip
    if onto != work.base and world.choose(["fits", "conflict"]) == "conflict":
        yield e.CandidateConflicted(onto=onto, paths=("a",))
        return
    change = work.work.head
    tree = change if onto == work.base else f"{change}@{onto}"
    built = e.CandidateBuilt(
        onto=onto,
        onto_tree=f"tree-{onto}",
        commits=(f"{change}@{onto}",),
        tree=tree,
        patch=change,
        change=change,
        proofs=_proofs(world),
    )
    yield replace(built, rejected=find_rejection(built, cast(Any, context)))


def _proofs(world: World) -> tuple[e.ProofRun, ...]:
    kinds = ProofKind if world.choose(["none", "all"]) == "all" else ()
    return tuple(e.ProofRun(kind=kind, commit="c", tree=world.new("t")) for kind in kinds)


def _build_undo(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    world = context.world
    phase = state.current.chosen.phase
    row = context.plan_at(world.tip)[0].phase(phase)
    if row is None or row.status is not Status.DONE:
        yield e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail="undone meanwhile")
        return
    landing = next(landing for landing in reversed(world.landings) if landing.phase == phase)
    tree = world.new("undo")
    commits = (f"{tree}@{world.tip}",)
    yield e.CandidateBuilt(
        onto=world.tip,
        onto_tree=f"tree-{world.tip}",
        commits=commits,
        tree=tree,
        patch=tree,
        undoes=landing.id,
        undone=(landing.tree,),
    )


def _rebuild(action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    assert isinstance(action, a.RebuildBranch)
    if not action.tree:
        context.world.branches.pop(state.work.chosen.phase, None)
    yield e.BranchRebuilt(
        base=action.onto,
        base_tree=f"tree-{action.onto}",
        parked="refs/runplan/parked/x",
        complaint=action.complaint,
        tree=action.tree,
        start=action.start,
    )


def _land(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    """Intent, swap, observed; a crash may come between any two of them."""
    world = context.world
    attempt = state.current
    recorded = attempt.delivery.landing
    if recorded is not None and any(landing.id == recorded.id for landing in world.landings):
        yield e.Landed(id=recorded.id, phase=attempt.chosen.phase, tip=recorded.new, code=recorded.code)
        return
    candidate = attempt.delivery.candidate
    onto = candidate.onto if candidate else attempt.chosen.tip
    text = world.texts[world.tip].get(context.plan, b"")
    if isinstance(attempt, PlanningAttempt) and attempt.proposal is not None:
        text, onto = attempt.proposal.text.encode(), world.tip
    plan = read_text(text, context.plan)
    row = plan.phase(attempt.chosen.phase)
    is_undo = isinstance(attempt.chosen, e.UndoChosen)
    if recorded is None:
        if world.tip != onto:
            yield record_move(cast(Any, context), onto, world.tip)
            return
        if row is not None and (row.status is Status.DONE) is not is_undo:
            yield e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail="done meanwhile")
            return
        if row is not None and not is_undo and row.text.rstrip() != attempt.chosen.text.rstrip():
            yield e.LandingHeld(why="the phase was reworded")
            return
        is_last = isinstance(attempt, WorkAttempt) and row is not None and not attempt.is_last
        is_last = is_last and not isinstance(attempt.chosen, e.SubplanChosen)
        others = [phase for phase in plan.phases if phase.id != attempt.chosen.phase]
        if is_last and not is_undo and all(phase.status is Status.DONE for phase in others):
            yield e.FinalVerificationDue(tree=attempt.built.tree)
            return
        code = candidate.commits[-1] if candidate else onto
        recorded = e.LandingStarted(
            id=f"{context.mark}.{len(state.landed) + 1}", ref="refs/heads/main", old=onto, new=world.new("c"), code=code
        )
        if isinstance(attempt, WorkAttempt) and candidate is not None:
            _require_proof(attempt, state.options.kept)
        yield recorded
    if world.tip != recorded.old:
        yield record_move(cast(Any, context), recorded.old, world.tip)
        return
    if world.is_edited:
        yield e.LandingHeld(why="a.txt is edited")
        return
    if row is not None:
        status = Status.TODO if is_undo else Status.DONE
        text = tracker.set_status(text, path=context.plan, phase=row.id, status=status)
        text = tracker.set_completed(text, path=context.plan, completed=None) if is_undo else text
    rows = read_text(text, context.plan).phases
    if not is_undo and all(phase.status is Status.DONE for phase in rows):
        text = tracker.set_completed(text, path=context.plan, completed=iso(context.clock.now()))
    world.texts[recorded.new] = {**world.texts[world.tip], context.plan: text}
    world.tip = recorded.new
    tree = candidate.tree if candidate else ""
    change = candidate.patch if candidate else attempt.answerable
    world.landings.append(Landing(recorded.id, attempt.chosen.phase, tree, change, undoes=is_undo))
    world.crash_perhaps()
    yield e.Landed(id=recorded.id, phase=attempt.chosen.phase, tip=recorded.new, code=recorded.code)


def _require_proof(work: WorkAttempt, kept: Settings) -> None:
    """What lands is what gate, verdict, proofs and trial are about."""
    built, proof = work.built, work.proof
    assert (proof.gates[-1].tree, proof.gates[-1].answer) == (built.tree, GateAnswer.PASSED)
    if isinstance(work.chosen, e.MergeChosen) and not work.rebuilt:
        return  # no agent has changed anything
    assert proof.verdict is not None
    assert proof.verdict.passed
    assert built.tree == proof.verdict.tree or built.patch == proof.verdict.patch
    assert kept.tests.prove == "off" or {*proof.newest_runs} >= {run.kind for run in built.proofs}
    assert proof.questions in [verdict.questions for verdict in proof.verdicts]
    if "a.py" in work.changed_files and kept.trial.paths:
        assert proof.trial is not None
        assert not proof.trial.findings


def _judge_trial(_action: a.Action, state: RunState, context: SimulatedContext) -> e.Event:
    built = state.work.built
    word = context.world.choose(["fine", "found", "invalid"])
    if word == "invalid":
        return e.WorkRefused(reason=Reason.INVALID_VERDICT, detail="x")
    found = ("it is blank",) if word == "found" else ()
    return TrialJudged(tree=built.tree, patch=built.patch, agent="robot", dispatch="d", findings=found)


def _judge_gate(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    work = state.work
    newest = work.dispatches.newest if work.dispatches.ended else None
    for name in (newest.gates if newest else ()) or ("tests",):
        before = work.proof.newest_gates.get(name)
        answer = GateAnswer(context.world.choose(["passed", "failed", "unfinished"]))
        time = before.time + 1 if before else 1
        yield e.GateJudged(tree=work.built.tree, answer=answer, code=0, line="x", time=time, name=name)


def _judge_baseline(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    work = state.work
    if context.world.choose(["fine", "red"]) == "red":
        yield e.WorkRefused(reason=Reason.BASELINE_RED, detail="x")
        return
    newest = work.dispatches.newest if work.dispatches.ended else None
    tree = work.built.onto_tree if work.delivery.candidate else work.leased.base_tree
    for name in (newest.gates if newest else ()) or ("tests",):
        yield e.BaselineKnown(key="k", tree=tree, results="", name=name)


def _judge_proof(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    work = state.work
    assert work.dispatches.newest is not None
    kind = ProofKind(work.dispatches.newest.scope)
    time = work.proof.newest_runs[kind].time + 1 if kind in work.proof.newest_runs else 1
    is_broken = context.world.choose(["kept", "broken"]) == "broken"
    promises = (e.Promise(test="a.py::test_a", why="x"),) if is_broken else ()
    yield e.ProofJudged(tree=work.built.tree, kind=kind, line="x", time=time, promises=promises)


def _judge_verdict(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    work = state.work
    newest = work.dispatches.newest
    scope = newest.scope if newest else ""
    again = ["doubted"] if work.proof.doubted is None else []
    word = context.world.choose(["pass", "fail", "invalid", *again])
    if word == "doubted":
        yield e.VerdictDoubted(patch=work.built.patch, why="x", items=(("W1", "names nothing"),))
    elif word == "invalid":
        yield e.WorkRefused(reason=Reason.INVALID_VERDICT, detail="too short")
    else:
        yield e.VerdictGiven(
            tree=work.built.tree,
            patch=work.built.patch,
            passed=word == "pass",
            items=(("W1", word == "pass", "seen"),),
            agent=newest.agent if newest else "robot",
            scope=scope,
            questions=() if scope else work.proof.questions,
        )


def _judge_step(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    world, ended = context.world, state.planning.dispatches.ended
    assert ended is not None
    judged = StepJudged(role=ended.role, dispatch=ended.id)
    if world.choose(["valid", "refused"]) == "refused":
        yield replace(judged, problems=("too short",))
        return
    is_plan = ended.role in (Role.DRAFT, Role.REVISE)
    yield replace(
        judged,
        text=a_plan({"7": "todo"}, {"7": f"Touches: a.py\n\n{world.new('text')}."}).decode() if is_plan else "x",
        findings=(("F1", "x"),) if ended.role is Role.CRITIQUE and world.toss(["good", "bad"]) == "bad" else (),
        questions=("port?",) if ended.role is Role.UNDERSTAND and world.toss(["clear", "unclear"]) == "unclear" else (),
    )


def _propose(_action: a.Action, state: RunState, context: SimulatedContext) -> e.Event:
    return make_proposal(state.planning.draft.text, context.store, path=context.plan)


def _ask_question(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    ended = state.current.dispatches.ended
    assert ended is not None
    yield e.QuestionAsked(id=ended.id, text=ended.detail, phase=state.current.chosen.phase)


def _ask(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    yield e.ApprovalAsked(tree=state.current.answerable)


def _fail(action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    assert isinstance(action, a.Fail)
    attempt = state.current
    words = filter(None, (*attempt.rejections, attempt.rejected))
    work = attempt.work if isinstance(attempt, WorkAttempt) else None
    lease = attempt.lease if isinstance(attempt, WorkAttempt) else None
    left = context.world.branches.get(attempt.chosen.phase)
    yield e.PhaseFailed(
        phase=attempt.chosen.phase,
        reason=action.reason,
        step=action.at,
        detail=action.detail,
        rejected="\n\n".join(words) if attempt.rejections or attempt.rejected is not None else None,
        tree=work.tree if work else "",
        head=left.change if left else "",
        branch=lease.branch.removeprefix("refs/heads/") if lease and left else "",
    )


def _clean_up(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    if state.current.delivery.landed is not None:
        context.world.branches.pop(state.current.chosen.phase, None)
    yield e.CleanedUp(phase=state.current.chosen.phase)


def _conclude(_action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    """A look at the pull request: it is merged, waits, needs a repair, or was closed."""
    world = context.world
    assert context.plan_at(world.tip)[0].complete, "phases are left"
    asks = e.RepairChosen(tip=world.tip, title="Repair", text="red", items=(("P", "x"),))
    match world.choose(["merged", "checks", "review", "repair", "behind", "closed"]):
        case "merged":
            yield e.Concluded(note="merged")
        case "repair" if state.repairs < state.options.kept.run.max_fix_cycles:
            yield asks
        case "behind" if state.updates < MAX_MOVES:
            yield e.MergeChosen(tip=asks.tip, title="Merge", text="conflicts", items=asks.items, merge=world.new("c"))
        case "closed":
            yield e.Concluded(reason=Reason.PR_CLOSED, note="closed")
        case word:
            kind = WaitKind.REVIEW if word == "review" else WaitKind.CHECKS
            yield e.Paused(kind=kind, until=iso(context.clock.now() + timedelta(minutes=1)), words=word)


def _finish(action: a.Action, state: RunState, context: SimulatedContext) -> Iterator[e.Event]:
    assert isinstance(action, a.Finish)
    yield e.RunEnded(outcome=action.outcome, reason=action.reason, detail=action.detail)


STEPS: dict[str, Callable[[a.Action, RunState, Any], e.Event | Iterable[e.Event]]] = {
    "read-plan": lambda _, state, context: read_plan(state, context),
    "lease": _lease,
    "start": _start,
    "await": _await,
    "sleep": lambda _, state, context: sleep(state, context),
    "end": _end,
    "take-work": _take_work,
    "ask-question": _ask_question,
    "judge-baseline": _judge_baseline,
    "judge-gate": _judge_gate,
    "judge-proof": _judge_proof,
    "judge-verdict": _judge_verdict,
    "judge-trial": _judge_trial,
    "choose-goal": lambda _, state, context: choose_goal(state, context),
    "judge-step": _judge_step,
    "ask-questions": lambda _, state, context: ask_questions(state, context),
    "propose": _propose,
    "queue-start": lambda _, state, context: queue_start(state, context),
    "build-candidate": _build,
    "build-undo": _build_undo,
    "rebuild-branch": _rebuild,
    "ask": _ask,
    "land": _land,
    "merge-target": _merge_target,
    "conclude": _conclude,
    "fail": _fail,
    "clean-up": _clean_up,
    "finish": _finish,
}


# --- the process ----------------------------------------------------------------------------------------


class SimulatedHost:
    """A daemon's host that returns to the walk instead of waiting."""

    root = only = name = ""

    def __init__(self, slots: int) -> None:
        """So many runs work at once; 0 for a terminal, which has no limit."""
        self.limit = ConcurrencyLimit(host=slots, repository=slots, wake=lambda _root: None) if slots else None
        self.told: list[tuple[RunState, Decision]] = []
        self.troubles: list[Exception] = []

    def is_mine(self, _plan: str) -> bool:
        return True

    def may_begin(self) -> bool:
        return True

    def execute_commands(self) -> None: ...
    def wait(self, _dispatches: list[str], _wake: datetime | None) -> bool:
        return False

    def tell(self, plan: str, run: str, event: e.Event, phase: str) -> None: ...
    def tell_wait(self, _plan: str, _run: str, state: RunState, decision: Decision) -> None:
        self.told.append((state, decision))

    def tell_trouble(self, _plan: str, error: Exception) -> None:
        self.troubles.append(error)

    def tell_end(self, plan: str, run: str, state: RunState) -> None: ...
    def leave(self, active: ActiveRun) -> None: ...
    def lose(self, active: ActiveRun) -> None: ...


class Simulation:
    """One repository with a plan and its sub-plan, worked by one process after the other."""

    def __init__(self, text: bytes, subplan: bytes = b"", *, slots: int = 0) -> None:
        self.clock = VirtualClock()
        self.world = World(self.clock, {PLAN: text, SUBPLAN: subplan})
        self._slots = slots
        self.owners: dict[str, OwnerState] = {}
        self.store: Store = MemoryStore(self.owners, self.world.crash_perhaps)
        self.running: dict[str, str] = {}
        self.answers: list[tuple[Command, Answer]] = []
        self.crashes = 0
        self.restart()

    def restart(self) -> None:
        """Another process takes the place of the one that died."""
        self.owners.clear()
        me = self.world.new("process")
        self.owners[me] = OwnerState.RUNNING
        self.host = SimulatedHost(self._slots)
        context = self._open_run(Here({}), None, run="", started=START)
        repository = SimulatedRepository(
            store=self.store,
            claims=SimulatedClaims(self.store, me),
            clock=self.clock,
            workspace=context,
            dispatches=context,
        )
        self.owner = RunOwner(
            self.host,
            Environments({}),
            SimulatedRules(),
            open_run=cast(Any, self._open_run),
            advance=lambda journal, run, may_begin: advance(journal, run, may_begin, act),
        )
        self.owner.open(cast(Any, Here({})), cast(Any, repository))

    def _open_run(
        self, context: Here, _repository: object, *, run: str, started: e.RunStarted, seen: object = None
    ) -> SimulatedContext:
        del seen
        return SimulatedContext(
            run=run,
            plan=started.plan,
            store=self.store,
            clock=self.clock,
            world=self.world,
            env=context.env,
            lander=Target(self.world),
            running=self.running,
            settings=started.kept,
        )

    def submit(self, verb: str, plan: str = PLAN, **arguments: object) -> None:
        command = Command(plan=plan, verb=verb, arguments=arguments, by="a person", at=iso(self.clock.now()))
        self.store.add_command(command)

    def work(self, choose: Choose, toss: Choose, *, may_crash: bool = False) -> None:
        """Let the process do what is due; a crash ends it, and the next one begins where the journal stands."""
        self.world.choose = choose
        self.world.toss = toss
        self.world.may_crash = may_crash
        try:
            for row in self.store.list_unfinished_runs():
                self.owner.adopt(row.plan)
            self.answers += Executor(self.owner).execute_queued(begins=True)
            for schedule in self.store.list_schedules():
                fire_schedule(schedule, self.owner, self.clock.now())
            self.owner.work()
        except Crash:
            self.crashes += 1
            self.restart()
        finally:
            self.world.may_crash = False

    def states(self) -> list[RunState]:
        return [active.state for active in self.owner.runs.values()]
