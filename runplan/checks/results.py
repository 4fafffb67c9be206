"""Reads the output of a test command, and compares it with the output before the work.

Only the closing summary of a test runner counts. Lines that say PASS are never added up: a suite that dies in the
middle has printed many of them. Output is foreign text: a line is searched in time proportional to its length, and
numbers are bounded.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: A summary further from the end than this many lines is an inner suite's: the outer one has none.
_NEAR_END = 40
_LINES_READ = 50_000  # the end of a longer output is enough
_LONGEST_LINE = 10_000  # characters; no summary is longer
# Coverage tables follow the summary of some runners and may be long.
_TABLE = re.compile(r"\||\d%[\d,\s>-]*$|^[\s-]*$")


class Results(Struct, frozen=True, kw_only=True):
    exit_code: int | None  #: None when it did not end by itself
    runner: str  #: "" when there is no known closing summary
    passed: int | None  #: None if unknown
    failed: int | None
    failures: frozenset[str]  #: names of the tests that failed
    unfinished: str = ""  #: why the run is not complete; empty when it is

    @property
    def finished(self) -> bool:
        return not self.unfinished

    @property
    def total(self) -> int | None:
        return None if self.passed is None or self.failed is None else self.passed + self.failed

    @property
    def red(self) -> bool:
        return self.exit_code != 0 or bool(self.failed)

    @property
    def line(self) -> str:
        """One line for people."""
        if self.unfinished:
            return self.unfinished
        if self.passed is not None:
            return f"{self.passed} passed, {self.failed or 0} failed"
        if self.failed:
            return f"{self.failed} failed"
        return "failed" if self.red else "passed"


class GateKind(StrEnum):
    GREEN = "green"  #: everything passes
    PRE_EXISTING = "pre-existing"  #: the failures existed before the work: this passes, and is noted
    REGRESSED = "regressed"  #: something fails that did not fail before
    UNFINISHED = "unfinished"  #: the command did not complete, so its result means nothing
    BASELINE_RED = "baseline-red"  #: the run before the work cannot be compared with


class GateJudgement(Struct, frozen=True):
    kind: GateKind
    why: str = ""
    names: tuple[str, ...] = ()  #: of the tests that failed


def read_results(output: str, *, exit_code: int | None, summary_pattern: str) -> Results:
    """The results in the output; a complete run contains `summary_pattern`, "" for none."""
    lines = [_ANSI.sub("", line[:_LONGEST_LINE]).rstrip() for line in output.splitlines()[-_LINES_READ:]]
    runner, summary = _summary(lines) or (None, None)
    return Results(
        exit_code=exit_code,
        runner=runner.name if runner else "",
        passed=summary.passed if summary else None,
        failed=summary.failed if summary else None,
        # Names without a count come from suites inside the suite.
        failures=summary.failures if summary and summary.failed else frozenset(),
        unfinished=_unfinished(lines, exit_code, summary_pattern, summary),
    )


def _summary(lines: list[str]) -> tuple[Runner, Summary] | None:
    """The last summary in the output, if it is near its end."""
    found = [(runner, summary) for runner in RUNNERS if (summary := runner.summary(lines))]
    best = max(found, key=lambda one: one[1].line, default=None)
    if best is None or sum(1 for line in lines[best[1].line + 1 :] if not _TABLE.search(line)) > _NEAR_END:
        return None
    return best


def _unfinished(lines: list[str], exit_code: int | None, pattern: str, summary: Summary | None) -> str:
    if exit_code is None or exit_code < 0:
        return "the command did not end by itself"
    if pattern:
        return "" if _contains(lines, pattern) else f"the output does not contain tests.summary {pattern!r}"
    rest = lines[summary.line :] if summary else lines
    begun = [each.name for each in RUNNERS if each.begins and any(map(each.begins.match, rest))]
    return f"no closing summary of {begun[0]}" if begun else ""


def _contains(lines: list[str], pattern: str) -> bool:
    try:
        return re.search(pattern, "\n".join(lines), re.MULTILINE) is not None
    except re.error as error:
        raise SettingsError(f"[tests] summary: not a regular expression: {error}") from error


def baseline_fault(baseline: Results) -> str:
    """Why no later result can be compared with this one; empty when it can."""
    if not baseline.finished:
        return baseline.unfinished
    if baseline.red and not baseline.failures:
        return f"exit code {baseline.exit_code}, and no failed test is named"
    return ""


def compare(
    baseline: Results | None, now: Results, *, allow_red_baseline: bool = False, fewer_allowed: bool = False
) -> GateJudgement:
    """The judgement of the results; without a baseline everything must pass.

    `fewer_allowed`: the plan permits removing tests.
    """
    fault = baseline_fault(baseline) if baseline else ""
    if fault and not allow_red_baseline:
        return GateJudgement(GateKind.BASELINE_RED, fault)
    if unfinished := now.unfinished or _summary_lost(baseline, now):
        return GateJudgement(GateKind.UNFINISHED, unfinished)
    judgement = _judge_red(baseline, now, is_faulty=bool(fault)) if now.red else GateJudgement(GateKind.GREEN)
    lost = 0 if fewer_allowed else _fewer(baseline, now)
    if lost and judgement.kind is not GateKind.REGRESSED:
        return GateJudgement(GateKind.REGRESSED, f"{lost} fewer passed than before the work")
    return judgement


def _judge_red(baseline: Results | None, now: Results, *, is_faulty: bool) -> GateJudgement:
    before = baseline.failures if baseline else frozenset()
    new = tuple(sorted(now.failures - before))
    if new and not (is_faulty and not before):
        tests = "1 test fails" if len(new) == 1 else f"{len(new)} tests fail"
        return GateJudgement(GateKind.REGRESSED, f"{tests} that did not fail before", new)
    all_known = now.failures and before and len(now.failures) >= (now.failed or 0)
    more_failed = baseline and None not in (baseline.failed, now.failed) and (now.failed or 0) > (baseline.failed or 0)
    if all_known or (is_faulty and not more_failed):
        return GateJudgement(GateKind.PRE_EXISTING, names=tuple(sorted(now.failures)))
    unnamed = f"; {now.failed} failed, {len(now.failures)} named" if now.failed else ""
    return GateJudgement(GateKind.REGRESSED, f"exit code {now.exit_code}{unnamed}")


def _fewer(baseline: Results | None, now: Results) -> int:
    if baseline is None or baseline.passed is None or now.passed is None:
        return 0
    return max(baseline.passed - now.passed, 0)


def _summary_lost(baseline: Results | None, now: Results) -> str:
    """A run without the summary of the baseline's runner was cut short, or its summary is an inner suite's."""
    if baseline is None or not baseline.runner or baseline.runner == now.runner:
        return ""
    if not now.runner:
        return f"no closing summary of {baseline.runner}, which there was before the work"
    if _fewer(baseline, now):
        return f"the last summary is of {now.runner} and counts fewer tests than {baseline.runner} did"
    return ""


# --- test runners -------------------------------------------------------------------------------------------


class Summary(Struct, frozen=True):
    line: int  #: index of its last line
    passed: int | None  #: None if the runner does not count tests
    failed: int
    failures: frozenset[str]  #: names of tests


class Runner(Struct, frozen=True):
    """One test runner: the line of its summary, how to read it, and the first line if that can be recognised."""

    name: str
    closing: re.Pattern[str]
    read: Callable[[list[str], int, re.Match[str]], Summary | None]
    begins: re.Pattern[str] | None = None

    def summary(self, lines: list[str]) -> Summary | None:
        found = _last(lines, self.closing)
        return self.read(lines, *found) if found else None


def _last(lines: list[str], pattern: re.Pattern[str]) -> tuple[int, re.Match[str]] | None:
    for number in range(len(lines) - 1, -1, -1):
        if match := pattern.match(lines[number]):
            return number, match
    return None


def _named(lines: Iterable[str], pattern: re.Pattern[str]) -> frozenset[str]:
    return frozenset(match[1].strip() for line in lines if (match := pattern.match(line)))


def _counts(text: str) -> dict[str, int]:
    """`2 failed, 1 passed` and `2 failed | 1 passed` as numbers by word."""
    return {word: int(number) for number, word in re.findall(r"\b(\d{1,9}) ([a-z]+)", text)}


def _sum(counts: dict[str, int], *words: str) -> int:
    return sum(counts.get(word, 0) for word in words)


_PYTEST = re.compile(
    r"^=* ?((?:\d{1,9} (?:subtests )?"
    r"(?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)(?:, )?)+"
    r"|no tests ran) in [\d.]+s(?: \([\d:]+\))? ?=*$"
)
_PYTEST_NAMES = re.compile(r"^=+ short test summary info =+$")
_PYTEST_NAME = re.compile(r"^(?:FAILED |ERROR |(?=SUBFAILED))([^\[]+?\[.*?\]|.+?)(?: - .*)?$")


def _pytest(lines: list[str], at: int, closing: re.Match[str]) -> Summary:
    counts = _counts(closing[1])
    block = _last(lines[:at], _PYTEST_NAMES)
    names = _named(lines[block[0] : at] if block else (), _PYTEST_NAME)
    return Summary(at, _sum(counts, "passed"), _sum(counts, "failed", "error", "errors"), names)


_UNITTEST = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$")
_UNITTEST_RAN = re.compile(r"^Ran (\d{1,9}) tests? in [\d.]+s$")
_UNITTEST_NAME = re.compile(r"^(?:FAIL|ERROR): (\S+ \(.+)$")


def _unittest(lines: list[str], at: int, ran: re.Match[str]) -> Summary | None:
    found = _last(lines[: at + 3], _UNITTEST)
    if found is None or found[0] < at:
        return None
    counts = {key.strip(): int(n) for key, n in re.findall(r"([a-z ]{1,30})=(\d{1,9})", found[1][1] or "")}
    failed = _sum(counts, "failures", "errors", "unexpected successes")
    passed = max(int(ran[1]) - failed - _sum(counts, "skipped", "expected failures"), 0)
    return Summary(found[0], passed, failed, _named(lines[: found[0]], _UNITTEST_NAME))


_GO = re.compile(r"^(ok|FAIL)\s+(\S+)\s+(?:[\d.]+s|\(cached\)|\[.*\])")
_GO_NAME = re.compile(r"^\s*--- FAIL: (\S+)")


def _go(lines: list[str], at: int, _closing: re.Match[str]) -> Summary:
    failures: set[str] = set()
    tests: list[str] = []
    for line in lines[: at + 1]:
        if test := _GO_NAME.match(line):
            tests.append(test[1])
        elif package := _GO.match(line):
            if package[1] == "FAIL":
                failures.update([f"{package[2]}.{name}" for name in tests] or [package[2]])
            tests = []
    return Summary(at, None, len(failures), frozenset(failures))


_CARGO = re.compile(r"^test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed;")
_CARGO_NAME = re.compile(r"^test (.+?) \.\.\. FAILED$")
_CARGO_LIST = re.compile(r"^failures:$")
_CARGO_LISTED = re.compile(r"^    (\S+)$")


def _cargo(lines: list[str], at: int, _closing: re.Match[str]) -> Summary:
    """Each test binary has a result; the summary is their sum."""
    results = [match for line in lines if (match := _CARGO.match(line))]
    listed = _last(lines[:at], _CARGO_LIST)
    names = _named(lines, _CARGO_NAME) | _named(lines[listed[0] : at] if listed else (), _CARGO_LISTED)
    return Summary(at, sum(int(one[1]) for one in results), sum(int(one[2]) for one in results), names)


_JEST = re.compile(r"^Tests: +(.*\b\d{1,9} total)$")
_JEST_SUITES = re.compile(r"^Test Suites: +(.*\b\d{1,9} total)$")
_JEST_NAME = re.compile(r"^ +● (?!Console$|Test suite failed to run$)(.+)$")
_JEST_FILE = re.compile(r"^ ?FAIL +(\S+)")


def _jest(lines: list[str], at: int, closing: re.Match[str]) -> Summary:
    counts = _counts(closing[1])
    suites = _last(lines[:at], _JEST_SUITES)
    failed = _sum(counts, "failed")
    lost = _sum(_counts(suites[1][1]), "failed") if suites else 0  # a suite that cannot be loaded counts no test
    names = _named(lines, _JEST_NAME if failed else _JEST_FILE)
    return Summary(at, _sum(counts, "passed"), failed or lost, names)


_VITEST = re.compile(r"^ +Tests {2}(.+?)(?: \(\d+\))?$")
_VITEST_FILES = re.compile(r"^ Test Files {2}(.+?)(?: \(\d+\))?$")
_VITEST_NAME = re.compile(r"^ *FAIL +(.+)$")


def _vitest(lines: list[str], at: int, closing: re.Match[str]) -> Summary | None:
    files = _last(lines[:at], _VITEST_FILES)
    if files is None:
        return None
    counts = _counts(closing[1])
    failed = _sum(counts, "failed") or _sum(_counts(files[1][1]), "failed")
    return Summary(at, _sum(counts, "passed"), failed, _named(lines, _VITEST_NAME))


_NODE = re.compile(r"^[#ℹ] fail (\d{1,9})$")
_NODE_PASS = re.compile(r"^[#ℹ] pass (\d{1,9})$")
_NODE_CANCELLED = re.compile(r"^[#ℹ] cancelled (\d{1,9})$")
_NODE_DETAILS = re.compile(r"^✖ failing tests:$")
_NODE_NAME = re.compile(r"^ *✖ (?!failing tests:)(.+?)(?: \([\d.]+ms\))?$")
_TAP_NAME = re.compile(r"^ *not ok (?!.*# (?:TODO|SKIP)\b)(?:\d+ (?:- )?)?(\S.*)$", re.IGNORECASE)


def _node(lines: list[str], at: int, closing: re.Match[str]) -> Summary | None:
    passes = _last(lines[:at], _NODE_PASS)
    if passes is None:
        return None
    cancelled = _last(lines, _NODE_CANCELLED)
    failed = int(closing[1]) + (int(cancelled[1][1]) if cancelled else 0)
    names = _named(lines, _TAP_NAME) | _named(lines[:at], _NODE_NAME)
    has_details = _last(lines[at:], _NODE_DETAILS)  # every failure again, with its trace
    return Summary(len(lines) - 1 if has_details else at, int(passes[1][1]), failed, names)


_TAP_PLAN = re.compile(r"^1\.\.(\d{1,9})(?:\s|$)")
_TAP_POINT = re.compile(r"^(?:not )?ok (\d{1,9})\b")


def _tap(lines: list[str], at: int, plan: re.Match[str]) -> Summary | None:
    """TAP is complete when the last point has the number that the plan announced."""
    point = _last(lines, _TAP_POINT)
    if point is None or int(plan[1]) != int(point[1][1]):
        return None
    failures = _named((line for line in lines if line.startswith("not ok")), _TAP_NAME)
    return Summary(max(at, point[0]), max(int(plan[1]) - len(failures), 0), len(failures), failures)


_CTEST = re.compile(r"^\d+% tests passed, (\d{1,9}) tests? failed out of (\d{1,9})$")
_CTEST_NAME = re.compile(r"^\s+\d+ - (.+?) \([A-Za-z][A-Za-z ]*\)")


def _ctest(lines: list[str], at: int, closing: re.Match[str]) -> Summary:
    failed, total = int(closing[1]), int(closing[2])
    listed = _last(lines[at:], _CTEST_NAME)
    return Summary(at + (listed[0] if listed else 0), total - failed, failed, _named(lines[at:], _CTEST_NAME))


#: Summaries such as `3311 passed, 2 failed`, `passed: 3311 failed: 2` and `3311/3313 passed`.
_PAIR = re.compile(
    r"^.*?\b(\d{1,9}) (?:tests? )?pass(?:ed|ing)?\b\W{1,5}(\d{1,9}) (?:tests? )?fail(?:ed|ing|ures?)?\b"
    r"|^(?i:.*?\bpass(?:ed)?\s*[:=]\s*(\d{1,9})\b.{0,200}?\bfail(?:ed|ures)?\s*[:=]\s*(\d{1,9})\b)"
)
_OUT_OF = re.compile(
    r"^(?:.*\b(?:pass(?:ed)?|results?|ok|tests?:)\W*)?(\d{1,9}) ?/ ?(\d{1,9})(?: (?:tests? )?pass\w*)?\W*$",
    re.IGNORECASE,
)
_PLAIN_NAME = re.compile(r"^\s*(?:FAIL|FAILED|✗|✘|✖)(?:: ?| +)(\S.*)$")


def _pair(lines: list[str], at: int, closing: re.Match[str]) -> Summary:
    passed, failed = (int(number) for number in closing.groups() if number is not None)
    return Summary(at, passed, failed, _named(lines[:at], _PLAIN_NAME))


def _out_of(lines: list[str], at: int, closing: re.Match[str]) -> Summary | None:
    passed, total = int(closing[1]), int(closing[2])
    return Summary(at, passed, total - passed, _named(lines[:at], _PLAIN_NAME)) if passed <= total else None


#: The more specific first: if two runners recognise the same line, the first wins.
RUNNERS = (
    Runner("pytest", _PYTEST, _pytest, re.compile(r"^=+ test session starts =+$")),
    Runner("unittest", _UNITTEST_RAN, _unittest),
    Runner("cargo", _CARGO, _cargo, re.compile(r"^running \d+ tests?$")),
    Runner("go", _GO, _go),
    Runner("jest", _JEST, _jest),
    Runner("vitest", _VITEST, _vitest, re.compile(r"^ *RUN +v\d")),
    Runner("node", _NODE, _node),
    Runner("ctest", _CTEST, _ctest, re.compile(r"^Test project /")),
    Runner("tap", _TAP_PLAN, _tap, re.compile(r"^TAP version \d+$")),
    Runner("plain", _PAIR, _pair),
    Runner("plain", _OUT_OF, _out_of),
)
