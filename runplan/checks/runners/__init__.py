"""Readers of test output, by the language of the test runners."""

from __future__ import annotations

from runplan.checks.runners import compiled, javascript, plain, python, tap

#: The more specific first: if two runners recognise the same line, the first wins.
RUNNERS = (
    *(python.PYTEST, python.UNITTEST, compiled.CARGO, compiled.GO, javascript.JEST, javascript.VITEST),
    *(tap.NODE, compiled.CTEST, tap.TAP, plain.PAIR, plain.OUT_OF),
)
