"""The journal of a run as lines, and how it ended."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from runplan.adapters.store.protocol import Store
from runplan.app.views.journal import describe_duration, describe_event, follow_events, list_network_lines
from runplan.domain.errors import Exit
from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.run import events as e
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.decide import actions_of_state, decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Mode, Reason, RunOutcome, WaitKind
from runplan.domain.run.reasons import describe_ending, next_action
from runplan.domain.run.recorded import from_json
from runplan.domain.run.rows import EventRow, RunRow
from runplan.domain.run.state import RunState, apply, failed_lane, failure as failure_of
from runplan.domain.standing.actions import describe_actions
from runplan.domain.text import command, counted
from runplan.engine.loop.context import RepositoryContext, newest_run
from runplan.engine.loop.runs import find_awaited, state_of
from runplan.engine.report.sections import describe_kept_work, describe_proposal
from runplan.engine.report.summary import figures_of_run


def lane_of(event: e.Event) -> str:
    return f"[{event.lane}] " if event.lane else ""


class RunLog:
    def __init__(self, store: Store, run: RunRow, directory: Path) -> None:
        self._directory = directory
        self._store = store
        self._run = run
        self._state = RunState()
        self._newest: dict[str, str] = {}  #: the newest text of each lane: a wait that goes on is shown once
        self.moment = datetime.now()  #: of the newest event, in local time
        self.lane = ""  #: of the newest event, as a prefix

    def read(self, rows: Sequence[EventRow]) -> Iterator[list[str]]:
        """The lines of each event; none for the beginning of a step whose end is here, too."""
        facts = [(row, from_json(row.type, row.body)) for row in rows]
        ended = {event.id for _, event in facts if isinstance(event, e.DispatchEnded)}
        for row, event in facts:
            lines = self._describe(row, event)
            yield [] if isinstance(event, e.DispatchStarted) and event.id in ended else lines

    def _describe(self, row: EventRow, event: e.Event | None) -> list[str]:
        if event is None:  # of another version
            return []
        self._state = apply(self._state, event)
        self.moment = datetime.fromisoformat(row.at).astimezone()
        self.lane = lane_of(event)
        text = describe_event(event)
        if isinstance(event, e.DispatchEnded) and not text:
            text = describe_duration(event, event.seconds)
            if event.ending is not Ending.EXITED:
                text = "\n".join([f"  {event.role:<10} {describe_ending(event)}", *list_network_lines(event)])
        if not text or self._newest.get(self.lane) == text:
            return []
        self._newest[self.lane] = text
        return text.split("\n")

    def list_last(self) -> list[str]:
        self.lane = ""
        if not self._state.ended and not decide(self._state).waiting:
            return []
        row = self._store.get_run(self._run.id) or self._run
        return ["", *_last_lines(self._store, row, self._state, self._directory)[1]]


def follow_run(context: RepositoryContext, word: str) -> Iterator[tuple[list[str], bool]]:
    """The lines of a plan's newest run as they come, with their times, and whether it ended or needs a person."""
    store, run = newest_run(context, word)
    log = RunLog(store, run, context.state)
    for rows, is_last in follow_events(store, run.plan, run.id):
        lines = [f"{log.moment:%H:%M:%S}  {log.lane}{line}" for added in log.read(rows) for line in added]
        yield [*lines, *(log.list_last() if is_last else ())], is_last


def describe_end(context: RepositoryContext, run: str) -> tuple[Exit, list[str]]:
    store = context.store()
    row = store.get_run(run)
    assert row is not None
    awaited = find_awaited(store, row)
    code, lines = _last_lines(store, awaited, state_of(store, awaited), context.state)
    if awaited is not row:
        itself = "" if row.daemon else f" Then continue it: {command('runplan', 'retry', row.plan)}"
        lines = [f"{row.plan} waits for {awaited.plan}.{itself}", *lines]
    return code, lines


def _last_lines(store: Store, run: RunRow, state: RunState, directory: Path) -> tuple[Exit, list[str]]:
    """The exit code and the last lines: before the last one the time, cost and tests of an ended run."""
    code, lines = _summarise_run(run.plan, state, directory)
    figures = figures_of_run(store, run) if state.ended else ""
    return code, [*lines[:-1], *([figures] if figures else []), lines[-1]]


def _summarise_run(plan: str, state: RunState, directory: Path) -> tuple[Exit, list[str]]:
    ended = state.ended
    decision = decide(state)
    report = f"Report: {command('runplan', 'report', plan)}"
    if ended is None:
        itself = "it continues by itself. " if decision.wake and decision.waiting is not WaitKind.ISSUE else ""
        proposal = state.attempt.proposal if isinstance(state.attempt, PlanningAttempt) else None
        return Exit.UNREACHABLE if decision.waiting is WaitKind.CRASHED else Exit.WAITING, [
            decision.why,
            *(describe_proposal(proposal) if proposal is not None else ()),
            f"{itself}{describe_actions(actions_of_state(state, decision.waiting, plan))}",
        ]
    if ended.remedy:
        return Exit.UNREACHABLE, [f"{ended.detail}. {ended.remedy}"]
    landed = _describe_landings(state)
    match ended.outcome.exit:
        case Exit.DONE if ended.outcome is RunOutcome.NOTHING_TO_DO and not (state.landed or _merge_note(state)):
            return Exit.DONE, [f"Nothing to do: {ended.detail}"]
        case Exit.DONE:
            is_left = state.no_work is not None and state.no_work.kind is NoWorkKind.ELSEWHERE
            return Exit.DONE, [*([f"Left: {ended.detail}"] if is_left else ()), f"Done: {landed}. {report}"]
        case code:
            reason = Reason(ended.reason)
            failure = failure_of(state)
            lane = failed_lane(state)
            over = lane.state.ended if lane is not None and lane.state.ended is not None else ended
            lines = [ended.detail]
            if failure:
                phase = f"phase {failure.phase}" if failure.phase else "the plan"
                lines = [f"{phase} failed at {failure.step}"]
                here = directory if (directory / "dispatch" / failure.dispatch).exists() else ""
                lines += [line.replace("`", "") for line in describe_kept_work(failure, over.parked, here)]
            lines += [landed, f"next: {next_action(reason, failure.step if failure else None)}"]
            lines += [report] if failure or state.landed else []
            return code, [*lines, f"{'refused' if code is Exit.USAGE else 'failed'}: {reason}"]


def _merge_note(state: RunState) -> str:
    """The sentence about the merge of the pull request; "" where there was none."""
    return state.concluded.note if state.concluded is not None and not state.concluded.reason else ""


def _describe_landings(state: RunState) -> str:
    phases = [landing.phase for landing in state.landed if landing.phase]
    if state.started is not None and state.started.mode is Mode.UNDO:
        where = " on the branch of its pull request" if state.started.concludes else ""
        return f"phase {phases[0]} was reverted{where}" if phases else "nothing was changed"
    if state.started is not None and state.started.mode is Mode.PLAN and state.landed:
        return f"{state.started.plan} landed; work on it: {command('runplan', 'start', state.started.plan, 'finish')}"
    if not phases:
        return _merge_note(state) or ("the plan is marked complete" if state.landed else "nothing landed")
    return f"{counted(len(phases), 'phase')} landed ({', '.join(phases)})"
