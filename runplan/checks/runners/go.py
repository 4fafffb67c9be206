"""Reads the output of `go test`: plain, -v, and -json. Without -v it names packages and the tests that failed."""

from __future__ import annotations

import json
import re

from runplan.checks.runners.output import Report, Runner, TestState

_PACKAGE = re.compile(r"^(ok|FAIL|\?)\s+(\S+)\s+([\d.]+s|\(cached\)|\[.*?\])(.*)")
_EVENT = r'\{"Time":.{0,80}?"Action":"(?:pass|fail|skip)","Package":"[^"]{1,500}"(?:,"Elapsed"|\})'
_CLOSING = re.compile(rf"{_PACKAGE.pattern}|^{_EVENT}")
_TEST = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)")
_STATES = {
    **dict.fromkeys(("PASS", "pass"), TestState.PASSED),
    **dict.fromkeys(("FAIL", "fail"), TestState.FAILED),
    **dict.fromkeys(("SKIP", "skip"), TestState.SKIPPED),
}


def read(lines: list[str], at: int, _closing: re.Match[str]) -> Report:
    tests: dict[str, TestState] = {}
    begun: dict[str, TestState] = {}  #: of a package that has not ended yet
    for line in lines[: at + 1]:
        if line.startswith('{"Time":'):
            _event(line, tests)
        elif test := _TEST.match(line):
            begun[test[2]] = _STATES[test[1]]
        elif package := _PACKAGE.match(line):
            tests |= {f"{package[2]}.{name}": state for name, state in begun.items()}
            tests |= _package(package, begun)
            begun = {}
    states = list(tests.values())
    is_verbose = any(line.startswith(("=== RUN", '{"Time":')) for line in lines)
    return Report(
        end=at,
        passed=states.count(TestState.PASSED) if is_verbose or not tests else None,
        failed=states.count(TestState.FAILED),
        skipped=states.count(TestState.SKIPPED),
        tests=list(tests.items()),
        is_named=True,
        stopped="a test ended its package early" if _has_died(lines[: at + 1], tests) else "",
    )


def _has_died(lines: list[str], tests: dict[str, TestState]) -> bool:
    """Whether a test panicked or exited, so that the tests after it did not run."""
    if any(line.startswith("panic: ") or '"Output":"panic: ' in line for line in lines):
        return True
    packages = (found for line in lines if (found := _PACKAGE.match(line)) and found[1] == "FAIL")
    return any(found[2] in tests and not found[3].startswith("[") for found in packages)


def _package(found: re.Match[str], tests: dict[str, TestState]) -> dict[str, TestState]:
    """The package as a test of its own where none of its tests says how it ended."""
    if found[1] == "FAIL":
        return {} if TestState.FAILED in tests.values() else {found[2]: TestState.FAILED}
    if found[1] == "?" or "[no tests to run]" in found[4]:
        return {}
    return {} if tests else {found[2]: TestState.PASSED}


def _event(line: str, tests: dict[str, TestState]) -> None:
    try:
        event = json.loads(line)
        package, test, state = event["Package"], event.get("Test"), _STATES.get(event["Action"])
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return
    if state is not None and test:
        tests[f"{package}.{test}"] = state
    elif state is TestState.FAILED and not any(
        one is TestState.FAILED for name, one in tests.items() if name.startswith(f"{package}.")
    ):
        tests[package] = TestState.FAILED


RUNNER = Runner("go", _CLOSING, read, re.compile(r'^=== RUN   \S|^\{"Time":.{0,80}?"Action":"run"'))
