"""Pull requests, checks and issues as plain values, and the errors of a forge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

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


def open_conflicts(files: Mapping[int, Sequence[str]], patterns: Sequence[str], *, own: int = 0) -> dict[int, str]:
    """The open pull requests, without our own, that change a file which the patterns cover; with one such file."""
    others = ((number, changed) for number, changed in sorted(files.items()) if number != own)
    found = ((number, next((path for path in changed if covers(patterns, path)), "")) for number, changed in others)
    return {number: path for number, path in found if path}
