"""Run requests, and the answers to commands that failed."""

import re
from collections.abc import Collection, Iterable
from math import inf
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.errors import Exit, RunplanError
from runplan.domain.names import QUEUE
from runplan.domain.run.attempt_parts import ProposalMade
from runplan.domain.run.events import Answered, QuestionAnswered, ReviewItem, RunStarted
from runplan.domain.run.rows import Answer, WorkProgress

BY_PERSON = "a person"
Reply: TypeAlias = Answered | QuestionAnswered | ProposalMade


class Timing(Struct, frozen=True, kw_only=True):
    every: str  #: canonical, without `every`
    now: bool  #: start a run at once as well
    zone: str
    misfire: str


class RunRequest(Struct, frozen=True, kw_only=True):
    """A request for a run, with all options resolved; its fields are the arguments of the command `start`."""

    started: RunStarted
    answer: Answered | None = None  #: to the pending change
    answered: QuestionAnswered | None = None  #: to a question of an agent
    edited: ProposalMade | None = None  #: a person's version of a proposed plan
    fired: bool = False  #: by a schedule, which never approves
    again: bool = False  #: a retry, which does nothing after success
    origin: str = ""  #: the planning run that queued it
    timing: Timing | None = None

    @property
    def reply(self) -> Reply | None:
        return self.answer or self.answered or self.edited


class QueueWork(WorkProgress, frozen=True, kw_only=True):
    """A request to work on plans of the queue; it is under way as long as its row is stored."""

    started: RunStarted  #: like each of its runs

    @property
    def left(self) -> float:
        most = self.started.plan.removeprefix(QUEUE)
        return (inf if most == "all" else int(most)) - len(self.begun)


def read_comments(text: str, files: Collection[str], known: Iterable[str], *, by: str) -> tuple[ReviewItem, ...]:
    """The comments on lines of these files, such as `src/app.py:12: use the parser`; the ids follow the known ones."""
    comments: list[ReviewItem] = []
    first = 1 + max((int(id_[1:]) for id_ in known if re.fullmatch(r"R[0-9]{1,9}", id_)), default=0)
    is_open = False
    for line in text.splitlines():
        place, colon, words = line.strip().partition(": ")
        path, _, number = place.rpartition(":")
        if colon and path in files and number.isascii() and number.isdecimal() and len(number) < 9:
            id_ = f"R{first + len(comments)}"
            comments.append(ReviewItem(thread="", words=words.strip(), author=by, path=path, line=int(number), id=id_))
            is_open = True
        elif is_open and line.strip():
            comments[-1] = replace(comments[-1], words=f"{comments[-1].words} {line.strip()}")
        else:
            is_open = False
    return tuple(comments)


def refused(error: RunplanError, host: str = "") -> Answer:
    return Answer(error=f"{error} (on the host {host})" if host else str(error), exit=int(error.exit))


def unexpected(error: BaseException) -> Answer:
    text = f"unexpected {type(error).__name__} in the daemon: {error}; see its log"
    return Answer(error=text, exit=int(Exit.UNREACHABLE))
