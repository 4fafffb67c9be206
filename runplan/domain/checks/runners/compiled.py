"""Reads the output of `cargo test`, `go test` and CTest."""

from __future__ import annotations

import json
import re

from runplan.domain.checks.runners.output import Report, Runner, TestState, find_last, list_failed, match_lines

_CARGO_CLOSING = re.compile(r"^test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;")
_BINARY = re.compile(r"^ +(?:Running (?:unittests )?(\S+) \(|Doc-tests (\S+)$)")
_CARGO_TEST = re.compile(r"^test (.+?) \.\.\. (ok|FAILED|ignored)(?:, .*)?(?: <[\d.]+s>)?$")
_STOPPED = re.compile(r"^error: test failed, to rerun pass ")
_LIST = re.compile(r"^failures:$")
_LISTED = re.compile(r"^    (\S.*)$")
_PLACE = re.compile(r" \(line \d+\)")  # of a documentation test; it moves with every edit
_CARGO_STATES = {"ok": TestState.PASSED, "FAILED": TestState.FAILED, "ignored": TestState.SKIPPED}


def read_cargo(lines: list[str], end: int, _closing: re.Match[str]) -> Report:
    results = match_lines(lines, _CARGO_CLOSING)
    tests: list[tuple[str, TestState]] = []
    binary = ""
    for line in lines[:end]:
        if begun := _BINARY.match(line):
            binary = f"{begun[1] or begun[2]}::"
        elif test := _CARGO_TEST.match(line):
            tests.append((binary + _PLACE.sub("", test[1]), _CARGO_STATES[test[2]]))
    failed = sum(int(result[2]) for result in results)
    if failed and all(state is not TestState.FAILED for _, state in tests):  # --quiet
        listed = find_last(lines[:end], _LIST)
        tests += list_failed(lines[listed[0] : end] if listed else (), _LISTED)
    return Report(
        passed=sum(int(result[1]) for result in results),
        failed=failed,
        skipped=sum(int(result[3]) for result in results),
        tests=tests,
        stopped="cargo did not run every test binary; use --no-fail-fast" if find_last(lines[end:], _STOPPED) else "",
    )


CARGO = Runner("cargo", _CARGO_CLOSING, read_cargo, re.compile(r"^running \d+ tests?$"))


_PACKAGE = re.compile(r"^(ok|FAIL|\?)\s+(\S+)\s+([\d.]+s|\(cached\)|\[.*?\])(.*)")
_EVENT = r'\{"Time":.{0,80}?"Action":"(?:pass|fail|skip)","Package":"[^"]{1,500}"(?:,"Elapsed"|\})'
_GO_CLOSING = re.compile(rf"{_PACKAGE.pattern}|^{_EVENT}")
_GO_TEST = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)")
_GO_STATES = {
    **dict.fromkeys(("PASS", "pass"), TestState.PASSED),
    **dict.fromkeys(("FAIL", "fail"), TestState.FAILED),
    **dict.fromkeys(("SKIP", "skip"), TestState.SKIPPED),
}


def read_go(lines: list[str], end: int, _closing: re.Match[str]) -> Report:
    tests: dict[str, TestState] = {}
    begun: dict[str, TestState] = {}  #: of a package that has not ended yet
    for line in lines[: end + 1]:
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
        passed=states.count(TestState.PASSED) if is_verbose or not tests else None,
        failed=states.count(TestState.FAILED),
        skipped=states.count(TestState.SKIPPED),
        tests=list(tests.items()),
        is_named=True,
        stopped="a test ended its package early" if _has_died(lines[: end + 1], tests) else "",
    )


def _has_died(lines: list[str], tests: dict[str, TestState]) -> bool:
    """Whether a test panicked or exited, so that the tests after it did not run."""
    if any(line.startswith("panic: ") or '"Output":"panic: ' in line for line in lines):
        return True
    packages = (package for package in match_lines(lines, _PACKAGE) if package[1] == "FAIL")
    return any(package[2] in tests and not package[3].startswith("[") for package in packages)


def _package_state(package: re.Match[str], tests: dict[str, TestState]) -> dict[str, TestState]:
    """The package as a test of its own where none of its tests says how it ended."""
    if package[1] == "FAIL":
        return {} if TestState.FAILED in tests.values() else {package[2]: TestState.FAILED}
    if package[1] == "?" or "[no tests to run]" in package[4]:
        return {}
    return {} if tests else {package[2]: TestState.PASSED}


def _add_event(line: str, tests: dict[str, TestState]) -> None:
    try:
        event = json.loads(line)
        package = event["Package"]
        test = event.get("Test")
        state = _GO_STATES.get(event["Action"])
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return
    if state is not None and test:
        tests[f"{package}.{test}"] = state
    elif state is TestState.FAILED and not any(
        known is TestState.FAILED for name, known in tests.items() if name.startswith(f"{package}.")
    ):
        tests[package] = TestState.FAILED


GO = Runner("go", _GO_CLOSING, read_go, re.compile(r'^=== RUN   \S|^\{"Time":.{0,80}?"Action":"run"'))


_CTEST_CLOSING = re.compile(r"^\d+% tests passed, (\d{1,9}) tests? failed out of (\d{1,9})$|^No tests were found!!!$")
_FAILED = re.compile(r"^\s+\d+ - (.+?) \((?!Disabled|Skipped)[A-Za-z][A-Za-z ]*\)")
_LINE = re.compile(r"^ *\d{1,9}/(\d{1,9}) Test +#\d+: (.+?) \.*\s*(Passed|\*{3}[A-Z][\w :()]*?) +[\d.]+ sec$")
_SKIPPED = ("***Skipped", "***Not Run (Disabled)")
_CTEST_STATES = {"Passed": TestState.PASSED, **dict.fromkeys(_SKIPPED, TestState.SKIPPED)}


def read_ctest(lines: list[str], end: int, closing: re.Match[str]) -> Report:
    if closing[1] is None:
        return Report(passed=0, failed=0)
    listed = match_lines(lines[:end], _LINE)
    last_failure = find_last(lines[end:], _FAILED)
    planned = max((int(test[1]) for test in listed), default=0)
    return Report(
        lines_after=last_failure[0] if last_failure else 0,
        passed=int(closing[2]) - int(closing[1]),
        failed=int(closing[1]),
        skipped=sum(test[3] in _SKIPPED for test in listed),
        tests=[
            *((test[2], _CTEST_STATES.get(test[3], TestState.FAILED)) for test in listed),
            *list_failed(lines[end:], _FAILED),
        ],
        stopped="ctest did not run every test" if len(listed) < planned else "",
    )


CTEST = Runner("ctest", _CTEST_CLOSING, read_ctest, re.compile(r"^Test project /"))
