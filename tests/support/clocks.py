"""A clock on the wall that jumps for one process and its children, as when a machine sleeps or its clock is set."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

#: Whatever asks the C library for the time is told one that is as many seconds ahead as the file says.
SOURCE = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *told) {
    static int (*asked)(clockid_t, struct timespec *);
    if (!asked) asked = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = asked(which, told);
    if (failed || which != CLOCK_REALTIME) return failed;
    char text[32] = {0};
    int file = open("AHEAD", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) > 0) told->tv_sec += atol(text);
    close(file);
    return 0;
}
"""


class Wall:
    """The clock as the processes with `env` see it."""

    def __init__(self, place: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler to make a clock with")
        self._ahead = place / "ahead"
        source, self._library = place / "clock.c", place / "clock.so"
        source.write_text(SOURCE.replace("AHEAD", str(self._ahead)))
        subprocess.run([compiler, "-shared", "-fPIC", "-o", self._library, source, "-ldl"], check=True)
        self.jump_to(0)

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library)}

    def jump_to(self, seconds: int) -> None:
        """So many seconds ahead of the real one, or behind it."""
        draft = self._ahead.with_suffix(".new")
        draft.write_text(str(seconds))
        draft.replace(self._ahead)
