"""Pull requests, checks and issues as plain values, and the contract of a forge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from runplan.errors import Unreachable
from runplan.globs import covers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.gitfacts import Oid

CheckState: TypeAlias = Literal["passed", "failed", "pending"]
#: Why a forge does not merge a pull request now.
MergeHindrance: TypeAlias = Literal[
    "head-moved", "base-moved", "conflict", "review", "checks", "queue", "method", "refused"
]


class Repository(Struct, frozen=True, kw_only=True):
    """The facts about a repository that decide how a pull request can be merged."""

    name: str  #: owner/name as the forge spells it; differs from the remote after a rename
    can_push: bool
    methods: tuple[str, ...]  #: of merge, squash, rebase: those the repository allows
    auto_merge: bool
    scopes: tuple[str, ...] = ()  #: of a classic token; other tokens have none


class Rules(Struct, frozen=True, kw_only=True):
    """The rules that protect a branch."""

    checks: tuple[str, ...] = ()  #: names of required checks
    strict: bool = False  #: the branch must be up to date before it is merged
    reviews: int = 0
    queue: bool = False


class PullRequest(Struct, frozen=True, kw_only=True):
    number: int
    url: str
    is_open: bool
    is_merged: bool
    head: Oid
    branch: str
    base: str
    title: str
    body: str
    draft: bool
    mergeable: bool | None  #: None while the forge computes it
    state: str  #: clean, unstable, behind, blocked, dirty, draft, has_hooks or unknown
    merge_commit: Oid  #: "" unless merged
    auto_merge: bool
    merge_message: str = ""  #: of the commit that auto-merge will make


class Check(Struct, frozen=True, kw_only=True):
    """One check run or commit status of a pushed commit."""

    name: str
    state: CheckState
    url: str = ""
    summary: str = ""


class Issue(Struct, frozen=True, kw_only=True):
    number: int
    title: str
    body: str
    is_open: bool
    url: str
    author: str
    labels: tuple[str, ...]


class ReviewComment(Struct, frozen=True, kw_only=True):
    id: str
    author: str
    text: str
    place: str = ""  #: path:line; "" for a comment on the whole pull request


class Merge(Struct, frozen=True, kw_only=True):
    """How a pull request is to be merged."""

    head: Oid
    method: str
    title: str
    message: str


class NotMerged(Struct, frozen=True, kw_only=True):
    """The forge did not merge; nothing was changed."""

    hindrance: MergeHindrance
    said: str


class ForgeBusy(Unreachable):
    """The forge asks for a pause: a rate limit."""

    def __init__(self, text: str, wait_s: float) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class ForgeDenied(Unreachable):
    """The forge does not accept the token, the token may not do this, or it is not possible."""


class Forge(Protocol):
    """One repository on one forge.

    Every write may be repeated after a lost answer: it reads first what has happened.
    """

    def repository(self) -> Repository: ...
    def rules(self, branch: str) -> Rules: ...

    def find(self, *, branch: str, base: str) -> PullRequest | None:
        """The newest pull request of this branch, open or not."""
        ...

    def create(self, *, branch: str, base: str, title: str, body: str) -> PullRequest: ...
    def read(self, number: int) -> PullRequest: ...
    def edit(self, number: int, *, body: str) -> None: ...
    def merge(self, number: int, how: Merge) -> Oid | NotMerged:
        """The merge commit, or why there is none."""
        ...

    def merge_later(self, number: int, how: Merge, *, queue: bool) -> NotMerged | None:
        """Ask the forge to merge as soon as its rules allow: auto-merge, or its merge queue."""
        ...

    def cancel_merge(self, number: int) -> None:
        """Take back the request for auto-merge."""
        ...

    def close(self, number: int) -> None: ...

    def comment(self, number: int, *, marker: str, text: str) -> None:
        """Comment on a pull request or issue, once per marker; a later text replaces it."""
        ...

    def comments(self, number: int) -> tuple[str, ...]: ...

    def checks(self, head: Oid) -> tuple[Check, ...]: ...

    def failure_log(self, head: Oid) -> str:
        """The end of the logs of failed checks, bounded."""
        ...

    def review_comments(self, number: int) -> tuple[ReviewComment, ...]: ...
    def open_files(self, base: str) -> dict[int, tuple[str, ...]]:
        """The files that each open pull request changes; of the newest ones, where there are very many."""
        ...

    def issue(self, number: int) -> Issue: ...
    def issues(self, label: str) -> tuple[Issue, ...]:
        """The open issues with this label, oldest first."""
        ...

    def close_issue(self, number: int) -> None: ...
    def label(self, number: int, *, add: str = "", remove: str = "") -> None: ...

    def assign(self, number: int, *, is_assigned: bool) -> None:
        """Assign the issue to the owner of the token, or take it back."""
        ...


def open_conflicts(files: Mapping[int, Sequence[str]], patterns: Sequence[str], *, own: int = 0) -> dict[int, str]:
    """The open pull requests, without our own, that change a file which the patterns cover; with one such file."""
    others = ((number, changed) for number, changed in sorted(files.items()) if number != own)
    found = ((number, next((path for path in changed if covers(patterns, path)), "")) for number, changed in others)
    return {number: path for number, path in found if path}
