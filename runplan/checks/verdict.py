"""Judges a verifier's reply, item by item, and examines a plan whose phases are done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks.returns import NAME, Unusable
from runplan.plan.body import WHOLE_PHASE
from runplan.plan.marks import Status
from runplan.run.dispatch import ItemResult, Return, ReturnStatus
from runplan.times import delay_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.checks.returns import ReadReturn
    from runplan.plan.model import Plan

#: A shorter reply without a structured return is no answer.
SHORTEST_REPLY = 200  # bytes

_TAIL_LINES = 10

#: A reply that ends with one of these phrases is no answer: the agent was still waiting.
_STALLED = re.compile(
    r"let me (?:wait for (?:the|it)|check back)|(?:i'll|i will) (?:check back|report back once|wait for the tests to)"
    r"|tests are (?:still running|running\. let me wait)|still (?:searching\. let me wait|running in the background)"
    r"|monitor (?:will|to) signal|(?:waiting on|polling) bashoutput"
    r"|waiting for the (?:(?:tests|test run|test suite) to finish|background (?:task|process))"
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
    stalled = _STALLED.search(tail)
    return f"the reply ends while still waiting: {stalled[0]!r}" if stalled else ""


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


# --- the end of a plan --------------------------------------------------------------------------------------

#: Words that admit unfinished work. They do not count after a negation ("no TODO", "nothing deferred").
_ADMITTED = re.compile(
    r"(?i:\bnoted as (?:a )?gap\b|\bgaps? noted\b|\bdeferred\b|\bout[ -]of[ -]scope\b|\bfuture work\b"
    r"|\bleft for later\b|\bnot (?:yet )?(?:implemented|done|verified)\b|\b(?:could|can) ?not (?:be )?verif\w*"
    r"|\bunable to verify\b)|\bTODO\b"
)
#: The words in a file name or in the pattern of a search admit nothing: `grep -rn TODO src`, `TODO.md`.
_QUOTED = re.compile(r"`(?:git )?(?:grep|rg|ag) [^`\n]*+`|(?<![\w/-])[\w/-]++\.[a-z]{1,5}\b")
_NEGATED = re.compile(r"\b(?:no|not|nothing|none|never|without|zero|any) (?:\w+ )?$", re.IGNORECASE)
_SKIPPED = re.compile(r"(?<!\d )\bskipped\b", re.IGNORECASE)  # not the count of a test runner
_OWN = "- Tests: skipped"  #: runplan's own line of a repository without tests
_MOST_FOUND = 50


def admits_gap(text: str) -> str:
    """The words that admit that something is not done; "" for none."""
    text = _QUOTED.sub("it", text)
    for found in _ADMITTED.finditer(text):
        if not _NEGATED.search(text[max(0, found.start() - 40) : found.start()]):
            return found.group()
    return ""


def audit(plan: Plan, report: str, *, report_path: str) -> list[str]:
    """The phases without a completion mark, and the lines of the report that admit a gap; advice for a person."""
    unmarked = [f"phase {phase.id}: no completion mark" for phase in plan.phases if phase.status is not Status.DONE]
    admitted = [
        f"{report_path}:{number}: {line.strip()[:200]}"
        for number, line in enumerate(report.splitlines(), 1)
        if admits_gap(line) or (_SKIPPED.search(line) and not line.startswith(_OWN))
    ]
    return [*unmarked, *admitted][:_MOST_FOUND]


def parent_wait(attempts: int) -> int:
    """The minutes until a plan that waits for its parent's verification asks again."""
    return int(delay_s(attempts + 1, first_s=600.0)) // 60
