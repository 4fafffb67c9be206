"""Says something beside the answer, on standard error; for verbs that read, and so import next to nothing."""

from __future__ import annotations

import sys


def warn(told: str) -> None:
    if not told.isprintable():  # it may quote a file
        from runplan.core.plain import plain

        told = plain(told)
    print(f"runplan: warning: {told}", file=sys.stderr)
