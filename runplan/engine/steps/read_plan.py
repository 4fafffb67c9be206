"""Reads the plan from the target's tip and records the next phases."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count

from msgspec.structs import replace

from runplan.adapters.forge.protocol import open_conflicts
from runplan.domain.checks.drift import find_contradictions
from runplan.domain.errors import PlanUnreadable, RefusedEarly, Unreachable
from runplan.domain.plan import model as plans, tracker
from runplan.domain.plan.marks import ExecutionKind, NoWorkKind
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import RevisionRequested
from runplan.domain.run.kinds import Mode
from runplan.domain.run.rules.lanes import list_ahead, list_bases, list_startable, may_begin_ahead
from runplan.domain.run.state import RunState, count_ahead, count_busy, open_lanes
from runplan.engine.landing.direct import Direct
from runplan.engine.landing.lander import Commanded, NeedsRepair
from runplan.engine.landing.merging import read_issues
from runplan.engine.landing.pull_request import PullRequestLander
from runplan.engine.landing.stack import TOP
from runplan.engine.steps.conclude import choose_repair, find_stale, heed_command, list_known_issues, measure_progress
from runplan.engine.steps.context import RunContext

MOST_OFF = 20  #: per cent; a phase whose own numbers differ by more is not worked on


def read_plan(state: RunState, context: RunContext) -> Iterator[e.Event]:
    lander = context.lander
    if not isinstance(lander, PullRequestLander):
        yield _choose_next(state, context)
        return
    lander = lander.of_group(TOP)  # the last attempt may have been a repair of a lower one
    context = replace(context, lander=lander)
    if state.options.issues and not state.lane:  # for the look before the merge; the forge need not answer
        known = list_known_issues(context)
        with suppress(Unreachable):
            yield from read_issues(lander.forge(), (number for number in state.options.issues if number not in known))
    answer: Commanded | NeedsRepair | None = None
    if state.landed and not state.lane:  # what people ask for before the last phase; the forge need not answer
        progress = measure_progress(state, context)
        stack = lander.stack
        with suppress(Unreachable, RefusedEarly):
            if stack is None:
                answer = lander.look_at_messages(progress)
            else:
                answer = stack.look(stack.list_begun(), progress) or find_stale(stack, progress, context)
    if isinstance(answer, Commanded):
        yield from heed_command(answer, state, context)
    elif answer is not None and not open_lanes(state):
        yield choose_repair(answer, replace(context, lander=lander.stack.worked if lander.stack else lander))
    else:
        yield _choose_next(state, context)


def _choose_next(state: RunState, context: RunContext) -> e.Event:
    started = state.options
    tip = context.lander.tip() or ""
    if isinstance(context.lander, PullRequestLander) and (closed := context.lander.closed) is not None:
        return e.Concluded(reason=closed.reason, note=closed.why)
    wanted = "" if any(landing.phase for landing in state.landed) else started.wanted
    try:
        plan, text = context.plan_at(tip)
    except PlanUnreadable as error:
        return e.NoWork(tip=tip, detail=str(error), kind=NoWorkKind.UNREADABLE)
    if started.mode is Mode.UNDO:
        phase = plan.phase(wanted)
        if phase is None or phase.status is not plans.Status.DONE:
            detail = f"phase {wanted} is not done; there is nothing to undo"
            return e.NoWork(tip=tip, detail=detail, kind=NoWorkKind.COMPLETE)
        return e.UndoChosen(tip=tip, phase=phase.id, title=phase.title, text=phase.text)
    lanes = open_lanes(state)
    worked = {lane.options.wanted: lane.touches for lane in lanes}
    if state.attempt is not None and not state.attempt.cleaned:  # it waits for an answer
        worked[state.attempt.chosen.phase] = state.attempt.chosen.touches
    is_parallel = started.mode is Mode.FINISH and started.auto
    limit = started.kept.run.parallel - (count_busy(state) if worked else 0) if is_parallel else 0
    startable = list_startable(plan, worked, limit=limit)
    startable = [phase for phase in startable if phase.execution.kind is not ExecutionKind.PLAN_FIRST]
    if worked or len(startable) > 1:
        names = map(str, count(len(state.lanes) + 1))
        begun = [(next(names), phase.id, phase.touches) for phase in startable]
        bases = list_bases(state) if may_begin_ahead(state) else {}
        worked |= {phase.id: phase.touches for phase in startable}
        ahead: list[tuple[str, str, str]] = []
        below = {lane.options.wanted: lane.after for lane in lanes}
        most = started.kept.run.pipeline - count_ahead(state)
        for later, after in list_ahead(plan, worked, bases, below, limit=most):
            name = next(names)
            begun.append((name, later.id, later.touches))
            ahead.append((name, after, bases[after]))  # it can begin on a phase that is being proven
        return e.LanesChosen(tip=tip, lanes=tuple(begun), ahead=tuple(ahead))
    if state.after:  # what it depends on is below the commit that it begins on
        plan = tracker.assume_done(plan, *(row.depends if (row := plan.phase(wanted)) else ()))
    read = choose_work(plan, text, tip=tip, wanted=wanted)
    if isinstance(read, e.PhaseChosen) and (phase := plan.phase(read.phase)) is not None:
        if phase.execution.kind is ExecutionKind.PLAN_FIRST:
            return RevisionRequested(planning=_plan_first(phase, context))
        drift, remarks = _examine_phase(plan, phase, context)
        ends = tracker.is_complete_with(plan, phase.id)
        read = replace(read, drift=drift, remarks=remarks, base=state.base if state.after else "", ends=ends)
        if read.direct and isinstance(context.direct, Direct) and (why := context.direct.describe_missing()):
            raise Unreachable(why)  # the phase may have landed there already
    return read


def _plan_first(phase: plans.Phase, context: RunContext) -> e.Planning:
    settings = context.settings.plan
    goal = (
        f"Phase {phase.id} is large, so it is planned before it is worked. Write its work items and criteria in "
        "detail, and move what is too much for one change into further phases with new ids. Remove its line "
        "`Execution:`."
    )
    return e.Planning(
        goal=goal,
        is_revision=True,
        revises=phase.id,
        quick=settings.quick,
        steps=settings.roles,
        rounds=settings.rounds,
        explorers=settings.explorers,
        approval=settings.approval,
    )


def choose_work(plan: plans.Plan, text: bytes, *, tip: str, wanted: str) -> e.Chosen | e.NoWork:
    choice = tracker.choose_phase(plan, wanted=wanted or None)
    if not isinstance(choice, tracker.NoPhase):
        return choose_execution(choice, tip=tip)
    if choice.kind is not NoWorkKind.ALL_DONE:
        return e.NoWork(tip=tip, detail=choice.detail, title=plan.title, kind=choice.kind)
    if tracker.set_completed(text, path=plan.path, completed="") == text:
        return e.NoWork(tip=tip, detail="every phase is done", kind=NoWorkKind.COMPLETE)
    return e.CompletionChosen(tip=tip, title=plan.title)


def choose_execution(phase: plans.Phase, *, tip: str) -> e.Chosen:
    same = {name: getattr(phase, name) for name in ("title", "text", "touches", "allows", "sign_off", "host", "own")}
    fields = {"tip": tip, "phase": phase.id, "items": tuple((item.id, item.text) for item in phase.items), **same}
    all_tests = {"own": replace(phase.own, tests="")}  # by which the work of another plan or of a command is proven
    match phase.execution.kind:
        case ExecutionKind.PLAN:
            return e.SubplanChosen(**fields | all_tests, subplan=phase.execution.argument)
        case ExecutionKind.DELEGATE:
            return e.DelegateChosen(**fields | all_tests, command=phase.execution.argument)
        case kind:
            return e.PhaseChosen(**fields, direct=kind is ExecutionKind.DIRECT)


def _examine_phase(plan: plans.Plan, phase: plans.Phase, context: RunContext) -> tuple[str, tuple[str, ...]]:
    """Why the text of the phase has to be revised before any work, and remarks for its report."""
    contradictions, words = find_contradictions(phase.text)
    place = f"{plan.path}:{phase.heading_line}"
    if wrong := next((words for off, words in contradictions if off > MOST_OFF), ""):
        return f"{place}: {wrong}", ()
    # A phase that was reworded after all phases that it depends on had landed is revised.
    rows = [plan.phase(name) for name in phase.depends] if words else []
    commits = [row.commit for row in rows if row is not None and row.commit]
    texts = set[str]()
    for commit in commits:
        with suppress(PlanUnreadable):
            earlier = context.plan_at(commit)[0].phase(phase.id)
            texts |= {earlier.text} if earlier is not None else set()
    if words and (not commits or phase.text in texts):
        return f"{place}: phase {phase.id} says {words!r}; revise its text and commit it", ()
    remarks = [words for _, words in contradictions]
    lander = context.lander
    if isinstance(lander, PullRequestLander) and phase.touches:
        try:
            pull = lander.find_pull()
            pulls = [below.last_pull() for below in lander.stack.list_begun()] if lander.stack else [pull]
            files = lander.forge().list_open_files(lander.target.branch)
        except Unreachable as error:
            return "", (*remarks, f"other open pull requests were not compared: {error}")
        conflicts = open_conflicts(files, phase.touches, ours={own.number for own in pulls if own is not None})
        name = f"{pull.noun} {pull.sign}" if pull else "pull request #"
        remarks += [f"{name}{number} is open and changes {path} too" for number, path in conflicts.items()]
    return "", tuple(remarks)
