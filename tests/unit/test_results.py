"""Test output is believed by its closing summary alone, and judged against the run before the work."""

from __future__ import annotations

import pytest

from runplan.checks.results import (
    GateJudgement,
    GateKind,
    Results,
    baseline_fault,
    compare,
    read_results,
)
from runplan.errors import SettingsError

PYTEST = """\
============================= test session starts ==============================
collected 4 items

tests/test_a.py .F                                                       [ 50%]
=================================== FAILURES ===================================
FAILED tests/inner.py::test_of_an_inner_suite - printed by the test
=========================== short test summary info ============================
FAILED tests/test_a.py::test_two[a - b] - assert 1 == 2
ERROR tests/test_b.py - ImportError: no module
============= 1 failed, 2 passed, 1 skipped, 1 error in 0.12s (0:00:01) ========
"""
UNITTEST = """\
.FE
======================================================================
ERROR: test_e (m.T.test_e)
----------------------------------------------------------------------
Traceback (most recent call last):
======================================================================
FAIL: test_f (m.T.test_f)
----------------------------------------------------------------------
Ran 5 tests in 0.001s

FAILED (failures=1, errors=1, skipped=1)
"""
GO = """\
--- FAIL: TestSum (0.00s)
    --- FAIL: TestSum/negative (0.00s)
        sum_test.go:9: want -1
FAIL
FAIL\texample.com/m/sum\t0.002s
ok  \texample.com/m/ok\t(cached)
?   \texample.com/m/none\t[no test files]
FAIL\texample.com/m/broken [build failed]
FAIL
"""
CARGO = """\
running 2 tests
test tests::works ... ok
test tests::breaks ... FAILED

failures:

failures:
    tests::breaks

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 3 tests
...
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `--lib`
"""
JEST = """\
 FAIL  src/sum.test.js
  ● sums › negative

    expect(received).toBe(expected)

Test Suites: 1 failed, 1 passed, 2 total
Tests:       1 failed, 1 skipped, 2 passed, 4 total
Snapshots:   0 total
Time:        0.5 s
Ran all test suites.
"""
JEST_NO_LOAD = """\
 FAIL  src/sum.test.js
  ● Test suite failed to run

Test Suites: 1 failed, 1 passed, 2 total
Tests:       2 passed, 2 total
"""
VITEST = """\
 RUN  v3.0.0 /project

 FAIL  src/sum.test.ts > sums > negative
AssertionError: expected 1 to be 2

 Test Files  1 failed | 1 passed (2)
      Tests  1 failed | 2 passed (3)
   Start at  10:00:00
   Duration  300ms

 % Coverage report from v8
----------|---------|
File      | % Stmts |
""" + "".join(f" f{n}.ts    |     100 |\n" for n in range(90))
NODE = """\
TAP version 13
not ok 1 - sums
  ---
ok 2 - works
not ok 3 - later # TODO
1..3
# tests 3
# suites 0
# pass 1
# fail 1
# cancelled 0
# skipped 0
# todo 1
"""
NODE_SPEC = """\
✖ sums (1.5ms)
✔ works (0.1ms)
ℹ tests 2
ℹ pass 1
ℹ fail 1
ℹ cancelled 0
ℹ duration_ms 40

✖ failing tests:

✖ sums (1.5ms)
"""
TAP = "TAP version 13\n1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP\n"
CTEST = """\
Test project /project/build
50% tests passed, 1 tests failed out of 2

Total Test time (real) =   0.01 sec

The following tests FAILED:
\t  2 - sums (Failed)
Errors while running CTest
"""


def read(output: str, *, exit_code: int | None = 0, summary: str = "") -> Results:
    return read_results(output, exit_code=exit_code, summary_pattern=summary)


@pytest.mark.parametrize(
    ("output", "runner", "passed", "failed", "failures"),
    [
        (PYTEST, "pytest", 2, 2, {"tests/test_a.py::test_two[a - b]", "tests/test_b.py"}),
        (UNITTEST, "unittest", 2, 2, {"test_e (m.T.test_e)", "test_f (m.T.test_f)"}),
        (
            GO,
            "go",
            None,
            3,
            {"example.com/m/sum.TestSum", "example.com/m/sum.TestSum/negative", "example.com/m/broken"},
        ),
        (CARGO, "cargo", 4, 1, {"tests::breaks"}),
        (JEST, "jest", 2, 1, {"sums › negative"}),
        (JEST_NO_LOAD, "jest", 2, 1, {"src/sum.test.js"}),
        (VITEST, "vitest", 2, 1, {"src/sum.test.ts > sums > negative"}),
        (NODE, "node", 1, 1, {"sums"}),
        (NODE_SPEC, "node", 1, 1, {"sums"}),
        (TAP, "tap", 2, 1, {"b"}),
        (CTEST, "ctest", 1, 1, {"sums"}),
        ("FAIL: one\nresult: 3 passed, 1 failed\n", "plain", 3, 1, {"one"}),
        ("Passed: 3  Failed: 1\n", "plain", 3, 1, set()),
    ],
    ids=[
        "pytest",
        "unittest",
        "go",
        "cargo",
        "jest",
        "jest-no-load",
        "vitest",
        "node",
        "node-spec",
        "tap",
        "ctest",
        "plain",
        "plain-turned",
    ],
)
def test_each_runner_is_read_by_its_closing_summary(
    output: str, runner: str, passed: int | None, failed: int, failures: set[str]
) -> None:
    results = read(output, exit_code=1)
    assert (results.runner, results.passed, results.failed) == (runner, passed, failed)
    assert results.failures == failures
    assert results.finished
    assert results.red


@pytest.mark.parametrize(
    ("output", "runner", "line"),
    [
        ("3 passed in 0.01s\n", "pytest", "3 passed, 0 failed"),
        ("no tests ran in 0.01s\n", "pytest", "0 passed, 0 failed"),
        ("\x1b[32m===== \x1b[1m3 passed\x1b[0m\x1b[32m in 0.01s =====\x1b[0m\n", "pytest", "3 passed, 0 failed"),
        ("Ran 1 test in 0.001s\n\nOK\nmake: done, OK\nOK\n", "unittest", "1 passed, 0 failed"),
        ("ok  \texample.com/m\t0.1s\tcoverage: 80.0% of statements\n", "go", "passed"),
        ("Results: 12/12 passed\n", "plain", "12 passed, 0 failed"),
        ("all fine\n", "", "passed"),
        ("", "", "passed"),
    ],
)
def test_a_green_run_has_a_one_line_summary(output: str, runner: str, line: str) -> None:
    results = read(output)
    assert (results.runner, results.line, results.red) == (runner, line, False)


def test_lines_that_say_pass_are_never_counted() -> None:
    """N10"""
    results = read("PASS: a test\n" * 3313 + "3311/3313\n")
    assert (results.passed, results.failed, results.total) == (3311, 2, 3313)
    assert compare(read("3313/3313\n"), results).kind is GateKind.REGRESSED


@pytest.mark.parametrize(
    ("output", "summary", "why"),
    [
        pytest.param(PYTEST.rpartition("=====\n")[0].partition("====== 1 failed")[0], "", "pytest", id="cut off"),
        pytest.param("running 2 tests\ntest a ... ok\n", "", "cargo", id="cargo cut off"),
        pytest.param(
            "3 passed in 0.1s\n" + "=== test session starts ===\n" * 2, "", "pytest", id="a second suite begun"
        ),
        pytest.param(
            "=== test session starts ===\n3 passed in 0.1s\n" + "more\n" * 60, "", "pytest", id="an inner summary"
        ),
        pytest.param("3 passed in 0.1s\n", "^ALL GREEN$", "tests.summary", id="the configured summary is missing"),
    ],
)
def test_output_without_its_closing_summary_is_unfinished(output: str, summary: str, why: str) -> None:
    results = read(output, summary=summary)
    assert not results.finished
    assert why in results.unfinished
    assert compare(None, results).kind is GateKind.UNFINISHED


@pytest.mark.parametrize("exit_code", [None, -9])
def test_a_command_that_did_not_end_by_itself_is_unfinished(exit_code: int | None) -> None:
    assert not read("3 passed in 0.1s\n", exit_code=exit_code).finished


def test_the_configured_summary_is_enough_to_be_finished() -> None:
    assert read("begin\nALL GREEN\n", summary="^ALL GREEN$").finished


def test_a_summary_that_is_no_regular_expression_names_the_key() -> None:
    with pytest.raises(SettingsError, match=r"\[tests\] summary"):
        read("x", summary="(")


def test_a_coverage_table_after_the_summary_does_not_hide_it() -> None:
    table = "".join(f"src/module_{n}.py     10      0   100%   3-4, 9\n" for n in range(200))
    assert read("3 passed in 0.1s\n" + table).runner == "pytest"


def test_traces_after_the_summary_do_not_hide_it() -> None:
    assert read(NODE_SPEC + "    at somewhere\n" * 100, exit_code=1).failures == {"sums"}
    many = "".join(f"\t  {n} - case{n} (Timeout)\n" for n in range(100))
    assert len(read(f"0% tests passed, 100 tests failed out of 100\n{many}", exit_code=8).failures) == 100


def test_an_ok_before_the_count_closes_nothing() -> None:
    assert read("OK\nRan 1 test in 0.1s\n").runner == ""


def test_a_second_test_binary_that_does_not_close_is_unfinished() -> None:
    assert not read(CARGO + "running 3 tests\ntest a ... ok\n", exit_code=1).finished


def test_subtests_are_distinguished() -> None:
    names = "SUBFAILED(i=0) t.py::test_a - x\nSUBFAILED(i=2) t.py::test_a - x\n"
    output = f"=== short test summary info ===\n{names}2 failed, 1 subtests passed in 0.1s\n"
    assert read(output, exit_code=1).failures == {"SUBFAILED(i=0) t.py::test_a", "SUBFAILED(i=2) t.py::test_a"}


def test_names_printed_by_a_green_run_are_no_failures() -> None:
    assert read("FAIL: test_x (inner.T.test_x)\nRan 1 test in 0.1s\n\nOK\n").failures == frozenset()


# --- against the baseline -----------------------------------------------------------------------------


def results(
    *failures: str, exit_code: int = 0, passed: int | None = 10, failed: int | None = None, runner: str = "pytest"
) -> Results:
    count = len(failures) if failed is None else failed
    return Results(
        exit_code=exit_code, runner=runner, passed=passed, failed=count, failures=frozenset(failures), unfinished=""
    )


def unknown(exit_code: int) -> Results:
    """A command that prints nothing anybody can read."""
    return Results(exit_code=exit_code, runner="", passed=None, failed=None, failures=frozenset())


GREEN = results()
RED = results("a", exit_code=1)


@pytest.mark.parametrize(
    ("baseline", "now", "expected"),
    [
        pytest.param(GREEN, GREEN, GateKind.GREEN, id="green and green"),
        pytest.param(None, GREEN, GateKind.GREEN, id="no baseline, green"),
        pytest.param(None, RED, GateKind.REGRESSED, id="no baseline, red"),
        pytest.param(GREEN, RED, GateKind.REGRESSED, id="a new failure"),
        pytest.param(RED, RED, GateKind.PRE_EXISTING, id="N11"),
        pytest.param(RED, GREEN, GateKind.GREEN, id="mended"),
        pytest.param(RED, results("a", "b", exit_code=1), GateKind.REGRESSED, id="one more failure"),
        pytest.param(RED, results("b", exit_code=1), GateKind.REGRESSED, id="another failure"),
        pytest.param(RED, results("a", exit_code=1, failed=2), GateKind.REGRESSED, id="a failure without a name"),
        pytest.param(GREEN, results(passed=9), GateKind.REGRESSED, id="a test is gone"),
        pytest.param(RED, results("a", exit_code=1, passed=9), GateKind.REGRESSED, id="red as before, a test is gone"),
        pytest.param(GREEN, results(passed=11), GateKind.GREEN, id="a test more"),
        pytest.param(GREEN, results(failed=2), GateKind.REGRESSED, id="exit 0 with failures in the summary"),
        pytest.param(GREEN, results(exit_code=2), GateKind.REGRESSED, id="red without a failed test"),
        pytest.param(GREEN, unknown(0), GateKind.UNFINISHED, id="the summary is lost"),
        pytest.param(GREEN, unknown(1), GateKind.UNFINISHED, id="red and the summary is lost"),
        pytest.param(GREEN, results(runner="unittest", passed=3), GateKind.UNFINISHED, id="an inner suite's summary"),
        pytest.param(GREEN, results(runner="unittest", passed=12), GateKind.GREEN, id="another runner"),
        pytest.param(unknown(0), unknown(0), GateKind.GREEN, id="nothing known, green"),
        pytest.param(unknown(0), unknown(1), GateKind.REGRESSED, id="nothing known, red"),
        pytest.param(unknown(1), unknown(1), GateKind.BASELINE_RED, id="nothing known, always red"),
        pytest.param(unknown(1), unknown(0), GateKind.BASELINE_RED, id="a baseline that proves nothing"),
        pytest.param(read("", exit_code=None), GREEN, GateKind.BASELINE_RED, id="a baseline that did not finish"),
    ],
)
def test_results_are_judged_against_the_baseline(baseline: Results | None, now: Results, expected: GateKind) -> None:
    assert compare(baseline, now).kind is expected


@pytest.mark.parametrize(
    ("baseline", "now", "expected"),
    [
        pytest.param(unknown(1), unknown(1), GateKind.PRE_EXISTING, id="always red"),
        pytest.param(unknown(1), unknown(0), GateKind.GREEN, id="mended"),
        pytest.param(
            results(exit_code=1, failed=2), results(exit_code=1, failed=3), GateKind.REGRESSED, id="more fail"
        ),
        pytest.param(RED, results("b", exit_code=1), GateKind.REGRESSED, id="names still count"),
    ],
)
def test_a_red_baseline_may_be_allowed(baseline: Results, now: Results, expected: GateKind) -> None:
    assert compare(baseline, now, allow_red_baseline=True).kind is expected


def test_fewer_tests_may_be_allowed_by_the_plan() -> None:
    assert compare(GREEN, results(passed=9), fewer_allowed=True) == GateJudgement(GateKind.GREEN)


def test_the_judgement_names_what_regressed_and_what_failed_before() -> None:
    assert compare(RED, results("a", "c", "b", exit_code=1)) == GateJudgement(
        GateKind.REGRESSED, names=("b", "c"), why="2 tests fail that did not fail before"
    )
    assert compare(RED, RED) == GateJudgement(GateKind.PRE_EXISTING, names=("a",))


@pytest.mark.parametrize(
    ("baseline", "usable"), [(GREEN, True), (RED, True), (unknown(1), False), (read("", exit_code=None), False)]
)
def test_a_baseline_is_usable_when_it_finished_and_names_its_failures(baseline: Results, usable: bool) -> None:
    assert (baseline_fault(baseline) == "") is usable
