"""Everything that waits for a person, in all repositories."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents.environment import describe_missing
from runplan.adapters.store.journal import list_records
from runplan.adapters.store.location import Location
from runplan.adapters.store.protocol import Store, open_store
from runplan.domain.errors import RunplanError
from runplan.domain.plan.marks import PUT_OFF
from runplan.domain.run import events as e
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.decide import actions_of_state, decide
from runplan.domain.run.kinds import ANSWERED, FOR_ANSWER, RunStatus, WaitKind
from runplan.domain.run.rows import RunRow
from runplan.domain.run.state import RunState, fold, open_states
from runplan.domain.standing.actions import NextAction, list_actions
from runplan.domain.text import command
from runplan.engine.report.sections import describe_proposal


class EntryKind(StrEnum):
    PROPOSAL = "proposal"  #: a plan
    CHANGE = "change"  #: a phase that needs approval
    SIGN_OFF = "sign-off"
    QUESTION = "question"  #: of an agent
    ISSUE = "issue"  #: of the plan, which has changed before the merge
    CRASH = "crash"  #: a run that runplan itself failed at
    FAILED = "failed"  #: the newest run of a plan


class InboxEntry(Struct, frozen=True, kw_only=True):
    kind: EntryKind
    id: str  #: of a question or a failed run; else what the answer is bound to: the tree, or the hash of a proposal
    repository: str  #: its root
    plan: str
    phase: str = ""
    title: str = ""  #: of the phase, else of the plan
    run: str
    since: str  #: UTC ISO-8601
    text: str = ""  #: the question, what is asked for, the summary of a proposal, or why a run failed
    actions: tuple[NextAction, ...] = ()  #: that show and answer it, in that repository
    commands: tuple[str, ...] = ()  #: of the actions


class Unreadable(Struct, frozen=True, kw_only=True):
    repository: str
    error: str

    @property
    def words(self) -> str:
        return f"{self.repository} cannot be read: {self.error}"


class Inbox(Struct, frozen=True, kw_only=True):
    entries: tuple[InboxEntry, ...]  #: newest last
    unreadable: tuple[Unreadable, ...] = ()


def read_inbox(journals: Mapping[str, Location]) -> Inbox:
    entries: list[InboxEntry] = []
    unreadable: list[Unreadable] = []
    for root, journal in sorted(journals.items()):
        try:
            with contextlib.closing(open_store(journal, writable=False, missing_ok=True)) as store:
                entries += _list_entries(store, root)
        except (RunplanError, OSError) as error:
            unreadable.append(Unreadable(repository=root, error=str(error)))
    entries = [replace(entry, commands=tuple(action.command for action in entry.actions)) for entry in entries]
    return Inbox(entries=tuple(sorted(entries, key=lambda entry: entry.since)), unreadable=tuple(unreadable))


def _list_entries(store: Store, root: str) -> Iterator[InboxEntry]:
    for row in store.list_unfinished_runs():
        if any(work.waiting_for in (*FOR_ANSWER, WaitKind.ISSUE, WaitKind.CRASHED) for work in (row, *row.lanes)):
            records = list_records(store, row.id)
            asked = {record.event.tree: record.at for record in records if isinstance(record.event, e.ApprovalAsked)}
            asked |= {record.event.id: record.at for record in records if isinstance(record.event, e.QuestionAsked)}
            for lane in open_states(fold(record.event for record in records)):
                yield from _entries_of(lane, row, root, asked)
    for plan, facts in store.read_plan_facts().items():
        seen = json.loads(facts.outline[1] or "{}")  # what a person did meanwhile
        is_over = facts.queued or seen.get("complete") or seen.get("is_gone") or seen.get("status") in PUT_OFF
        if facts.run is not None and facts.run.state is RunStatus.FAILED and not is_over:
            failures = store.list_failures(plan)
            whys = [f"phase {failure.phase}: {failure.reason}: {failure.detail}" for failure in failures]
            failed = [failure.phase for failure in failures]
            actions = list_actions(plan, facts, failed=failed, following="", is_complete=False, is_stuck=False)
            entry = replace(_entry_of(facts.run, root), actions=tuple(a for a in actions if not a.is_usual))
            yield replace(entry, text="\n".join(whys)) if whys else entry


def _entry_of(row: RunRow, root: str) -> InboxEntry:
    entry = InboxEntry(kind=EntryKind.FAILED, id=row.id, repository=root, plan=row.plan, run=row.id, since=row.since)
    return replace(entry, title=row.title, text=row.reason or "")


def _entries_of(state: RunState, row: RunRow, root: str, asked: Mapping[str, str]) -> Iterator[InboxEntry]:
    decision = decide(state)
    attempt = state.attempt
    phase = attempt.chosen.phase if attempt is not None else ""
    lost = f"\n{describe_missing(state.missing, plan=row.plan)}" if state.missing else ""
    if state.halted and not state.missing:
        lost = f"\npaused by {state.halted}; an answer takes effect with: {command('runplan', 'resume', row.plan)}"
    title = (attempt.chosen.title if attempt is not None else "") or row.title
    base = replace(_entry_of(row, root), phase=phase, title=title)

    def entry(kind: EntryKind, id_: str, text: str, actions: tuple[NextAction, ...]) -> InboxEntry:
        return replace(base, kind=kind, id=id_, since=asked.get(id_, row.since), text=f"{text}{lost}", actions=actions)

    actions = actions_of_state(state, decision.waiting, row.plan)
    if decision.waiting is WaitKind.CRASHED:
        yield entry(EntryKind.CRASH, row.id, state.crash, actions)
    if decision.waiting is WaitKind.ISSUE:
        yield replace(_entry_of(row, root), kind=EntryKind.ISSUE, text=decision.about, actions=actions)
    if attempt is None or decision.waiting not in FOR_ANSWER:
        return
    for question in state.questions:
        by_id = NextAction(verb="answer", plan=row.plan, id=question.id, text="TEXT", label="Answer")
        yield entry(EntryKind.QUESTION, question.id, question.text, (by_id,))
    if decision.waiting in ANSWERED:
        kind = EntryKind.SIGN_OFF if decision.waiting is WaitKind.SIGN_OFF else EntryKind.CHANGE
        text = decision.why
        if isinstance(attempt, PlanningAttempt) and attempt.proposal is not None:
            kind = EntryKind.PROPOSAL
            text = "\n".join(describe_proposal(attempt.proposal))
        yield entry(kind, attempt.delivery.asked, text, actions)
