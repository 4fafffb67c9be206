"""Reads the output of `cargo test`, `go test` and CTest.

Each test binary of cargo has a result; the report is their sum. Without -v or -json, go names packages and the tests
that failed. CTest names every test.
"""

from __future__ import annotations

import json
import re

from runplan.checks.runners.output import Report, Runner, TestState, find_last, list_failed

# --- cargo -------------------------------------------------------------------------------------------------------

_CARGO_CLOSING = re.compile(r"^test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;")
_BINARY = re.compile(r"^ +(?:Running (?:unittests )?(\S+) \(|Doc-tests (\S+)$)")
_CARGO_TEST = re.compile(r"^test (.+?) \.\.\. (ok|FAILED|ignored)(?:, .*)?(?: <[\d.]+s>)?$")
_STOPPED = re.compile(r"^error: test failed, to rerun pass ")
_LIST = re.compile(r"^failures:$")
_LISTED = re.compile(r"^    (\S.*)$")
_PLACE = re.compile(r" \(line \d+\)")  # of a documentation test; it moves with every edit
_CARGO_STATES = {"ok": TestState.PASSED, "FAILED": TestState.FAILED, "ignored": TestState.SKIPPED}


def read_cargo(lines: list[str], at: int, _closing: re.Match[str]) -> Report:
    results = [found for line in lines if (found := _CARGO_CLOSING.match(line))]
    tests: list[tuple[str, TestState]] = []
    binary = ""
    for line in lines[:at]:
        if found := _BINARY.match(line):
            binary = f"{found[1] or found[2]}::"
        elif test := _CARGO_TEST.match(line):
            tests.append((binary + _PLACE.sub("", test[1]), _CARGO_STATES[test[2]]))
    failed = sum(int(one[2]) for one in results)
    if failed and all(state is not TestState.FAILED for _, state in tests):  # --quiet
        listed = find_last(lines[:at], _LIST)
        tests += list_failed(lines[listed[0] : at] if listed else (), _LISTED)
    return Report(
        end=at,
        passed=sum(int(one[1]) for one in results),
        failed=failed,
        skipped=sum(int(one[3]) for one in results),
        tests=tests,
        stopped="cargo did not run every test binary; use --no-fail-fast" if find_last(lines[at:], _STOPPED) else "",
    )


CARGO = Runner("cargo", _CARGO_CLOSING, read_cargo, re.compile(r"^running \d+ tests?$"))


# --- go ----------------------------------------------------------------------------------------------------------

_PACKAGE = re.compile(r"^(ok|FAIL|\?)\s+(\S+)\s+([\d.]+s|\(cached\)|\[.*?\])(.*)")
_EVENT = r'\{"Time":.{0,80}?"Action":"(?:pass|fail|skip)","Package":"[^"]{1,500}"(?:,"Elapsed"|\})'
_GO_CLOSING = re.compile(rf"{_PACKAGE.pattern}|^{_EVENT}")
_GO_TEST = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)")
_GO_STATES = {
    **dict.fromkeys(("PASS", "pass"), TestState.PASSED),
    **dict.fromkeys(("FAIL", "fail"), TestState.FAILED),
    **dict.fromkeys(("SKIP", "skip"), TestState.SKIPPED),
}


def read_go(lines: list[str], at: int, _closing: re.Match[str]) -> Report:
    tests: dict[str, TestState] = {}
    begun: dict[str, TestState] = {}  #: of a package that has not ended yet
    for line in lines[: at + 1]:
        if line.startswith('{"Time":'):
            _add_event(line, tests)
        elif test := _GO_TEST.match(line):
            begun[test[2]] = _GO_STATES[test[1]]
        elif package := _PACKAGE.match(line):
            tests |= {f"{package[2]}.{name}": state for name, state in begun.items()}
            tests |= _package_state(package, begun)
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


def _package_state(found: re.Match[str], tests: dict[str, TestState]) -> dict[str, TestState]:
    """The package as a test of its own where none of its tests says how it ended."""
    if found[1] == "FAIL":
        return {} if TestState.FAILED in tests.values() else {found[2]: TestState.FAILED}
    if found[1] == "?" or "[no tests to run]" in found[4]:
        return {}
    return {} if tests else {found[2]: TestState.PASSED}


def _add_event(line: str, tests: dict[str, TestState]) -> None:
    try:
        event = json.loads(line)
        package, test, state = event["Package"], event.get("Test"), _GO_STATES.get(event["Action"])
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return
    if state is not None and test:
        tests[f"{package}.{test}"] = state
    elif state is TestState.FAILED and not any(
        one is TestState.FAILED for name, one in tests.items() if name.startswith(f"{package}.")
    ):
        tests[package] = TestState.FAILED


GO = Runner("go", _GO_CLOSING, read_go, re.compile(r'^=== RUN   \S|^\{"Time":.{0,80}?"Action":"run"'))


# --- ctest -------------------------------------------------------------------------------------------------------

_CTEST_CLOSING = re.compile(r"^\d+% tests passed, (\d{1,9}) tests? failed out of (\d{1,9})$|^No tests were found!!!$")
_FAILED = re.compile(r"^\s+\d+ - (.+?) \((?!Disabled|Skipped)[A-Za-z][A-Za-z ]*\)")
_LINE = re.compile(r"^ *\d{1,9}/(\d{1,9}) Test +#\d+: (.+?) \.*\s*(Passed|\*{3}[A-Z][\w :()]*?) +[\d.]+ sec$")
_SKIPPED = ("***Skipped", "***Not Run (Disabled)")
_CTEST_STATES = {"Passed": TestState.PASSED, **dict.fromkeys(_SKIPPED, TestState.SKIPPED)}


def read_ctest(lines: list[str], at: int, closing: re.Match[str]) -> Report:
    if closing[1] is None:
        return Report(end=at, passed=0, failed=0)
    failed, total = int(closing[1]), int(closing[2])
    listed = [found for line in lines[:at] if (found := _LINE.match(line))]
    failures = list_failed(lines[at:], _FAILED)
    end = find_last(lines[at:], _FAILED)
    planned = max((int(found[1]) for found in listed), default=0)
    return Report(
        end=at + (end[0] if end else 0),
        passed=total - failed,
        failed=failed,
        skipped=sum(found[3] in _SKIPPED for found in listed),
        tests=[*((found[2], _CTEST_STATES.get(found[3], TestState.FAILED)) for found in listed), *failures],
        stopped="ctest did not run every test" if len(listed) < planned else "",
    )


CTEST = Runner("ctest", _CTEST_CLOSING, read_ctest, re.compile(r"^Test project /"))
