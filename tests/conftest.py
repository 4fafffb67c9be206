"""Settings of all tests: an environment of their own, fixed hypothesis examples, the number of workers, the tiers."""

import contextlib
import functools
import gc
import os
import re
import signal
import subprocess
from collections.abc import Generator, Sequence, Set
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.environment import own_environment

# The same few examples each time. More: pytest --hypothesis-profile=default tests/unit
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")

# Before any other module of the tests is imported. The workers of xdist are started later, and inherit it.
_environment = contextlib.ExitStack()
if "PYTEST_XDIST_WORKER" not in os.environ:
    _environment.enter_context(own_environment())

# A shell may start the tests with these signals ignored; every command under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Collecting thousands of tests makes many objects and no garbage: a third of its time would go into looking for some.
gc.disable()

#: Run only when they are named: real agents and Chromium are no part of the test tools, and take minutes.
APART = ("tests/agents", "tests/container", "tests/web")

#: `make test` runs nothing of these, and does not import them.
NO_PROMISE = ("tests/chaos", "tests/corpus", "tests/fleet")

#: `make test` runs only what is marked here; `make test-rest` runs the others.
REST = (*(f"{name}/" for name in NO_PROMISE), "tests/e2e/")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.is_relative_to(config.rootpath):
        return None
    name = collection_path.relative_to(config.rootpath).as_posix()
    if name in APART:
        return None if any(name in str(argument) for argument in config.invocation_params.args) else True
    return True if name in NO_PROMISE and config.getoption("--tier") == "test" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--zoo", action="store_true", help="play every attack of an agent, not a sample")
    parser.addoption("--corpus", action="store_true", help="play every phase of the corpus, not a sample")
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails")
    parser.addoption(
        "--tier", choices=("test", "rest"), help="run the tests of `make test` or of `make test-rest` alone"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (tier := config.getoption("--tier")) is None:
        return
    ends = _ends_of_matrices(items)
    tiers = [_tier_of(item, ends) for item in items]
    config.hook.pytest_deselected(items=[item for item, its in zip(items, tiers, strict=True) if its != tier])
    items[:] = [item for item, its in zip(items, tiers, strict=True) if its == tier]


def _tier_of(item: pytest.Item, ends: Set[pytest.Item]) -> str:
    mark = _mark_of(item)
    return "test" if mark == "promise" or (mark == "matrix" and item in ends) else "rest"


def _mark_of(item: pytest.Item) -> str:
    """The nearest mark: that of the case or function, of the module, of the directory."""
    for node in reversed(item.listchain()):
        marks = {mark.name for mark in node.own_markers}
        if found := [name for name in ("rest", "matrix", "promise") if name in marks]:
            return found[0]
    return "rest" if item.nodeid.startswith(REST) else "promise"


def _ends_of_matrices(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The first and the last case of each test that is marked `matrix`, without cases that are marked `rest`."""
    cases = [item for item in items if _mark_of(item) == "matrix"]
    first = {item.nodeid.partition("[")[0]: item for item in reversed(cases)}
    last = {item.nodeid.partition("[")[0]: item for item in cases}
    return {*first.values(), *last.values()}


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (mark := item.get_closest_marker("newer_git")) and _git_version() < mark.args:
        pytest.skip(f"needs git {'.'.join(map(str, mark.args))} or newer on PATH; see CONTRIBUTING.md")


@functools.cache
def _git_version() -> tuple[int, ...]:
    version = subprocess.run(["git", "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    is_allowed = item.get_closest_marker("newer_git") is not None
    if report.skipped and item.config.getoption("--no-skips") and not is_allowed:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and --no-skips forbids it: {report.longreprtext}"
    return report


def pytest_unconfigure() -> None:
    _environment.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `auto` two more than there are processors, because tests often wait for a process; for `logical` as many."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (2 if config.option.numprocesses == "auto" else 0) + (processors or 1)
