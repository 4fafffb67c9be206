"""Reads the output of `cargo test`. Each test binary has a result; the report is their sum."""

from __future__ import annotations

import re

from runplan.checks.runners.output import Report, Runner, TestState, last, named

_CLOSING = re.compile(r"^test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;")
_BINARY = re.compile(r"^ +(?:Running (?:unittests )?(\S+) \(|Doc-tests (\S+)$)")
_TEST = re.compile(r"^test (.+?) \.\.\. (ok|FAILED|ignored)(?:, .*)?(?: <[\d.]+s>)?$")
_STOPPED = re.compile(r"^error: test failed, to rerun pass ")
_LIST = re.compile(r"^failures:$")
_LISTED = re.compile(r"^    (\S.*)$")
_PLACE = re.compile(r" \(line \d+\)")  # of a documentation test; it moves with every edit
_STATES = {"ok": TestState.PASSED, "FAILED": TestState.FAILED, "ignored": TestState.SKIPPED}


def read(lines: list[str], at: int, _closing: re.Match[str]) -> Report:
    results = [found for line in lines if (found := _CLOSING.match(line))]
    tests: list[tuple[str, TestState]] = []
    binary = ""
    for line in lines[:at]:
        if found := _BINARY.match(line):
            binary = f"{found[1] or found[2]}::"
        elif test := _TEST.match(line):
            tests.append((binary + _PLACE.sub("", test[1]), _STATES[test[2]]))
    failed = sum(int(one[2]) for one in results)
    if failed and all(state is not TestState.FAILED for _, state in tests):  # --quiet
        listed = last(lines[:at], _LIST)
        tests += named(lines[listed[0] : at] if listed else (), _LISTED)
    return Report(
        end=at,
        passed=sum(int(one[1]) for one in results),
        failed=failed,
        skipped=sum(int(one[3]) for one in results),
        tests=tests,
        stopped="cargo did not run every test binary; use --no-fail-fast" if last(lines[at:], _STOPPED) else "",
    )


RUNNER = Runner("cargo", _CLOSING, read, re.compile(r"^running \d+ tests?$"))
