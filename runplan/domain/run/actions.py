"""Decisions, and their actions, which steps carry out. A step finds the rest in the state of the run."""

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.run.events import DispatchStarted, Paused
from runplan.domain.run.kinds import PhaseStep, Reason, RunOutcome, WaitKind
from runplan.domain.run.reasons import describe_pause


class Action(Struct, frozen=True, kw_only=True):
    step: str
    lane: str = ""  #: the one of several phases side by side that it is for


READ_PLAN = Action(step="read-plan")  #: read the plan from the target's tip and choose the next phase
LEASE = Action(step="lease")  #: switch the run's worktree to the phase's branch
AWAIT = Action(step="await")  #: record the end of the process, if it has ended
END = Action(step="end")  #: end the running process on request
SLEEP = Action(step="sleep")  #: end the pause, if its time has come
AWAIT_HOST = Action(step="await-host")  #: leave the phase to a host that has its labels
HAND_OVER = Action(step="hand-over")  #: keep the work of an agent whose context is full, for its successor
TAKE_WORK = Action(step="take-work")  #: commit the agent's changes and inspect them
JUDGE_BASELINE = Action(step="judge-baseline")  #: read the results of the checks on the base
JUDGE_GATE = Action(step="judge-gate")  #: read the results of the checks on the candidate, or record that none ran
JUDGE_PROOF = Action(step="judge-proof")  #: read the results of old tests on new code, or of new tests on old code
JUDGE_VERDICT = Action(step="judge-verdict")  #: read the verifier's reply, and check that it changed nothing
JUDGE_TRIAL = Action(step="judge-trial")  #: read what the trial found, and keep its files
TAKE_DELEGATED = Action(step="take-delegated")  #: look what the command of the phase has landed
BUILD_CANDIDATE = Action(step="build-candidate")  #: replay the phase's commits on the target's tip
BUILD_UNDO = Action(step="build-undo")  #: revert a landed phase on the target's tip
ASK_QUESTION = Action(step="ask-question")  #: keep the work of an agent, and ask a person its question
ASK = Action(step="ask")  #: ask a person for approval
CHOOSE_GOAL = Action(step="choose-goal")  #: read what a planning run is about from the target's tip
ASK_QUESTIONS = Action(step="ask-questions")  #: ask a person the questions of a planning step
JUDGE_STEP = Action(step="judge-step")  #: check the output of a planning step
PROPOSE = Action(step="propose")  #: write the plan that a person approves
QUEUE_START = Action(step="queue-start")  #: queue the run of the approved plan
LAND = Action(step="land")  #: move the target, once: code, tracker and report together
CONCLUDE = Action(step="conclude")  #: every phase has landed: the pull request, its checks, its merge
REVIEW = Action(step="review")  #: have an agent handle comments of the pull request's reviewers
CLAIM_ISSUES = Action(step="claim-issues")  #: show on the forge that the run works on its issues
MERGE_TARGET = Action(step="merge-target")  #: merge the target into the branch; conflicts are left to an agent
PUSH_WORK = Action(step="push-work")  #: push the work, so that another host can continue it
TAKE_OVER = Action(step="take-over")  #: continue on this host what another one has begun
CLEAN_UP = Action(step="clean-up")  #: remove branch and candidate; keep work that is not on the target
START = "start"


class Start(Action, frozen=True, kw_only=True):
    step: str = START
    dispatch: DispatchStarted  #: without id and limits; the agent only of a verifier


class RebuildBranch(Action, frozen=True, kw_only=True):
    step: str = "rebuild-branch"
    onto: str  #: the target's tip
    start: str  #: that tip, or the work as it was replayed there
    complaint: str = ""  #: "" after a conflict
    tree: str = ""  #: the tree that failed; "" after a conflict


class Fail(Action, frozen=True, kw_only=True):
    step: str = "fail"
    reason: Reason
    at: PhaseStep  #: the step that failed
    detail: str


class Finish(Action, frozen=True, kw_only=True):
    step: str = "finish"
    outcome: RunOutcome
    reason: str = ""
    detail: str = ""


class Decision(Struct, frozen=True, kw_only=True):
    actions: tuple[Action, ...] = ()
    why: str
    waiting: WaitKind | None = None
    about: str = ""  #: the cause of the wait
    wake: str = ""  #: when the wait ends, UTC ISO-8601; "" when only a person can end it


def perform_action(action: Action, why: str) -> Decision:
    return Decision(actions=(action,), why=why)


def start_dispatch(dispatch: DispatchStarted, why: str) -> Decision:
    return perform_action(Start(dispatch=dispatch), why)


def fail_phase(reason: Reason, step: PhaseStep, detail: str) -> Decision:
    return perform_action(Fail(reason=reason, at=step, detail=detail), f"{reason}: {detail}")


def wait_for(kind: WaitKind, about: str, why: str = "") -> Decision:
    """A wait for this; `why` is the cause in more words."""
    return Decision(why=why or about, waiting=kind, about=about)


def wait_until(pause: Paused) -> Decision:
    about = describe_pause(pause)
    why = f"waiting until {pause.until} ({about})" if pause.until else about
    return replace(wait_for(pause.kind, about, why), actions=(SLEEP,), wake=pause.until)
