"""The error tree and the exit codes."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes (docs/reference.md)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    WAITING = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


#: The exit code of each outcome of a run.
OUTCOMES = {
    "done": Exit.DONE,
    "nothing-to-do": Exit.DONE,
    "failed": Exit.FAILED,
    "stopped": Exit.FAILED,
    "refused": Exit.USAGE,
}


class RunplanError(Exception):
    """An error that a person reads as one line: what happened, what it means, what to type."""

    exit = Exit.USAGE
    lane = ""  #: the lane in which it was raised


class UsageError(RunplanError):
    """Unknown words, options or settings."""


class SettingsError(UsageError):
    """An unusable configuration file."""


class PlanUnreadable(RunplanError):
    """A plan file that cannot be parsed."""


class RefusedEarly(RunplanError):
    """Understood, but refused before any work."""


class NotFound(RunplanError):
    """No such plan, phase or run, or more than one."""

    exit = Exit.NOT_FOUND


class Crashed(RunplanError):
    """A fault of runplan itself ended the run."""

    exit = Exit.FAILED


class Unreachable(RunplanError):
    """Git, disk, daemon or forge does not answer."""

    exit = Exit.UNREACHABLE


class Fenced(Unreachable):
    """Another process has taken over the plan; this one must change nothing more."""


class JournalDamaged(Unreachable):
    """The journal cannot be read; plans and git still show what is done."""


class GitFailed(Unreachable):
    """An unexpected failure of git."""


class ObjectsRefused(GitFailed):
    """Git rejects the commits of an agent."""


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
