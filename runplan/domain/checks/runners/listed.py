"""Reads runners whose summary counts tests in words, such as `8 examples, 2 failures`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias

from runplan.domain.checks.runners.output import Report, Runner, TestState, count_states, match_lines
from runplan.domain.checks.runners.tap import read_points

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
    """The tests that are named, and the sum of all summaries, as each part of a suite has one."""
    tests = list(_number_equal(read_tests(lines)))
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


def _number_equal(tests: Iterable[tuple[str, TestState]]) -> Iterator[tuple[str, TestState]]:
    """The tests; those of equal names, such as in two files, get numbers."""
    seen = Counter[str]()
    for name, state in tests:
        seen[name] += 1
        yield f"{name} ({seen[name]})" if seen[name] > 1 else name, state


def _match_tests(pattern: str, lines: list[str]) -> Iterator[tuple[str, TestState]]:
    """The tests that have a line with the groups `place`, `name` and `state`; without a state they failed."""
    for test in match_lines(lines, re.compile(pattern)):
        parts = test.groupdict()
        name = "::".join(filter(None, (parts.get("place"), parts["name"])))
        yield name, TestState(parts.get("state", "failed").lower())


_MOCHA = re.compile(r"^  \d{1,9} passing \(")
_DETAILS = re.compile(r"^  \d{1,9} failing$")
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
        elif _DETAILS.match(line):
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
_BAD_FILE = re.compile(r"^(\S+) +\(Wstat: ")


def _read_prove(lines: list[str]) -> Iterator[tuple[str, TestState]]:
    """The tests of each file. A file is a test if it names none, or if none of them failed and it did."""
    bad = {file[1] for file in match_lines(lines, _BAD_FILE)}
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
RUNNERS = (
    Runner("mocha", _MOCHA, partial(_read_summaries, _read_tree)),
    Runner("rspec", _RSPEC, partial(_read_summaries, partial(_match_tests, _RSPEC_FAILED))),
    Runner("dotnet", _DOTNET, partial(_read_summaries, partial(_match_tests, _DOTNET_TEST)), _DOTNET_BEGINS),
    Runner("swift", _SWIFT, partial(_read_summaries, partial(_match_tests, _SWIFT_TEST)), _SWIFT_BEGINS),
    Runner("prove", _PROVE, partial(_read_summaries, _read_prove), _PROVE_FILE),
)
