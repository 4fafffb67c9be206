"""Judges a verifier's reply: what it proves, item by item, or why it proves nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.checks.returns import NAME, Unusable
from runplan.run.dispatch import ItemResult, Return, ReturnStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.checks.returns import ReadReturn

#: The single id of a phase that lists no items.
WHOLE_PHASE = "P"

#: A reply without a structured return that is shorter than this says nothing.
SHORTEST_REPLY = 200  # bytes

_TAIL_LINES = 10

#: An agent that ends with one of these went to sleep instead of answering. Whole phrases only: a single
#: word is innocent.
STALLED = (
    "let me wait for the monitor",
    "tests are running. let me wait",
    "monitor will signal",
    "monitor to signal",
    "still searching. let me wait",
    "waiting on bashoutput",
    "polling bashoutput",
    "i'll wait for the tests to finish",
    "i will wait for the tests to finish",
    "waiting for the tests to finish",
    "waiting for the test run to finish",
    "waiting for the test suite to finish",
    "waiting for the background task",
    "waiting for the background process",
    "tests are still running",
    "still running in the background",
    "let me check back",
    "i'll check back",
    "i will check back",
    "let me wait for it to finish",
    "let me wait for the results",
    "i'll report back once",
    "i will report back once",
)

#: A gap that is only noted is a failure, whatever the result beside it says.
_GAPS = ("noted as gap", "noted as a gap", "gap noted", "gaps noted", "could not verify", "unable to verify")

_NOTHING = frozenset({"", "n/a", "na", "none", "tbd", "todo", "unknown"})
_FLAG = re.compile("\u26a0\ufe0f? *Flag", re.IGNORECASE)


class Passed(Struct, frozen=True, kw_only=True):
    """Every item is proven."""

    items: tuple[ItemResult, ...]  #: in the order of the phase
    notes: tuple[str, ...] = ()


class Failed(Struct, frozen=True, kw_only=True):
    """Something is not proven; `why` says it in one line, also when no single item is to blame."""

    items: tuple[ItemResult, ...]  #: every item of the phase, in its order; then what else fails
    why: str
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[ItemResult, ...]:
        """The items that are not proven, with the evidence against them."""
        return tuple(item for item in self.items if not item.passed)


class NoVerdict(Struct, frozen=True, kw_only=True):
    """The reply cannot be taken for an answer."""

    why: str


Verdict: TypeAlias = Passed | Failed | NoVerdict


def judge(ret: ReadReturn, message: str, items: Sequence[str], *, gates_red: bool) -> Verdict:
    """What the verifier's reply is worth; `items` are the ids it had to answer for."""
    unfit = unfit_reply(message, structured=isinstance(ret, Return) or ret.found)
    if unfit:
        return NoVerdict(why=unfit)
    if isinstance(ret, Unusable):
        return NoVerdict(why=ret.why)
    wanted = tuple(items) or (WHOLE_PHASE,)
    answers = (*(_answer(item, ret.items) for item in wanted), *_against(ret.items, wanted))
    notes = _notes(ret, wanted)
    why = _why_not(ret, message, answers)
    if why:
        return Failed(items=answers, why=why, notes=notes)
    if gates_red:
        return NoVerdict(why="the verifier passes every item while a gate is red")
    return Passed(items=answers, notes=notes)


def unfit_reply(message: str, *, structured: bool) -> str:
    """Why the message cannot belong to a finished verification; empty when it can."""
    if not structured and len(message.strip().encode("utf-8", "replace")) < SHORTEST_REPLY:
        return f"the reply is shorter than {SHORTEST_REPLY} bytes and holds no return"
    tail = "\n".join(message.splitlines()[-_TAIL_LINES:]).casefold().replace("\u2019", "'")
    stalled = next((phrase for phrase in STALLED if phrase in tail), "")
    return f"the reply ends while still waiting: {stalled!r}" if stalled else ""


def _answer(item: str, stated: tuple[ItemResult, ...]) -> ItemResult:
    """The one answer for an id: unstated is a fail, and of several the worst counts."""
    mine = [result for result in stated if result.item == item]
    if not mine:
        return ItemResult(item=item, passed=False, evidence="the verifier does not state it")
    against = next((result for result in mine if not result.passed), None)
    if against is not None:
        return ItemResult(item=item, passed=False, evidence=against.evidence or "no reason given")
    weak = next((doubt for result in mine if (doubt := _doubt(result.evidence))), "")
    if weak:
        return ItemResult(item=item, passed=False, evidence=weak)
    return mine[-1]


def _against(stated: tuple[ItemResult, ...], wanted: tuple[str, ...]) -> list[ItemResult]:
    """What fails besides the items of the phase: whoever says that the build is broken has not passed it."""
    names = dict.fromkeys(result.item for result in stated if not result.passed and result.item not in wanted)
    found = [_answer(name, stated) for name in names]
    return [ItemResult(item=each.item[:NAME], passed=False, evidence=each.evidence) for each in found]


def _doubt(evidence: str) -> str:
    """Why this evidence proves nothing; empty when it may."""
    plain = evidence.strip().casefold().rstrip(".")
    if plain in _NOTHING or not any(character.isalnum() for character in plain):
        return "passed without evidence"
    if any(gap in plain for gap in _GAPS):
        return f"passed with a gap: {evidence}"
    return ""


def _why_not(ret: Return, message: str, answers: tuple[ItemResult, ...]) -> str:
    failed = [answer.item for answer in answers if not answer.passed]
    if failed:
        return f"not proven: {', '.join(failed)}"
    if ret.status is not ReturnStatus.DONE:
        return f"the verifier says {ret.status.value}: {ret.summary or 'no summary given'}"
    if _FLAG.search("\n".join((message, ret.summary, *(answer.evidence for answer in answers)))):
        return f"the verifier raised a flag: {ret.summary or 'see its message'}"
    return ""


def _notes(ret: Return, wanted: tuple[str, ...]) -> tuple[str, ...]:
    unknown = dict.fromkeys(result.item for result in ret.items if result.item not in wanted)
    return tuple(f"the verifier answers for {item[:NAME]!r}, which is no item of the phase" for item in unknown)
