"""Reads the output of pytest. With -v or -rA it names every test."""

from __future__ import annotations

import re

from runplan.checks.runners.output import Report, Runner, TestState, counts, last, named

_CLOSING = re.compile(
    r"^=* ?((?:\d{1,9} (?:subtests )?"
    r"(?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)(?:, )?)+"
    r"|no tests ran) in [\d.]+s(?: \([\d:]+\))? ?=*$"
)
_BLOCK = re.compile(r"^=+ short test summary info =+$")
_FAILED = re.compile(r"^(?:FAILED |ERROR |(?=SUBFAILED))([^\[]+?\[.*?\]|.+?)(?: - .*)?$")
_STATE = r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_LINE = re.compile(rf"^(\S+::.*?) {_STATE}(?: \(.*\))?(?: +\[ *\d{{1,3}}%\])?$")
_PASSED = re.compile(r"^(?:\[gw\d+\] (?:\[ *\d{1,3}%\] )?)?(PASSED|SKIPPED|XFAIL|XPASS) (\S+::.*)$")  # -rA, xdist
_STOPPED = re.compile(r"^!+ (stopping after \d+ failures|Interrupted: .*?|.*KeyboardInterrupt.*?) !+$")
_STATES = {
    **dict.fromkeys(("SKIPPED", "XFAIL", "XPASS"), TestState.SKIPPED),
    **dict.fromkeys(("FAILED", "ERROR"), TestState.FAILED),
    "PASSED": TestState.PASSED,
}


def read(lines: list[str], at: int, closing: re.Match[str]) -> Report:
    numbers = counts(closing[1])
    block = last(lines[:at], _BLOCK)
    summary = lines[block[0] : at] if block else []
    tests = [(found[1], _STATES[found[2]]) for line in lines[:at] if (found := _LINE.match(line))]
    tests += [(found[2], _STATES[found[1]]) for line in lines[:at] if (found := _PASSED.match(line))]
    stopped = last(lines[:at], _STOPPED)
    return Report(
        end=at,
        passed=numbers["passed"],
        failed=numbers["failed"] + numbers["error"] + numbers["errors"],
        skipped=numbers["skipped"] + numbers["xfailed"] + numbers["xpassed"],
        tests=[*tests, *named(summary, _FAILED)],
        stopped=stopped[1][1] if stopped else "",
    )


RUNNER = Runner("pytest", _CLOSING, read, re.compile(r"^=+ test session starts =+$"))
