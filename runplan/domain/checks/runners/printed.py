"""Reads the output of test runners. The closing summary counts; with -v and the like they name every test."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace


class TestState(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  #: it did not run, or its failure was expected


class Report(Struct, frozen=True, kw_only=True):
    passed: int | None  #: None if the runner does not count tests
    failed: int | None
    skipped: int | None = 0
    lines_after: int = 0  #: lines of the report after its closing line
    tests: list[tuple[str, TestState]] = []  #: every test that the output names, with its state
    is_named: bool = False  #: `tests` lists all of them, even if the counts differ
    reasons: dict[str, str] = {}  #: the first line of a failure, by test
    stopped: str = ""  #: why the runner left tests out


ReadReport: TypeAlias = Callable[[list[str], int, re.Match[str]], Report | None]


class Runner(Struct, frozen=True):
    name: str
    closing: re.Pattern[str]
    read: ReadReport
    begins: re.Pattern[str] | None


RUNNERS: list[Runner] = []  #: the more specific first: if two runners recognise the same line, the first wins


def reads(name: str, closing: str, begins: str = "") -> Callable[[ReadReport], ReadReport]:
    """Register the function that reads the report of a runner, which ends with one of these lines."""

    def register(read: ReadReport) -> ReadReport:
        RUNNERS.append(Runner(name, re.compile(closing), read, re.compile(begins) if begins else None))
        return read

    return register


def find_last(lines: list[str], pattern: re.Pattern[str]) -> tuple[int, re.Match[str]] | None:
    for number in range(len(lines) - 1, -1, -1):
        if match := pattern.match(lines[number]):
            return number, match
    return None


def match_lines(lines: Iterable[str], pattern: re.Pattern[str]) -> list[re.Match[str]]:
    return [match for line in lines if (match := pattern.match(line))]


def list_failed(lines: Iterable[str], pattern: re.Pattern[str]) -> list[tuple[str, TestState]]:
    return [(match[1].strip(), TestState.FAILED) for match in match_lines(lines, pattern)]


def count_states(tests: list[tuple[str, TestState]], *, lines_after: int = 0) -> Report:
    numbers = Counter(state for _, state in tests)
    passed, failed, skipped = (numbers[state] for state in TestState)
    return Report(passed=passed, failed=failed, skipped=skipped, tests=tests, lines_after=lines_after)


def read_counts(text: str) -> Counter[str]:
    """`2 failed, 1 passed` and `2 failed | 1 passed` as numbers by word."""
    return Counter({word: int(number) for number, word in re.findall(r"\b(\d{1,9}) ([a-z]+)", text)})


_PYTEST_CLOSING = (
    r"^=* ?((?:\d{1,9} (?:subtests )?"
    r"(?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)(?:, )?)+"
    r"|no tests ran) in [\d.]+s(?: \([\d:]+\))? ?=*$"
)
_BLOCK = re.compile(r"^=+ short test summary info =+$")
_PYTEST_STATE = r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)"
_PYTEST_LINE = re.compile(rf"^(\S+::.*?) {_PYTEST_STATE}(?: \(.*\))?(?: +\[ *\d{{1,3}}%\])?$")
_PASSED = re.compile(r"^(?:\[gw\d+\] (?:\[ *\d{1,3}%\] )?)?(PASSED|SKIPPED|XFAIL|XPASS) (\S+::.*)$")  # -rA, xdist
_PYTEST_STOPPED = re.compile(r"^!+ (stopping after \d+ failures|Interrupted: .*?|.*KeyboardInterrupt.*?) !+$")
_PYTEST_STATES = {
    **dict.fromkeys(("SKIPPED", "XFAIL", "XPASS"), TestState.SKIPPED),
    **dict.fromkeys(("FAILED", "ERROR"), TestState.FAILED),
    "PASSED": TestState.PASSED,
}


@reads("pytest", _PYTEST_CLOSING, begins=r"^=+ test session starts =+$")
def read_pytest(lines: list[str], end: int, closing: re.Match[str]) -> Report:
    numbers = read_counts(closing[1])
    block = find_last(lines[:end], _BLOCK)
    summary = lines[block[0] : end] if block else []
    tests = [(test[1], _PYTEST_STATES[test[2]]) for test in match_lines(lines[:end], _PYTEST_LINE)]
    tests += [(test[2], _PYTEST_STATES[test[1]]) for test in match_lines(lines[:end], _PASSED)]
    stopped = find_last(lines[:end], _PYTEST_STOPPED)
    failed = numbers["failed"] + numbers["error"] + numbers["errors"]
    skipped = numbers["skipped"] + numbers["xfailed"] + numbers["xpassed"]
    tests += list_failed(summary, re.compile(r"^(?:FAILED |ERROR |(?=SUBFAILED))([^\[]+?\[.*?\]|.+?)(?: - .*)?$"))
    why = stopped[1][1] if stopped else ""
    return Report(passed=numbers["passed"], failed=failed, skipped=skipped, tests=tests, stopped=why)


_UNITTEST_NAME = re.compile(r"^(\w+ \([\w.]+\))(?: \.\.\. |$)")
_UNITTEST_STATE = re.compile(r"^(?:.*?\) |.*)?\.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$")


@reads("unittest", r"^Ran (\d{1,9}) tests? in [\d.]+s$", begins=r"^\w+ \([\w.]+\) \.\.\. ")
def read_unittest(lines: list[str], end: int, ran: re.Match[str]) -> Report | None:
    closing = find_last(lines[: end + 3], re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$"))
    if closing is None or closing[0] < end:
        return None
    numbers = Counter[str]()
    for key, number in re.findall(r"([a-z ]{1,30})=(\d{1,9})", closing[1][1] or ""):
        numbers[key.strip()] = int(number)
    listed: list[tuple[str, TestState]] = []
    name = ""
    for line in lines[:end]:  # of -v; a test with a docstring takes two lines, and the second has the state
        if begun := _UNITTEST_NAME.match(line):
            name = begun[1]
        if name and (ended := _UNITTEST_STATE.match(line)):
            word = ended[1].split()[0]
            state = TestState.PASSED if word == "ok" else TestState.SKIPPED
            listed.append((name, TestState.FAILED if word in ("FAIL", "ERROR", "unexpected") else state))
            name = ""
    failed = numbers["failures"] + numbers["errors"] + numbers["unexpected successes"]
    skipped = numbers["skipped"] + numbers["expected failures"]
    passed = max(int(ran[1]) - failed - skipped, 0)
    tests = [*listed, *list_failed(lines[: closing[0]], re.compile(r"^(?:FAIL|ERROR): (\S+ \(.+)$"))]
    return Report(passed=passed, failed=failed, skipped=skipped, tests=tests, lines_after=closing[0] - end)


_CARGO_CLOSING = r"^test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored;"
_BINARY = re.compile(r"^ +(?:Running (?:unittests )?(\S+) \(|Doc-tests (\S+)$)")
_CARGO_TEST = re.compile(r"^test (.+?) \.\.\. (ok|FAILED|ignored)(?:, .*)?(?: <[\d.]+s>)?$")
_LIST = re.compile(r"^failures:$")
_LISTED = re.compile(r"^    (\S.*)$")
_PLACE = re.compile(r" \(line \d+\)")  # of a documentation test; it moves with every edit
_CARGO_STATES = {"ok": TestState.PASSED, "FAILED": TestState.FAILED, "ignored": TestState.SKIPPED}


@reads("cargo", _CARGO_CLOSING, begins=r"^running \d+ tests?$")
def read_cargo(lines: list[str], end: int, closing: re.Match[str]) -> Report:
    results = match_lines(lines, closing.re)
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
    is_stopped = find_last(lines[end:], re.compile(r"^error: test failed, to rerun pass ")) is not None
    passed, skipped = (sum(int(result[group]) for result in results) for group in (1, 3))
    why = "cargo did not run every test binary; use --no-fail-fast" if is_stopped else ""
    return Report(passed=passed, failed=failed, skipped=skipped, tests=tests, stopped=why)


_PACKAGE = re.compile(r"^(ok|FAIL|\?)\s+(\S+)\s+([\d.]+s|\(cached\)|\[.*?\])(.*)")
_EVENT = r'\{"Time":.{0,80}?"Action":"(?:pass|fail|skip)","Package":"[^"]{1,500}"(?:,"Elapsed"|\})'
_GO_TEST = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)")
_GO_STATES = {"PASS": TestState.PASSED, "FAIL": TestState.FAILED, "SKIP": TestState.SKIPPED}


@reads("go", rf"{_PACKAGE.pattern}|^{_EVENT}", begins=r'^=== RUN   \S|^\{"Time":.{0,80}?"Action":"run"')
def read_go(lines: list[str], end: int, _closing: re.Match[str]) -> Report:
    tests: dict[str, TestState] = {}
    begun: dict[str, TestState] = {}  #: of a package that has not ended yet
    for line in lines[: end + 1]:
        if line.startswith('{"Time":'):
            with suppress(ValueError, KeyError, AttributeError, TypeError, RecursionError):
                event = json.loads(line)
                name, state = event["Package"], _GO_STATES.get(event["Action"].upper())
                bad = (known for known, how in tests.items() if how is TestState.FAILED)
                if state is not None and event.get("Test"):
                    tests[f"{name}.{event['Test']}"] = state
                elif state is TestState.FAILED and not any(known.startswith(f"{name}.") for known in bad):
                    tests[name] = state
        elif test := _GO_TEST.match(line):
            begun[test[2]] = _GO_STATES[test[1]]
        elif package := _PACKAGE.match(line):
            tests |= {f"{package[2]}.{name}": state for name, state in begun.items()}
            # The package is a test of its own where none of its tests says how it ended.
            if package[1] == "FAIL" and TestState.FAILED not in begun.values():
                tests[package[2]] = TestState.FAILED
            elif package[1] == "ok" and not begun and "[no tests to run]" not in package[4]:
                tests[package[2]] = TestState.PASSED
            begun = {}
    states = list(tests.values())
    is_verbose = any(line.startswith(("=== RUN", '{"Time":')) for line in lines)
    # A test that panicked or exited ended its package: the tests after it did not run.
    has_panicked = any(line.startswith("panic: ") or '"Output":"panic: ' in line for line in lines[: end + 1])
    failed = (package for package in match_lines(lines[: end + 1], _PACKAGE) if package[1] == "FAIL")
    has_died = has_panicked or any(package[2] in tests and not package[3].startswith("[") for package in failed)
    why = "a test ended its package early" if has_died else ""
    passed = states.count(TestState.PASSED) if is_verbose or not tests else None
    report = Report(passed=passed, failed=states.count(TestState.FAILED), skipped=states.count(TestState.SKIPPED))
    return replace(report, tests=list(tests.items()), is_named=True, stopped=why)


_JEST_CLOSING = r"^Tests: +(.*\b\d{1,9} total)$|^No tests found, exiting"
_FILE = re.compile(r"^ ?(PASS|FAIL) +(?:\./)?(\S+)")
_JEST_LINE = re.compile(r"^( {2,})(?:([✓√✕×]|○ skipped|✎ todo) )?(\S.*?)(?: \([\d.,]+ m?s\))?$")
_DETAIL = re.compile(r"^  ● (?!Console$)(.+)$")
_JEST_STATES = {**dict.fromkeys("✓√", TestState.PASSED), **dict.fromkeys("✕×", TestState.FAILED)}


@reads("jest", _JEST_CLOSING, begins=r"^ ?(?:PASS|FAIL) +\S+\.[cm]?[jt]sx?\b")
def read_jest(lines: list[str], end: int, closing: re.Match[str]) -> Report:
    numbers = read_counts(closing[1] or "")
    suites = find_last(lines[:end], re.compile(r"^Test Suites: +(.*\b\d{1,9} total)$"))
    suite_counts = read_counts(suites[1][1] if suites else "")
    tests: list[tuple[str, TestState]] = []
    file = ""
    path: dict[int, str] = {}
    is_tree = False
    for line in lines[:end]:
        if head := _FILE.match(line):
            file = head[2]
            path = {}
            is_tree = True
        elif not line.strip():
            is_tree = False
        elif file and (detail := _DETAIL.match(line)):
            is_loaded = detail[1] != "Test suite failed to run"
            tests.append((f"{file} › {detail[1].strip()}" if is_loaded else file, TestState.FAILED))
        elif is_tree and (listed := _JEST_LINE.match(line)):
            indent = len(listed[1])
            path = {**{depth: suite for depth, suite in path.items() if depth < indent}, indent: listed[3]}
            if listed[2]:
                tests.append((" › ".join((file, *path.values())), _JEST_STATES.get(listed[2], TestState.SKIPPED)))
    unloadable = sum(" › " not in name for name in dict(tests))
    ran = suite_counts["of"] + suite_counts["skipped"]  # of "1 skipped, 1 passed, 1 of 2 total"
    failed = numbers["failed"] + unloadable or suite_counts["failed"]
    skipped = numbers["skipped"] + numbers["todo"]
    why = "jest did not run every test file" if "of" in suite_counts and ran < suite_counts["total"] else ""
    return Report(passed=numbers["passed"], failed=failed, skipped=skipped, tests=tests, stopped=why)


_FILES = re.compile(r"^ Test Files {2}(.+?)(?: \((\d{1,9})\))?$")
_VITEST_STATES = {"×": TestState.FAILED, "↓": TestState.SKIPPED}


@reads("vitest", r"^ +Tests {2}(.+?)(?: \(\d+\))?$|^No test files found", begins=r"^ *RUN +v\d")
def read_vitest(lines: list[str], end: int, closing: re.Match[str]) -> Report | None:
    files = find_last(lines[:end], _FILES)
    if closing[1] is None:
        return Report(passed=0, failed=0)
    if files is None:
        return None
    numbers = read_counts(closing[1])
    file_numbers = read_counts(files[1][1])
    failures = list_failed(lines[:end], re.compile(r"^ *FAIL +(.+?)(?: \[ \S+ \])?$"))
    listed = match_lines(lines[:end], re.compile(r"^ ([✓√×↓]) (\S+ > .+?)(?: \d+ms)?$"))
    ran = file_numbers["failed"] + file_numbers["passed"] + file_numbers["skipped"]
    failed = max(numbers["failed"], len(dict(failures))) or file_numbers["failed"]
    skipped = numbers["skipped"] + numbers["todo"]
    tests = [*((test[2], _VITEST_STATES.get(test[1], TestState.PASSED)) for test in listed), *failures]
    why = "vitest did not run every test file" if ran < int(files[1][2] or 0) else ""
    return Report(passed=numbers["passed"], failed=failed, skipped=skipped, tests=tests, stopped=why)


_POINT = re.compile(
    r"^( *)(not )?ok\b(?: (\d{1,9}))?(?: +-)?((?: (?!# (?i:skip|todo)\b)\S*)*) *(# (?i:skip|todo)\b.*)?$"
)
_OTHER = re.compile(r"^[#ℹ] (cancelled|skipped|todo) (\d{1,9})$")
_SPEC = re.compile(r"^( *)([✔✖▶﹣]) (.+?)(?: \([\d.]+ms\))?( # .*)?$")


@reads("node", r"^[#ℹ] fail (\d{1,9})$")
def read_node(lines: list[str], end: int, closing: re.Match[str]) -> Report | None:
    passes = find_last(lines[:end], re.compile(r"^[#ℹ] pass (\d{1,9})$"))
    if passes is None:
        return None
    others = {other[1]: int(other[2]) for other in match_lines(lines[end : end + 5], _OTHER)}
    has_details = find_last(lines[end:], re.compile(r"^✖ failing tests:$"))  # every failure again, with its trace
    failed = int(closing[1]) + others.get("cancelled", 0)
    skipped = others.get("skipped", 0) + others.get("todo", 0)
    tests = read_points(lines[:end])
    suites: dict[int, str] = {}
    # Without points it is a spec report: `▶` begins a suite, and a line at its depth ends it.
    for match in match_lines(lines[:end], _SPEC) if not tests else ():
        depth = len(match[1])
        _, mark, name, remark = match.groups()
        is_end = suites.get(depth) == name and mark != "▶"
        suites = {deep: suite for deep, suite in suites.items() if deep < depth}
        if mark == "▶":
            suites[depth] = name
        elif not is_end:
            state = TestState.FAILED if mark == "✖" else TestState.PASSED
            tests.append((" › ".join((*suites.values(), name)), TestState.SKIPPED if remark else state))
    after = len(lines) - 1 - end if has_details else 0
    return Report(passed=int(passes[1][1]), failed=failed, skipped=skipped, tests=tests, lines_after=after)


_CTEST_CLOSING = r"^\d+% tests passed, (\d{1,9}) tests? failed out of (\d{1,9})$|^No tests were found!!!$"
_CTEST_FAILED = re.compile(r"^\s+\d+ - (.+?) \((?!Disabled|Skipped)[A-Za-z][A-Za-z ]*\)")
_CTEST_LINE = re.compile(r"^ *\d{1,9}/(\d{1,9}) Test +#\d+: (.+?) \.*\s*(Passed|\*{3}[A-Z][\w :()]*?) +[\d.]+ sec$")
_SKIPPED = ("***Skipped", "***Not Run (Disabled)")
_CTEST_STATES = {"Passed": TestState.PASSED, **dict.fromkeys(_SKIPPED, TestState.SKIPPED)}


@reads("ctest", _CTEST_CLOSING, begins=r"^Test project /")
def read_ctest(lines: list[str], end: int, closing: re.Match[str]) -> Report:
    if closing[1] is None:
        return Report(passed=0, failed=0)
    listed = match_lines(lines[:end], _CTEST_LINE)
    last_failure = find_last(lines[end:], _CTEST_FAILED)
    planned = max((int(test[1]) for test in listed), default=0)
    failed = int(closing[1])
    skipped = sum(test[3] in _SKIPPED for test in listed)
    tests = [(test[2], _CTEST_STATES.get(test[3], TestState.FAILED)) for test in listed]
    tests += list_failed(lines[end:], _CTEST_FAILED)
    why = "ctest did not run every test" if len(listed) < planned else ""
    report = Report(passed=int(closing[2]) - failed, failed=failed, skipped=skipped, tests=tests, stopped=why)
    return replace(report, lines_after=last_failure[0] if last_failure else 0)


@reads("tap", r"^1\.\.(\d{1,9})(?:\s|$)", begins=r"^TAP version \d+$|^Bail out!|^1\.\.[1-9]\d{0,8}(?:\s|$)")
def read_tap(lines: list[str], end: int, plan: re.Match[str]) -> Report | None:
    """TAP is complete when the last point has the number that the plan announced."""
    point = find_last(lines, re.compile(r"^(?:not )?ok (\d{1,9})\b"))
    if int(plan[1]) != (int(point[1][1]) if point else 0):
        return None
    return count_states(read_points(lines), lines_after=max(0, point[0] - end) if point else 0)


def read_points(lines: list[str]) -> list[tuple[str, TestState]]:
    """The points without sub-tests; a point that follows deeper ones is their parent."""
    points: list[tuple[int, str, TestState]] = []
    for point in match_lines(lines, _POINT):
        depth = len(point[1])
        name = point[4].strip() or f"test {point[3]}"
        first = next((n for n in range(len(points), 0, -1) if points[n - 1][0] <= depth), 0)
        if children := points[first:]:
            points[first:] = [(depth, f"{name} › {child}", state) for _, child, state in children]
        else:
            state = TestState.FAILED if point[2] else TestState.PASSED
            points.append((depth, name, TestState.SKIPPED if point[5] else state))
    return [(name, state) for _, name, state in points]


ReadTests: TypeAlias = Callable[[list[str]], Iterable[tuple[str, TestState]]]
_COUNT = re.compile(r"\b(\d{1,9}) ([a-z]+)|\b([a-z]+): *(\d{1,9})\b")
_FURTHER = re.compile(r" +(?:\d{1,9} [a-z]+|[A-Z][a-z]+: +\d{1,9})")  #: the next line of a summary
_MEANINGS = {
    **dict.fromkeys(("passed", "passing", "succeeded"), TestState.PASSED),
    **dict.fromkeys(("failed", "failing", "failure", "failures", "error", "errors"), TestState.FAILED),
    **dict.fromkeys(("skipped", "pending"), TestState.SKIPPED),
    **dict.fromkeys(("total", "tests", "example", "examples"), "total"),
}


def _read_summaries(read_tests: ReadTests, lines: list[str], end: int, closing: re.Match[str]) -> Report:
    seen = Counter[str]()
    tests: list[tuple[str, TestState]] = []
    for name, state in read_tests(lines):  # those of equal names, such as in two files, get numbers
        seen[name] += 1
        tests.append((f"{name} ({seen[name]})" if seen[name] > 1 else name, state))
    sums = Counter[str]()
    for number in (n for n, line in enumerate(lines[: end + 1]) if closing.re.match(line)):
        further = (line for line in lines[number + 1 : number + 4] if _FURTHER.fullmatch(line))
        counts = Counter[str]()
        for count, word, label, labelled in _COUNT.findall("\n".join((lines[number], *further)).lower()):
            counts[_MEANINGS.get(word or label, "")] += int(count or labelled)
        if counts["total"]:
            counts["passed"] = counts["total"] - counts["failed"] - counts["skipped"]
        sums += counts
    if closing.re in (_SWIFT, _PROVE):  # they count other things than tests
        return count_states(tests)
    after = len(lines) - 1 - end if sums["failed"] and closing.re in (_MOCHA, _RSPEC) else 0  # all failures again
    passed, failed, skipped = (sums[state] for state in TestState)
    return Report(passed=passed, failed=failed, skipped=skipped, tests=tests, lines_after=after)


def _match_tests(pattern: str, lines: list[str]) -> Iterator[tuple[str, TestState]]:
    """The tests that have a line with the groups `place`, `name` and `state`; without a state they failed."""
    for test in match_lines(lines, re.compile(pattern)):
        parts = test.groupdict()
        name = "::".join(filter(None, (parts.get("place"), parts["name"])))
        yield name, TestState(parts.get("state", "failed").lower())


_MOCHA = re.compile(r"^  \d{1,9} passing \(")
_SPEC_FILE = re.compile(r"^ +Running: +(\S+)")  #: of Cypress
_BEFORE_SUITE = re.compile(r"$|  (?:[✔✓√-]|\d+\)) ")  #: an empty line, or a test outside of suites
_TREE = re.compile(r"^( {2,})(?:([✔✓√-]|\d+\)) )?(\S.*?)(?: \(\d+ms\))?$")


def _read_tree(lines: list[str]) -> Iterator[tuple[str, TestState]]:
    """The tests with their suites, as `mocha --fgrep` takes them. Tests may print other lines between them."""
    spec_file = ""
    suites: dict[int, str] = {}
    is_tree = True
    for before, line in zip(["", *lines], lines, strict=False):
        if begun := _SPEC_FILE.match(line):
            spec_file = f"{begun[1]}: "
            is_tree = True
        elif re.match(r"^  \d{1,9} failing$", line):
            is_tree = False
        elif is_tree and (listed := _TREE.match(line)):
            indent, mark, title = len(listed[1]), listed[2], listed[3]
            outer = {depth: suite for depth, suite in suites.items() if depth < indent}
            if mark:
                state = TestState.FAILED if mark.endswith(")") else TestState.PASSED
                name = spec_file + " ".join((*outer.values(), title))
                yield name, TestState.SKIPPED if mark == "-" else state
            elif indent > 2 or _BEFORE_SUITE.match(before):
                suites = outer | {indent: title}


_PROVE_FILE = re.compile(r"^(\S+) \.\.+(?: (\w+).*)?$")
_PROVE = re.compile(r"^Result: (?:PASS|FAIL|NOTESTS)$")


def _read_prove(lines: list[str]) -> Iterator[tuple[str, TestState]]:
    """The tests of each file. A file is a test if it names none, or if none of them failed and it did."""
    bad = {file[1] for file in match_lines(lines, re.compile(r"^(\S+) +\(Wstat: "))}
    files: dict[tuple[str, str | None], list[str]] = {}
    printed: list[str] = []
    for line in lines:
        if head := _PROVE_FILE.match(line):
            printed = files[head[1], head[2]] = []
        elif line != "ok":  # the state of the file
            printed.append(line)
    for (file, word), printed in files.items():
        points = read_points(printed)
        yield from ((f"{file}::{name}", state) for name, state in points)
        if file in bad and all(state is not TestState.FAILED for _, state in points):
            yield file, TestState.FAILED
        elif not points:
            yield file, TestState.SKIPPED if word == "skipped" else TestState.PASSED


_RSPEC = re.compile(r"^\d{1,9} examples?, \d{1,9} failures?\b")
_RSPEC_FAILED = r"rspec (?:\./)?(?P<place>[^\s:]+):\d+ # (?P<name>.+)$"
_DOTNET = re.compile(r"^(?:Passed|Failed)! +- Failed: |^Total tests: \d|^Test summary: total: \d")
_DOTNET_TEST = r"  (?P<state>Passed|Failed|Skipped) (?P<name>\S.*?) \[[^\]]{1,20}\]$"
_DOTNET_BEGINS = re.compile(r"^Starting test execution, ")
_SWIFT = re.compile(r"^\s+Executed \d{1,9} tests?, with |^\S+ +Test run with \d{1,9} tests?\b")
_SWIFT_TEST = (
    r"(?:Test Case '(?:-\[)?|\W +Test (?!run ))(?P<name>.+?)(?:\]?')? (?P<state>passed(?= )|failed(?= )|skipped)"
)
_SWIFT_BEGINS = re.compile(r"^Test Suite .* started|^\W +Test run started")
RUNNERS += (
    Runner("mocha", _MOCHA, partial(_read_summaries, _read_tree), None),
    Runner("rspec", _RSPEC, partial(_read_summaries, partial(_match_tests, _RSPEC_FAILED)), None),
    Runner("dotnet", _DOTNET, partial(_read_summaries, partial(_match_tests, _DOTNET_TEST)), _DOTNET_BEGINS),
    Runner("swift", _SWIFT, partial(_read_summaries, partial(_match_tests, _SWIFT_TEST)), _SWIFT_BEGINS),
    Runner("prove", _PROVE, partial(_read_summaries, _read_prove), _PROVE_FILE),
)
