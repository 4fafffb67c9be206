"""Judges a verifier's reply, item by item, by what its evidence resolves to."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.checks.evidence import Facts, resolve_evidence
from runplan.domain.checks.returns import NAME, ReadReturn, Unusable
from runplan.domain.plan.body import WHOLE_PHASE
from runplan.domain.run.dispatch import ItemAnswer, ItemResult, Return, ReturnStatus
from runplan.domain.run.events import Rows
from runplan.domain.times import delay_s

_NO_WORK = "no item rests on a file that the work changed, or on a test"


class Judgement(Struct, frozen=True, kw_only=True):
    """The judgement of one item."""

    item: str
    passed: bool
    evidence: str  #: the references in words, or what is against the item
    missing: str = ""  #: what a pass lacks to count; the verifier is asked for it once more
    rests_on_work: bool = False  #: its evidence is a file that the work changed, or a test
    absent: tuple[str, ...] = ()  #: files that it names and passes without


class Verdict(Struct, frozen=True):
    items: tuple[Judgement, ...]  #: every item of the phase, in its order; then other failures
    why: str = ""  #: why the phase fails, one line for people; "" when it passes
    unresolved: Rows = ()  #: what the verifier is asked for once more, by item; nothing else is against the phase

    @property
    def passed(self) -> bool:
        return not self.why

    @property
    def failed(self) -> tuple[Judgement, ...]:
        return tuple(item for item in self.items if not item.passed)


class NoVerdict(Struct, frozen=True, kw_only=True):
    """The reply is no valid answer."""

    why: str


def judge_reply(
    ret: ReadReturn, items: Sequence[str], facts: Facts, *, questions: Sequence[str] = (), gates_red: bool = False
) -> Verdict | NoVerdict:
    """The judgement of the reply for these ids; `questions` are the ids of broken promises of tests.

    An item passes with a reference that resolves, a question with the item that demands the change. At least one item
    has to rest on the work itself.
    """
    if isinstance(ret, Unusable):
        return NoVerdict(why=ret.why)
    ids = tuple(items) or (WHOLE_PHASE,)
    failed = [result.item for result in ret.items if not result.passed]
    judged = []
    for item in dict.fromkeys((*ids, *questions, *failed)):
        stated = [result for result in ret.items if result.item == item]
        against = _find_objection(item, stated)
        judged.append(
            against or (_judge_demand(stated[-1], ids) if item in questions else _judge_evidence(item, stated, facts))
        )
    if all(item.passed for item in judged) and not any(item.rests_on_work for item in judged):
        judged = [replace(item, passed=False, missing=_NO_WORK) if item.item in ids else item for item in judged]
    why = _why_not(ret, judged)
    if not why and gates_red:
        return NoVerdict(why="the verifier passes every item while a gate is red")
    unresolved = tuple((item.item, item.missing) for item in judged if not item.passed)
    is_rest = ret.status is ReturnStatus.DONE and all(missing for _, missing in unresolved)
    return Verdict(tuple(judged), why, unresolved if is_rest else ())


def _find_objection(item: str, stated: Sequence[ItemResult]) -> Judgement | None:
    """An item without an answer fails, and of several answers the worst counts; None when all are passes."""
    worst = next((result for result in stated if not result.passed), None)
    if stated and worst is None:
        return None
    words = "the verifier does not state it"
    if worst is not None:
        words = "; ".join(reference.ref for reference in worst.evidence) or "no reason given"
        words = f"done in part: {words}" if worst.answer is ItemAnswer.PARTIAL else words
    return Judgement(item=item[:NAME], passed=False, evidence=words)


def _judge_evidence(item: str, stated: Sequence[ItemResult], facts: Facts) -> Judgement:
    evidence = [reference for result in stated for reference in result.evidence]
    absent = tuple(path for of, path in facts.missing if of == item)
    lacking = [path for path in absent if not any(reference.absent and reference.ref == path for reference in evidence)]
    if missing := "; ".join(f"{path}, which the item names, is not there" for path in lacking):
        return Judgement(item=item, passed=False, evidence=f"passed, but {missing}", missing=missing)
    found = resolve_evidence(evidence, facts, absent)
    if found.is_proven:
        words, is_work = found.words, found.rests_on_work
        return Judgement(item=item, passed=True, evidence=words, rests_on_work=is_work, absent=absent)
    missing = "; ".join(found.unresolved) or "no file or test is named"
    return Judgement(item=item, passed=False, evidence=f"passed, but no reference resolves: {missing}", missing=missing)


def _judge_demand(result: ItemResult, items: Sequence[str]) -> Judgement:
    if result.demanded_by in items:
        words = "; ".join((f"demanded by {result.demanded_by}", *(reference.ref for reference in result.evidence)))
        return Judgement(item=result.item, passed=True, evidence=words)
    missing = f"demanded_by has to be one of {', '.join(items)}"
    return Judgement(item=result.item, passed=False, evidence=f"passed, but {missing}", missing=missing)


def _why_not(ret: Return, judged: Sequence[Judgement]) -> str:
    failed = [item.item for item in judged if not item.passed]
    if failed:
        return f"not proven: {', '.join(failed)}"
    if ret.status is not ReturnStatus.DONE:
        return f"the verifier says {ret.status.value}: {ret.summary or 'no summary given'}"
    return ""


def parent_wait(attempts: int) -> int:
    """The minutes until a plan that waits for its parent's verification asks again."""
    return int(delay_s(attempts + 1, first_s=600.0)) // 60
