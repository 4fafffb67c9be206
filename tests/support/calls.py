"""Which tests call which functions of the package, also in the processes that they start.

The module is a plug-in of pytest, which appends to the file that the variable names. The calls of each test file are
kept in `.venv/calls` until the file changes.
"""

import contextlib
import cProfile
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = str(ROOT / "runplan") + os.sep
KEPT = ROOT / ".venv/calls"
FILE = "PYTEST_CALLS"  #: the variable
PLACE = pytest.StashKey[str]()
BATCH = 40  #: files that are measured at once: what was measured is kept when the others are not
MODULE = "<module>"  #: called by each test that calls a function of the module

Tests: TypeAlias = dict[str, list[tuple[float, str]]]  #: by `path:function`: seconds and names, the quickest first
Profiler: TypeAlias = Callable[[FrameType, str, Any], object]


def _spent_s() -> float:
    """Of processors, by this process and those that it has waited for: a busy machine makes no test slow."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@contextlib.contextmanager
def noted_calls(**row: object) -> Iterator[dict[str, object]]:
    """Append a row, with the functions that this process calls meanwhile, to the file of the variable."""
    file = os.environ[FILE]
    codes: set[CodeType] = set()
    profiles = [cProfile.Profile(builtins=False)]
    set_profile = sys.setprofile

    def profile_thread(*_: object) -> None:
        profiles.append(cProfile.Profile(builtins=False))
        profiles[-1].enable()

    def pass_on(own: Profiler | None) -> None:
        """Instead of `sys.setprofile`, which some tests use, too."""

        def note(frame: FrameType, event: str, argument: object) -> None:
            codes.add(frame.f_code)
            own(frame, event, argument) if own else None

        set_profile(note if own else None)
        if own is None:
            profiles[0].enable()

    threading.setprofile(profile_thread)
    sys.setprofile = pass_on  # type: ignore[assignment]
    profiles[0].enable()
    began = _spent_s()
    try:
        yield row
    finally:
        profiles[0].disable()
        sys.setprofile = set_profile
        threading.setprofile(None)
        called = (entry.code for profile in profiles for entry in profile.getstats())
        codes |= {code for code in called if isinstance(code, CodeType)}
        names = {(code.co_filename, re.sub(r"[.]<[^.]+>", "", code.co_qualname)) for code in codes}
        calls = sorted(f"{path.removeprefix(PACKAGE)}:{name}" for path, name in names if path.startswith(PACKAGE))
        line = json.dumps({**row, "took_s": round(_spent_s() - began, 3), "calls": calls})
        # A daemon may end after the tests, when the file is gone.
        with contextlib.suppress(FileNotFoundError), open(file, "a", encoding="utf-8") as out:
            out.write(line + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    failed = item.session.testsfailed
    with noted_calls(test=item.nodeid) as row:
        answer = yield
        row |= {"place": item.stash.get(PLACE, ""), "passed": item.session.testsfailed == failed}
    return answer


def pytest_runtest_call(item: pytest.Item) -> None:
    item.stash[PLACE] = str(getattr(item, "funcargs", {}).get("tmp_path", ""))


def load_tests(files: Sequence[Path]) -> Tests:
    """The tests in these files, of both tiers, by the functions that they call."""
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = [place for tier in ("test", "rest") for place in _keep_calls(files, tier)]
    tests: Tests = defaultdict(list)
    for stored in kept:
        for row in map(json.loads, stored.read_text(encoding="utf-8").splitlines()):
            modules = {f"{call.partition(':')[0]}:{MODULE}" for call in row["calls"]}
            for call in modules.union(row["calls"]):
                tests[call].append((row["took_s"], row["test"]))
    return {call: sorted(named) for call, named in tests.items()}


def _keep_calls(files: Sequence[Path], tier: str) -> list[Path]:
    """Where the calls of the tests are kept, file by file; what is not known is measured first."""
    digests = {file: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files}
    kept = {file: KEPT / f"{file.stem}-{digest}-{tier}.jsonl" for file, digest in digests.items()}
    new = [file for file in files if not kept[file].exists()]
    for some in (new[first : first + BATCH] for first in range(0, len(new), BATCH)):
        rows = _measure(some, tier)
        for file in some:
            own = [json.dumps(row) for row in rows if row["test"].startswith(f"{file.relative_to(ROOT)}::")]
            kept[file].write_text("".join(f"{line}\n" for line in own), encoding="utf-8")
    return [*kept.values()]


def _measure(files: Sequence[Path], tier: str) -> list[dict[str, Any]]:
    """Run these tests. A process belongs to the test in whose directory it works."""
    words = ["-q", "-n", "2", "--tier", tier, "-p", "tests.support.calls", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "calls"
        out.touch()
        env = {**os.environ, FILE: str(out)}
        subprocess.run([sys.executable, "-m", "pytest", *words, *map(str, files)], cwd=ROOT, env=env, check=False)
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    started: dict[str, set[str]] = defaultdict(set)
    spent_s: dict[str, float] = defaultdict(float)
    for row in rows:
        if "cwd" in row:
            for directory in (row["cwd"], *map(str, Path(row["cwd"]).parents)):
                started[directory].update(row["calls"])
                spent_s[directory] += row["took_s"]
    passed = [(row, row["place"]) for row in rows if row.get("passed")]
    return [
        {**row, "took_s": row["took_s"] + spent_s[place], "calls": sorted(started[place].union(row["calls"]))}
        for row, place in passed
    ]
