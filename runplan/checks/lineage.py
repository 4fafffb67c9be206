"""Tells the commits of an attempt from commits that a reset, merge or pull brought onto its branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks.secrets import redacted
from runplan.gitfacts import is_agent
from runplan.names import parked_under

if TYPE_CHECKING:
    from runplan.gitfacts import Identity, Oid

NAMED = 3  #: commits named in one sentence
_SUBJECT = 60  #: characters of a subject that are shown
_SHORT = ("refs/heads/", "refs/remotes/", "refs/tags/")


class Foreign(Struct, frozen=True):
    """A commit on the branch of an attempt that the attempt did not make."""

    oid: Oid
    subject: str
    ref: str  #: another ref that contains it, by its full name


class Lineage(Struct, frozen=True, kw_only=True):
    on_base: bool  #: the base is an ancestor of the tip
    foreign: tuple[Foreign, ...] = ()


def is_own(committer: Identity, run: str) -> bool:
    """Whether a dispatch of the run made the commit; with several lanes, `run` identifies the lane."""
    return is_agent(committer) and committer.email.startswith(f"agent+{run}.")


def own_refs(branch: str) -> tuple[str, ...]:
    """The refs of an attempt's own commits, as patterns: its branch and its parked work."""
    slug, phase = branch.split("/")[-2:]
    return branch, f"{parked_under(slug, phase)}*"


def off_base(found: Lineage, *, branch: str, base: Oid) -> str:
    """Why the commits of a branch cannot be landed, for people; "" when they can."""
    name = branch.removeprefix("refs/heads/")
    kept = f"nothing landed, and the work is kept on {name}"
    if not found.on_base:
        return f"the branch {name} no longer contains its base {base[:12]}: it was reset, rebased or amended; {kept}"
    if not found.foreign:
        return ""
    number = len(found.foreign)
    shown = ", ".join(_line(one) for one in found.foreign[:NAMED])
    more = f" and {number - NAMED} more" if number > NAMED else ""
    commits = "a commit" if number == 1 else f"{number} commits"
    return f"the branch {name} contains {commits} that this attempt did not make: {shown}{more}; {kept}"


def _line(one: Foreign) -> str:
    ref = next((one.ref.removeprefix(prefix) for prefix in _SHORT if one.ref.startswith(prefix)), one.ref)
    return f"{one.oid[:12]} {redacted(one.subject[:_SUBJECT])}" + (f" (on {ref})" if ref else "")
