"""Tells the commits of an attempt from commits that a reset, merge or pull brought onto its branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.checks.secrets import redacted
from runplan.gitfacts import is_agent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.gitfacts import Identity, Oid

NAMED = 3  #: commits named in one sentence
_SUBJECT = 60  #: characters of a subject that are shown


def is_own(committer: Identity, run: str) -> bool:
    """Whether a dispatch of the run made the commit; with several lanes, `run` identifies the lane."""
    return is_agent(committer) and committer.email.startswith(f"agent+{run}.")


def off_base(foreign: Sequence[tuple[Oid, str]] | None, *, branch: str, base: Oid) -> str:
    """Why the commits of a branch cannot be landed, for people; "" when they can.

    `foreign` are the ids and subjects of commits that the attempt did not make; None if it left its base.
    """
    name = branch.removeprefix("refs/heads/")
    kept = f"nothing landed, and the work is kept on {name}"
    if foreign is None:
        return f"the branch {name} no longer contains its base {base[:12]}: it was reset, rebased or amended; {kept}"
    shown = ", ".join(f"{oid[:12]} {redacted(subject[:_SUBJECT])}" for oid, subject in foreign[:NAMED])
    return f"the branch {name} contains commits that this attempt did not make: {shown}; {kept}" if foreign else ""
