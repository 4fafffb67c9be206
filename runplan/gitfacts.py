"""What git tells us and what we ask of it, as plain values."""

from __future__ import annotations

from typing import TypeAlias

from runplan.quickclass import dataclass

Oid: TypeAlias = str  #: a full object id, 40 or 64 hex digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit as it is stored."""

    oid: Oid
    tree: Oid
    parents: tuple[Oid, ...]
    author: Identity
    authored: str  #: git's own form: "<seconds> <zone>"
    committer: Identity
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs between two trees."""

    path: str
    kind: str  #: A added, M modified, D deleted, T type changed
    old_mode: str
    new_mode: str
    old: Oid
    new: Oid


@dataclass(frozen=True, slots=True, kw_only=True)
class Untracked:
    """A file in a worktree that git does not know."""

    path: str
    size: int  #: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeState:
    """One status of a worktree."""

    head: Oid
    branch: str | None  #: full ref name; None when detached
    changed: tuple[str, ...]  #: tracked paths that differ from HEAD, staged or not
    untracked: tuple[Untracked, ...]
    ignored: bool  #: whether ignored files lie about

    @property
    def clean(self) -> bool:
        return not self.changed and not self.untracked


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstored:
    """Git cannot store this file as it is; nothing was committed."""

    path: str
    why: str  #: what git said, in one line
    filtered: bool = False  #: a filter of the user's failed on it


# --- branches -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """There is no such branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """The branch holds nothing of its own and sits on the base: safe to make anew."""

    tip: Oid


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned:
    """Nothing of its own, but behind the base: somebody's leftover; refused."""

    tip: Oid
    behind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The branch holds commits of its own."""

    tip: Oid
    ahead: int
    by_agents: bool = False  #: whether agents of ours made every one of them


BranchStanding: TypeAlias = Absent | Stale | Poisoned | Ahead


# --- candidate ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The phase's commits, replayed on the target tip."""

    commits: tuple[Oid, ...]  #: oldest first; the last one's tree is the code tree
    tree: Oid
    patch: str  #: patch id of the net diff; equal patches carry a verdict over


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicted:
    """The commits do not apply on the target tip."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingLeft:
    """Every commit became empty: the target already holds the work."""


Replayed: TypeAlias = Built | Conflicted | NothingLeft


# --- removal ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """It is gone, and its content is elsewhere; `parked` names where, when it had to be kept aside."""

    what: str
    parked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """It was left alone, and why."""

    what: str
    why: str
