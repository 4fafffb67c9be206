"""Judges a verifier's reply, item by item, by what its evidence resolves to."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.checks.evidence import Facts, Judgement, judge_evidence
from runplan.domain.checks.returns import NAME, ReadReturn, Unusable
from runplan.domain.plan.body import WHOLE_PHASE
from runplan.domain.run.dispatch import ItemAnswer, ItemResult, ReturnStatus
from runplan.domain.run.events import Rows

_NO_WORK = "no item rests on a file that the work changed, or on a test"


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


def judge_reply(
    ret: ReadReturn, items: Sequence[str], facts: Facts, *, questions: Sequence[str] = (), gates_red: bool = False
) -> Verdict | Unusable:
    """An item passes with a reference that resolves, a question about a broken promise with the item that demands it.

    At least one item has to rest on the work itself.
    """
    if isinstance(ret, Unusable):
        return ret
    ids = tuple(items) or (WHOLE_PHASE,)
    failed = [result.item for result in ret.items if not result.passed]
    judged = []
    for item in dict.fromkeys((*ids, *questions, *failed)):
        stated = [result for result in ret.items if result.item == item]
        judged.append(_judge_item(item, stated, facts, demanding=ids if item in questions else ()))
    if all(item.passed for item in judged) and not any(item.rests_on_work for item in judged):
        judged = [replace(item, passed=False, missing=_NO_WORK) if item.item in ids else item for item in judged]
    unproven = [item for item in judged if not item.passed]
    why = f"not proven: {', '.join(item.item for item in unproven)}" if unproven else ""
    if not unproven and ret.status is not ReturnStatus.DONE:
        why = f"the verifier says {ret.status.value}: {ret.summary or 'no summary given'}"
    if not why and gates_red:
        return Unusable(why="the verifier passes every item while a gate is red")
    is_rest = ret.status is ReturnStatus.DONE and all(item.missing for item in unproven)
    return Verdict(tuple(judged), why, tuple((item.item, item.missing) for item in unproven) if is_rest else ())


def _judge_item(item: str, stated: Sequence[ItemResult], facts: Facts, *, demanding: Sequence[str]) -> Judgement:
    """Of several answers the worst counts; one of the items `demanding` has to demand the change of a question."""
    worst = next((result for result in stated if not result.passed), None)
    if worst is not None:
        words = "; ".join(reference.ref for reference in worst.evidence) or "no reason given"
        words = f"done in part: {words}" if worst.answer is ItemAnswer.PARTIAL else words
        return Judgement(item=item[:NAME], passed=False, evidence=words)
    if not stated:
        return Judgement(item=item[:NAME], passed=False, evidence="the verifier does not state it")
    if demanding and stated[-1].demanded_by not in demanding:
        missing = f"demanded_by has to be one of {', '.join(demanding)}"
        return Judgement(item=item, passed=False, evidence=f"passed, but {missing}", missing=missing)
    if demanding:
        references = (reference.ref for reference in stated[-1].evidence)
        words = "; ".join((f"demanded by {stated[-1].demanded_by}", *references))
        return Judgement(item=item, passed=True, evidence=words)
    evidence = [reference for result in stated for reference in result.evidence]
    absent = tuple(path for of, path in facts.missing if of == item)
    lacking = [path for path in absent if not any(reference.absent and reference.ref == path for reference in evidence)]
    if missing := "; ".join(f"{path}, which the item names, is not there" for path in lacking):
        return Judgement(item=item, passed=False, evidence=f"passed, but {missing}", missing=missing)
    return judge_evidence(item, evidence, facts, absent)
