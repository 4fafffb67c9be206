"""The parts of attempts, each with its fold: dispatches, delivery of a candidate, proof; and facts of planning."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.run import events as e
from runplan.domain.run.dispatch import MAX_OVERLOADS, Artifact, Ending, EndingKind
from runplan.domain.run.events import Chosen, Event, Planning, Rows
from runplan.domain.run.kinds import ProofKind, Reason, Role, WaitKind
from runplan.domain.text import counted, elapsed

UNKNOWN = (Ending.LOST, Ending.ENDED)  #: endings without a result; the same dispatch is due again


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


class DispatchRecord(Struct, frozen=True, kw_only=True):
    newest: e.DispatchStarted | None = None
    running: e.DispatchStarted | None = None  #: its end is not recorded yet
    began: str = ""  #: when the first process of its role and cycle started
    ended: e.DispatchEnded | None = None  #: ended, and not yet judged
    repeated: tuple[e.DispatchStarted, ...] = ()  #: repetitions after a crash
    lost: int = 0  #: lost dispatches in a row
    limited: int = 0  #: usage limits in a row
    busy: int = 0  #: overloaded providers in a row
    questions: tuple[e.QuestionAsked, ...] = ()  #: of agents to a person
    answers: dict[str, str] = {}  #: by the id of the question

    @property
    def open_questions(self) -> tuple[e.QuestionAsked, ...]:
        return tuple(question for question in self.questions if question.id not in self.answers)

    def record(self, event: e.Event) -> DispatchRecord:
        match event:
            case e.DispatchStarted():
                newest = self.newest
                is_same = newest is not None and (newest.role, newest.cycle) == (event.role, event.cycle)
                record = replace(self, began=self.began if is_same else event.at, newest=event, running=event)
                is_repeated = event.again and event.agent
                return replace(record, repeated=(*self.repeated, event), ended=None) if is_repeated else record
            case e.DispatchEnded():
                # One that has to be judged is kept; after the others the same one, or the next one, is due.
                group = self.newest.beside if self.newest is not None else ()
                still = self.running if group else None
                rest = [id_ for id_ in (still.id, *still.beside) if id_ != event.id] if still is not None else []
                running = replace(still, id=rest[0], beside=tuple(rest[1:])) if still is not None and rest else None
                record = replace(self, running=running)
                if event.id in group:
                    return record
                if event.ending in UNKNOWN:
                    return replace(record, lost=self.lost + (event.ending is Ending.LOST))
                if event.role is Role.SETUP and event.succeeded:
                    return replace(record, lost=0)
                is_busy = event.kind == EndingKind.OVERLOADED and self.busy < MAX_OVERLOADS
                if is_busy or event.kind == EndingKind.LIMIT:
                    return replace(record, busy=self.busy + is_busy, limited=self.limited + (not is_busy))
                return replace(record, ended=event, lost=0, limited=0, busy=0)
            case e.QuestionAsked():
                return replace(self, ended=None, questions=(*self.questions, event))
            case e.QuestionAnswered() if event.id in (question.id for question in self.open_questions):
                return replace(self, answers={**self.answers, event.id: event.text})
            case e.BaselineKnown() | e.GateJudged() | e.ProofJudged() | e.VerdictGiven() | e.VerdictDoubted():
                return replace(self, ended=None)
            case TrialJudged() | e.WorkTaken() | e.RulesBroken() | e.HandedOver() | SetupDoubted() | StepJudged():
                return replace(self, ended=None)
            case HostChanged():  # their files are on the other host; the same dispatch is due again
                return replace(self, running=None, ended=None)
            case _:
                return self


class StepCrashed(e.Event, frozen=True, kw_only=True):
    detail: str  #: the last line of the traceback
    trace: str  #: its last calls


class LandingRefused(e.Event, frozen=True, kw_only=True):
    why: str
    reason: Reason = Reason.PROTECTED


class MessagesHandled(e.Event, frozen=True, kw_only=True):
    """These messages count no more: an agent handled them, or a command was heeded."""

    review: tuple[str, ...]  #: their references
    words: str = ""  #: who gave the command
    answers: e.Rows = ()  #: references, and what is to be told there


class WorkPushed(e.Event, frozen=True, kw_only=True):
    head: str  #: the newest commit; "" while there is no work


class WorkKept(e.Event, frozen=True, kw_only=True):
    host: str
    why: str


class HostChanged(e.Event, frozen=True, kw_only=True):
    host: str
    before: str
    is_restarted: bool = False  #: the attempt begins again, because the remote lacks its work
    has_branch: bool = True  #: such an attempt keeps its branch, with the part of the work that was pushed

    @property
    def words(self) -> str:
        lost = "; the remote lacked its newest work, so the attempt began again" if self.is_restarted else ""
        return f"the host {self.host} continued what {self.before} had begun{lost}"


class Pushing(Struct, frozen=True, kw_only=True):
    is_due: bool = False  #: a push of newer work has not been tried
    is_behind: bool = False  #: recorded facts are about work that the remote lacks
    lacks_start: bool = False  #: it lacks the work, too, on which the fixer began
    head: str = ""  #: the commit that the remote has
    kept: str = ""  #: which host alone has the newest work, and why

    def record(self, event: e.Event, *, is_written: bool) -> Pushing:
        """`is_written`: an agent has had the worktree."""
        match event:
            case WorkPushed(head=head):
                return Pushing(head=head)
            case WorkKept(host=host, why=why):
                return replace(self, is_due=False, kept=f"only the host {host} has the newest work: {why}")
            case HostChanged():
                return Pushing(head=self.head)
            case e.WorkTaken() | e.HandedOver() | e.QuestionAsked() | e.RulesBroken() | e.PhaseFailed() if is_written:
                return replace(self, is_due=True, is_behind=True)
            case e.Leased(kept=e.KeptWork()):
                return replace(self, is_due=True, is_behind=True)
            case e.BranchRebuilt(tree=tree) if tree:  # not after a conflict: the remote keeps the work
                return replace(self, is_due=True, is_behind=True)
            case e.DispatchStarted(role=Role.FIX):
                return replace(self, lacks_start=self.is_behind)
            case e.DispatchEnded(role=role) if role.is_writer:
                return replace(self, is_due=True)
            case _:
                return self


class SetupReused(e.Event, frozen=True, kw_only=True):
    """run.setup need not run: the products of an earlier one have the same inputs."""

    tree: str = ""  #: "" in the worktree of agents


class SetupDoubted(e.Event, frozen=True, kw_only=True):
    """A check on the base failed with products of an earlier run.setup; it is repeated with new ones."""

    why: str


class Setup(Struct, frozen=True, kw_only=True):
    agents: bool = False  #: that of the agents
    tree: str = ""  #: the tree for which the proof worktree is prepared
    is_reused: bool = False  #: with products of an earlier tree
    doubt: str = ""  #: why it has to run on this tree itself
    renewed: str = ""  #: the tree on which it ran again, because a check failed with reused products
    notes: tuple[str, ...] = ()  #: why it ran, each time
    ran: tuple[tuple[str, str], ...] = ()  #: the newest tree of the checks and the reason, each time in a row

    def record(self, event: e.Event, newest: e.DispatchStarted | None) -> Setup:
        """`newest` is the dispatch that an ending belongs to."""
        match event:
            case SetupReused(tree=tree):
                return replace(self, tree=tree, is_reused=True) if tree else replace(self, agents=True)
            case SetupDoubted(why=why):
                return replace(self, doubt=why)
            case HostChanged():
                return Setup(notes=self.notes)
            case e.DispatchEnded(role=role, ending=ending) if ending in UNKNOWN and not role.is_writer:
                return replace(self, tree="")  # its products may have changed
            case e.DispatchEnded(role=Role.SETUP) if event.succeeded and newest is not None:
                place = "agents" if not newest.tree else "checks and agents" if newest.agents else "checks"
                note = f"{newest.why} ({place}, {elapsed(event.seconds)})"
                setup = replace(self, notes=(*self.notes, note), agents=self.agents or place != "checks")
                if not newest.tree:
                    return setup
                renewed = newest.tree if newest.again else self.renewed
                ran = (*(row for row in self.ran if row[0] == newest.tree), (newest.tree, newest.why))
                return replace(setup, tree=newest.tree, is_reused=False, doubt="", renewed=renewed, ran=ran)
            case _:
                return self


class CommandAltered(e.Event, frozen=True, kw_only=True):
    """Files that decide what the command of a phase runs differ from those before the plan; a person is asked."""

    onto: str  #: the commit before the plan
    commit: str  #: the same with the new versions of these files
    tree: str
    files: tuple[str, ...]


class Delivery(Struct, frozen=True, kw_only=True):
    candidate: e.CandidateBuilt | None = None
    conflict: e.CandidateConflicted | None = None
    moves: int = 0  #: of the target, while it landed
    asked: str = ""  #: the tree that waits for approval
    approved: str = ""  #: the tree that a person approved
    carried: str = ""  #: the patch of that tree, if only landings of runplan have moved the target since
    approved_by: str = ""  #: who, and by which way
    landing: e.LandingStarted | None = None
    held: str = ""  #: why the landing waits
    landed: e.Landed | None = None

    @property
    def conflicting_paths(self) -> str:
        return ", ".join(self.conflict.paths) if self.conflict else ""

    @property
    def is_approved(self) -> bool:
        built = self.candidate
        return built is not None and (built.tree == self.approved or bool(self.carried and built.patch == self.carried))

    def record(self, event: e.Event) -> Delivery:
        match event:
            case e.CandidateBuilt():
                built = replace(self, candidate=event, conflict=None, asked="")
                return built if built.is_approved else replace(built, approved="", carried="")
            case e.ProofJudged(promises=promises) if promises:  # the person who approved has not seen them
                return replace(self, carried="")
            case e.CandidateConflicted():
                return replace(self, conflict=event)
            case e.ApprovalAsked():
                return replace(self, asked=event.tree)
            case e.Answered(approved=True):
                return replace(self, approved=event.tree, approved_by=event.by, carried="", asked="")
            case e.Answered():
                return replace(self, asked="", approved="", approved_by="", carried="", held="")
            case e.RunResumed() | e.Woke(kind=WaitKind.CHECKOUT):
                return replace(self, held="")
            case e.LandingStarted():
                return replace(self, landing=event, held="")
            case e.LandingHeld():
                return replace(self, landing=None, held=event.why)
            case e.LandingMoved():
                carried = self.candidate.patch if self.candidate and self.is_approved and event.ours else ""
                return replace(self, landing=None, candidate=None, carried=carried, moves=self.moves + (not event.ours))
            case LandingRefused():
                return replace(self, landing=None)
            case HostChanged() if self.landing is None and self.landed is None:
                return replace(self, candidate=None)  # it is built again, with the same tree
            case e.Landed():
                return replace(self, landing=None, landed=event)
            case _:
                return self


class TrialJudged(e.Event, frozen=True, kw_only=True):
    """What an agent found when it used the work, served by try.serve."""

    tree: str
    patch: str
    agent: str
    dispatch: str  #: has the files, each below its name
    findings: tuple[str, ...] = ()  #: none: it passed
    files: tuple[Artifact, ...] = ()  #: such as screenshots
    summary: str = ""

    @property
    def kept(self) -> tuple[str, ...]:
        return tuple(made.path for made in self.files if re.fullmatch(r"trial-\d\d-[\w.-]+", made.path))

    def describe(self) -> list[str]:
        answer = counted(len(self.findings), "finding") if self.findings else "passed"
        shown = (f"{made.path}: {made.summary}".removesuffix(": ") for made in self.files)
        head = f"Trial by {self.agent}: {answer}{f'; {self.summary}' if self.summary else ''}"
        return [head, *(f"Finding: {text}" for text in self.findings), *(f"File: {line}" for line in shown)]


class Proof(Struct, frozen=True, kw_only=True):
    baselines: dict[str, e.BaselineKnown] = {}  #: by check; on the base, or on the target that the candidate is on
    gates: tuple[e.GateJudged, ...] = ()
    runs: tuple[e.ProofJudged, ...] = ()  #: of tests of one side on the code of the other
    verdicts: tuple[e.VerdictGiven, ...] = ()  #: one of each verifier
    doubted: e.VerdictDoubted | None = None  #: why the verifier is asked once more
    trial: TrialJudged | None = None

    @property
    def verdict(self) -> e.VerdictGiven | None:
        return self.verdicts[-1] if self.verdicts else None

    @property
    def newest_gates(self) -> dict[str, e.GateJudged]:
        return {gate.name: gate for gate in self.gates}

    @property
    def newest_runs(self) -> dict[ProofKind, e.ProofJudged]:
        return {run.kind: run for run in self.runs}

    @property
    def questions(self) -> e.Rows:
        """The tests of the base that the new code breaks, each with an id: which item demands that?"""
        promises = dict.fromkeys(promise for run in self.newest_runs.values() for promise in run.promises)
        words = "passed on the base, and that version of it does not pass on the new code"
        return tuple((f"T{n}", f"{promise.test} {words}: {promise.why}") for n, promise in enumerate(promises, 1))

    @property
    def exceptions(self) -> tuple[str, ...]:
        absent = dict.fromkeys(row for verdict in self.verdicts for row in verdict.absent)
        return tuple(f"{item} passes without {path}, which it names" for item, path in absent)

    def questions_to_verifiers(self, changed: str) -> e.Rows:
        """These questions, unless `tests.changed` gives them to a person or refuses the change."""
        return self.questions if changed == "verify" else ()

    @property
    def failed_items(self) -> e.Rows:
        items = self.verdict.items if self.verdict is not None else ()
        tried = enumerate(self.trial.findings if self.trial is not None else (), 1)
        failed = ((item, evidence) for item, passed, evidence in items if not passed)
        return (*failed, *((f"Trial {number}", finding) for number, finding in tried))

    @property
    def red_checks(self) -> e.Rows:
        return tuple((gate.name, gate.output) for gate in self.newest_gates.values() if gate.output)

    def record(self, event: e.Event) -> Proof:
        match event:
            case e.BaselineKnown():
                return replace(self, baselines={**self.baselines, event.name: event})
            case e.GateJudged():
                return replace(self, gates=(*self.gates, event))
            case e.ProofJudged():
                return replace(self, runs=(*self.runs, event))
            case e.VerdictGiven():
                return replace(self, verdicts=(*self.verdicts, event), doubted=None)
            case TrialJudged():
                return replace(self, trial=event, doubted=None)
            case e.VerdictDoubted():
                return replace(self, doubted=event)
            case e.FinalVerificationDue(is_narrowed=True):
                return replace(self, baselines={}, gates=())
            case e.RulesBroken() | e.BranchRebuilt(tree=""):
                return replace(self, gates=(), verdicts=(), trial=None)
            case e.CandidateBuilt(tree=tree, patch=patch):
                return Proof(
                    baselines={name: known for name, known in self.baselines.items() if known.tree == event.onto_tree},
                    gates=tuple(gate for gate in self.gates if gate.tree == tree),
                    runs=tuple(run for run in self.runs if run.tree == tree),
                    verdicts=tuple(verdict for verdict in self.verdicts if verdict.patch == patch),
                    doubted=self.doubted if self.doubted and self.doubted.patch == patch else None,
                    trial=self.trial if self.trial and self.trial.patch == patch else None,
                )
            case _:
                return self
