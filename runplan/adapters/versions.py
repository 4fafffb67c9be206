"""Asks programs for their versions, each binary once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Some take a second to start; one that takes longer is asked in vain.
PATIENCE_S = 15.0

_NUMBER = re.compile(r"\d{1,6}\.\d{1,6}[\w.+-]{0,40}")


class Versions:
    """The versions of programs, known by path and time of change."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], str] = {}

    def of(self, program: Sequence[str], *, asking: Sequence[str], env: Mapping[str, str]) -> str:
        """The version that the program tells when it is called with `asking`; "" when it tells none."""
        path = shutil.which(program[0], path=env.get("PATH", os.defpath))
        if path is None:
            return ""
        key = (path, os.stat(path).st_mtime_ns)  # noqa: PTH116
        if key not in self._known:
            self._known[key] = _asked((path, *program[1:], *asking), env)
        return self._known[key]


def _asked(argv: Sequence[str], env: Mapping[str, str]) -> str:
    try:
        ran = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(env),
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _NUMBER.search(ran.stdout[:1_000].decode(errors="replace")) if ran.returncode == 0 else None
    return found[0] if found else ""
