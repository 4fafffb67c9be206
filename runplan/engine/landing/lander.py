"""The contract of a lander, its three answers, and the search for a landing in a history."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from runplan.adapters.forge.protocol import Activity, Forge, PullMessage, PullRequest
from runplan.adapters.git.command import Git
from runplan.domain.gitfacts import LANDING, Commit, Oid, read_trailers
from runplan.domain.run.events import IssueRead, LandingStarted, ReviewItem
from runplan.domain.run.kinds import Reason, WaitKind

#: How far back a landing is looked for when the user has worked on top of it or rewritten the branch.
DEEPEST = 2_000


class Landed(Struct, frozen=True, kw_only=True):
    tip: Oid  #: where the target stood when this was seen
    note: str = ""  #: for the user: why a branch did not follow, or which file was kept
    pull: str = ""  #: number and address of the pull request
    head: Oid = ""  #: of the pull request, when it was merged


class Pending(Struct, frozen=True, kw_only=True):
    """The landing waits and nothing was changed. `land` is called again later, with growing delays."""

    why: str  #: for the user: what is in the way, and what to do


class TargetMoved(Struct, frozen=True, kw_only=True):
    """The target is no longer where the candidate was built: build the candidate again."""

    tip: Oid


class Failed(Struct, frozen=True):
    """The landed phases do not reach the target, and no further attempt is made."""

    reason: Reason
    why: str


Refused: TypeAlias = TargetMoved | Failed
LandingAnswer: TypeAlias = Landed | Pending | Refused


class Progress(Struct, frozen=True, kw_only=True):
    may_merge: bool  #: the run is `auto`
    repairs: int
    max_repairs: int
    updates: int
    pushed: tuple[Oid, ...] = ()  #: the tips that runplan made for this plan, the newest last
    pushed_at: float = 0.0  #: of the newest one, in seconds since the epoch
    reviews: tuple[str, ...] = ()  #: the group of each repair for messages on a pull request
    max_reviews: int = 0
    answers: dict[str, str] = {}  #: to the messages that were handled, by their ids; "" for none
    shows_strangers: bool = False  #: to agents, with a request of an account that may write
    began: float = 0.0  #: the run, in seconds since the epoch
    issues: dict[int, IssueRead] = {}  #: by their numbers, as they were before the work, or a person has answered
    merged: dict[str, tuple[Oid, Oid]] = {}  #: groups of a stack: heads of their pull requests, and the merges


class Waiting(Struct, frozen=True, kw_only=True):
    """The forge or a person has to do something first; ask again later."""

    kind: WaitKind
    why: str
    issues: tuple[IssueRead, ...] = ()  #: of which one has changed


class NeedsRepair(Struct, frozen=True, kw_only=True):
    title: str
    complaint: str
    merge: bool = False  #: the target is to be merged into it
    commit: Oid = ""  #: to be merged, instead of the target's tip
    since: Oid = ""  #: the merge base that counts; "" for that of git
    comments: tuple[ReviewItem, ...] = ()  #: of the review that it handles


class Commanded(Struct, frozen=True, kw_only=True):
    id: str
    by: str
    is_stop: bool  #: else the run is to try again

    @property
    def origin(self) -> str:
        return f"the pull request's comment of {self.by}"


Conclusion: TypeAlias = Landed | Waiting | NeedsRepair | Commanded | Failed


class DueMessages(Struct, frozen=True, kw_only=True):
    """The messages that no run has handled."""

    commands: tuple[Commanded, ...] = ()  #: oldest first
    requests: tuple[PullMessage, ...] = ()  #: of accounts with write access
    strangers: tuple[PullMessage, ...] = ()  #: like requests, of other accounts
    context: tuple[PullMessage, ...] = ()  #: comments that ask for nothing, of accounts with write access


class Sighting(Struct):
    """What a process has seen of a pull request, for its next look; the daemon makes a lander for each look."""

    forge: Forge | None = None
    groups: dict[str, "Sighting"] = {}  #: of a stack
    focus: str = ""  #: the group of the stack whose pull request is worked on
    turn: int = 0  #: counts the looks at pull requests above the lowest
    listed: str | None = None  #: the lowest group when the descriptions of the stack were brought up to date
    number: int = 0  #: of the pull request
    last: PullRequest | None = None  #: as it was when it was read last, open or not
    pull: PullRequest | None = None  #: as it was when its description was shown last, if it was open
    people: int = 0  #: the pull request to which labels, assignees and reviewers were added
    status: tuple[Oid, str] | None = ("", "")  #: the newest commit status; None when the token may set none
    shown_at: float = 0.0  #: when the newest commit was made that the description shows, in seconds since the epoch
    remarks: dict[str, None] = {}  #: for the next note, each once
    red: frozenset[str] = frozenset()  #: failed checks of the target that this pull request waits for
    #: What was seen when the rules of the target held the merge, and the answer: they are read after a change.
    held: tuple[tuple[PullRequest, Activity, tuple[bool, bool]], Conclusion] | None = None
    refused: list[tuple[tuple[Oid, Oid], str]] = []  #: head, tip of the target, and method of refused merges
    #: The messages, those of them that were handled, and those that are due: permissions are read after a change.
    due: tuple[tuple[object, ...], DueMessages] | None = None


def find_landing(git: Git, landing: LandingStarted, tip: Oid) -> Oid | None:
    """The newest commit of the landing between the old tip and this one, found by its trailer; costs no process."""
    seen = {landing.old}
    queue = [tip]
    while queue and len(seen) < DEEPEST:
        oid = queue.pop(0)
        if oid in seen:
            continue
        seen.add(oid)
        stored = git.known(oid)
        if stored is None:
            continue  # where a shallow clone ends
        commit = Commit.parse(oid, stored.content)
        if oid == landing.new or read_trailers(commit.message).get(LANDING) == landing.id:
            return oid
        queue += commit.parents
    return None


class Lander(Protocol):
    @property
    def ref(self) -> str:
        """The full name of the ref that shows the target's tip."""

    def tip(self) -> Oid | None:
        """The target's tip now; fetched when the target is on a remote."""

    def prepare(self, *, id: str, old: Oid, new: Oid) -> LandingStarted:
        """The intent, to be recorded before `land`."""

    def land(self, landing: LandingStarted, deliver: Callable[[], object]) -> LandingAnswer:
        """Move the target; `deliver` copies the candidate into the user's repository when it is needed there."""

    def observe(self, landing: LandingStarted) -> Landed | None:
        """Whether the target holds the landing; reliable after `recover`; changes nothing."""

    def recover(self, landing: LandingStarted) -> object:
        """Complete or roll back interrupted landings."""
