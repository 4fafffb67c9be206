"""The contract of a lander: what it is asked, its three answers, and how a landing is found in a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from runplan.git.trailers import LANDING, read_commit, read_trailers

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.git.command import Git
    from runplan.gitfacts import Oid


class Landing(Struct, frozen=True, kw_only=True):
    """The intent: move `ref` from `old` to `new`, once."""

    id: str  #: stands in the Runplan-Landing trailer of every landed commit
    ref: str  #: full ref name of the target
    old: Oid
    new: Oid
    follows: Oid = ""  #: tip of the local branch that follows a landing on a remote; "" for none


class Landed(Struct, frozen=True, kw_only=True):
    """The target holds the landing."""

    tip: Oid  #: where the target stood when this was seen
    note: str = ""  #: a sentence for the user: why a branch did not follow, or which file was kept aside


class Pending(Struct, frozen=True, kw_only=True):
    """The landing waits and nothing was changed."""

    why: str  #: a sentence for the user: what is in the way, and what to do


class TargetMoved(Struct, frozen=True, kw_only=True):
    """The target is no longer where the candidate was built: build the candidate again."""

    tip: Oid


class Declined(Struct, frozen=True, kw_only=True):
    """The owner of the target does not accept the candidate."""

    why: str


class Refused(Struct, frozen=True, kw_only=True):
    """This candidate cannot land and nothing was changed."""

    reason: TargetMoved | Declined


LandingAnswer: TypeAlias = Landed | Pending | Refused


#: How far back a landing is looked for when the user has worked on top of it or rewritten the branch.
DEEPEST = 2_000


def find(git: Git, landing: Landing, tip: Oid) -> Oid | None:
    """The newest commit between the old tip and this one that is the landing's, by its id; costs no process."""
    seen = {landing.old}
    queue = [tip]
    while queue and len(seen) < DEEPEST:
        oid = queue.pop(0)
        if oid in seen:
            continue
        seen.add(oid)
        stored = git.object(oid)
        if stored is None:
            continue  # where a shallow clone ends
        commit = read_commit(oid, stored.content)
        if oid == landing.new or read_trailers(commit.message).get(LANDING) == landing.id:
            return oid
        queue += commit.parents
    return None


def do_nothing(*_: object) -> None:
    """The default of callables that only tests and the engine set."""


class Lander(Protocol):
    """Moves the target, once."""

    @property
    def ref(self) -> str:
        """The full name of the ref that shows where the target stands."""
        ...

    def tip(self) -> Oid | None:
        """Where the target stands now; asks the remote when the target is there."""
        ...

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        """The intent, to be recorded before `land`."""
        ...

    def land(self, landing: Landing, deliver: Callable[[], None]) -> LandingAnswer:
        """Move the target; `deliver` copies the candidate into the user's repository when it is needed there."""
        ...

    def observe(self, landing: Landing) -> Landed | None:
        """Whether the target holds the landing; reliable after `recover`; changes nothing."""
        ...

    def recover(self, landing: Landing) -> None:
        """Complete or roll back what killed landings left behind."""
        ...
