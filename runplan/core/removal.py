"""The one decision about removing something: is its content provably elsewhere?"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from runplan.core.quickclass import dataclass


class OnTarget(StrEnum):
    """How the target holds a commit's content."""

    REACHABLE = "reachable"  #: the commit itself
    TREE = "tree"  #: a commit with the same files
    PATCH = "patch"  #: commits that make the same changes
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is known about a thing that should go."""

    on_target: OnTarget  #: its commits
    used_by: str = ""  #: a checkout or run that stands on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Nothing is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkFirst:
    """Something would be lost: keep it aside, then remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Not now, and why."""

    why: str


RemovalDecision: TypeAlias = Remove | ParkFirst | Keep


def safe_to_remove(remains: Remains) -> RemovalDecision:
    """Keep what is in use, park what is nowhere else, remove the rest."""
    if remains.used_by:
        return Keep(why=f"in use by {remains.used_by}")
    if remains.on_target is OnTarget.NO:
        return ParkFirst()
    return Remove()
