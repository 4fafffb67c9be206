"""Reads the output of CTest, which names every test."""

from __future__ import annotations

import re

from runplan.checks.runners.output import Report, Runner, TestState, last, named

_CLOSING = re.compile(r"^\d+% tests passed, (\d{1,9}) tests? failed out of (\d{1,9})$|^No tests were found!!!$")
_FAILED = re.compile(r"^\s+\d+ - (.+?) \((?!Disabled|Skipped)[A-Za-z][A-Za-z ]*\)")
_LINE = re.compile(r"^ *\d{1,9}/(\d{1,9}) Test +#\d+: (.+?) \.*\s*(Passed|\*{3}[A-Z][\w :()]*?) +[\d.]+ sec$")
_SKIPPED = ("***Skipped", "***Not Run (Disabled)")
_STATES = {"Passed": TestState.PASSED, **dict.fromkeys(_SKIPPED, TestState.SKIPPED)}


def read(lines: list[str], at: int, closing: re.Match[str]) -> Report:
    if closing[1] is None:
        return Report(end=at, passed=0, failed=0)
    failed, total = int(closing[1]), int(closing[2])
    listed = [found for line in lines[:at] if (found := _LINE.match(line))]
    failures = named(lines[at:], _FAILED)
    end = last(lines[at:], _FAILED)
    planned = max((int(found[1]) for found in listed), default=0)
    return Report(
        end=at + (end[0] if end else 0),
        passed=total - failed,
        failed=failed,
        skipped=sum(found[3] in _SKIPPED for found in listed),
        tests=[*((found[2], _STATES.get(found[3], TestState.FAILED)) for found in listed), *failures],
        stopped="ctest did not run every test" if len(listed) < planned else "",
    )


RUNNER = Runner("ctest", _CLOSING, read, re.compile(r"^Test project /"))
