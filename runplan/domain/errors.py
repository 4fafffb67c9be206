"""The error tree and the exit codes (docs/reference.md)."""

import errno
from enum import IntEnum


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    WAITING = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


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


class NotAPlan(PlanUnreadable):
    """A page without phases, or one that says that it is not to be worked on."""


class RefusedEarly(RunplanError):
    """Understood, but refused before any work."""


class NotFound(RunplanError):
    """No such plan, phase or run, or more than one."""

    exit = Exit.NOT_FOUND


class Busy(RunplanError):
    """Not now: a run of the plan does other work."""

    exit = Exit.WAITING


class Unreachable(RunplanError):
    """Git, disk, daemon or forge does not answer."""

    exit = Exit.UNREACHABLE


class Crashed(Unreachable):
    """A defect of runplan itself; the run waits for a person, or ended if it was being stopped."""


class RateLimited(Unreachable):
    def __init__(self, text: str, *, until: float) -> None:
        super().__init__(text)
        self.until = until  #: a forge asks for a pause; seconds since the epoch


class NotAllowed(Unreachable):
    """A forge does not accept the token, the token may not do this, or what it asks for does not exist."""


class TokenRefused(NotAllowed):
    """The token has expired or was revoked."""


class Fenced(Unreachable):
    """Another process has taken over the plan; this one must change nothing more."""


class JournalDamaged(Unreachable):
    """The journal cannot be read; plans and git still show what is done."""


class GitFailed(Unreachable):
    """An unexpected failure of git."""


class ObjectsRefused(GitFailed):
    """Git rejects the commits of an agent."""


class CallEnded(Unreachable):
    """Another thread has ended a call of git; the step is repeated."""


class HandOverRefused(ObjectsRefused):
    """The work of an agent cannot be read, or is larger than a limit."""


class Interrupted(RunplanError):  # by Ctrl-C
    exit = Exit.INTERRUPTED


def error_with(text: str, code: int) -> RunplanError:
    kinds: dict[int, type[RunplanError]] = {Exit.NOT_FOUND: NotFound, Exit.UNREACHABLE: Unreachable}
    error = kinds.get(code, RefusedEarly)(text)
    if code in set(Exit):
        error.exit = Exit(code)
    return error


#: The system is out of a resource. The work waits for it and does not fail.
SHORTAGES = {
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "free space within your quota",
    errno.EAGAIN: "end some processes or raise their limit (ulimit -u)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "end processes that hold many files open",
    errno.ENOMEM: "free some memory",
}
REMEDIES = {
    **SHORTAGES,
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable"),
    errno.EIO: "check the disk",
}


def is_shortage(error: BaseException) -> bool:
    return _no_thread(error) or (isinstance(error, OSError) and error.errno in SHORTAGES)


def refused_by_system(error: BaseException) -> str:
    if _no_thread(error):
        return f"{error}; {SHORTAGES[errno.EAGAIN]}, then try again"
    if not isinstance(error, OSError) or error.errno not in REMEDIES:
        return ""
    where = f"{error.filename}: " if isinstance(error.filename, str) else ""
    return f"{where}{error.strerror}; {REMEDIES[error.errno]}, then try again"


def _no_thread(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"
