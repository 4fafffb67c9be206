"""Says something beside the answer, on standard error; for verbs that read, and so import next to nothing."""

from __future__ import annotations

import sys

from runplan.errors import Exit


class Aside:
    """What is wrong with the settings keeps nobody from looking; but it is an error, and the exit code says so."""

    def __init__(self) -> None:
        self.code = Exit.DONE

    def warn(self, told: str) -> None:
        self.code = Exit.USAGE
        if not told.isprintable():  # it may quote a file
            from runplan.text import plain

            told = plain(told)
        print(f"runplan: warning: {told}", file=sys.stderr)
