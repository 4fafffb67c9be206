"""Knows how each test runner closes its output, and how it names the tests that failed.

Only a closing summary counts. Lines that say PASS are never added up: a suite that dies in the middle
has printed many of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Closing(Struct, frozen=True, kw_only=True):
    """What a runner says at its end."""

    line: int  #: index of the summary's last line
    passed: int | None  #: None where the runner does not count tests
    failed: int
    failures: frozenset[str]  #: names of tests


class Runner(Struct, frozen=True, kw_only=True):
    """One test runner: how its output begins, where that can be told, and how it ends."""

    name: str
    begins: re.Pattern[str] | None
    closing: Callable[[list[str]], Closing | None]


def _last(lines: list[str], pattern: re.Pattern[str]) -> tuple[int, re.Match[str]] | None:
    for number in range(len(lines) - 1, -1, -1):
        if match := pattern.match(lines[number]):
            return number, match
    return None


def _named(lines: Iterable[str], pattern: re.Pattern[str]) -> frozenset[str]:
    return frozenset(match.group(1).strip() for line in lines if (match := pattern.match(line)))


def _counts(text: str) -> dict[str, int]:
    """`2 failed, 1 passed` and `2 failed | 1 passed` as numbers by word."""
    return {word: int(number) for number, word in re.findall(r"\b(\d{1,9}) ([a-z]+)", text)}


# Output is foreign text: a line is searched in time proportional to its length, and Python refuses to make a number of
# more than 4,300 digits.

# --- pytest -------------------------------------------------------------------------------------------

_PYTEST = re.compile(
    r"^=* ?((?:\d{1,9} (?:subtests )?"
    r"(?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)(?:, )?)+"
    r"|no tests ran) in [\d.]+s(?: \([\d:]+\))? ?=*$"
)
_PYTEST_NAMES = re.compile(r"^=+ short test summary info =+$")
_PYTEST_NAME = re.compile(r"^(?:FAILED |ERROR |(?=SUBFAILED))([^\[]+?\[.*?\]|.+?)(?: - .*)?$")


def _pytest(lines: list[str]) -> Closing | None:
    found = _last(lines, _PYTEST)
    if found is None:
        return None
    line, match = found
    counts = _counts(match.group(1))
    block = _last(lines[:line], _PYTEST_NAMES)
    names = lines[block[0] : line] if block else []
    return Closing(
        line=line,
        passed=counts.get("passed", 0),
        failed=sum(counts.get(word, 0) for word in ("failed", "error", "errors")),
        failures=_named(names, _PYTEST_NAME),
    )


# --- unittest -----------------------------------------------------------------------------------------

_UNITTEST = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
_UNITTEST_RAN = re.compile(r"^Ran (\d{1,9}) tests? in [\d.]+s$")
_UNITTEST_NAME = re.compile(r"^(?:FAIL|ERROR): (\S+ \(.+)$")


def _unittest(lines: list[str]) -> Closing | None:
    ran = _last(lines, _UNITTEST_RAN)
    found = _last(lines[: ran[0] + 3], _UNITTEST) if ran else None
    if ran is None or found is None or found[0] < ran[0]:
        return None
    tally = {key.strip(): int(n) for key, n in re.findall(r"([a-z ]{1,30})=(\d{1,9})", found[1].group(1) or "")}
    failed = sum(tally.get(word, 0) for word in ("failures", "errors", "unexpected successes"))
    aside = sum(tally.get(word, 0) for word in ("skipped", "expected failures"))
    return Closing(
        line=found[0],
        passed=max(int(ran[1].group(1)) - failed - aside, 0),
        failed=failed,
        failures=_named(lines[: found[0]], _UNITTEST_NAME),
    )


# --- go -----------------------------------------------------------------------------------------------

_GO = re.compile(r"^(ok|FAIL)\s+(\S+)\s+(?:[\d.]+s|\(cached\)|\[.*\])")
_GO_NAME = re.compile(r"^\s*--- FAIL: (\S+)")


def _go(lines: list[str]) -> Closing | None:
    found = _last(lines, _GO)
    if found is None:
        return None
    failures: set[str] = set()
    tests: list[str] = []
    for line in lines[: found[0] + 1]:
        if test := _GO_NAME.match(line):
            tests.append(test.group(1))
        elif package := _GO.match(line):
            if package.group(1) == "FAIL":
                failures.update(f"{package.group(2)}.{name}" for name in tests)
                failures.update([] if tests else [package.group(2)])
            tests = []
    return Closing(line=found[0], passed=None, failed=len(failures), failures=frozenset(failures))


# --- cargo --------------------------------------------------------------------------------------------

_CARGO = re.compile(r"^test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed;")
_CARGO_BEGINS = re.compile(r"^running \d+ tests?$")
_CARGO_NAME = re.compile(r"^test (.+?) \.\.\. FAILED$")
_CARGO_LISTED = re.compile(r"^    (\S+)$")


def _cargo(lines: list[str]) -> Closing | None:
    """One result for each test binary: together they are the summary."""
    found = _last(lines, _CARGO)
    if found is None:
        return None
    results = [match for line in lines if (match := _CARGO.match(line))]
    listed = _last(lines[: found[0]], re.compile(r"^failures:$"))
    names = lines[listed[0] : found[0]] if listed else []
    return Closing(
        line=found[0],
        passed=sum(int(match.group(1)) for match in results),
        failed=sum(int(match.group(2)) for match in results),
        failures=_named(lines, _CARGO_NAME) | _named(names, _CARGO_LISTED),
    )


# --- jest, vitest -------------------------------------------------------------------------------------

_JEST = re.compile(r"^Tests: +(.*\b\d{1,9} total)$")
_JEST_SUITES = re.compile(r"^Test Suites: +(.*\b\d{1,9} total)$")
_JEST_NAME = re.compile(r"^ +● (?!Console$|Test suite failed to run$)(.+)$")
_JEST_FILE = re.compile(r"^ ?FAIL +(\S+)")


def _jest(lines: list[str]) -> Closing | None:
    found = _last(lines, _JEST)
    if found is None:
        return None
    counts = _counts(found[1].group(1))
    suites = _last(lines[: found[0]], _JEST_SUITES)
    lost = _counts(suites[1].group(1)).get("failed", 0) if suites else 0
    failed = counts.get("failed", 0)
    pattern = _JEST_NAME if failed else _JEST_FILE
    return Closing(
        line=found[0],
        passed=counts.get("passed", 0),
        failed=failed or lost,  # a suite that cannot be loaded counts no test
        failures=_named(lines, pattern),
    )


_VITEST = re.compile(r"^ +Tests {2}(.+?)(?: \(\d+\))?$")
_VITEST_FILES = re.compile(r"^ Test Files {2}(.+?)(?: \(\d+\))?$")
_VITEST_NAME = re.compile(r"^ *FAIL +(.+)$")


def _vitest(lines: list[str]) -> Closing | None:
    found = _last(lines, _VITEST)
    files = _last(lines[: found[0]], _VITEST_FILES) if found else None
    if found is None or files is None:
        return None
    counts = _counts(found[1].group(1))
    return Closing(
        line=found[0],
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0) or _counts(files[1].group(1)).get("failed", 0),
        failures=_named(lines, _VITEST_NAME),
    )


# --- node:test, TAP -----------------------------------------------------------------------------------

_NODE = re.compile(r"^[#ℹ] fail (\d{1,9})$")
_NODE_PASS = re.compile(r"^[#ℹ] pass (\d{1,9})$")
_NODE_CANCELLED = re.compile(r"^[#ℹ] cancelled (\d{1,9})$")
_TAP_NAME = re.compile(r"^ *not ok (?!.*# (?:TODO|SKIP)\b)(?:\d+ (?:- )?)?(\S.*)$", re.IGNORECASE)
_NODE_DETAILS = re.compile(r"^✖ failing tests:$")
_NODE_NAME = re.compile(r"^ *✖ (?!failing tests:)(.+?)(?: \([\d.]+ms\))?$")


def _node(lines: list[str]) -> Closing | None:
    found = _last(lines, _NODE)
    passes = _last(lines[: found[0]], _NODE_PASS) if found else None
    if found is None or passes is None:
        return None
    cancelled = _last(lines, _NODE_CANCELLED)
    failed = int(found[1].group(1)) + (int(cancelled[1].group(1)) if cancelled else 0)
    names = _named(lines, _TAP_NAME) | _named(lines[: found[0]], _NODE_NAME)
    details = _last(lines[found[0] :], _NODE_DETAILS)  # every failure once more, with its trace
    line = len(lines) - 1 if details else found[0]
    return Closing(line=line, passed=int(passes[1].group(1)), failed=failed, failures=names)


_TAP_PLAN = re.compile(r"^1\.\.(\d{1,9})(?:\s|$)")
_TAP_POINT = re.compile(r"^(?:not )?ok (\d{1,9})\b")


def _tap(lines: list[str]) -> Closing | None:
    """TAP closes by arithmetic: the point with the number the plan announced."""
    plan, point = _last(lines, _TAP_PLAN), _last(lines, _TAP_POINT)
    if plan is None or point is None or int(plan[1].group(1)) != int(point[1].group(1)):
        return None
    failures = _named((line for line in lines if line.startswith("not ok")), _TAP_NAME)
    total = int(plan[1].group(1))
    return Closing(
        line=max(plan[0], point[0]),
        passed=max(total - len(failures), 0),
        failed=len(failures),
        failures=failures,
    )


# --- ctest --------------------------------------------------------------------------------------------

_CTEST = re.compile(r"^\d+% tests passed, (\d{1,9}) tests? failed out of (\d{1,9})$")
_CTEST_NAME = re.compile(r"^\s+\d+ - (.+?) \([A-Za-z][A-Za-z ]*\)")


def _ctest(lines: list[str]) -> Closing | None:
    found = _last(lines, _CTEST)
    if found is None:
        return None
    failed, total = int(found[1].group(1)), int(found[1].group(2))
    listed = _last(lines[found[0] :], _CTEST_NAME)
    return Closing(
        line=found[0] + (listed[0] if listed else 0),
        passed=total - failed,
        failed=failed,
        failures=_named(lines[found[0] :], _CTEST_NAME),
    )


# --- anything else ------------------------------------------------------------------------------------

_PLAIN_PAIR = re.compile(
    r"^.*?\b(\d{1,9}) (?:tests? )?pass(?:ed|ing)?\b\W{1,5}(\d{1,9}) (?:tests? )?fail(?:ed|ing|ures?)?\b"
)
_PLAIN_TURNED = re.compile(
    r"^.*?\bpass(?:ed)?\s*[:=]\s*(\d{1,9})\b.{0,200}?\bfail(?:ed|ures)?\s*[:=]\s*(\d{1,9})\b", re.IGNORECASE
)
_PLAIN_OUT_OF = re.compile(
    r"^(?:.*\b(?:pass(?:ed)?|results?|ok|tests?:)\W*)?(\d{1,9}) ?/ ?(\d{1,9})(?: (?:tests? )?pass\w*)?\W*$",
    re.IGNORECASE,
)
_PLAIN_NAME = re.compile(r"^\s*(?:FAIL|FAILED|✗|✘|✖)(?:: ?| +)(\S.*)$")


def _plain(lines: list[str]) -> Closing | None:
    """A last line such as `3311 passed, 2 failed`, `passed: 3311 failed: 2` or `3311/3313 passed`."""
    for number in range(len(lines) - 1, -1, -1):
        text = lines[number]
        if match := _PLAIN_PAIR.match(text) or _PLAIN_TURNED.match(text):
            passed, failed = int(match.group(1)), int(match.group(2))
        elif (match := _PLAIN_OUT_OF.match(text)) and int(match.group(1)) <= int(match.group(2)):
            passed, failed = int(match.group(1)), int(match.group(2)) - int(match.group(1))
        else:
            continue
        return Closing(line=number, passed=passed, failed=failed, failures=_named(lines[:number], _PLAIN_NAME))
    return None


#: The more particular first: where two read the same line, the first is believed.
RUNNERS = (
    Runner(name="pytest", begins=re.compile(r"^=+ test session starts =+$"), closing=_pytest),
    Runner(name="unittest", begins=None, closing=_unittest),
    Runner(name="cargo", begins=_CARGO_BEGINS, closing=_cargo),
    Runner(name="go", begins=None, closing=_go),
    Runner(name="jest", begins=None, closing=_jest),
    Runner(name="vitest", begins=re.compile(r"^ *RUN +v\d"), closing=_vitest),
    Runner(name="node", begins=None, closing=_node),
    Runner(name="ctest", begins=re.compile(r"^Test project /"), closing=_ctest),
    Runner(name="tap", begins=re.compile(r"^TAP version \d+$"), closing=_tap),
    Runner(name="plain", begins=None, closing=_plain),
)
