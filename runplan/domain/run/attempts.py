"""The state of an attempt, folded from the journal."""

from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.plan.proposal import strip_front_matter
from runplan.domain.run import attempt_parts as parts, events as e
from runplan.domain.run.attempt_parts import LandingRefused, PlanningChosen, ProposalMade, StartQueued, StepJudged
from runplan.domain.run.dispatch import EndingKind, Remarks
from runplan.domain.run.kinds import Beginning, GateAnswer, PhaseStep, Reason, Role
from runplan.domain.run.reasons import describe_refused


class Attempt(Struct, frozen=True, kw_only=True):
    """An attempt of any kind; an undo, and the completion of a plan, are no more than this."""

    chosen: e.Chosen
    dispatches: parts.DispatchRecord = parts.DispatchRecord()
    delivery: parts.Delivery = parts.Delivery()
    failure: e.PhaseFailed | None = None
    rejections: tuple[str, ...] = ()  #: words of a person who rejected the candidate, for an agent
    revision: str = ""  #: the last of them, while no agent has taken them up
    rejected: str | None = None  #: a person's reason, where the rejection ends the attempt; else None
    refusal: tuple[Reason, str] | None = None  #: reason and detail of a failure that is not recorded yet
    other_run: str = ""  #: that landed the phase from another repository
    warnings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  #: of people to agents: why they rejected work, and what they answered
    cleaned: bool = False

    @property
    def step(self) -> PhaseStep:
        return PhaseStep.UNDO if isinstance(self.chosen, e.UndoChosen) else PhaseStep.LAND

    @property
    def is_revisable(self) -> bool:
        """Whether an agent can take up the words of a person who rejects the candidate; a merge is on no branch."""
        return isinstance(self.chosen, e.PhaseChosen | e.RepairChosen | PlanningChosen)

    @property
    def retries(self) -> int:
        return len(self.dispatches.repeated)

    def warn(self, *lines: str) -> Self:
        return replace(self, warnings=(*self.warnings, *lines))

    @property
    def built(self) -> e.CandidateBuilt:
        assert self.delivery.candidate is not None
        return self.delivery.candidate

    @property
    def ended(self) -> e.DispatchEnded:
        assert self.dispatches.ended is not None
        return self.dispatches.ended

    @property
    def answerable(self) -> str:
        """The id of the content that a person's answer is about: the candidate's tree; "" for none."""
        return self.delivery.candidate.tree if self.delivery.candidate else ""

    def record(self, event: e.Event) -> Self:
        if isinstance(event, e.Answered) and (event.tree != self.answerable or not (event.tree or self.delivery.held)):
            return self  # the answer is neither about this content nor about the held landing of none
        attempt = replace(self, delivery=self.delivery.record(event), dispatches=self.dispatches.record(event))
        match event:
            case e.WorkRefused():
                refusal = attempt.refusal or (event.reason, event.detail)
                return replace(attempt, refusal=refusal, other_run=event.other_run)
            case e.Answered(approved=False, why=why, by=by):
                if why and attempt.is_revisable:
                    said = f"the change was rejected by {by or 'a person'}: {why}"
                    asked = ((item.id, f"{item.heading} asks: {item.words}") for item in event.comments)
                    chosen = replace(attempt.chosen, items=(*attempt.chosen.items, *asked))
                    attempt = replace(attempt, chosen=chosen, words=(*attempt.words, said))
                    return replace(attempt, revision=why, rejections=(*attempt.rejections, why))
                detail = "the change was rejected" + (f": {why}" if why else "")
                return replace(attempt, refusal=(Reason.STOPPED, detail), rejected=why)
            case e.GuardFound():
                worse = (Reason.GUARD_VIOLATED, "; ".join(event.lines)) if event.violated else attempt.refusal
                return replace(attempt.warn(*event.lines), refusal=worse)
            case e.DispatchEnded():
                return attempt.warn(*(line for line in describe_refused(event) if line not in self.warnings))
            case LandingRefused():
                return replace(attempt, refusal=(event.reason, event.why))
            case e.PhaseFailed():
                return replace(attempt, failure=event)
            case e.CleanedUp():
                return replace(attempt, cleaned=True)
            case e.VerdictDoubted():
                return attempt.warn(f"the {event.who} was asked once more, because {event.why}")
            case parts.HostChanged():
                return attempt.warn(event.words)
            case _:
                return attempt


class WorkAttempt(Attempt, frozen=True, kw_only=True):
    chosen: e.PhaseChosen | e.RepairChosen | e.MergeChosen | e.DelegateChosen | e.SubplanChosen
    lease: e.Leased | None = None
    base: str = ""  #: start of the branch; moves when the branch is rebuilt
    start: str = ""  #: the candidate that the branch was rebuilt with
    base_tree: str = ""
    setup: parts.Setup = parts.Setup()
    authors: tuple[str, ...] = ()  #: the agents that have written
    written: str = ""  #: the newest dispatch of a writer
    handovers: tuple[e.HandedOver, ...] = ()
    cycle: int = 1  #: 1 is the implementer's, each fix adds one
    failed_tree: str = ""  #: the tree that the fixer has to fix
    complaint: str = ""  #: what is wrong with it
    cycles: tuple[str, ...] = ()  #: why each fix cycle began, with the failed items
    work: e.WorkTaken | None = None
    remarks: Remarks = Remarks()  #: of the last writer that made some
    broken: e.RulesBroken | None = None  #: no fixer was started for it yet
    breaks: int = 0  #: how often rules were broken
    proof: parts.Proof = parts.Proof()
    drift: e.DriftFound | None = None
    is_last: bool = False  #: a run of all phases ends with it
    unsolved: e.CandidateConflicted | None = None  #: the conflict that the fixer has to solve
    parked: str = ""  #: the ref that keeps the work as it was before that conflict
    rebuilt: int = 0
    pushing: parts.Pushing = parts.Pushing()
    altered: parts.CommandAltered | None = None  #: of a delegated phase
    over: e.SubplanEnded | None = None  #: of a sub-plan

    @property
    def step(self) -> PhaseStep:
        if (dispatch := self.dispatches.running or self.dispatches.ended) is not None:
            return PhaseStep(dispatch.role)
        if self.lease is None:
            return PhaseStep.SUBPLAN if isinstance(self.chosen, e.SubplanChosen) else PhaseStep.LEASE
        if self.work is None:
            return PhaseStep.DELEGATE if isinstance(self.chosen, e.DelegateChosen) else PhaseStep.IMPLEMENT
        if self.proof.trial is not None and self.proof.trial.findings:
            return PhaseStep.TRY
        if self.proof.verdict is not None and self.proof.verdict.passed:
            return PhaseStep.LAND
        has_passed = self.proof.gates and self.proof.gates[-1].answer is not GateAnswer.FAILED
        return PhaseStep.VERIFY if has_passed else PhaseStep.GATE

    @property
    def lands_itself(self) -> bool:
        """Whether its candidate is on the target already: what a command or another plan has landed there."""
        return isinstance(self.chosen, e.DelegateChosen | e.SubplanChosen)

    @property
    def awaited_plan(self) -> str:
        return self.chosen.subplan if isinstance(self.chosen, e.SubplanChosen) and self.over is None else ""

    @property
    def is_repair(self) -> bool:
        return isinstance(self.chosen, e.RepairChosen | e.MergeChosen)

    @property
    def retries(self) -> int:
        return self.cycle - 1 + len(self.handovers) + len(self.dispatches.repeated)

    @property
    def answerable(self) -> str:
        return self.altered.tree if self.altered and self.work is None else super().answerable

    @property
    def fixes(self) -> int:
        return self.cycle - 1 - len(self.rejections)

    @property
    def squash(self) -> bool:
        return bool(self.handovers or self.dispatches.questions) or (self.work is not None and self.work.squash)

    @property
    def leased(self) -> e.Leased:
        assert self.lease is not None
        return self.lease

    @property
    def onto(self) -> str:
        return self.delivery.candidate.onto if self.delivery.candidate else self.chosen.tip

    @property
    def changed_files(self) -> tuple[str, ...]:
        return self.work.files if self.work else ()

    def describe_unsolved(self, why: str) -> str:
        paths = ", ".join(self.unsolved.paths) if self.unsolved else ""
        return f"the fixer did not solve the conflict in {paths}: {why}; the work is kept at {self.parked}"

    @property
    def review(self) -> tuple[str, ...]:
        return self.chosen.review if isinstance(self.chosen, e.RepairChosen) else ()

    @property
    def may_push(self) -> bool:
        """Whether there is newer work to push: not while an agent writes, and not once it lands."""
        is_landing = self.delivery.landing is not None or self.delivery.landed is not None
        is_at_rest = self.dispatches.running is None and not self.cleaned and not is_landing
        return self.lease is not None and self.pushing.is_due and is_at_rest

    @property
    def is_answer(self) -> bool:
        """Whether words are all that an agent has left in answer to the review."""
        return bool(self.review) and self.work is not None and self.work.commits == 0

    def record(self, event: e.Event) -> Self:
        setup = self.setup.record(event, self.dispatches.newest)
        pushing = self.pushing.record(event, is_written=bool(self.written))
        attempt = replace(super().record(event), proof=self.proof.record(event), setup=setup, pushing=pushing)
        match event:
            case e.Leased(kept=kept):
                authors = kept.authors if kept else attempt.authors
                attempt = replace(attempt, lease=event, base=event.base, base_tree=event.base_tree, authors=authors)
                fixed = kept if kept and kept.beginning is Beginning.FIX else None
                return attempt.begin_fix(fixed.tree, fixed.complaint, 2) if fixed else attempt
            case e.DispatchStarted(role=role):
                again = [f"{event.again}; it was tried once more"] if event.again and event.agent else []
                attempt = replace(attempt.warn(*again), written=event.id if role.is_writer else attempt.written)
                return attempt.begin_fix(event.tree, event.complaint, event.cycle) if role is Role.FIX else attempt
            case e.DispatchEnded():
                is_author = event.role.is_writer and event.kind not in (EndingKind.LIMIT, EndingKind.OVERLOADED)
                new = (event.agent,) if is_author and event.agent not in ("", *attempt.authors) else ()
                return replace(attempt, authors=(*attempt.authors, *new))
            case e.QuestionAnswered(id=id_) if attempt.dispatches is not self.dispatches:
                asked = next(question.text for question in self.dispatches.questions if question.id == id_)
                said = f"an agent asked: {asked}; a person answered: {event.text}"
                return replace(attempt, words=(*attempt.words, said))
            case e.HandedOver():
                return replace(attempt, handovers=(*attempt.handovers, event))
            case e.WorkTaken():
                attempt = replace(attempt.without_candidate(), work=event, remarks=event.remarks)
                return attempt.warn(*event.lines)
            case e.RulesBroken():
                attempt = attempt.warn(*(f"a fixer was told: {line}" for line in event.lines))
                return replace(attempt, broken=event, breaks=attempt.breaks + 1)
            case e.CandidateBuilt(rejected=rejected):
                is_new = rejected and rejected not in attempt.warnings
                return replace(attempt, unsolved=None).warn(*([rejected] if is_new else []))
            case e.BranchRebuilt():
                return attempt.record_rebuild(event)
            case e.DriftFound():
                refusal = (Reason.DRIFT, event.abort) if event.abort else None
                return replace(attempt, drift=event, refusal=attempt.refusal or refusal)
            case e.FinalVerificationDue():
                return replace(attempt, is_last=True)
            case e.SubplanEnded():
                return replace(attempt, over=event)
            case parts.CommandAltered() if isinstance(self.chosen, e.DelegateChosen):
                words = f"a person was asked before `{self.chosen.command}` ran: {', '.join(event.files)} had changed"
                return replace(attempt.warn(words), altered=event)
            case parts.HostChanged(is_restarted=True, has_branch=has_branch):
                # Back to the current cycle, or to the first writer; words of people and proofs of trees stay.
                attempt = replace(attempt, work=None, broken=None, revision="", handovers=())
                if has_branch and not self.pushing.lacks_start:
                    return attempt
                attempt = replace(attempt, lease=attempt.lease if has_branch else None, cycle=1, failed_tree="")
                return replace(attempt, complaint="", start="", unsolved=None, parked="", rebuilt=0)
            case _:
                return attempt

    def without_candidate(self) -> Self:
        return replace(self, delivery=replace(self.delivery, candidate=None))

    def begin_fix(self, tree: str, complaint: str, cycle: int) -> Self:
        cycles = self.cycles
        if cycle != self.cycle:
            failed = "".join(f"\n  {item}: {evidence}" for item, evidence in self.proof.failed_items)
            cycles = (*cycles, f"Fix cycle {cycle - 1}: {complaint}{failed}")
        attempt = replace(self.without_candidate(), cycle=cycle, cycles=cycles, failed_tree=tree, complaint=complaint)
        return replace(attempt, work=None, broken=None, revision="")

    def record_rebuild(self, event: e.BranchRebuilt) -> Self:
        attempt = self
        if not event.tree:  # a conflict
            attempt = replace(self, rebuilt=self.rebuilt + 1, parked=event.parked, unsolved=self.delivery.conflict)
        delivery = replace(attempt.delivery, conflict=None)
        start = event.start if event.tree else ""
        attempt = replace(attempt, base=event.base, base_tree=event.base_tree, start=start, delivery=delivery)
        return attempt.begin_fix(event.tree, event.complaint, attempt.cycle + 1)


class PlanningAttempt(Attempt, frozen=True, kw_only=True):
    chosen: PlanningChosen
    accepted: tuple[StepJudged, ...] = ()  #: the steps with a valid output, in order
    judged: dict[Role, int] = {}  #: outputs of each step, valid or not
    tries: int = 0  #: outputs of the current step that were refused
    problems: tuple[str, ...] = ()  #: of the newest output
    last_try: str = ""  #: that output, if it was refused
    parts: tuple[str, ...] = ()  #: the outputs of several explorers, which are to be merged
    has_written: bool = False  #: its agent has changed files, though it may only read
    proposal: ProposalMade | None = None
    queued: bool = False  #: the run of the plan

    @property
    def step(self) -> PhaseStep:
        if (dispatch := self.dispatches.running or self.dispatches.ended) is not None:
            return PhaseStep(dispatch.role)
        is_approved = self.proposal is not None and self.delivery.approved == self.proposal.sha256
        if is_approved or self.delivery.landed:
            return PhaseStep.LAND
        newest = self.dispatches.newest
        return PhaseStep.APPROVE if self.proposal else PhaseStep(newest.role) if newest else PhaseStep.UNDERSTAND

    @property
    def retries(self) -> int:
        return self.tries + len(self.dispatches.repeated)

    @property
    def answerable(self) -> str:
        return self.proposal.sha256 if self.proposal else ""

    @property
    def draft(self) -> StepJudged:
        return next(step for step in reversed(self.accepted) if step.role in (Role.DRAFT, Role.REVISE))

    @property
    def new_questions(self) -> e.Rows:
        steps = [step for step in self.accepted if step.questions]
        rows = ((f"{step.dispatch}-{n}", text) for step in steps for n, text in enumerate(step.questions, 1))
        asked = {question.id for question in self.dispatches.questions}
        return tuple((id_, text) for id_, text in rows if id_ not in asked)

    @property
    def findings(self) -> e.Rows:
        return self.accepted[-1].findings if self.accepted else ()

    def record(self, event: e.Event) -> Self:
        attempt = super().record(event)
        match event:
            case e.Answered(approved=False, why=why) if why and attempt is not self:  # it is about this proposal
                return replace(attempt, proposal=None)
            case StepJudged(role=role, problems=problems):
                attempt = replace(attempt, judged=attempt.judged | {role: attempt.judged.get(role, 0) + 1})
                attempt = replace(attempt, problems=problems, has_written=event.has_written)
                if problems:
                    return replace(attempt, tries=attempt.tries + 1, last_try=event.text)
                if event.parts:
                    return replace(attempt, tries=0, last_try="", parts=event.parts)
                return replace(attempt, tries=0, last_try="", revision="", accepted=(*attempt.accepted, event))
            case ProposalMade():
                steps = attempt.accepted
                if text := strip_front_matter(event.text):  # a person may have edited it
                    steps = tuple(replace(step, text=text) if step is attempt.draft else step for step in steps)
                return replace(attempt, proposal=event, accepted=steps)
            case StartQueued():
                return replace(attempt, queued=True)
            case _:
                return attempt


def begin_attempt(chosen: e.Chosen) -> Attempt:
    if isinstance(chosen, PlanningChosen):
        return PlanningAttempt(chosen=chosen, warnings=chosen.remarks)
    if isinstance(chosen, e.PhaseChosen | e.RepairChosen | e.MergeChosen | e.DelegateChosen | e.SubplanChosen):
        return WorkAttempt(chosen=chosen, warnings=chosen.remarks)
    return Attempt(chosen=chosen, warnings=chosen.remarks)
