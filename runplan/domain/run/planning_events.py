"""The facts of a planning run."""

from runplan.domain.run.events import Chosen, Event, Planning, Rows
from runplan.domain.run.kinds import Reason, Role


class RevisionRequested(Event, frozen=True, kw_only=True):
    planning: Planning


class PlanningChosen(Chosen, frozen=True, kw_only=True):
    planning: Planning
    reason: Reason | None = None  #: of the failed phase for which the run has its plan revised
    before: str = ""  #: the plan that is revised
    earlier: str = ""  #: a plan on the target with the same title


class StepJudged(Event, frozen=True, kw_only=True):
    role: Role
    dispatch: str
    text: str = ""  #: the output, for later steps and the report
    parts: tuple[str, ...] = ()  #: instead, the outputs of several explorers, which the next one merges
    title: str = ""  #: of the plan
    problems: tuple[str, ...] = ()
    findings: Rows = ()  #: of a critique, each with an id
    verdicts: Rows = ()  #: of a critique, by principle
    answers: Rows = ()  #: of a revision, by finding
    questions: tuple[str, ...] = ()
    has_written: bool = False  #: the agent has changed files, though it may only read


class ProposalMade(Event, frozen=True, kw_only=True):
    path: str
    text: str
    sha256: str
    title: str
    is_edited: bool = False  #: by a person
    replaces: str = ""  #: the SHA-256 of the text that the person has edited
    is_free: bool = False  #: it has no open question and grants nothing, so that it may need no approval
    number: int = 1  #: among the revisions of the plan
    notes: tuple[str, ...] = ()  #: a forecast, and which phases can be worked at once


class StartQueued(Event, frozen=True, kw_only=True):
    command: int
