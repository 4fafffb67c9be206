"""Reads the output of jest and vitest. In their verbose reports they name every test."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runplan.domain.checks.runners.output import (
    Report,
    Runner,
    TestState,
    find_last,
    list_failed,
    match_lines,
    read_counts,
)

_JEST_CLOSING = re.compile(r"^Tests: +(.*\b\d{1,9} total)$|^No tests found, exiting")
_SUITES = re.compile(r"^Test Suites: +(.*\b\d{1,9} total)$")
_FILE = re.compile(r"^ ?(PASS|FAIL) +(?:\./)?(\S+)")
_JEST_LINE = re.compile(r"^( {2,})(?:([✓√✕×]|○ skipped|✎ todo) )?(\S.*?)(?: \([\d.,]+ m?s\))?$")
_DETAIL = re.compile(r"^  ● (?!Console$)(.+)$")
_JEST_STATES = {**dict.fromkeys("✓√", TestState.PASSED), **dict.fromkeys("✕×", TestState.FAILED)}
_UNLOADABLE = "Test suite failed to run"


def read_jest(lines: list[str], end: int, closing: re.Match[str]) -> Report:
    numbers = read_counts(closing[1] or "")
    suites = find_last(lines[:end], _SUITES)
    suite_counts = read_counts(suites[1][1] if suites else "")
    tests = list(_read_tests(lines[:end]))
    unloadable = sum(" › " not in name for name in dict(tests))
    ran = suite_counts["of"] + suite_counts["skipped"]  # of "1 skipped, 1 passed, 1 of 2 total"
    return Report(
        passed=numbers["passed"],
        failed=numbers["failed"] + unloadable or suite_counts["failed"],
        skipped=numbers["skipped"] + numbers["todo"],
        tests=tests,
        stopped="jest did not run every test file" if "of" in suite_counts and ran < suite_counts["total"] else "",
    )


def _read_tests(lines: list[str]) -> Iterator[tuple[str, TestState]]:
    """The tests under each file: the tree of --verbose, then the details of failures."""
    file = ""
    path: dict[int, str] = {}
    is_tree = False
    for line in lines:
        if head := _FILE.match(line):
            file = head[2]
            path = {}
            is_tree = True
        elif not line.strip():
            is_tree = False
        elif file and (detail := _DETAIL.match(line)):
            yield (file if detail[1] == _UNLOADABLE else f"{file} › {detail[1].strip()}"), TestState.FAILED
        elif is_tree and (listed := _JEST_LINE.match(line)):
            indent = len(listed[1])
            path = {**{depth: suite for depth, suite in path.items() if depth < indent}, indent: listed[3]}
            if listed[2]:
                yield " › ".join((file, *path.values())), _JEST_STATES.get(listed[2], TestState.SKIPPED)


JEST = Runner("jest", _JEST_CLOSING, read_jest, re.compile(r"^ ?(?:PASS|FAIL) +\S+\.[cm]?[jt]sx?\b"))


_VITEST_CLOSING = re.compile(r"^ +Tests {2}(.+?)(?: \(\d+\))?$|^No test files found")
_FILES = re.compile(r"^ Test Files {2}(.+?)(?: \((\d{1,9})\))?$")
_VITEST_LINE = re.compile(r"^ ([✓√×↓]) (\S+ > .+?)(?: \d+ms)?$")
_FAILED = re.compile(r"^ *FAIL +(.+?)(?: \[ \S+ \])?$")
_VITEST_STATES = {"×": TestState.FAILED, "↓": TestState.SKIPPED}


def read_vitest(lines: list[str], end: int, closing: re.Match[str]) -> Report | None:
    files = find_last(lines[:end], _FILES)
    if closing[1] is None:
        return Report(passed=0, failed=0)
    if files is None:
        return None
    numbers = read_counts(closing[1])
    file_numbers = read_counts(files[1][1])
    failures = list_failed(lines[:end], _FAILED)
    listed = match_lines(lines[:end], _VITEST_LINE)
    ran = file_numbers["failed"] + file_numbers["passed"] + file_numbers["skipped"]
    return Report(
        passed=numbers["passed"],
        failed=max(numbers["failed"], len(dict(failures))) or file_numbers["failed"],
        skipped=numbers["skipped"] + numbers["todo"],
        tests=[*((test[2], _VITEST_STATES.get(test[1], TestState.PASSED)) for test in listed), *failures],
        stopped="vitest did not run every test file" if ran < int(files[1][2] or 0) else "",
    )


VITEST = Runner("vitest", _VITEST_CLOSING, read_vitest, re.compile(r"^ *RUN +v\d"))
