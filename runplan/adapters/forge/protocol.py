"""A forge: the pull requests, checks and issues of one repository, on any host."""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct

from runplan.domain.gitfacts import Oid
from runplan.domain.globs import covers
from runplan.domain.text import counted

METHODS = ("merge", "rebase", "squash")  #: of a merge, in the order of preference: the first two keep the trailers
STATUS = "runplan"  #: context of the commit status that runplan sets
GHOST = "ghost"  #: as forges show an account that was deleted
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


class Forge(Protocol):
    """Every write may be repeated after a lost answer: it reads first what has happened.

    A method raises NotAllowed, RateLimited or Unreachable.
    """

    # --- issues -----------------------------------------------------------------------------------------------

    def read_issue(self, number: int) -> Issue: ...
    def list_issues(self, label: str) -> tuple[Issue, ...]:
        """The open issues with this label, oldest first."""

    def is_issue_trusted(self, number: int, label: str) -> bool:
        """Whether its author may write, or the account that set this label and every later editor of the text."""

    def find_reopening(self, number: int) -> float:
        """When an account that may write reopened the issue last, in seconds since the epoch; 0.0 for never."""

    def close_issue(self, number: int) -> None: ...
    def label_issue(self, number: int, *, add: str = "", remove: str = "") -> None: ...
    def assign_issue(self, number: int, *, is_assigned: bool) -> None:
        """Assign the issue to the owner of the token, or take it back."""

    def list_comments(self, number: int) -> tuple[Comment, ...]: ...
    def put_comment(self, number: int, *, marker: str, text: str, is_pull: bool = False) -> None:
        """Comment on an issue or pull request, once per marker; a later text replaces it.

        GitLab counts the two apart. A comment of another account with this marker is not ours, and stays.
        """

    # --- the repository -----------------------------------------------------------------------------------

    @property
    def address(self) -> Address: ...
    @property
    def token_source(self) -> str:
        """The variable or program that gave the token, for messages."""

    @property
    def own_login(self) -> str: ...
    def may_write(self, login: str) -> bool: ...
    def git_settings(self) -> tuple[str, ...]:
        """Settings with which git signs in to this host alone; for its environment, never for its arguments."""

    def read_repository(self) -> ForgeRepository: ...
    def require_may_open(self, base: str) -> None:
        """Raise NotAllowed for a token that may not open pull requests."""

    def read_target(self, branch: str, *, number: int = 0) -> Target:
        """The settings and rules for merges into a branch; with a number also the objections to that pull request."""

    def file_url(self, path: str, ref: str) -> str:
        """The web address of a file on a branch or at a commit; sends no request."""

    # --- pull requests --------------------------------------------------------------------------------------

    def find_pull_request(self, *, branch: str, base: str) -> PullRequest | None:
        """The newest pull request of this branch, open or not, wherever it leads."""

    def list_merged(self, branch: str) -> tuple[PullRequest, ...]:
        """The newest merged pull requests of this branch, newest first."""

    def create_pull_request(self, *, branch: str, base: str, title: str, body: str, draft: bool = False) -> PullRequest:
        """Open a pull request, or adopt the open one of this branch; a draft only where the forge allows drafts."""

    def mark_ready(self, number: int) -> None:
        """End the draft state; nothing happens to a pull request that is no draft."""

    def add_people(
        self, number: int, *, labels: Sequence[str], assignees: Sequence[str], reviewers: Sequence[str]
    ) -> tuple[str, ...]:
        """Label and assign a pull request and ask for reviews, also of `org/team`; remarks on what was refused."""

    def read_pull_request(self, number: int) -> PullRequest: ...
    def edit_pull_request(self, number: int, *, body: str) -> None: ...
    def retarget(self, number: int, base: str) -> None: ...
    def merge_pull_request(self, number: int, how: Merge) -> Oid | NotMerged: ...
    def merge_later(self, number: int, how: Merge, *, queue: bool) -> NotMerged | None:
        """Ask the forge to merge as soon as its rules allow: auto-merge, or its merge queue."""

    def cancel_merge(self, number: int) -> None: ...
    def list_open_files(self, base: str) -> dict[int, tuple[str, ...]]:
        """The files that each open pull request changes; of the newest ones, where there are very many."""

    def read_activity(self, number: int, head: Oid) -> Activity:
        """The checks of the head and the messages of a pull request, by one call; without the status of runplan."""

    def answer_message(self, number: int, message: PullMessage, *, marker: str, text: str) -> None:
        """Answer in the thread of a message, else by a comment; once per marker, as `put_comment`."""

    def react_to(self, number: int, message: str) -> None:
        """Show by 👀 that the message with this id was seen; nothing where the forge has no reactions to its kind."""

    def request_review(self, number: int, logins: Sequence[str]) -> None:
        """Ask these accounts for a new review; one that the forge refuses is left out."""

    # --- checks -----------------------------------------------------------------------------------------------

    def list_checks(self, head: Oid) -> tuple[PullCheck, ...]:
        """The checks of a commit, without the status that runplan sets."""

    def set_status(self, head: Oid, *, state: CheckState, text: str, url: str) -> None:
        """Set runplan's own commit status; the forge shows the first 140 characters of the text."""

    def read_failure_log(self, head: Oid) -> str:
        """The end of the logs of failed checks, bounded."""
