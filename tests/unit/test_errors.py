"""Errors of the operating system come with a remedy."""

import errno
import os

import pytest

from runplan.domain.errors import is_shortage, refused_by_system


@pytest.mark.parametrize(
    ("error", "message", "shortage"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a"), "/a: No space left on device; free space", True),
        (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "Resource temporarily unavailable; end some", True),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "Too many open files; raise the limit", True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "Cannot allocate memory; free some", True),
        (RuntimeError("can't start new thread"), "can't start new thread; end some processes", True),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), "Permission denied; make it writable", False),
        (OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "", False),
        (RuntimeError("something else"), "", False),
        (ValueError("no"), "", False),
    ],
    ids=str,
)
def test_an_error_of_the_system_has_a_remedy(error: Exception, message: str, shortage: bool) -> None:
    words = refused_by_system(error)
    assert (words.startswith(message), bool(words)) == (True, bool(message))
    assert is_shortage(error) is shortage
