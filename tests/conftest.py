"""What holds for every test: how many run side by side, and that the same ones pass tomorrow and elsewhere."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# The same examples each time, however busy the machine is. Others: pytest --hypothesis-profile=default tests/unit
settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# What says "without buffers" hides what becomes of what is still in one; people have no such thing set.
os.environ.pop("PYTHONUNBUFFERED", None)

# A shell that starts us in the background has Ctrl-C ignored, and every command under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: at any time somebody waits for a process, a lock or a limit of time."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 1 + (there or 1)
