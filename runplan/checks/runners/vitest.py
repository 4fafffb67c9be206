"""Reads the output of vitest. With --reporter=verbose it names every test."""

from __future__ import annotations

import re

from runplan.checks.runners.output import Report, Runner, TestState, counts, last, named

_CLOSING = re.compile(r"^ +Tests {2}(.+?)(?: \(\d+\))?$|^No test files found")
_FILES = re.compile(r"^ Test Files {2}(.+?)(?: \((\d{1,9})\))?$")
_LINE = re.compile(r"^ ([✓√×↓]) (\S+ > .+?)(?: \d+ms)?$")
_FAILED = re.compile(r"^ *FAIL +(.+?)(?: \[ \S+ \])?$")
_STATES = {"×": TestState.FAILED, "↓": TestState.SKIPPED}


def read(lines: list[str], at: int, closing: re.Match[str]) -> Report | None:
    files = last(lines[:at], _FILES)
    if closing[1] is None:
        return Report(end=at, passed=0, failed=0)
    if files is None:
        return None
    numbers, file_numbers = counts(closing[1]), counts(files[1][1])
    failures = named(lines[:at], _FAILED)
    listed = (found for line in lines[:at] if (found := _LINE.match(line)))
    ran = file_numbers["failed"] + file_numbers["passed"] + file_numbers["skipped"]
    return Report(
        end=at,
        passed=numbers["passed"],
        failed=max(numbers["failed"], len(dict(failures))) or file_numbers["failed"],
        skipped=numbers["skipped"] + numbers["todo"],
        tests=[*((one[2], _STATES.get(one[1], TestState.PASSED)) for one in listed), *failures],
        stopped="vitest did not run every test file" if ran < int(files[1][2] or 0) else "",
    )


RUNNER = Runner("vitest", _CLOSING, read, re.compile(r"^ *RUN +v\d"))
