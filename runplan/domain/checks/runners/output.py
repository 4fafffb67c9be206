"""Values and helpers that the readers of test output share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct


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


class Runner(Struct, frozen=True):
    """One test runner: the line of its summary, how to read it, and a line that shows that it began."""

    name: str
    closing: re.Pattern[str]
    read: Callable[[list[str], int, re.Match[str]], Report | None]
    begins: re.Pattern[str] | None = None


def find_last(lines: list[str], pattern: re.Pattern[str]) -> tuple[int, re.Match[str]] | None:
    for number in range(len(lines) - 1, -1, -1):
        if match := pattern.match(lines[number]):
            return number, match
    return None


def match_lines(lines: Iterable[str], pattern: re.Pattern[str]) -> list[re.Match[str]]:
    return [match for line in lines if (match := pattern.match(line))]


def list_failed(lines: Iterable[str], pattern: re.Pattern[str]) -> list[tuple[str, TestState]]:
    """The names in group 1 of the pattern, as failed tests."""
    return [(match[1].strip(), TestState.FAILED) for match in match_lines(lines, pattern)]


def worst_states(tests: Iterable[tuple[str, TestState]]) -> dict[str, TestState]:
    order = (TestState.SKIPPED, TestState.PASSED, TestState.FAILED)
    states: dict[str, TestState] = {}
    for name, state in tests:
        states[name] = max(states.get(name, state), state, key=order.index)
    return states


def count_states(tests: list[tuple[str, TestState]], *, lines_after: int = 0) -> Report:
    numbers = Counter(state for _, state in tests)
    passed, failed, skipped = (numbers[state] for state in TestState)
    return Report(passed=passed, failed=failed, skipped=skipped, tests=tests, lines_after=lines_after)


def read_counts(text: str) -> Counter[str]:
    """`2 failed, 1 passed` and `2 failed | 1 passed` as numbers by word."""
    return Counter({word: int(number) for number, word in re.findall(r"\b(\d{1,9}) ([a-z]+)", text)})
