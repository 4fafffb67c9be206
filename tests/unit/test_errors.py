"""A system that is out of something is named with what helps; other errors are not."""

from __future__ import annotations

import errno
import os

import pytest

from runplan.errors import is_shortage, refused_by_system


@pytest.mark.parametrize(
    ("error", "told", "shortage"),
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
def test_what_the_system_refuses_is_named_with_what_helps(error: Exception, told: str, shortage: bool) -> None:
    words = refused_by_system(error)
    assert (words.startswith(told), bool(words)) == (True, bool(told))
    assert is_shortage(error) is shortage
