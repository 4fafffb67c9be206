"""Reads the output of Python's test runners. With -v, or pytest's -rA, they name every test."""

from __future__ import annotations

import re
from collections import Counter

from runplan.domain.checks.runners.output import (
    Report,
    Runner,
    TestState,
    find_last,
    list_failed,
    match_lines,
    read_counts,
)

_PYTEST_CLOSING = re.compile(
    r"^=* ?((?:\d{1,9} (?:subtests )?"
    r"(?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)(?:, )?)+"
    r"|no tests ran) in [\d.]+s(?: \([\d:]+\))? ?=*$"
)
_BLOCK = re.compile(r"^=+ short test summary info =+$")
_PYTEST_FAILED = re.compile(r"^(?:FAILED |ERROR |(?=SUBFAILED))([^\[]+?\[.*?\]|.+?)(?: - .*)?$")
_PYTEST_STATE = r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_LINE = re.compile(rf"^(\S+::.*?) {_PYTEST_STATE}(?: \(.*\))?(?: +\[ *\d{{1,3}}%\])?$")
_PASSED = re.compile(r"^(?:\[gw\d+\] (?:\[ *\d{1,3}%\] )?)?(PASSED|SKIPPED|XFAIL|XPASS) (\S+::.*)$")  # -rA, xdist
_STOPPED = re.compile(r"^!+ (stopping after \d+ failures|Interrupted: .*?|.*KeyboardInterrupt.*?) !+$")
_STATES = {
    **dict.fromkeys(("SKIPPED", "XFAIL", "XPASS"), TestState.SKIPPED),
    **dict.fromkeys(("FAILED", "ERROR"), TestState.FAILED),
    "PASSED": TestState.PASSED,
}


def read_pytest(lines: list[str], end: int, closing: re.Match[str]) -> Report:
    numbers = read_counts(closing[1])
    block = find_last(lines[:end], _BLOCK)
    summary = lines[block[0] : end] if block else []
    tests = [(test[1], _STATES[test[2]]) for test in match_lines(lines[:end], _LINE)]
    tests += [(test[2], _STATES[test[1]]) for test in match_lines(lines[:end], _PASSED)]
    stopped = find_last(lines[:end], _STOPPED)
    return Report(
        passed=numbers["passed"],
        failed=numbers["failed"] + numbers["error"] + numbers["errors"],
        skipped=numbers["skipped"] + numbers["xfailed"] + numbers["xpassed"],
        tests=[*tests, *list_failed(summary, _PYTEST_FAILED)],
        stopped=stopped[1][1] if stopped else "",
    )


PYTEST = Runner("pytest", _PYTEST_CLOSING, read_pytest, re.compile(r"^=+ test session starts =+$"))


_RAN = re.compile(r"^Ran (\d{1,9}) tests? in [\d.]+s$")
_UNITTEST_CLOSING = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
_UNITTEST_FAILED = re.compile(r"^(?:FAIL|ERROR): (\S+ \(.+)$")
_NAME = re.compile(r"^(\w+ \([\w.]+\))(?: \.\.\. |$)")
_UNITTEST_STATE = re.compile(r"^(?:.*?\) |.*)?\.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")


def read_unittest(lines: list[str], end: int, ran: re.Match[str]) -> Report | None:
    closing = find_last(lines[: end + 3], _UNITTEST_CLOSING)
    if closing is None or closing[0] < end:
        return None
    numbers = Counter[str]()
    for key, number in re.findall(r"([a-z ]{1,30})=(\d{1,9})", closing[1][1] or ""):
        numbers[key.strip()] = int(number)
    failed = numbers["failures"] + numbers["errors"] + numbers["unexpected successes"]
    skipped = numbers["skipped"] + numbers["expected failures"]
    return Report(
        lines_after=closing[0] - end,
        passed=max(int(ran[1]) - failed - skipped, 0),
        failed=failed,
        skipped=skipped,
        tests=[*_read_listed(lines[:end]), *list_failed(lines[: closing[0]], _UNITTEST_FAILED)],
    )


def _read_listed(lines: list[str]) -> list[tuple[str, TestState]]:
    """The tests that -v lists; one with a docstring takes two lines, and the second has the state."""
    listed: list[tuple[str, TestState]] = []
    name = ""
    for line in lines:
        if begun := _NAME.match(line):
            name = begun[1]
        if name and (ended := _UNITTEST_STATE.match(line)):
            word = ended[1].split()[0]
            state = TestState.PASSED if word == "ok" else TestState.SKIPPED
            listed.append((name, TestState.FAILED if word in ("FAIL", "ERROR", "unexpected") else state))
            name = ""
    return listed


UNITTEST = Runner("unittest", _RAN, read_unittest, re.compile(r"^\w+ \([\w.]+\) \.\.\. "))
