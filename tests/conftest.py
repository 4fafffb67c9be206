"""What holds for every test: its environment, how many run side by side, and that the same ones pass tomorrow."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.surroundings import own_surroundings

# The same examples each time, however busy the machine is. Others: pytest --hypothesis-profile=default tests/unit
settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# Before any other module of the tests is imported. The workers of xdist are started later, and inherit it.
_surroundings = contextlib.ExitStack()
if "PYTEST_XDIST_WORKER" not in os.environ:
    _surroundings.enter_context(own_surroundings())

# A shell that starts us in the background has Ctrl-C ignored, and every command under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    _surroundings.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: at any time somebody waits for a process, a lock or a limit of time."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 1 + (there or 1)
