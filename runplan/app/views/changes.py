"""The changes and proposals that wait for a person, and the kept work of failed phases, as frozen values."""

import difflib
from typing import ClassVar

from msgspec import Struct, field

from runplan.adapters.store.journal import list_records
from runplan.app.views.inspection import compare_commits
from runplan.domain.decoding import convert
from runplan.domain.errors import NotFound
from runplan.domain.names import HEADS, wip_ref
from runplan.domain.plan.proposal import Summary, summarize
from runplan.domain.run.attempt_parts import Proof, TrialJudged
from runplan.domain.run.attempts import Attempt, PlanningAttempt, WorkAttempt
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Remarks
from runplan.domain.run.events import Landed, PhaseFailed, Promise, QuestionAsked
from runplan.domain.run.kinds import ANSWERED, PhaseStep, ProofKind, Reason, RunOutcome, RunStatus, WaitKind
from runplan.domain.run.reasons import describe_proof
from runplan.domain.run.state import RunState, fold, open_states
from runplan.domain.settings.schema import set_for_phase
from runplan.domain.standing.actions import NextAction, actions_of_wait, make_action
from runplan.domain.text import command
from runplan.engine.loop.context import RepositoryContext, plan_path
from runplan.engine.loop.runs import state_of


class PhaseChange(Struct, frozen=True, kw_only=True):
    """The work on a phase that a person is asked about, or that is kept after its failure."""

    run: str
    state: RunState
    attempt: Attempt
    waiting: WaitKind | None = None  #: what it waits for; None after a failure


class JudgedItem(Struct, frozen=True, kw_only=True):
    """A work item, a criterion, or a question about a test, with the newest verdict."""

    id: str = field(name="item")
    text: str
    result: str = ""  #: pass, fail; "" without a verdict
    evidence: str = ""


class VerdictView(Struct, frozen=True, kw_only=True):
    verifier: str
    passed: bool
    tree: str
    items: tuple[JudgedItem, ...]


class GateView(Struct, frozen=True):
    name: str
    command: str
    exit_code: int | None  #: None when it did not finish
    tree: str
    result: str


class ProofView(Struct, frozen=True, kw_only=True):
    kind: ProofKind
    result: str
    broken: tuple[Promise, ...]


class FailureView(Struct, frozen=True, kw_only=True):
    reason: Reason
    step: PhaseStep
    detail: str
    evidence: str
    output: str
    branch: str


class ChangeView(Struct, frozen=True, kw_only=True):
    """The work on a phase (docs/reference.md)."""

    plan: str
    phase: str
    title: str
    run: str
    waiting_for: WaitKind | None
    failed: FailureView | None
    commit: str
    tree: str  #: what an answer is bound to
    onto: str
    target: str
    gates: tuple[GateView, ...]
    proofs: tuple[ProofView, ...]
    verdict: VerdictView | None
    trial: TrialJudged | None  #: of an interface
    findings: tuple[str, ...]
    remarks: Remarks  #: of the agent that wrote it
    messages: str
    diff: str

    proposal: ClassVar[None] = None

    @property
    def state(self) -> str:
        if self.failed is not None:
            return f"failed at {self.failed.step} ({self.failed.reason})"
        return f"waits for {self.waiting_for}" if self.waiting_for else "landed"

    @property
    def actions(self) -> tuple[NextAction, ...]:
        if self.waiting_for:
            return actions_of_wait(self.waiting_for, self.plan, self.phase)
        if self.failed is None:
            return (make_action("undo", self.plan, phase=self.phase),)
        return tuple(make_action("retry", self.plan, "Retry", self.phase, fresh=fresh) for fresh in (False, True))


class Proposal(Struct, frozen=True, kw_only=True):
    sha256: str
    edited: bool
    number: int  #: among the revisions of the plan
    notes: tuple[str, ...]  #: a forecast, and which phases can be worked at once
    text: str
    diff: str | None  #: of a revision
    summary: Summary


class ProposalView(Struct, frozen=True, kw_only=True):
    """A planning run, and the plan that it proposes (docs/reference.md)."""

    plan: str
    title: str
    run: str
    state: RunStatus
    step: PhaseStep | None
    waiting_for: WaitKind | None
    outcome: RunOutcome | None
    reason: str | None
    tokens: int
    usd: float
    proposal: Proposal | None

    phase: ClassVar[str] = ""
    failed: ClassVar[None] = None

    @property
    def tree(self) -> str:
        """What an answer is bound to."""
        return self.proposal.sha256 if self.proposal else ""

    @property
    def diff(self) -> str:
        return (self.proposal.diff or "") if self.proposal else ""

    @property
    def actions(self) -> tuple[NextAction, ...]:
        return actions_of_wait(self.waiting_for, self.plan, is_proposal=True) if self.waiting_for else ()


def list_pending(context: RepositoryContext, plan: str | None, wanted: str | None, verb: str) -> list[PhaseChange]:
    store = context.store()
    waits = ANSWERED if verb == "approve" else (*ANSWERED, WaitKind.CHECKOUT)
    changes = []
    for row in store.list_unfinished_runs():
        if plan not in (None, row.plan):
            continue
        state = state_of(store, row)
        for lane in open_states(state):
            attempt = lane.attempt
            waiting = decide(lane).waiting
            if attempt is None or waiting not in waits or wanted not in (None, attempt.chosen.phase):
                continue
            if verb != "diff" or attempt.answerable:
                changes.append(PhaseChange(run=row.id, state=state, attempt=attempt, waiting=waiting))
    return changes


def nothing_pending(plan: str, wanted: str | None) -> NotFound:
    which = f"phase {wanted} of {plan}" if wanted else plan
    return NotFound(f"no change of {which} waits for you; see: {command('runplan', 'status', plan)}")


def list_open_attempts(context: RepositoryContext, plan: str) -> list[Attempt]:
    store = context.store()
    rows = [row for row in store.list_unfinished_runs() if row.plan == plan]
    lanes = [lane for row in rows for lane in open_states(state_of(store, row))]
    return [lane.attempt for lane in lanes if lane.attempt is not None]


def _find_work(context: RepositoryContext, branch: str) -> str | None:
    """The newest commit on the branch of a phase; in a fleet, what its host has pushed of it."""
    if context.fleet is None:
        return context.git.tip(f"{HEADS}{branch}")
    ref = wip_ref(branch)
    return context.git.tip(ref) if context.open_remote().fetch_ref(f"+{ref}:{ref}") else None


def list_questions(context: RepositoryContext, plan: str) -> list[QuestionAsked]:
    return [question for attempt in list_open_attempts(context, plan) for question in attempt.dispatches.open_questions]


def find_change(context: RepositoryContext, plan: str, wanted: str | None, run: str = "") -> PhaseChange:
    """The change of the plan that waits, else the kept work of its newest failure; of a run also what it landed."""
    pending = (change for change in list_pending(context, plan, wanted, "diff") if run in ("", change.run))
    change = next(pending, None)
    failures = context.store().list_facts(PhaseFailed, plan=plan) if change is None else []
    open_attempts = list_open_attempts(context, plan) if failures else []
    continued = {attempt.chosen.phase for attempt in open_attempts if not attempt.failure}
    for fact in reversed(failures):
        failed = fact.event
        row = context.store().get_run(fact.run)
        if wanted not in (None, failed.phase) or failed.phase in continued or row is None:
            continue
        state = state_of(context.store(), row)
        attempts = (lane.attempt for lane in (state, *state.lanes))
        over = (attempt for attempt in attempts if attempt and attempt.failure)
        kept = (attempt for attempt in over if attempt.failure and attempt.failure.phase == failed.phase)
        if failed.branch and _find_work(context, failed.branch) is not None:
            change = next((PhaseChange(run=row.id, state=state, attempt=attempt) for attempt in kept), None)
        break  # an earlier failure does not count
    if run and (change is None or change.run != run):
        change = None
        context.fetch_landed(str)  # a commit that is not there is named where it is read
        records = list_records(context.store(), run)
        for place, record in reversed(list(enumerate(records))):  # the newest, as it was before the landing
            if isinstance(record.event, Landed) and wanted in (None, record.event.phase):
                state = fold(earlier.event for earlier in records[:place])
                attempts = (lane.attempt for lane in open_states(state))
                landed = (attempt for attempt in attempts if attempt and attempt.chosen.phase == record.event.phase)
                change = next((PhaseChange(run=run, state=state, attempt=attempt) for attempt in landed), None)
                break
    if change is None:
        missing = f"the run {run} has no change to show; see: {command('runplan', 'logs', run)}"
        raise NotFound(missing) if run else nothing_pending(plan, wanted)
    return change


def proof_of(attempt: Attempt | None) -> Proof:
    return attempt.proof if isinstance(attempt, WorkAttempt) else Proof()


def judge_items(attempt: Attempt) -> list[JudgedItem]:
    verdict = proof_of(attempt).verdict
    judged = {item: ("pass" if ok else "fail", why) for item, ok, why in verdict.items} if verdict else {}
    texts = dict((*attempt.chosen.items, *(verdict.questions if verdict else ())))
    rows = ((id_, texts.get(id_, ""), *judged.get(id_, ("", ""))) for id_ in dict.fromkeys((*texts, *judged)))
    return [JudgedItem(id=id_, text=text, result=result, evidence=evidence) for id_, text, result, evidence in rows]


def view_change(context: RepositoryContext, change: PhaseChange) -> ChangeView | ProposalView:
    attempt = change.attempt
    if isinstance(attempt, PlanningAttempt):
        return view_planning(context, change.run)
    started = change.state.options
    proof = proof_of(attempt)
    if attempt.failure is not None and isinstance(attempt, WorkAttempt):
        commit = _find_work(context, attempt.failure.branch) or ""
        tree, onto = context.git.commit(commit).tree, attempt.base
    elif isinstance(attempt, WorkAttempt) and attempt.altered and attempt.delivery.candidate is None:
        commit, tree, onto = attempt.altered.commit, attempt.altered.tree, attempt.altered.onto
    else:
        commit, tree, onto = attempt.built.commits[-1], attempt.built.tree, attempt.built.onto
    shown = (onto, commit)
    if context.fleet is not None and isinstance(attempt, WorkAttempt) and not context.git.known(commit):
        work = _find_work(context, attempt.leased.branch)  # the candidate is on its host alone
        if work is None:
            why = attempt.pushing.kept or "its work is not pushed yet"
            see = command("runplan", "status", started.plan)
            raise NotFound(f"the change cannot be shown here: {why}; see: {see}")
        shown = (attempt.base, work)
    is_last = attempt.chosen.ends or (isinstance(attempt, WorkAttempt) and attempt.is_last)
    settings = set_for_phase(context.for_run(started).settings, attempt.chosen.own, is_last=is_last)
    commands = {name: check.command for name, check in settings.checks.items()}
    gates = [GateView(gate.name, commands.get(gate.name, ""), gate.code, gate.tree, gate.line) for gate in proof.gates]
    messages, diff = compare_commits(context, *shown)
    verdict = None
    if (newest := proof.verdict) is not None:
        items = tuple(item for item in judge_items(attempt) if item.result)
        verdict = VerdictView(verifier=newest.agent, passed=newest.passed, tree=newest.tree, items=items)
    return ChangeView(
        plan=started.plan,
        phase=attempt.chosen.phase,
        title=attempt.chosen.title,
        run=change.run,
        waiting_for=change.waiting,
        failed=convert(attempt.failure, FailureView, from_attributes=True) if attempt.failure else None,
        commit=commit,
        tree=tree,
        onto=onto,
        target=started.target,
        gates=tuple(gates),
        proofs=tuple(ProofView(kind=run.kind, result=describe_proof(run), broken=run.promises) for run in proof.runs),
        verdict=verdict,
        trial=proof.trial,
        findings=(*attempt.warnings, *attempt.words, *proof.exceptions),
        remarks=attempt.work.remarks if isinstance(attempt, WorkAttempt) and attempt.work else Remarks(),
        messages=messages,
        diff=diff,
    )


def read_change(context: RepositoryContext, word: str, phase: str = "") -> ChangeView | ProposalView:
    """The change of a plan or of a run: what waits, the kept work of a failed phase, or what the run landed."""
    run = context.store().get_run(word)
    plan, id_ = (run.plan, run.id) if run is not None else (plan_path(context, word), "")
    return view_change(context, find_change(context, plan, phase or None, run=id_))


def view_newest_planning(context: RepositoryContext, plan: str) -> ProposalView | None:
    """None where the run is not recorded yet, as while no host of a fleet has begun it."""
    row = context.store().get_newest_run(plan)
    return view_planning(context, row.id) if row is not None else None


def view_planning(context: RepositoryContext, run: str) -> ProposalView:
    store = context.store()
    row = store.get_run(run)
    assert row is not None
    attempt = state_of(store, row).attempt
    made = attempt.proposal if isinstance(attempt, PlanningAttempt) else None
    proposal = None
    if isinstance(attempt, PlanningAttempt) and made is not None:
        before = attempt.chosen.before.split("\n")
        lines = difflib.unified_diff(before, made.text.split("\n"), f"a/{row.plan}", f"b/{row.plan}", lineterm="")
        proposal = Proposal(
            sha256=made.sha256,
            edited=made.is_edited,
            number=made.number,
            notes=made.notes,
            text=made.text,
            diff="\n".join(lines) if attempt.chosen.before else None,
            summary=summarize(made.text, path=made.path),
        )
    return ProposalView(
        plan=row.plan,
        title=made.title if made else row.title,
        run=row.id,
        state=row.state,
        step=row.step,
        waiting_for=row.waiting_for,
        outcome=row.outcome,
        reason=row.reason,
        tokens=row.tokens,
        usd=round(row.usd, 4),
        proposal=proposal,
    )
