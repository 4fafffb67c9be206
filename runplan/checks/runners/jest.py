"""Reads the output of jest. With --verbose it names every test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.checks.runners.output import Report, Runner, TestState, counts, last

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLOSING = re.compile(r"^Tests: +(.*\b\d{1,9} total)$|^No tests found, exiting")
_SUITES = re.compile(r"^Test Suites: +(.*\b\d{1,9} total)$")
_FILE = re.compile(r"^ ?(PASS|FAIL) +(?:\./)?(\S+)")
_LINE = re.compile(r"^( {2,})(?:([✓√✕×]|○ skipped|✎ todo) )?(\S.*?)(?: \([\d.,]+ m?s\))?$")
_DETAIL = re.compile(r"^  ● (?!Console$)(.+)$")
_STATES = {**dict.fromkeys("✓√", TestState.PASSED), **dict.fromkeys("✕×", TestState.FAILED)}
_UNLOADABLE = "Test suite failed to run"


def read(lines: list[str], at: int, closing: re.Match[str]) -> Report:
    numbers = counts(closing[1] or "")
    suites = last(lines[:at], _SUITES)
    suite_counts = counts(suites[1][1] if suites else "")
    tests = list(_tests(lines[:at]))
    unloadable = sum(" › " not in name for name in dict(tests))
    return Report(
        end=at,
        passed=numbers["passed"],
        failed=numbers["failed"] + unloadable or suite_counts["failed"],
        skipped=numbers["skipped"] + numbers["todo"],
        tests=tests,
        stopped="jest did not run every test file" if "of" in suite_counts else "",
    )


def _tests(lines: list[str]) -> Iterator[tuple[str, TestState]]:
    """The tests under each file: the tree of --verbose, then the details of failures."""
    file, path, is_tree = "", dict[int, str](), False
    for line in lines:
        if found := _FILE.match(line):
            file, path, is_tree = found[2], {}, True
        elif not line.strip():
            is_tree = False
        elif file and (detail := _DETAIL.match(line)):
            yield (file if detail[1] == _UNLOADABLE else f"{file} › {detail[1].strip()}"), TestState.FAILED
        elif is_tree and (found := _LINE.match(line)):
            indent, mark, name = len(found[1]), found[2], found[3]
            path = {**{depth: suite for depth, suite in path.items() if depth < indent}, indent: name}
            if mark:
                yield " › ".join((file, *path.values())), _STATES.get(mark, TestState.SKIPPED)


RUNNER = Runner("jest", _CLOSING, read, re.compile(r"^ ?(?:PASS|FAIL) +\S+\.[cm]?[jt]sx?\b"))
