"""Shows a run while it works and when it ends: one line per fact, and a live line on a terminal. On standard error."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.cli.terminal import Style
from runplan.engine.runs import find_awaited, state_of
from runplan.errors import Exit
from runplan.report.planning import describe_proposal
from runplan.report.sections import describe_kept_work
from runplan.report.summary import figures_of_run
from runplan.run import events as e
from runplan.run.attempt_parts import SetupDoubted, SetupReused
from runplan.run.attempts import PlanningAttempt
from runplan.run.decide import decide
from runplan.run.dispatch import Ending
from runplan.run.kinds import Mode, Reason, RunOutcome
from runplan.run.planning_events import PlanningChosen, ProposalMade, StartQueued, StepJudged
from runplan.run.reasons import describe_ending, describe_pause, describe_proof, next_action
from runplan.run.recorded import from_json
from runplan.run.rows import EventRow, RunRow, wait_of
from runplan.run.state import RunState, apply, failed_lane, failure as failure_of
from runplan.text import clock, command, counted, elapsed, plain, zone_name

if TYPE_CHECKING:
    from runplan.store.protocol import Store

FOLLOW_S = 0.2  #: between two looks at a followed journal or log
TAKEOVER_S = 15.0  #: for the next daemon to take over a followed run
LINES_SHOWN = 10  #: of the output of a failed command
_COLOURS = {"landed": "green", "failed": "red", "verdict": "bold"}
_COLOURS |= dict.fromkeys(("waiting", "approval", "question"), "yellow")
#: The lines of events that have no variants.
LINES: dict[type[e.Event], str] = {
    e.StopRequested: "  stop       requested by {0.by}",
    e.Halted: "  paused     by {0.by}",
    e.Continued: "  resumed    the pause is over",
    e.HandedOver: "  hand-over  {0.number}: {0.why}; a fresh agent continues",
    e.QuestionAsked: "  question   {0.id}: {0.text}",
    e.QuestionAnswered: "  answered   {0.id}: {0.text}",
    e.FinalVerificationDue: "  final      all phases are verified together",
    e.CandidateBuilt: "  candidate  tree {0.tree:.12} on {0.onto:.12}",
    e.ApprovalAsked: "  approval   needed before it lands",
    e.LandingHeld: "  landing    waits: {0.why}",
    e.LandingMoved: "  landing    the target moved to {0.tip:.12}; building again",
    e.LandingRefused: "  landing    refused: {0.why}",
    StartQueued: "  queued     the run of the plan",
}


def follow_events(
    store: Store, plan: str, run: str, *, after: int = 0, is_followed: bool = True
) -> Iterator[tuple[list[EventRow], bool]]:
    """The new events of the run, and whether they are the last: it ended, waits for a person, or has no process."""
    worked_s = -math.inf  # when a process was last seen at work
    while True:
        # In this order: a run that ends has no owner any more, and no event after its end.
        is_worked = is_followed and store.get_living_owner(plan)
        row = store.get_run(run)
        now_s = time.monotonic()
        worked_s = now_s if is_worked else worked_s
        is_left = row is None or now_s - worked_s > (TAKEOVER_S if row.daemon else 0.0)
        is_last = is_left or row is None or not row.is_active or find_awaited(store, row).needs_person
        rows = store.list_events(run, after=after)
        yield rows, is_last
        if is_last:
            return
        after = rows[-1].seq if rows else after
        time.sleep(FOLLOW_S)


def show_event(event: e.Event) -> None:
    lane = _lane_of(event)
    text = _LIVE.note(lane, event) or event_sentence(event)
    is_live = isinstance(event, e.DispatchStarted) and sys.stderr.isatty() and not event.again
    if text and not is_live:
        _write_line(text, lane)


def _lane_of(event: e.Event) -> str:
    return f"[{event.lane}] " if event.lane else ""


def warn(text: str) -> None:
    say(f"warning: {text}")


def say(text: str) -> None:
    _write_line(f"runplan: {text}")


def _write_line(text: str, lane: str = "") -> None:
    """Print the text over the live line; a closed pipe does not end a run."""
    with contextlib.suppress(OSError, ValueError), _LIVE.lock:
        style = Style.of(sys.stderr)
        lines = [_paint_line(line, style, lane) for line in text.split("\n") if line or not lane]
        _LIVE.clear()
        print("\n".join(lines), file=sys.stderr, flush=True)


def _paint_line(line: str, style: Style, before: str = "") -> str:
    """The line in colours, wrapped below its words; `before` is a time or a lane."""
    line = plain(line)
    indent = 13 if line.startswith("  ") else 9 if line.startswith("runplan: ") else 0
    word = line.strip().partition(" ")[0]
    colour = "bold" if line.startswith(("phase ", "undo phase ")) else _COLOURS.get(word, "")
    text = style.wrap(f"{before}{line}", " " * (len(before) + indent))
    return text[: len(before)] + text[len(before) :].replace(word, style.paint(word, colour), 1) if colour else text


class LiveLine:
    """The last line of a terminal: the running processes and their elapsed time, refreshed each second."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._running: dict[str, tuple[str, str, float]] = {}  #: by lane and dispatch: role, agent, start
        self._is_shown = False
        self._is_refreshed = False  #: by a thread

    def note(self, lane: str, event: e.Event) -> str:
        """Follow the processes; the line for one that has ended."""
        with self.lock:
            match event:
                case e.DispatchStarted(id=id_, role=role, agent=agent) if sys.stderr.isatty():
                    self._running[lane + id_] = (f"{lane}{role}", agent, time.monotonic())
                    if not self._is_refreshed:
                        self._is_refreshed = True
                        threading.Thread(target=self._refresh_regularly, daemon=True).start()
                case e.DispatchEnded(id=id_) if (process := self._running.pop(lane + id_, None)) is not None:
                    if event.ending is Ending.EXITED:
                        return _describe_duration(event, time.monotonic() - process[2])
                case _:
                    pass
        return ""

    def _refresh_regularly(self) -> None:
        while True:
            time.sleep(1.0)
            with self.lock, contextlib.suppress(OSError, ValueError):
                if not self._running:
                    self._is_refreshed = False
                    self.clear()
                    return
                self._draw_line()

    def _draw_line(self) -> None:
        now = time.monotonic()
        style = Style.of(sys.stderr)
        parts = [
            f"{role:<10} {agent or 'runs'}, {elapsed(now - began)}" for role, agent, began in self._running.values()
        ]
        text = f"  {' · '.join(parts)}"[: (style.width or 80) - 1]
        print(f"\r{style.paint(text, 'dim')}\x1b[K", end="", file=sys.stderr, flush=True)
        self._is_shown = True

    def clear(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_shown = False

    def stop(self) -> None:
        with self.lock, contextlib.suppress(OSError, ValueError):
            self._running.clear()
            self.clear()


_LIVE = LiveLine()


@contextlib.contextmanager
def live_line() -> Iterator[None]:
    """Remove the live line at the end, also after an error."""
    try:
        yield
    finally:
        _LIVE.stop()


def _describe_duration(ended: e.DispatchEnded, seconds: float) -> str:
    took = elapsed(seconds)
    return f"  {ended.role:<10} {f'{ended.agent}, {took}' if ended.agent else f'took {took}'}"


def event_sentence(event: e.Event) -> str:
    """The line for an event; "" for those that only the journal needs."""
    match event:
        case e.ClaimTaken(took_over=dead) if dead:
            return f"runplan: resumed the run of process {dead.partition(':')[0]}, which has ended"
        case e.Chosen():
            return _describe_work(event)
        case e.SubplanEnded(complete=complete, detail=detail):
            return f"  sub-plan   {'complete' if complete else detail}"
        case e.LanesChosen(lanes=lanes, ahead=ahead) if lanes:
            after = {name: f" on phase {before}, which is being proven" for name, before, _ in ahead}
            begun = (f"phase {phase} as [{name}]{after.get(name, '')}" for name, phase, _ in lanes)
            return f"\nside by side: {', '.join(begun)}"
        case e.Leased(branch=branch, parked=parked, kept=describe_kept_work):
            note = f"; the earlier attempt is kept at {parked}" if parked else ""
            note = f"; continues the kept work, {describe_kept_work.head[:12]}" if describe_kept_work else note
            return f"  worktree   on branch {branch.removeprefix('refs/heads/')}{note}"
        case e.DispatchStarted(role=role, agent=agent, again=again, gates=gates):
            reason = f"second try: {again}" if agent else "second run, because the first failed"
            notes = f" ({event.why or reason})" if again or event.why else ""
            named = "" if gates == (e.TESTS,) else ", ".join(gates)
            return f"  {role:<10} {agent or named or 'runs'} …{notes}"
        case SetupReused():
            return f"  setup      reused in the worktree of the {'checks' if event.tree else 'agents'}"
        case SetupDoubted(why=why):
            return f"  baseline   {why}; it runs again after a fresh set-up"
        case e.DispatchEnded(ending=Ending.LOST, role=role):
            return f"  {role:<10} is gone and left no result"
        case e.Paused(until=until):
            moment = clock(datetime.fromisoformat(until), None, now=datetime.now(UTC))
            return f"  waiting    until {moment} ({describe_pause(event)})"
        case e.WorkTaken(commits=commits, files=files):
            return f"  work       {counted(commits, 'commit')}, {counted(len(files), 'file')}"
        case e.RulesBroken(lines=lines):
            return "\n".join(f"  rules      {line}" for line in lines)
        case StepJudged() | ProposalMade():
            return _describe_planning(event)
        case _:
            return _describe_outcome(event)


def _describe_planning(event: StepJudged | ProposalMade) -> str:
    match event:
        case StepJudged(role=role, problems=problems) if problems:
            return "\n".join(f"  {role:<10} refused: {problem}" for problem in problems)
        case StepJudged(role=role, findings=findings):
            return "\n".join(f"  {role:<10} {finding}: {text}" for finding, text in findings)
        case ProposalMade(path=path, text=text, is_edited=is_edited):
            return f"  proposal   {path}, {len(text):,} characters{', edited by user' if is_edited else ''}"


def _describe_work(chosen: e.Chosen) -> str:
    match chosen:
        case e.PhaseChosen(phase=phase, title=title, remarks=remarks):
            return f"\nphase {phase}  {title}" + "".join(f"\n  warning    {remark}" for remark in remarks)
        case e.SubplanChosen(phase=phase, title=title, subplan=subplan):
            return f"\nphase {phase}  {title}\n  sub-plan   {subplan}"
        case e.DelegateChosen(phase=phase, title=title, command=line):
            return f"\nphase {phase}  {title}\n  command    {line}"
        case e.UndoChosen(phase=phase, title=title):
            return f"\nundo phase {phase}  {title}"
        case e.RepairChosen(title=title):
            return f"\n{title}"
        case PlanningChosen(title=title, before=before):
            return f"\n{'revise the plan' if before else 'plan'}  {title}"
        case e.CompletionChosen():
            return "\nevery phase is done; the plan is marked complete"
        case _:
            return ""


def _name_check(gate: str) -> str:
    return "" if gate == e.TESTS else f"{gate} "


def _describe_outcome(event: e.Event) -> str:
    match event:
        case e.BaselineKnown(name=name, note=note):
            return f"  baseline   {_name_check(name)}{note or 'known'}"
        case e.GateJudged(answer=answer, line=line, name=name, time=time):
            again = ("", ", second run", ", all tests")[min(time, 3) - 1]
            return f"  gate       {line if answer == 'skipped' else f'{_name_check(name)}{answer}{again}: {line}'}"
        case e.ProofJudged():
            asked = [f"             {promise.test}: {promise.why}" for promise in event.promises]
            return "\n".join([f"  proof      {describe_proof(event)}", *asked])
        case e.VerdictGiven(passed=passed, items=items):
            good = sum(1 for _, ok, _ in items if ok)
            head = f"  verdict    {'passed' if passed else 'failed'}: {good} of {counted(len(items), 'item')} proven"
            return "\n".join([head, *(f"             {item}: {why}" for item, ok, why in items if not ok)])
        case e.EvidenceUnresolved(items=items):
            head = "  verdict    asked once more: no reference resolves"
            return "\n".join([head, *(f"             {item}: {missing}" for item, missing in items)])
        case e.GuardFound(lines=lines):
            return "\n".join(f"  guard      {line}" for line in lines)
        case e.CandidateConflicted(paths=paths):
            return f"  candidate  conflicts in {', '.join(paths)}"
        case e.Answered(by=by, approved=approved) if by:
            return f"  answered   {'approved' if approved else 'rejected'} by {by}"
        case e.Landed(tip=tip, note=note):
            return f"  landed     {tip[:12]}" + (f"\n             {note}" if note else "")
        case e.IssuesMarked(notes=notes) if notes:
            return "\n".join(f"  note       {note}" for note in notes)
        case e.Concluded(reason="", note=note) if note:
            return f"  merged     {note}"
        case e.PhaseFailed(reason=reason, detail=detail, output=output):
            last = output.splitlines()[-LINES_SHOWN:]
            return "\n".join([f"  failed     {reason}: {detail}", *(f"             {line}" for line in last)])
        case _:
            return LINES.get(type(event), "").format(event)


# --- logs ---------------------------------------------------------------------------------------------


class RunLog:
    """Prints a sentence for each event with its local time, and at the end how the run ended."""

    def __init__(self, store: Store, run: RunRow, directory: Path) -> None:
        self._directory = directory
        self._store = store
        self._run = run
        self._state = RunState()
        self._moment = datetime.now()  #: of the newest event
        self._day = ""

    def add(self, row: EventRow) -> None:
        event = from_json(row.type, row.body)
        if event is None:  # of another version
            return
        self._state = apply(self._state, event)
        self._moment = datetime.fromisoformat(row.at).astimezone()
        text = event_sentence(event)
        if isinstance(event, e.DispatchEnded) and not text:
            is_exit = event.ending is Ending.EXITED
            text = (
                _describe_duration(event, event.seconds) if is_exit else f"  {event.role:<10} {describe_ending(event)}"
            )
        self._print_lines(text.split("\n") if text else [], _lane_of(event))

    def look(self, *, is_last: bool) -> None:
        if is_last and (self._state.ended or decide(self._state).waiting):
            row = self._store.get_run(self._run.id) or self._run
            self._print_lines(["", *_last_lines(self._store, row, self._state, self._directory)[1]])

    def _print_lines(self, lines: list[str], lane: str = "") -> None:
        style = Style.of(sys.stdout)
        day = f"{self._moment:%Y-%m-%d} {zone_name(self._moment)}"
        if lines and day != self._day:
            print(style.paint(f"{self._run.plan}, run {self._run.id}, {day}", "bold"))
            self._day = day
        for line in lines:
            print(_paint_line(line, style, f"{self._moment:%H:%M:%S}  {lane}") if line else "")


# --- the end ------------------------------------------------------------------------------------------


def show_end(store: Store, run: str, directory: Path) -> Exit:
    """Print the last lines of a run."""
    row = store.get_run(run)
    assert row is not None
    awaited = find_awaited(store, row)
    code, lines = _last_lines(store, awaited, state_of(store, awaited), directory)
    if awaited is not row:
        itself = "" if row.daemon else f" Then continue it: {command('runplan', 'retry', row.plan)}"
        lines = [f"{row.plan} waits for {awaited.plan}.{itself}", *lines]
    _write_line("\n".join(["", *(f"runplan: {line}" for line in lines)]))
    return code


def _last_lines(store: Store, run: RunRow, state: RunState, directory: Path) -> tuple[Exit, list[str]]:
    """The exit code and the last lines: before the last one the time, cost and tests of an ended run."""
    code, lines = _summarise_run(run.plan, state, directory)
    figures = figures_of_run(store, run) if state.ended else ""
    return code, [*lines[:-1], *([figures] if figures else []), lines[-1]]


def _summarise_run(plan: str, state: RunState, directory: Path) -> tuple[Exit, list[str]]:
    """The exit code and the outcome in sentences."""
    ended = state.ended
    decision = decide(state)
    report = f"Report: {command('runplan', 'report', plan)}"
    if ended is None:
        itself = "it continues by itself. " if decision.wake else ""
        proposal = state.attempt.proposal if isinstance(state.attempt, PlanningAttempt) else None
        return Exit.WAITING, [
            decision.why,
            *(describe_proposal(proposal) if proposal is not None else ()),
            f"{itself}{wait_of(decision.waiting).help(plan)}",
        ]
    if ended.remedy:
        return Exit.UNREACHABLE, [f"{ended.detail}. {ended.remedy}"]
    landed = _describe_landings(state)
    match ended.outcome.exit:
        case Exit.DONE if ended.outcome is RunOutcome.NOTHING_TO_DO and not state.landed:
            return Exit.DONE, [f"Nothing to do: {ended.detail}"]
        case Exit.DONE:
            return Exit.DONE, [f"Done: {landed}. {report}"]
        case code:
            reason = Reason(ended.reason)
            failure = failure_of(state)
            lane = failed_lane(state)
            over = lane.state.ended if lane is not None and lane.state.ended is not None else ended
            lines = [ended.detail]
            if failure:
                phase = f"phase {failure.phase}" if failure.phase else "the plan"
                lines = [f"{phase} failed at {failure.step}"]
                lines += [line.replace("`", "") for line in describe_kept_work(failure, over.parked, directory)]
            lines += [landed, f"next: {next_action(reason, failure.step if failure else None)}"]
            lines += [report] if failure or state.landed else []
            return code, [*lines, f"{'refused' if code is Exit.USAGE else 'failed'}: {reason}"]


def _describe_landings(state: RunState) -> str:
    phases = [landing.phase for landing in state.landed if landing.phase]
    if state.started is not None and state.started.mode is Mode.UNDO:
        return f"phase {phases[0]} was reverted" if phases else "nothing was changed"
    if state.started is not None and state.started.mode is Mode.PLAN and state.landed:
        return f"{state.started.plan} landed; work on it: {command('runplan', 'start', state.started.plan, 'finish')}"
    if not phases:
        return "the plan is marked complete" if state.landed else "nothing landed"
    return f"{counted(len(phases), 'phase')} landed ({', '.join(phases)})"
