"""The state of an attempt, one type for each kind of work, folded from the journal.

Kinds share two parts: the record of their dispatches, and the delivery of a candidate.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from runplan.run import events as e
from runplan.run.dispatch import MAX_OVERLOADS, Ending, EndingKind
from runplan.run.kinds import Beginning, GateAnswer, PhaseStep, Reason, Role, WaitKind

UNKNOWN = (Ending.LOST, Ending.ENDED)  #: endings without a result; the same dispatch is due again

# --- the dispatches -----------------------------------------------------------------------------------


class DispatchRecord(Struct, frozen=True, kw_only=True):
    """The dispatches of an attempt and their endings."""

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


def record_dispatch(record: DispatchRecord, event: e.Event) -> DispatchRecord:
    match event:
        case e.DispatchStarted():
            newest = record.newest
            is_same = newest is not None and (newest.role, newest.cycle) == (event.role, event.cycle)
            record = replace(record, began=record.began if is_same else event.at, newest=event, running=event)
            is_repeated = event.again and event.agent
            return replace(record, repeated=(*record.repeated, event), ended=None) if is_repeated else record
        case e.DispatchEnded():
            return _record_ending(replace(record, running=None), event)
        case e.QuestionAsked():
            return replace(record, ended=None, questions=(*record.questions, event))
        case e.QuestionAnswered() if event.id in (question.id for question in record.open_questions):
            return replace(record, answers={**record.answers, event.id: event.text})
        case e.Judgement():
            return replace(record, ended=None)
        case _:
            return record


def _record_ending(record: DispatchRecord, event: e.DispatchEnded) -> DispatchRecord:
    """A dispatch that has to be judged is kept; after the others the same one, or the next one, is due."""
    if event.ending in UNKNOWN:
        return replace(record, lost=record.lost + (event.ending is Ending.LOST))
    if event.role is Role.SETUP and event.succeeded:
        return replace(record, lost=0)
    is_busy = event.kind == EndingKind.OVERLOADED and record.busy < MAX_OVERLOADS
    if is_busy or event.kind == EndingKind.LIMIT:
        return replace(record, busy=record.busy + is_busy, limited=record.limited + (not is_busy))
    return replace(record, ended=event, lost=0, limited=0, busy=0)


# --- the delivery -------------------------------------------------------------------------------------


class Delivery(Struct, frozen=True, kw_only=True):
    """The candidate of an attempt, its approval and its landing."""

    candidate: e.CandidateBuilt | None = None
    conflict: e.CandidateConflicted | None = None
    moves: int = 0  #: of the target, while it landed
    asked: str = ""  #: the tree that waits for approval
    approved: str = ""  #: the tree that a person approved
    landing: e.LandingStarted | None = None
    held: str = ""  #: why the landing waits
    landed: e.Landed | None = None

    @property
    def conflicting_paths(self) -> str:
        return ", ".join(self.conflict.paths) if self.conflict else ""

    def is_about(self, tree: str) -> bool:
        """Whether an answer about this tree is for the candidate."""
        return self.candidate is None or tree in ("", self.candidate.tree)


def record_delivery(delivery: Delivery, event: e.Event) -> Delivery:
    match event:
        case e.CandidateBuilt():
            approved = delivery.approved if delivery.approved == event.tree else ""
            return replace(delivery, candidate=event, conflict=None, asked="", approved=approved)
        case e.CandidateConflicted():
            return replace(delivery, conflict=event)
        case e.ApprovalAsked():
            return replace(delivery, asked=event.tree)
        case e.Answered(approved=True):
            return replace(delivery, approved=event.tree, asked="")
        case e.Answered() if delivery.is_about(event.tree):
            return replace(delivery, asked="", approved="", held="")
        case e.RunResumed():
            return replace(delivery, held="", asked="")
        case e.Woke(kind=WaitKind.CHECKOUT):
            return replace(delivery, held="")
        case e.LandingStarted():
            return replace(delivery, landing=event, held="")
        case e.LandingHeld():
            return replace(delivery, landing=None, held=event.why)
        case e.LandingMoved():
            return replace(delivery, landing=None, candidate=None, moves=delivery.moves + (not event.ours))
        case e.LandingRefused():
            return replace(delivery, landing=None)
        case e.Landed():
            return replace(delivery, landing=None, landed=event)
        case _:
            return delivery


# --- the proof ----------------------------------------------------------------------------------------


class Proof(Struct, frozen=True, kw_only=True):
    """The results that are bound to the candidate: checks and tests by its tree, verdicts by its patch."""

    baselines: dict[str, e.BaselineKnown] = {}  #: by check; on the base, or on the target that the candidate is on
    gates: tuple[e.GateJudged, ...] = ()
    runs: tuple[e.ProofJudged, ...] = ()  #: of tests of one side on the code of the other
    verdicts: tuple[e.VerdictGiven, ...] = ()  #: one of each verifier
    unresolved: e.EvidenceUnresolved | None = None  #: what the next verifier is asked for once more

    @property
    def verdict(self) -> e.VerdictGiven | None:
        """The newest verdict."""
        return self.verdicts[-1] if self.verdicts else None

    @property
    def newest_gates(self) -> dict[str, e.GateJudged]:
        """The newest judgement of each gate."""
        return {gate.name: gate for gate in self.gates}

    @property
    def newest_runs(self) -> dict[e.ProofKind, e.ProofJudged]:
        """The newest judgement of each kind of run."""
        return {run.kind: run for run in self.runs}

    @property
    def questions(self) -> e.Rows:
        """The tests of the base that the new code breaks, each with an id: which item demands that?"""
        promises = dict.fromkeys(promise for run in self.newest_runs.values() for promise in run.promises)
        words = "passed on the base, and that version of it does not pass on the new code"
        return tuple((f"T{n}", f"{promise.test} {words}: {promise.why}") for n, promise in enumerate(promises, 1))

    def questions_to_verifiers(self, changed: str) -> e.Rows:
        """These questions, unless `tests.changed` gives them to a person or refuses the change."""
        return self.questions if changed == "verify" else ()

    @property
    def failed_items(self) -> e.Rows:
        """The items that the newest verdict fails, with the evidence."""
        items = self.verdict.items if self.verdict is not None else ()
        return tuple((item, evidence) for item, passed, evidence in items if not passed)

    @property
    def red_checks(self) -> e.Rows:
        """The checks with output for the fixer."""
        return tuple((gate.name, gate.output) for gate in self.newest_gates.values() if gate.output)


def record_proof(proof: Proof, event: e.Event) -> Proof:
    match event:
        case e.BaselineKnown():
            return replace(proof, baselines={**proof.baselines, event.name: event})
        case e.GateJudged():
            return replace(proof, gates=(*proof.gates, event))
        case e.ProofJudged():
            return replace(proof, runs=(*proof.runs, event))
        case e.VerdictGiven():
            return replace(proof, verdicts=(*proof.verdicts, event), unresolved=None)
        case e.EvidenceUnresolved():
            return replace(proof, unresolved=event)
        case e.RulesBroken() | e.BranchRebuilt(tree=""):
            return replace(proof, gates=(), verdicts=())
        case e.CandidateBuilt():
            unresolved = proof.unresolved
            return Proof(
                baselines={name: known for name, known in proof.baselines.items() if known.tree == event.onto_tree},
                gates=tuple(gate for gate in proof.gates if gate.tree == event.tree),
                runs=tuple(run for run in proof.runs if run.tree == event.tree),
                verdicts=tuple(verdict for verdict in proof.verdicts if verdict.patch == event.patch),
                unresolved=unresolved if unresolved and unresolved.patch == event.patch else None,
            )
        case _:
            return proof


# --- the kinds of attempts ----------------------------------------------------------------------------


class Attempt(Struct, frozen=True, kw_only=True):
    """One pass over a piece of work."""

    chosen: e.Chosen
    delivery: Delivery = Delivery()
    failure: e.PhaseFailed | None = None
    is_revisable: ClassVar[bool] = False  #: an agent can take up the words of a person who rejects the candidate
    rejections: tuple[str, ...] = ()  #: such words
    revision: str = ""  #: the last of them, while no agent has taken them up
    rejected: str | None = None  #: a person's reason, where the rejection ends the attempt; else None
    refusal: tuple[Reason, str] | None = None  #: reason and detail of a failure that is not recorded yet
    warnings: tuple[str, ...] = ()
    cleaned: bool = False

    @property
    def built(self) -> e.CandidateBuilt:
        """The candidate, for steps that are due only with one."""
        assert self.delivery.candidate is not None
        return self.delivery.candidate


class AgentAttempt(Attempt, frozen=True, kw_only=True):
    """An attempt in which agents or commands run."""

    is_revisable: ClassVar[bool] = True
    dispatches: DispatchRecord = DispatchRecord()

    @property
    def retries(self) -> int:
        return len(self.dispatches.repeated)


class WorkAttempt(AgentAttempt, frozen=True, kw_only=True):
    """An attempt in which agents write, and what they wrote is proven."""

    lease: e.Leased | None = None
    base: str = ""  #: start of the branch; moves when the branch is rebuilt
    base_tree: str = ""
    set_up: bool = False  #: run.setup has run in the agents' worktree since it was leased
    proof_set_up: bool = False  #: run.setup has run in the proof worktree since it was leased
    prepared: str = ""  #: the tree on which run.setup ran last in the proof worktree
    authors: tuple[str, ...] = ()  #: the agents that have written
    written: str = ""  #: the newest dispatch of a writer
    handovers: tuple[e.HandedOver, ...] = ()
    cycle: int = 1  #: 1 is the implementer's, each fix adds one
    failed_tree: str = ""  #: the tree that the fixer has to fix
    complaint: str = ""  #: what is wrong with it
    cycles: tuple[str, ...] = ()  #: why each fix cycle began, with the failed items
    work: e.WorkTaken | None = None
    broken: e.RulesBroken | None = None  #: no fixer was started for it yet
    breaks: int = 0  #: how often rules were broken
    proof: Proof = Proof()
    drift: e.DriftFound | None = None
    is_last: bool = False  #: a run of all phases ends with it
    unsolved: e.CandidateConflicted | None = None  #: the conflict that the fixer has to solve
    parked: str = ""  #: the ref that keeps the work as it was before that conflict
    rebuilt: int = 0

    @property
    def step(self) -> PhaseStep:
        if (dispatch := self.dispatches.running or self.dispatches.ended) is not None:
            return PhaseStep(dispatch.role)
        if self.lease is None:
            return PhaseStep.LEASE
        if self.work is None:
            return PhaseStep.IMPLEMENT
        if self.proof.verdict is not None and self.proof.verdict.passed:
            return PhaseStep.LAND
        has_passed = self.proof.gates and self.proof.gates[-1].answer is not GateAnswer.FAILED
        return PhaseStep.VERIFY if has_passed else PhaseStep.GATE

    @property
    def retries(self) -> int:
        return self.cycle - 1 + len(self.handovers) + super().retries

    @property
    def fixes(self) -> int:
        """The fix cycles that count against the limit; those that a person asked for do not."""
        return self.cycle - 1 - len(self.rejections)

    @property
    def squash(self) -> bool:
        """Whether the work lands as one commit, under the title of the phase."""
        return bool(self.handovers or self.dispatches.questions) or (self.work is not None and self.work.squash)

    @property
    def leased(self) -> e.Leased:
        """The lease, for steps that are due only with one."""
        assert self.lease is not None
        return self.lease

    @property
    def changed_files(self) -> tuple[str, ...]:
        return self.work.files if self.work else ()

    def describe_unsolved(self, why: str) -> str:
        """Why the fixer did not solve the conflict."""
        paths = ", ".join(self.unsolved.paths) if self.unsolved else ""
        return f"the fixer did not solve the conflict in {paths}: {why}; the work is kept at {self.parked}"

    @property
    def needs_verdict(self) -> bool:
        return True


class PhaseAttempt(WorkAttempt, frozen=True, kw_only=True):
    chosen: e.PhaseChosen


class RepairAttempt(WorkAttempt, frozen=True, kw_only=True):
    chosen: e.RepairChosen


class MergeAttempt(RepairAttempt, frozen=True, kw_only=True):
    chosen: e.MergeChosen
    is_revisable: ClassVar[bool] = False  #: the merge is on no branch that an agent could continue

    @property
    def needs_verdict(self) -> bool:
        """In a clean merge no agent has changed anything."""
        return self.rebuilt > 0


class SubplanAttempt(Attempt, frozen=True, kw_only=True):
    chosen: e.SubplanChosen
    over: e.SubplanEnded | None = None
    step: ClassVar[PhaseStep] = PhaseStep.SUBPLAN


class UndoAttempt(Attempt, frozen=True, kw_only=True):
    chosen: e.UndoChosen
    step: ClassVar[PhaseStep] = PhaseStep.UNDO


class CompletionAttempt(Attempt, frozen=True, kw_only=True):
    chosen: e.CompletionChosen
    step: ClassVar[PhaseStep] = PhaseStep.LAND


AnyAttempt: TypeAlias = PhaseAttempt | SubplanAttempt | RepairAttempt | MergeAttempt | UndoAttempt | CompletionAttempt

A = TypeVar("A", bound=Attempt)
W = TypeVar("W", bound=WorkAttempt)


def begin_attempt(chosen: e.AnyChosen) -> AnyAttempt:
    match chosen:
        case e.PhaseChosen():
            return PhaseAttempt(chosen=chosen, warnings=chosen.remarks)
        case e.MergeChosen():
            return MergeAttempt(chosen=chosen, warnings=chosen.remarks)
        case e.RepairChosen():
            return RepairAttempt(chosen=chosen, warnings=chosen.remarks)
        case e.SubplanChosen():
            return SubplanAttempt(chosen=chosen)
        case e.UndoChosen():
            return UndoAttempt(chosen=chosen)
        case e.CompletionChosen():
            return CompletionAttempt(chosen=chosen)
        case _:
            assert_never(chosen)


def open_questions(attempt: AnyAttempt | None) -> tuple[e.QuestionAsked, ...]:
    return attempt.dispatches.open_questions if isinstance(attempt, AgentAttempt) else ()


def running_dispatch(attempt: AnyAttempt | None) -> e.DispatchStarted | None:
    return attempt.dispatches.running if isinstance(attempt, AgentAttempt) else None


def record_event(attempt: AnyAttempt, event: e.Event) -> AnyAttempt:
    """The attempt after one more event."""
    match attempt:
        case WorkAttempt():
            return _record_work(_record_common(attempt, event), event)
        case SubplanAttempt():
            attempt = _record_common(attempt, event)
            return replace(attempt, over=event) if isinstance(event, e.SubplanEnded) else attempt
        case UndoAttempt() | CompletionAttempt():
            return _record_common(attempt, event)


def _record_common(attempt: A, event: e.Event) -> A:
    attempt = replace(attempt, delivery=record_delivery(attempt.delivery, event))
    match event:
        case e.WorkRefused():
            return replace(attempt, refusal=attempt.refusal or (event.reason, event.detail))
        case e.Answered(approved=False, why=why) if attempt.delivery.is_about(event.tree):
            if why and attempt.is_revisable:
                attempt = replace(attempt, revision=why, rejections=(*attempt.rejections, why))
                return replace(attempt, warnings=(*attempt.warnings, f"a person rejected the change: {why}"))
            detail = "the change was rejected" + (f": {event.why}" if event.why else "")
            return replace(attempt, refusal=(Reason.STOPPED, detail), rejected=event.why)
        case e.LandingRefused():
            return replace(attempt, refusal=(event.reason, event.why))
        case e.PhaseFailed():
            return replace(attempt, failure=event)
        case e.CleanedUp():
            return replace(attempt, cleaned=True)
        case _:
            return attempt


def _record_work(attempt: W, event: e.Event) -> W:
    before = attempt.dispatches
    dispatches = record_dispatch(before, event)
    attempt = replace(attempt, dispatches=dispatches, proof=record_proof(attempt.proof, event))
    match event:
        case e.Leased():
            return _record_lease(attempt, event)
        case e.DispatchStarted():
            return _record_start(attempt, event)
        case e.DispatchEnded():
            return _record_end(attempt, event)
        case e.QuestionAnswered(id=id_) if dispatches is not before:
            asked = next(question.text for question in dispatches.questions if question.id == id_)
            return _add_warnings(attempt, f"an agent asked: {asked}; a person answered: {event.text}")
        case e.HandedOver():
            return replace(attempt, handovers=(*attempt.handovers, event))
        case e.GuardFound():
            worse = (Reason.GUARD_VIOLATED, "; ".join(event.lines)) if event.violated else attempt.refusal
            return replace(_add_warnings(attempt, *event.lines), refusal=worse)
        case e.WorkTaken():
            return replace(_add_warnings(_without_candidate(attempt), *event.lines), work=event)
        case e.RulesBroken():
            attempt = _add_warnings(attempt, *(f"a fixer was told: {line}" for line in event.lines))
            return replace(attempt, broken=event, breaks=attempt.breaks + 1)
        case e.CandidateBuilt():
            return replace(attempt, unsolved=None)
        case e.BranchRebuilt():
            return _record_rebuild(attempt, event)
        case e.EvidenceUnresolved():
            named = ", ".join(item for item, _ in event.items)
            return _add_warnings(
                attempt, f"the verifier was asked once more, because its evidence for {named} did not resolve"
            )
        case e.DriftFound():
            refusal = (Reason.DRIFT, event.abort) if event.abort else None
            return replace(attempt, drift=event, refusal=attempt.refusal or refusal)
        case e.FinalVerificationDue():
            return replace(attempt, is_last=True)
        case _:
            return attempt


def _add_warnings(attempt: W, *lines: str) -> W:
    return replace(attempt, warnings=(*attempt.warnings, *lines))


def _without_candidate(attempt: W) -> W:
    return replace(attempt, delivery=replace(attempt.delivery, candidate=None))


def _record_lease(attempt: W, event: e.Leased) -> W:
    attempt = replace(attempt, lease=event, base=event.base, base_tree=event.base_tree)
    attempt = replace(attempt, set_up=not event.fresh, proof_set_up=not event.fresh)
    if (kept := event.kept) is None:
        return attempt
    attempt = replace(attempt, authors=kept.authors)
    if kept.beginning is not Beginning.FIX:
        return attempt
    return _begin_fix(attempt, tree=kept.tree, complaint=kept.complaint, cycle=2)


def _begin_fix(attempt: W, *, tree: str, complaint: str, cycle: int) -> W:
    if cycle != attempt.cycle:
        failed = "".join(f"\n  {item}: {evidence}" for item, evidence in attempt.proof.failed_items)
        attempt = replace(attempt, cycles=(*attempt.cycles, f"Fix cycle {cycle - 1}: {complaint}{failed}"))
    attempt = replace(attempt, cycle=cycle, failed_tree=tree, complaint=complaint)
    return replace(_without_candidate(attempt), work=None, broken=None, revision="")


def _record_rebuild(attempt: W, event: e.BranchRebuilt) -> W:
    if not event.tree:  # a conflict
        attempt = replace(attempt, rebuilt=attempt.rebuilt + 1, parked=event.parked, unsolved=attempt.delivery.conflict)
    delivery = replace(attempt.delivery, conflict=None)
    attempt = replace(attempt, base=event.base, base_tree=event.base_tree, delivery=delivery)
    return _begin_fix(attempt, tree=event.tree, complaint=event.complaint, cycle=attempt.cycle + 1)


def _record_start(attempt: W, event: e.DispatchStarted) -> W:
    if event.again and event.agent:
        attempt = _add_warnings(attempt, f"{event.again}; it was tried once more")
    if event.role.is_writer:
        attempt = replace(attempt, written=event.id)
    if event.role is not Role.FIX:
        return attempt
    return _begin_fix(attempt, tree=event.tree, complaint=event.complaint, cycle=event.cycle)


def _record_end(attempt: W, event: e.DispatchEnded) -> W:
    is_writer = event.role.is_writer
    has_run = event.kind not in (EndingKind.LIMIT, EndingKind.OVERLOADED)
    if is_writer and has_run and event.agent not in ("", *attempt.authors):
        attempt = replace(attempt, authors=(*attempt.authors, event.agent))
    if event.ending in UNKNOWN and not is_writer:  # the products of run.setup may have changed
        return replace(attempt, prepared="", proof_set_up=False)
    if event.role is not Role.SETUP or not event.succeeded:
        return attempt
    newest = attempt.dispatches.newest
    tree = newest.tree if newest else ""
    return replace(attempt, proof_set_up=True, prepared=tree) if tree else replace(attempt, set_up=True)
