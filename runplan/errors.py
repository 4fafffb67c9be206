"""The error tree and the exit codes: the one table of how a command can end.

RunplanError            one line for people: what happened, where, what helps
├── UsageError          2  words, options or settings that mean nothing
│   └── SettingsError   2  a configuration file that cannot be used
├── PlanUnreadable      2  a plan file that cannot be understood
├── RefusedEarly        2  understood, but refused before any work
├── NotFound            3  no such plan, phase or run; or more than one
├── Crashed             1  a fault of runplan's own ended the run
├── Unreachable         5  git, disk, daemon or forge does not answer
│   ├── Fenced          5  another process has taken the plan over
│   ├── JournalDamaged  5  the journal cannot be read; git knows what is done
│   └── GitFailed       5  git ended in a way nobody expected
│       └── ObjectsRefused  git does not take an agent's commits
└── Interrupted       130  the person pressed Ctrl-C
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a script may rely on (docs/reference.md)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    WAITING = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


#: How the outcome of a run becomes an exit code.
OUTCOMES = {
    "done": Exit.DONE,
    "nothing-to-do": Exit.DONE,
    "failed": Exit.FAILED,
    "stopped": Exit.FAILED,
    "refused": Exit.USAGE,
}


class RunplanError(Exception):
    """Anything a person is told in one line."""

    exit = Exit.USAGE
    lane = ""  #: which of several phases side by side it came up in


class UsageError(RunplanError):
    """The words of the command mean nothing."""


class SettingsError(UsageError):
    """A configuration file cannot be used."""


class PlanUnreadable(RunplanError):
    """The plan file cannot be understood."""


class RefusedEarly(RunplanError):
    """Understood, but refused before any work was done."""


class NotFound(RunplanError):
    """There is no such plan, phase or run, or there is more than one."""

    exit = Exit.NOT_FOUND


class Crashed(RunplanError):
    """A fault of runplan's own ended the run."""

    exit = Exit.FAILED


class Unreachable(RunplanError):
    """Something outside that must answer does not."""

    exit = Exit.UNREACHABLE


class Fenced(Unreachable):
    """Another process has taken the plan over; this one must not touch anything any more."""


class JournalDamaged(Unreachable):
    """The journal cannot be read any more; what is done stands in the plans and in git."""


class GitFailed(Unreachable):
    """Git ended in a way nobody expected."""


class ObjectsRefused(GitFailed):
    """Git cannot read the commits of an agent, or does not accept them."""


class Interrupted(RunplanError):
    """The person pressed Ctrl-C."""

    exit = Exit.INTERRUPTED


def error_with(text: str, code: int) -> RunplanError:
    """The error that ends a command with this exit code."""
    kinds: dict[int, type[RunplanError]] = {Exit.NOT_FOUND: NotFound, Exit.UNREACHABLE: Unreachable}
    error = kinds.get(code, RefusedEarly)(text)
    if code in set(Exit):
        error.exit = Exit(code)
    return error
