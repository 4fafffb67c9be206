"""What a process is asked to be. Cheap to import: those who only read a journal need no more of dispatches."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What an agent is asked to be."""

    IMPLEMENT = "implement"
    FIX = "fix"
    VERIFY = "verify"
    GATE = "gate"  #: not an agent: a command runplan runs itself, supervised the same way
    BASELINE = "baseline"  #: likewise: the same command on the base
    SETUP = "setup"  #: likewise: what prepares a fresh worktree


#: Those that change files; everybody else only reads.
WRITERS = (Role.IMPLEMENT, Role.FIX)
