"""Readers of test output, one module per test runner."""

from __future__ import annotations

from runplan.checks.runners import cargo, ctest, go, jest, plain, pytest, tap, unittest, vitest

#: The more specific first: if two runners recognise the same line, the first wins.
RUNNERS = (
    pytest.RUNNER,
    unittest.RUNNER,
    cargo.RUNNER,
    go.RUNNER,
    jest.RUNNER,
    vitest.RUNNER,
    tap.NODE,
    ctest.RUNNER,
    tap.TAP,
    plain.PAIR,
    plain.OUT_OF,
)
