"""Reads the output of Python's unittest. With -v it names every test."""

from __future__ import annotations

import re
from collections import Counter

from runplan.checks.runners.output import Report, Runner, TestState, last, named

_RAN = re.compile(r"^Ran (\d{1,9}) tests? in [\d.]+s$")
_CLOSING = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
_FAILED = re.compile(r"^(?:FAIL|ERROR): (\S+ \(.+)$")
_NAME = re.compile(r"^(\w+ \([\w.]+\))(?: \.\.\. |$)")
_STATE = re.compile(r"^(?:.*?\) |.*)?\.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")


def read(lines: list[str], at: int, ran: re.Match[str]) -> Report | None:
    found = last(lines[: at + 3], _CLOSING)
    if found is None or found[0] < at:
        return None
    numbers = Counter[str]()
    for key, number in re.findall(r"([a-z ]{1,30})=(\d{1,9})", found[1][1] or ""):
        numbers[key.strip()] = int(number)
    failed = numbers["failures"] + numbers["errors"] + numbers["unexpected successes"]
    skipped = numbers["skipped"] + numbers["expected failures"]
    return Report(
        end=found[0],
        passed=max(int(ran[1]) - failed - skipped, 0),
        failed=failed,
        skipped=skipped,
        tests=[*_listed(lines[:at]), *named(lines[: found[0]], _FAILED)],
    )


def _listed(lines: list[str]) -> list[tuple[str, TestState]]:
    """The tests that -v lists; one with a docstring takes two lines, and the second has the state."""
    listed: list[tuple[str, TestState]] = []
    name = ""
    for line in lines:
        if begun := _NAME.match(line):
            name = begun[1]
        if name and (ended := _STATE.match(line)):
            word = ended[1].split()[0]
            state = TestState.PASSED if word == "ok" else TestState.SKIPPED
            listed.append((name, TestState.FAILED if word in ("FAIL", "ERROR", "unexpected") else state))
            name = ""
    return listed


RUNNER = Runner("unittest", _RAN, read, re.compile(r"^\w+ \([\w.]+\) \.\.\. "))
