"""What a person can do next about a plan. Interfaces show it as a command line, a button or text. Cheap to import."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.run.kinds import PhaseStep, Reason, RunStatus, WaitKind
from runplan.domain.run.rows import PlanFacts, RunRow, ScheduleRow, wait_of
from runplan.domain.text import command

#: The labels that are not the verb itself.
_LABELS = {"diff": "Review", "logs": "Look at it", "now": "Run now", "retry": "Continue", "start": "Start …"}
_OF_PHASE = ("diff", "approve", "reject", "explain")  #: a retry of a phase would work on nothing else
#: What follows a request that was accepted, by its verb; `revise` is a rejection with words.
EFFECTS = {
    "approve": "Approved: it lands.",
    "reject": "Rejected: the run ends, and what was made is kept.",
    "revise": "Sent: an agent takes up your words, and you are asked again.",
    "answer": "Answered: an agent continues with your words.",
    "plan": "Accepted: agents write the plan, and you are asked before any work.",
    "stop": "Stop requested: its work is kept.",
    "pause": "Pause requested: the current step finishes.",
    **dict.fromkeys(("start", "retry", "resume", "now"), "Accepted: the work goes on, now or at its time."),
    "work": "Accepted: ready plans are worked on, one after the other.",
    "queue": "The queue has the new order.",
    "forget": "Forgotten: agents are not told it again.",
    "tell": "Told: a running agent that takes messages reads it now, else the next one first.",
}


class NextAction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    verb: str  #: the operation
    plan: str
    phase: str = ""
    id: str = ""  #: of a question
    text: str = ""  #: the words of the command for what the person writes
    label: str
    confirm: str = ""  #: a question before it is done
    fresh: bool = False  #: a retry begins the phase anew
    is_usual: bool = False  #: nothing calls for it, so a terminal does not list it

    @property
    def command(self) -> str:
        line = command("runplan", self.verb, self.id or self.plan, *([self.phase] if self.phase else []))
        return f"{line}{' --fresh' if self.fresh else ''} {self.text}".rstrip()


def describe_actions(actions: Iterable[NextAction]) -> str:
    return "; ".join(f"{action.label}: {action.command}" for action in actions)


def actions_of_wait(
    kind: WaitKind | None, plan: str, phase: str = "", *, questions: Sequence[str] = (), is_proposal: bool = False
) -> tuple[NextAction, ...]:
    """What helps with a wait; of several open questions, each is answered by its id."""
    actions = []
    for verb in (*wait_of(kind).verbs, *(["edit"] if is_proposal else [])):
        if verb == "reject":
            actions.append(NextAction(verb=verb, plan=plan, phase=phase, text="-m TEXT", label="Request changes"))
        for id_ in questions if verb == "answer" and len(questions) > 1 else [""]:
            label = "Resume from a shell that has it" if kind == WaitKind.KEY else ""
            action = make_action(verb, plan, label, phase if verb in _OF_PHASE else "")
            actions.append(replace(action, id=id_, text="TEXT" if verb == "answer" else ""))
    return tuple(actions)


def list_actions(
    plan: str,
    facts: PlanFacts,
    *,
    failed: Sequence[str],
    following: str | None,
    is_complete: bool,
    is_stuck: bool,
    is_shelved: bool = False,
) -> tuple[NextAction, ...]:
    """What a person can do about a plan, the most useful first; nothing while a command is not executed yet.

    `failed` are the phases that can be retried, `following` is the one that a start would work on. Nothing can begin on
    a plan that is shelved: it is gone, or its own status says that it is not to be worked.
    """
    run = facts.run
    if facts.queued:
        return ()
    if run is not None and run.is_active:
        actions = _actions_of_run(plan, run, facts, is_stuck=is_stuck)
        actions += [action for action in _actions_of_schedule(plan, facts.schedule) if action.verb != "now"]
        actions = [action for action in actions if not (is_shelved and action.verb == "resume")]
        return tuple({(action.verb, action.id, action.text, action.phase): action for action in actions}.values())
    has_ended_badly = run is not None and run.state in (RunStatus.FAILED, RunStatus.STOPPED) and not is_complete
    fresh = make_action("retry", plan, fresh=True)
    if run is not None and run.reason == Reason.NO_PROGRESS:  # a retry that goes on from there may fail as well
        fresh = replace(fresh, is_usual=False)
    actions = [make_action("retry", plan, "Retry"), fresh] if has_ended_badly else []
    actions += [make_action("retry", plan, f"Retry phase {phase}", phase) for phase in failed]
    actions += _actions_of_schedule(plan, facts.schedule)
    if has_ended_badly or (is_complete and run is not None):
        actions.append(make_action("report", plan, is_usual=not has_ended_badly))
    if following and facts.schedule is None:
        actions.append(make_action("start", plan))
    return tuple(action for action in actions if not is_shelved or action.verb in ("stop", "report"))


def make_action(
    verb: str, plan: str, label: str = "", phase: str = "", *, fresh: bool = False, is_usual: bool = False
) -> NextAction:
    confirm = f"Stop {plan}? Its work is kept." if verb == "stop" else ""
    confirm = "Reject it, and end the run? What was made is kept." if verb == "reject" else confirm
    if fresh:
        label, confirm = "Retry from scratch", "Begin the phase anew? Its kept work is parked."
    is_usual = is_usual or fresh or verb in ("pause", "start", "stop")
    label = label or _LABELS.get(verb, verb.capitalize())
    action = NextAction(verb=verb, plan=plan, phase=phase, label=label, confirm=confirm)
    return replace(action, fresh=fresh, is_usual=is_usual)


def _actions_of_schedule(plan: str, schedule: ScheduleRow | None) -> list[NextAction]:
    if schedule is None:
        return []
    if schedule.paused:
        return [make_action("resume", plan), make_action("now", plan), make_action("stop", plan)]
    return [make_action("now", plan, is_usual=True), make_action("pause", plan), make_action("stop", plan)]


def _actions_of_run(plan: str, run: RunRow, facts: PlanFacts, *, is_stuck: bool) -> list[NextAction]:
    if run.asked == "stop" and facts.alive:
        return []
    actions: list[NextAction] = []
    for work in (run, *run.lanes):
        if work.waiting_for and wait_of(work.waiting_for).is_for_person:
            is_proposal = work.step == PhaseStep.APPROVE
            phase = work.phase or ""
            actions += actions_of_wait(work.waiting_for, plan, phase, questions=run.questions, is_proposal=is_proposal)
    is_left = not facts.alive and not facts.in_fleet  # another host of a fleet continues it
    if not actions and is_left and (run.waiting_for is None or run.wake is not None):
        actions.append(make_action("retry", plan))
    if not actions and is_stuck and facts.alive:
        actions.append(make_action("logs", plan))
    if run.asked == "pause" and all(action.verb != "resume" for action in actions):
        actions.append(make_action("resume", plan))
    actions.append(make_action("stop", plan))
    if not (run.waiting_for or run.asked) and facts.alive:
        actions.append(make_action("pause", plan))
    return actions
