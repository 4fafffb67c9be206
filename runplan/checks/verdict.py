"""Judges a verifier's reply, item by item."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks.completion import admits_gap
from runplan.checks.returns import NAME, Unusable
from runplan.plan.body import WHOLE_PHASE
from runplan.run.dispatch import ItemResult, Return, ReturnStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.checks.returns import ReadReturn

#: A shorter reply without a structured return is no answer.
SHORTEST_REPLY = 200  # bytes

_TAIL_LINES = 10

#: A reply that ends with one of these phrases is no answer: the agent was still waiting.
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

#: Evidence names a file, a test or a command.
_PROOF = re.compile(
    r"`[^`\n]+`|::|\S ?[›>] ?\S|(?!and/or)[\w.-]{2}/[\w.-]|\b(?!e\.g|i\.e)[\w-]+\.[A-Za-z]\w{0,9}\b"
    r"|\btest\w*_\w|\b(?:Test|Fuzz)[A-Z]\w|\b(?:Makefile|Dockerfile|Jenkinsfile|README|LICENSE|CHANGELOG)\b"
    r"|\b(?:make|pytest|tox|python3?|npm|npx|pnpm|yarn|node|go|cargo|ctest|cmake|git|grep|curl|sh|bash) [\w./-]"
)
_FLAG = re.compile("\u26a0\ufe0f? *Flag", re.IGNORECASE)


class Verdict(Struct, frozen=True):
    items: tuple[ItemResult, ...]  #: every item of the phase, in its order; then other failures
    why: str = ""  #: why the phase fails, one line for people; "" when it passes

    @property
    def passed(self) -> bool:
        return not self.why

    @property
    def failed(self) -> tuple[ItemResult, ...]:
        return tuple(item for item in self.items if not item.passed)


class NoVerdict(Struct, frozen=True, kw_only=True):
    """The reply is no valid answer."""

    why: str


def judge(ret: ReadReturn, message: str, items: Sequence[str], *, gates_red: bool) -> Verdict | NoVerdict:
    """The judgement of the verifier's reply; `items` are the ids it had to answer for."""
    unfit = unfit_reply(message, structured=isinstance(ret, Return) or ret.found)
    if unfit:
        return NoVerdict(why=unfit)
    if isinstance(ret, Unusable):
        return NoVerdict(why=ret.why)
    wanted = tuple(items) or (WHOLE_PHASE,)
    others = [result for result in ret.items if result.item not in wanted]
    failed = dict.fromkeys(result.item for result in others if not result.passed)
    answers = (*(_answer(item, ret.items) for item in wanted), *(_answer(item, others) for item in failed))
    why = _why_not(ret, message, answers)
    if not why and gates_red:
        return NoVerdict(why="the verifier passes every item while a gate is red")
    return Verdict(answers, why)


def unfit_reply(message: str, *, structured: bool) -> str:
    """Why the message cannot belong to a finished verification; empty when it can."""
    if not structured and len(message.strip().encode("utf-8", "replace")) < SHORTEST_REPLY:
        return f"the reply is shorter than {SHORTEST_REPLY} bytes and contains no return"
    tail = "\n".join(message.splitlines()[-_TAIL_LINES:]).casefold().replace("\u2019", "'")
    stalled = next((phrase for phrase in STALLED if phrase in tail), "")
    return f"the reply ends while still waiting: {stalled!r}" if stalled else ""


def _answer(item: str, stated: Sequence[ItemResult]) -> ItemResult:
    """The answer for an id: a missing one is a fail, and of several the worst counts."""
    mine = [result for result in stated if result.item == item]
    against = [result.evidence or "no reason given" for result in mine if not result.passed]
    doubts = [doubt for result in mine if (doubt := _doubt(result.evidence))]
    if mine and not against and not doubts:
        return mine[-1]
    evidence = (*against, *doubts, "the verifier does not state it")[0]
    return ItemResult(item=item[:NAME], passed=False, evidence=evidence)


def _doubt(evidence: str) -> str:
    """Why this evidence proves nothing; empty when it may."""
    if not any(character.isalnum() for character in evidence):
        return "passed without evidence"
    if gap := admits_gap(evidence):
        return f"passed, but the evidence says {gap!r}: {evidence}"
    if not _PROOF.search(evidence):
        return f"passed with evidence that names no file, test or command: {evidence}"
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
