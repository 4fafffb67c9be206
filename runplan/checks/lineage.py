"""Tells the commits of an attempt from commits that a reset, merge or pull brought onto its branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks.secrets import redacted
from runplan.gitfacts import is_agent

if TYPE_CHECKING:
    from runplan.gitfacts import Identity, Oid

NAMED = 3  #: commits named in one sentence
_SUBJECT = 60  #: characters of a subject that are shown


class Foreign(Struct, frozen=True):
    """A commit on the branch of an attempt that the attempt did not make."""

    oid: Oid
    subject: str


class Lineage(Struct, frozen=True, kw_only=True):
    on_base: bool  #: the base is an ancestor of the tip
    foreign: tuple[Foreign, ...] = ()


def is_own(committer: Identity, run: str) -> bool:
    """Whether a dispatch of the run made the commit; with several lanes, `run` identifies the lane."""
    return is_agent(committer) and committer.email.startswith(f"agent+{run}.")


def off_base(found: Lineage, *, branch: str, base: Oid) -> str:
    """Why the commits of a branch cannot be landed, for people; "" when they can."""
    name = branch.removeprefix("refs/heads/")
    kept = f"nothing landed, and the work is kept on {name}"
    if not found.on_base:
        return f"the branch {name} no longer contains its base {base[:12]}: it was reset, rebased or amended; {kept}"
    if not found.foreign:
        return ""
    number = len(found.foreign)
    shown = ", ".join(f"{one.oid[:12]} {redacted(one.subject[:_SUBJECT])}" for one in found.foreign[:NAMED])
    more = f" and {number - NAMED} more" if number > NAMED else ""
    commits = "a commit" if number == 1 else f"{number} commits"
    return f"the branch {name} contains {commits} that this attempt did not make: {shown}{more}; {kept}"
