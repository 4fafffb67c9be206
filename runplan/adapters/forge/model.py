"""A repository on a forge, its pull requests, checks and issues as plain values."""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from msgspec import Struct

from runplan.domain.gitfacts import Oid
from runplan.domain.globs import covers
from runplan.domain.text import counted

METHODS = ("merge", "rebase", "squash")  #: of a merge, in the order of preference: the first two keep the trailers
STATUS = "runplan"  #: context of the commit status that runplan sets
MOST_OPEN = 50  #: open pull requests whose files are read, with one call each
FAILED_JOBS = 3  #: whose logs are read
LOG_CHARACTERS = 6000 // FAILED_JOBS  #: of the log of each


class Address(Struct, frozen=True, kw_only=True):
    """A repository on a forge, as the URL of a remote names it."""

    host: str
    owner: str
    repository: str
    password: str = ""  #: from an https URL that holds one
    web: str = ""  #: scheme and host to which a token may be sent, "" for ssh

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.repository}"


class ForgeRepository(Struct, frozen=True, kw_only=True):
    """A repository on a forge, and what the token may do there."""

    name: str  #: owner/name as the forge spells it; differs from the remote after a rename
    can_push: bool
    default_branch: str = ""  #: a merge into it closes the issues that the description names
    is_archived: bool = False
    scopes: tuple[str, ...] = ()  #: of a classic token; other tokens have none


class Target(Struct, frozen=True, kw_only=True):
    """A branch that receives pull requests: how they can be merged, and what has to come first."""

    methods: tuple[str, ...] = METHODS  #: those that both the repository and the rules of the branch allow
    auto_merge: bool = False
    checks: tuple[str, ...] = ()  #: names of required checks
    usual_checks: tuple[str, ...] = ()  #: names of the checks of the newest merged pull requests
    is_first: bool = False  #: no pull request was merged into it yet
    strict: bool = False  #: the branch must be up to date before it is merged
    reviews: int = 0
    queue: bool = False
    rules: tuple[str, ...] = ()  #: further ones, in words
    unread: tuple[str, ...] = ()  #: kinds of checks that the token may not read, in words
    objections: tuple[str, ...] = ()  #: accounts with write access whose newest review asks for changes

    @property
    def requirements(self) -> str:
        """The rules that a pull request has to meet, in words; "" for none."""
        rules = {
            f"checks {', '.join(self.checks)}": self.checks,
            counted(self.reviews, "approving review"): self.reviews,
            "an up-to-date branch": self.strict,
            "the merge queue": self.queue,
        }
        return ", ".join([*(words for words, is_rule in rules.items() if is_rule), *self.rules])

    def choose_method(self, wanted: str) -> str:
        """The wanted method where it is allowed, else another one; "" when there is none."""
        return next((method for method in (wanted, *METHODS) if method in self.methods), "")


class MergeState(Enum):
    UNKNOWN = "unknown"  #: it is computed
    READY = "ready"  #: checks that are not required may be missing
    BEHIND = "behind"  #: the target has moved, and its rules ask for an up-to-date branch
    CONFLICT = "conflict"
    BLOCKED = "blocked"  #: by a rule of the target


class CheckState(Enum):
    PASSED = "passed"
    FAILED = "failed"
    PENDING = "pending"


class PullRequest(Struct, frozen=True, kw_only=True):
    number: int
    url: str
    is_open: bool
    is_merged: bool
    head: Oid
    base: str
    title: str
    body: str
    draft: bool
    state: MergeState
    merge_commit: Oid  #: "" unless merged
    auto_merge: bool
    can_rebase: bool = True  #: False where the forge knows that its commits cannot be made again on the target
    merge_message: str = ""  #: of the commit that auto-merge will make
    ended: float = 0.0  #: when it was merged or closed, in seconds since the epoch
    noun: str = "pull request"
    sign: str = "#"  #: before the number
    refs: str = "refs/pull"  #: has NUMBER/head with its commits, which stays when its branch is deleted

    @property
    def name(self) -> str:
        """As the forge and its users call it: `pull request #7`, `merge request !7`."""
        return f"{self.noun} {self.sign}{self.number}"

    @property
    def place(self) -> str:
        return f"{self.sign}{self.number} {self.url}"


class PullCheck(Struct, frozen=True, kw_only=True):
    """One check run or commit status of a pushed commit."""

    name: str
    state: CheckState
    url: str = ""
    summary: str = ""
    changed: float = 0.0  #: when it began or ended, in seconds since the epoch


class Issue(Struct, frozen=True, kw_only=True):
    number: int
    title: str
    body: str
    is_open: bool
    url: str
    author: str
    closed_as: str = ""  #: completed, not_planned, duplicate; "" where the forge knows no reasons
    closed_by: str = ""
    is_trusted: bool | None = None  #: for the label of a listing; None where the forge was not asked


class Comment(Struct, frozen=True, kw_only=True):
    author: str
    text: str
    changed: float  #: seconds since the epoch


class PullMessage(Struct, frozen=True, kw_only=True):
    """A review, a comment on a line, or a comment of a pull request."""

    id: str  #: "review 12", "line 13", "comment 14"
    author: str
    text: str
    changed: float  #: when it was written, in seconds since the epoch
    place: str = ""  #: path:line; "" for the whole pull request
    thread: str = ""  #: where a comment on a line is answered
    is_approval: bool = False  #: a review that asks for none, maybe without a text


class Activity(Struct, frozen=True, kw_only=True):
    """The state of a pull request that others write: checks of its head, and messages, oldest first."""

    checks: tuple[PullCheck, ...]
    messages: tuple[PullMessage, ...]
    is_open: bool | None = None  #: None where the answer does not say it


def has_marker(text: str, marker: str) -> bool:
    """Whether this is the comment of the marker; words of others within it may contain any mark."""
    return text.rstrip().endswith(f"<!-- {marker} -->")


class Merge(Struct, frozen=True, kw_only=True):
    head: Oid
    method: str
    title: str
    message: str


class NotMerged(Struct, frozen=True, kw_only=True):
    """The forge did not merge; nothing was changed."""

    said: str


def open_conflicts(
    files: Mapping[int, Sequence[str]], patterns: Sequence[str], *, ours: Collection[int] = ()
) -> dict[int, str]:
    """The open pull requests, without our own, that change a file which the patterns cover; with one such file."""
    others = ((number, changed) for number, changed in sorted(files.items()) if number not in ours)
    covered = ((number, next((path for path in changed if covers(patterns, path)), "")) for number, changed in others)
    return {number: path for number, path in covered if path}
