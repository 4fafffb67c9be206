"""What git tells us and what we ask of it, as plain values."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

Oid: TypeAlias = str  #: a full object id, 40 or 64 hex digits


class Identity(Struct, frozen=True, kw_only=True):
    """Who a commit is by."""

    name: str
    email: str


AGENT = Identity(name="runplan agent", email="agent@runplan.invalid")


def signing(dispatch: str) -> Identity:
    """The identity with which the processes of one dispatch move refs."""
    return Identity(name=AGENT.name, email=f"agent+{dispatch}@runplan.invalid")


def committing_as(dispatch: str) -> dict[str, str]:
    """The variables by which reflogs name a dispatch."""
    who = signing(dispatch)
    return {"GIT_COMMITTER_NAME": who.name, "GIT_COMMITTER_EMAIL": who.email}


def is_agent(who: Identity) -> bool:
    """Whether it is the identity of an agent, whichever dispatch it was."""
    user, _, host = who.email.partition("@")
    own, _, place = AGENT.email.partition("@")
    return who.name == AGENT.name and host == place and user.partition("+")[0] == own


class Commit(Struct, frozen=True, kw_only=True):
    """One commit as it is stored."""

    oid: Oid
    tree: Oid
    parents: tuple[Oid, ...]
    author: Identity
    authored: str  #: git's own form: "<seconds> <zone>"
    committer: Identity
    message: str


class Change(Struct, frozen=True, kw_only=True):
    """One path that differs between two trees."""

    path: str
    kind: str  #: A added, M modified, D deleted, T type changed
    old_mode: str
    new_mode: str
    old: Oid
    new: Oid


class Untracked(Struct, frozen=True, kw_only=True):
    """A file in a worktree that git does not know."""

    path: str
    size: int  #: bytes


class WorktreeState(Struct, frozen=True, kw_only=True):
    """One status of a worktree."""

    head: Oid
    branch: str | None  #: full ref name; None when detached
    changed: tuple[str, ...]  #: tracked paths that differ from HEAD, staged or not
    untracked: tuple[Untracked, ...]
    ignored: bool  #: whether ignored files lie about

    @property
    def clean(self) -> bool:
        return not self.changed and not self.untracked


class Unstored(Struct, frozen=True, kw_only=True):
    """Git cannot store this file as it is; nothing was committed."""

    path: str
    why: str  #: what git said, in one line
    filtered: bool = False  #: a filter of the user's failed on it


# --- branches -----------------------------------------------------------------------------------------


class Absent(Struct, frozen=True, kw_only=True):
    """There is no such branch."""


class Stale(Struct, frozen=True, kw_only=True):
    """The branch holds nothing of its own and sits on the base: safe to make anew."""

    tip: Oid


class Poisoned(Struct, frozen=True, kw_only=True):
    """Nothing of its own, but behind the base: somebody's leftover; refused."""

    tip: Oid
    behind: int


class Ahead(Struct, frozen=True, kw_only=True):
    """The branch holds commits of its own."""

    tip: Oid
    ahead: int
    by_agents: bool = False  #: whether agents of ours made every one of them


BranchStanding: TypeAlias = Absent | Stale | Poisoned | Ahead


# --- candidate ----------------------------------------------------------------------------------------


class Built(Struct, frozen=True, kw_only=True):
    """The phase's commits, replayed on the target tip."""

    commits: tuple[Oid, ...]  #: oldest first; the last one's tree is the code tree
    tree: Oid
    patch: str  #: patch id of the net diff; equal patches carry a verdict over


class Conflicted(Struct, frozen=True, kw_only=True):
    """The commits do not apply on the target tip."""

    paths: tuple[str, ...]


class NothingLeft(Struct, frozen=True, kw_only=True):
    """Every commit became empty: the target already holds the work."""


Replayed: TypeAlias = Built | Conflicted | NothingLeft


# --- removal ------------------------------------------------------------------------------------------


class Removed(Struct, frozen=True, kw_only=True):
    """It is gone, and its content is elsewhere; `parked` names where, when it had to be kept aside."""

    what: str
    parked: str = ""


class Kept(Struct, frozen=True, kw_only=True):
    """It was left alone, and why."""

    what: str
    why: str
