"""What a person can ask for. The verbs of the command line and the tools of the MCP server are made of these fields.

A docstring is the help of its verb; a tool shows the rest of it to a model, too. Needs no library.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeAlias


class Help(NamedTuple):
    """What a field is for, and what stands for its value in a line of help. Fields without it are not for people."""

    text: str
    value: str = ""


NamedPlan: TypeAlias = Annotated[str, Help("a path, or a unique part of one", "PLAN")]
Waiting: TypeAlias = Annotated[str, Help("a phase id; default: the first that waits", "PHASE")]
Tree: TypeAlias = Annotated[str, Help("only this tree, or SHA-256 of a plan, as diff shows it", "TREE")]
_WORDS = "a phase id or `finish`; `auto`; cherry-pick, pr or direct; every SCHEDULE; now"


@dataclass(frozen=True, kw_only=True)
class StartRequest:
    """Work on a plan: its next phase, one phase, or all of it.

    Then follow. `finish`: all phases. `auto`: land without approval; only if the user says so.
    """

    plan: NamedPlan = ""
    options: Annotated[tuple[str, ...], Help(_WORDS, "WORD")] = ()
    issue: Annotated[int | None, Help("instead of PLAN: an issue on GitHub; lands by pr", "NUMBER")] = None
    model: Annotated[str, Help("of the implementer in this run", "MODEL")] = ""
    effort: Annotated[str, Help("how much the implementer thinks, in its program's words", "EFFORT")] = ""
    no_memory: Annotated[bool, Help("do not tell agents what earlier runs have taught")] = False


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Write a plan for a goal, which you approve before any work.

    It waits for approval: follow, diff, then approve or reject.
    """

    goal: str = ""  #: one of `goal`, `file`, `issue` and `revises` says what the plan is for
    file: Annotated[str, Help("the goal is in a file, or in the texts of a spec folder", "FILE")] = ""
    issue: Annotated[int | None, Help("the goal is an issue on GitHub", "NUMBER")] = None
    revises: str = ""  #: the plan that is revised
    phase: str = ""  #: the only phase of it that is revised
    why: Annotated[str, Help("why it is revised", "TEXT")] = ""
    quick: Annotated[bool, Help("explore, draft, criticise and revise once")] = False
    rounds: Annotated[int | None, Help("rounds of critique and revision, 1 to 4", "N")] = None
    agent: Annotated[str, Help("writes the plan; default: agents.planner", "NAME")] = ""
    critic: Annotated[str, Help("criticises it; default: the verifier", "NAME")] = ""
    model: Annotated[str, Help("of the agent that writes the plan", "MODEL")] = ""
    no_memory: Annotated[bool, Help("do not tell agents what earlier runs have taught")] = False
    out: Annotated[str, Help("the file of the plan; default: by its title", "FILE")] = ""
    ask: Annotated[bool, Help("let each step before the draft ask you up to five questions")] = False
    sources: Annotated[tuple[str, ...], Help("a file that agents read as data, e.g. a roadmap", "FILE")] = ()
    then: Annotated[str, Help('start it when it is approved, e.g. "finish auto pr"', "WORDS")] = ""


@dataclass(frozen=True, kw_only=True)
class WatchIssuesRequest:
    """Work on the open issues with a label, one after the other."""

    options: Annotated[tuple[str, ...], Help("every SCHEDULE, which implies auto; now", "WORD")] = ()
    label: Annotated[str, Help("of the issues to work on", "LABEL")]


@dataclass(frozen=True, kw_only=True)
class WorkRequest:
    """Work on the ready plans of the queue, one after the other, each to its end."""

    options: Annotated[tuple[str, ...], Help("how many plans, or `all`; auto, a landing, every SCHEDULE", "WORD")] = ()


@dataclass(frozen=True, kw_only=True)
class QueueRequest:
    """Put a plan elsewhere in the queue."""

    action: str  #: move, pin or unpin
    plan: str
    to: int | None = None  #: its new number, for move


@dataclass(frozen=True, kw_only=True)
class StopRequest:
    """Cancel schedules and end runs; their work is kept."""

    plan: NamedPlan = ""  #: "" for all of the repository
    keep_schedule: Annotated[bool, Help("end the run only; its schedule stays")] = False
    force: Annotated[bool, Help("kill a run of another terminal at once")] = False


@dataclass(frozen=True, kw_only=True)
class PauseRequest:
    """Pause a plan; the current step finishes."""

    plan: NamedPlan


@dataclass(frozen=True, kw_only=True)
class ResumeRequest:
    """Resume a paused plan and its schedule."""

    plan: NamedPlan


@dataclass(frozen=True, kw_only=True)
class NowRequest:
    """Run a scheduled plan now."""

    plan: NamedPlan = ""  #: "" for the only schedule


@dataclass(frozen=True, kw_only=True)
class RetryRequest:
    """Resume the last run, or continue its failed phase."""

    plan: NamedPlan
    phase: Annotated[str, Help("a phase id; default: as the last run", "PHASE")] = ""
    fresh: Annotated[bool, Help("begin the phase anew; its kept work is parked")] = False
    review: Annotated[bool, Help("have an agent handle new comments on the pull request")] = False


@dataclass(frozen=True, kw_only=True)
class UndoRequest:
    """Revert a landed phase with a new commit."""

    plan: NamedPlan
    phase: Annotated[str, Help("the id of a phase", "PHASE")]


@dataclass(frozen=True, kw_only=True)
class ApproveRequest:
    """Approve a pending change or plan, and continue.

    Only what diff has shown, when the user has seen it and says so.
    """

    plan: NamedPlan = ""  #: "" for the only change that waits
    phase: Waiting = ""
    tree: Tree = ""


@dataclass(frozen=True, kw_only=True)
class RejectRequest:
    """Reject a pending change or plan.

    Only what diff has shown, in the words of the user.
    """

    plan: NamedPlan
    phase: Waiting = ""
    why: Annotated[str, Help("what to change: an agent does it at once, and you are asked again", "TEXT")] = ""
    tree: Tree = ""


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """Answer the question of an agent and continue."""

    id: Annotated[str, Help("of the question, or a plan that has one question", "ID")]
    text: Annotated[str, Help("the answer of the user, for the next agent", "TEXT")]


@dataclass(frozen=True, kw_only=True)
class TellRequest:
    """Tell the agents of a run something; a running claude reads it at once, else the next agent first."""

    plan: NamedPlan
    text: Annotated[str, Help("the words of the user", "TEXT")]


@dataclass(frozen=True, kw_only=True)
class ForgetRequest:
    """Forget what earlier runs taught: one lesson, or all of them."""

    id: str = ""  #: of the lesson; "" for all


@dataclass(frozen=True, kw_only=True)
class EditRequest:
    """Edit a proposed plan in $EDITOR; it is checked again."""

    plan: NamedPlan
    sha256: str  #: of the proposal that was edited
    text: str
