"""The events of a run as sentences and as reasons, and how it ended; for `logs`, `explain` and the pages."""

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.store.journal import list_records
from runplan.adapters.store.protocol import Store
from runplan.app.operations.model import Caller
from runplan.domain.errors import Exit
from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.run import attempt_parts as parts, events as e
from runplan.domain.run.attempt_parts import PlanningChosen, ProposalMade, StartQueued, StepJudged
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.decide import actions_of_state, decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import REPEATED_WAITS, Mode, Reason, RunOutcome, WaitKind
from runplan.domain.run.reasons import describe_ending, describe_pause, describe_proof, describe_refused, next_action
from runplan.domain.run.recorded import Recorded, from_json
from runplan.domain.run.rows import EventRow, RunRow
from runplan.domain.run.state import RunState, apply, failed_lane, failure as failure_of
from runplan.domain.standing.actions import describe_actions
from runplan.domain.standing.usage import sum_usage
from runplan.domain.text import clock, command, counted, elapsed
from runplan.domain.times import parse_iso
from runplan.engine.loop.context import RepositoryContext, newest_run
from runplan.engine.loop.runs import find_awaited, state_of
from runplan.engine.report.sections import describe_kept_work, describe_proposal
from runplan.engine.report.summary import KINDS, PhaseRecord, PhaseSpending, summarise_attempts

TAKEOVER_S = 15.0  #: for the next daemon to take over a followed run
LINES_SHOWN = 10  #: of the output of a failed command
#: The lines of events that have no variants.
LINES: dict[type[e.Event], str] = {
    e.SubplanChosen: "\nphase {0.phase}  {0.title}\n  sub-plan   {0.subplan}",
    e.DelegateChosen: "\nphase {0.phase}  {0.title}\n  command    {0.command}",
    e.UndoChosen: "\nundo phase {0.phase}  {0.title}",
    **dict.fromkeys((e.RepairChosen, e.MergeChosen), "\n{0.title}"),
    e.CompletionChosen: "\nevery phase is done; the plan is marked complete",
    parts.SetupDoubted: "  baseline   {0.why}; it runs again after a fresh set-up",
    e.StopRequested: "  stop       requested by {0.by}",
    e.Halted: "  paused     by {0.by}",
    e.Told: "  told       by {0.by}: {0.text}",
    e.Continued: "  resumed    the pause is over",
    e.HandedOver: "  hand-over  {0.number}: {0.why}; a fresh agent continues",
    e.QuestionAsked: "  question   {0.id}: {0.text}",
    e.QuestionAnswered: "  answered   {0.id}: {0.text}",
    e.FinalVerificationDue: "  final      all phases are verified together",
    e.CandidateBuilt: "  candidate  tree {0.tree:.12} on {0.onto:.12}",
    e.ApprovalAsked: "  approval   needed before it lands",
    e.LandingHeld: "  landing    waits: {0.why}",
    e.LandingMoved: "  landing    the target moved to {0.tip:.12}; building again",
    parts.LandingRefused: "  landing    refused: {0.why}",
    parts.WorkKept: "  not pushed only the host {0.host} has the work: {0.why}",
    parts.StepCrashed: "  crashed    {0.detail} (a defect of runplan)",
    parts.HostChanged: "  host       {0.words}",
    StartQueued: "  queued     the run of the plan",
}
#: Events whose type does not say it in plain words.
WORDS = {
    "LanesChosen": "phases chosen",
    "Paused": "waiting",
    "Woke": "wait over",
    "Halted": "paused",
    "Told": "a person told the agents",
    "Leased": "worktree ready",
    "DispatchStarted": "process started",
    "DispatchEnded": "process ended",
    "GuardFound": "repository changed",
}


def event_words(event: str) -> str:
    """An event type in plain words: `worktree ready`, `run ended`."""
    return WORDS.get(event) or re.sub(r"(?<=.)([A-Z])", r" \1", event).lower()


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
        store.await_change(every_s=0.2)


@contextmanager
def open_run(caller: Caller, word: str | None) -> Iterator[tuple[RepositoryContext, Store, RunRow]]:
    """The run of this id, or the newest of the plan, or of all plans; with its journal."""
    with caller.open(lenient=True) as context:
        yield context, *newest_run(context, word)


class ExplainedStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: str
    event: str  #: its type
    phase: str
    why: str
    by: str = ""  #: who answered, and by which way


def list_steps(facts: list[Recorded[e.Event]]) -> list[ExplainedStep]:
    state = RunState()
    steps = []
    for fact in facts:
        state = apply(state, fact.event)
        lanes = {lane.lane: lane.options.wanted for lane in state.lanes}
        phase = lanes.get(fact.event.lane, "") or (state.attempt.chosen.phase if state.attempt else "")
        kind = type(fact.event).__name__
        by = fact.event.by if isinstance(fact.event, e.Answered) else ""
        steps.append(ExplainedStep(at=fact.at, event=kind, phase=phase, why=decide(state).why, by=by))
    return steps


def read_steps(store: Store, run: str) -> tuple[list[ExplainedStep], set[int]]:
    """The steps; and the places of waits that say the same as the one before, and of the wake-ups between them."""
    records = list_records(store, run)
    events = [record.event for record in records]
    repeats = set[int]()
    for place, (before, woke, wait) in enumerate(zip(events, events[1:], events[2:], strict=False)):
        if isinstance(before, e.Paused) and isinstance(woke, e.Woke) and isinstance(wait, e.Paused):
            repeats |= {place + 1, place + 2} if (before.kind, before.words) == (wait.kind, wait.words) else set()
    return list_steps(records), repeats


def describe_duration(ended: e.DispatchEnded, seconds: float) -> str:
    """How long an agent or a command took, unless that is less than a second, and the hosts that it was refused."""
    took = f"{ended.agent}, {elapsed(seconds)}" if ended.agent else f"took {elapsed(seconds)}" if seconds >= 1 else ""
    return "\n".join([*([f"  {ended.role:<10} {took}"] if took else []), *list_network_lines(ended)])


def list_network_lines(ended: e.DispatchEnded) -> list[str]:
    return [f"  network    {line}" for line in describe_refused(ended)]


def describe_event(event: e.Event) -> str:
    """The line for an event; "" for those that only the journal needs."""
    match event:
        case e.ClaimTaken(took_over=dead) if dead:
            return f"runplan: resumed the run of process {dead.partition(':')[0]}, which has ended"
        case e.PhaseChosen(phase=phase, title=title, remarks=remarks):
            return f"\nphase {phase}  {title}" + "".join(f"\n  warning    {remark}" for remark in remarks)
        case PlanningChosen(title=title, before=before):
            return f"\n{'revise the plan' if before else 'plan'}  {title}"
        case e.SubplanEnded(complete=complete, detail=detail):
            return f"  sub-plan   {'complete' if complete else detail}"
        case e.LanesChosen(lanes=lanes, ahead=ahead) if lanes:
            after = {name: f" on phase {before}, which is being proven" for name, before, _ in ahead}
            begun = (f"phase {phase} as [{name}]{after.get(name, '')}" for name, phase, _ in lanes)
            return f"\nside by side: {', '.join(begun)}"
        case e.Leased(branch=branch, parked=parked, kept=kept):
            note = f"; the earlier attempt is kept at {parked}" if parked else ""
            note = f"; continues the kept work, {kept.head[:12]}" if kept else note
            return f"  worktree   on branch {branch.removeprefix('refs/heads/')}{note}"
        case e.DispatchStarted(role=role, agent=agent, again=again, gates=gates):
            reason = f"second try: {again}" if agent else "second run, because the first failed"
            notes = f" ({event.why or reason})" if again or event.why else ""
            named = "" if gates == (e.TESTS,) else ", ".join(gates)
            model = f", {event.model}" if event.model else ""
            return f"  {role:<10} {agent or named or 'runs'}{model} …{notes}"
        case parts.SetupReused():
            return f"  setup      reused in the worktree of the {'checks' if event.tree else 'agents'}"
        case e.DispatchEnded(ending=Ending.LOST, role=role, detail=detail):
            return f"  {role:<10} left no result: {detail or 'the process is gone'}"
        case e.Paused(kind=kind, until=until) if not until or kind in REPEATED_WAITS:
            return f"  waiting    {describe_pause(event)}"
        case e.Paused(until=until):
            moment = clock(datetime.fromisoformat(until), None, now=datetime.now(UTC))
            return f"  waiting    until {moment} ({describe_pause(event)})"
        case e.WorkTaken(commits=commits, files=files):
            return f"  work       {counted(commits, 'commit')}, {counted(len(files), 'file')}"
        case e.RulesBroken(lines=lines):
            return "\n".join(f"  rules      {line}" for line in lines)
        case StepJudged(role=role, problems=problems, findings=findings):
            rows = [("refused", problem) for problem in problems] or findings
            return "\n".join(f"  {role:<10} {name}: {text}" for name, text in rows)
        case ProposalMade(path=path, text=text, is_edited=is_edited):
            return f"  proposal   {path}, {len(text):,} characters{', edited by user' if is_edited else ''}"
        case _:
            return _describe_outcome(event)


def _name_check(gate: str) -> str:
    return "" if gate == e.TESTS else f"{gate} "


def _describe_outcome(event: e.Event) -> str:
    match event:
        case e.BaselineKnown(name=name, note=note):
            return f"  baseline   {_name_check(name)}{note or 'known'}"
        case e.GateJudged(answer=answer, line=line, name=name, time=time):
            again = ("", ", second run", ", all tests")[min(time, 3) - 1]
            about = "" if line == answer else f": {line}"
            return f"  gate       {line if answer == 'skipped' else f'{_name_check(name)}{answer}{again}{about}'}"
        case e.ProofJudged():
            asked = [f"             {promise.test}: {promise.why}" for promise in event.promises]
            return "\n".join([f"  proof      {describe_proof(event)}", *asked])
        case e.VerdictGiven(passed=passed, items=items, scope=scope):
            good = sum(1 for _, ok, _ in items if ok)
            words = f"{good} of {counted(len(items), 'phase' if scope else 'item')} proven"
            if scope and passed:
                words = f"all {counted(event.work_items, 'item')} of {counted(len(items), 'phase')}"
            head = f"  verdict    {'passed' if passed else 'failed'}: {words}"
            return "\n".join([head, *(f"             {item}: {why}" for item, ok, why in items if not ok)])
        case parts.TrialJudged(findings=findings, files=files):
            kept = f", {counted(len(files), 'file')}" if files else ""
            head = f"  trial      {counted(len(findings), 'finding') if findings else 'passed'}{kept}"
            return "\n".join([head, *(f"             {text}" for text in findings)])
        case e.VerdictDoubted(items=items, why=why):
            head = f"  verdict    asked once more: {why}"
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
    ended = state.ended
    if ended is None:
        decision = decide(state)
        itself = "it continues by itself. " if decision.wake and decision.waiting is not WaitKind.ISSUE else ""
        proposal = state.attempt.proposal if isinstance(state.attempt, PlanningAttempt) else None
        return Exit.UNREACHABLE if decision.waiting is WaitKind.CRASHED else Exit.WAITING, [
            decision.why,
            *(describe_proposal(proposal) if proposal is not None else ()),
            f"{itself}{describe_actions(actions_of_state(state, decision.waiting, run.plan))}",
        ]
    code = Exit.UNREACHABLE if ended.remedy else ended.outcome.exit
    landed = _describe_landings(state)
    report = f"Report: {command('runplan', 'report', run.plan)}"
    if ended.remedy:
        lines = [f"{ended.detail}. {ended.remedy}"]
    elif ended.outcome is RunOutcome.NOTHING_TO_DO and not (state.landed or _merge_note(state)):
        lines = [f"Nothing to do: {ended.detail}"]
    elif code is Exit.DONE:
        is_left = state.no_work is not None and state.no_work.kind is NoWorkKind.ELSEWHERE
        lines = [*([f"Left: {ended.detail}"] if is_left else ()), f"Done: {landed}. {report}"]
    else:
        reason = Reason(ended.reason)
        failure = failure_of(state)
        lane = failed_lane(state)
        over = lane.ended if lane is not None and lane.ended is not None else ended
        lines = [ended.detail]
        if failure:
            phase = f"phase {failure.phase}" if failure.phase else "the plan"
            here = directory if (directory / "dispatch" / failure.dispatch).exists() else ""
            kept = describe_kept_work(failure, over.parked, here)
            lines = [f"{phase} failed at {failure.step}", *(line.replace("`", "") for line in kept)]
        lines += [landed, f"next: {next_action(reason, failure.step if failure else None)}"]
        lines += [report] if failure or state.landed else []
        lines.append(f"{'refused' if code is Exit.USAGE else 'failed'}: {reason}")
    records = (record for record in store.list_facts(*KINDS, plan=run.plan) if record.run == run.id)
    phases = list(summarise_attempts(records).values())
    used = sum_usage(PhaseSpending, (phase.spent for phase in phases))
    if not used.parts:
        return code, lines
    used = replace(used, wall_seconds=(parse_iso(run.since) - parse_iso(run.started)).total_seconds())
    before = next((phase.before for phase in phases if phase.before), "")
    after = next((phase.after for phase in reversed(phases) if phase.after), "")
    tests = PhaseRecord(id="", before=before, after=after).tests
    return code, [*lines[:-1], f"Time: {used.time_and_use}" + (f". Tests: {tests}" if tests else ""), lines[-1]]


def _merge_note(state: RunState) -> str:
    """The sentence about the merge of the pull request; "" where there was none."""
    return state.concluded.note if state.concluded is not None and not state.concluded.reason else ""


def _describe_landings(state: RunState) -> str:
    phases = [landing.phase for landing in state.landed if landing.phase]
    if state.started is not None and state.started.mode is Mode.UNDO:
        where = " on the branch of its pull request" if state.started.concludes else ""
        return f"phase {phases[0]} was reverted{where}" if phases else "nothing was changed"
    if state.started is not None and state.started.mode is Mode.PLAN and state.landed:
        plan = state.started.plan
        if state.started.planning is not None and state.started.planning.then:
            return f"{plan} landed, and the work on it was started; see: {command('runplan', 'status', plan)}"
        return f"{plan} landed; work on it: {command('runplan', 'start', plan, 'finish')}"
    if not phases:
        return _merge_note(state) or ("the plan is marked complete" if state.landed else "nothing landed")
    return f"{counted(len(phases), 'phase')} landed ({', '.join(phases)})"
