"""Test output is believed by its closing summary alone, and judged against the run before the work."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from runplan.domain.checks.results import (
    Comparison,
    GateKind,
    Results,
    baseline_fault,
    compare_results,
    from_text,
    read_results,
    rerun_command,
    to_text,
)
from runplan.domain.checks.runners.naming import ask_for_names, foresee_unnamed
from runplan.domain.errors import SettingsError

SAMPLES = Path(__file__).parents[1] / "runners"  #: captured output, by runner; `<case>.<exit code>.txt`
CUT_OFF = (SAMPLES / "pytest" / "failing.1.txt").read_text().rpartition("========== 1 failed")[0]
CARGO = (SAMPLES / "cargo" / "failing-all.101.txt").read_text()
NODE_SPEC = (SAMPLES / "node" / "failing.1.txt").read_text()

ERROR, WRONG = "test_sums.py::test_error", "test_sums.py::test_wrong"
PHP = "/project/phpunit/tests/SumsTest.php"
RSPEC = {"spec/other_spec.rb::other broken cannot", "spec/sums_spec.rb::sums is wrong"}

EXPECTED = dict(re.findall(r"^(\S+) => (.*)$", (SAMPLES / "expected.txt").read_text(encoding="utf-8"), re.MULTILINE))
STOPPED = {name: told.removeprefix("unfinished: ") for name, told in EXPECTED.items() if "unfinished: " in told}


def read(output: str, *, exit_code: int | None = 0, summary: str = "") -> Results:
    return read_results(output, exit_code=exit_code, summary_pattern=summary)


def sample(name: str) -> Results:
    code = int(name.rpartition(".")[2])
    return read((SAMPLES / f"{name}.txt").read_text(), exit_code=code)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in STOPPED])
def test_each_runner_is_read_by_its_closing_summary(name: str) -> None:
    results = sample(name)
    assert (results.runner, results.unfinished) == (name.partition("/")[0], "")
    passed = "-" if results.passed is None else results.passed
    named = " named" if results.passes else ""
    told = [f"{passed} {results.failed} {results.skipped}{named}", *sorted(results.failures)]
    assert " | ".join(told) == EXPECTED[name]
    assert results.red is not name.endswith(".0")


@pytest.mark.parametrize(("name", "why"), STOPPED.items())
def test_a_suite_that_stopped_early_is_unfinished(name: str, why: str) -> None:
    assert sample(name).unfinished == why


def test_the_failures_of_a_quiet_cargo_are_those_that_it_lists() -> None:
    results = read(re.sub("(?m)^test (?!result).*\n", "", CARGO), exit_code=101)
    assert (results.failed, results.failures) == (1, frozenset({"wrong"}))


def test_every_sample_is_read() -> None:
    files = {f"{path.parent.name}/{path.name.removesuffix('.txt')}" for path in SAMPLES.glob("*/*.txt")}
    assert files == EXPECTED.keys()


def test_names_have_their_file_and_suite_and_no_time() -> None:
    assert sample("mocha/passing.0").passes >= {"top level", "other adds", "sums deep adds more"}
    assert sample("mocha/cypress.0").passes >= {"sums.cy.js: sums adds", "other.cy.js: sums adds"}
    assert sample("prove/verbose.0").passes >= {"t/sums.t::deep › is two", "t/more/other.t::test 2"}
    assert sample("swift/passing.0").passes == {"SumsTests.testAdds", "adds()", '"adds more"'}
    assert sample("jest/verbose.0").passes >= {"sums.test.js › sums › deep › adds more", "other.test.js › top level"}
    assert sample("vitest/verbose.0").passes >= {"src/sums.test.ts > sums > deep > adds more"}
    assert sample("node/passing.0").passes == sample("node/passing-tap.0").passes == {"adds", "sums › adds more"}
    assert sample("cargo/passing.0").passes == {"src/lib.rs::tests::adds", "tests/api.rs::adds", "sums::src/lib.rs -"}
    methods = ("test_adds", "test_more")
    assert sample("unittest/verbose.0").passes == {f"{name} (test_u.Sums.{name})" for name in methods}
    assert sample("go/passing.0").passes == {"example.com/m/sum", "example.com/m/other"}


@pytest.mark.parametrize(
    ("file", "counts", "failures", "named"),
    [
        ("pytest", (4, 2, 2), {"test_sums::test_error", "test_sums::test_wrong"}, True),
        ("vitest", (6, 2, 2), {"src/broken.test.ts", "src/sums.test.ts::more > is wrong"}, True),
        ("ctest", (1, 3, 1), {"dies", "slow", "wrong"}, True),
        ("jest", (6, 2, 2), {" todo one", "more is wrong"}, False),  # two files have tests of the same name
    ],
)
def test_junit_files_are_read_in_place_of_the_output(
    file: str, counts: tuple[int, int, int], failures: set[str], named: bool
) -> None:
    text = (SAMPLES / "junit" / f"{file}.xml").read_text()
    results = read_results("3 passed in 0.1s\n", exit_code=1, junit=[text])
    assert (results.runner, results.passed, results.failed, results.skipped) == ("junit", *counts)
    assert results.failures == failures
    assert bool(results.passes) is named


SUMS = {"testAdds", 'testMore with data set "one"', "testMore with data set #0"}


@pytest.mark.parametrize(
    ("runner", "file", "printed", "passes", "failures"),
    [
        ("phpunit", "phpunit.xml", "Tests: 7, Assertions: 4, Errors: 1.", {f"{PHP}::{name}" for name in SUMS},
         {f"{PHP}::testWrong", f"{PHP}::testError"}),
        ("rspec", "rspec.json", "8 examples, 2 failures, 2 pending",
         {"spec/other_spec.rb::other adds", "spec/sums_spec.rb::sums adds", "spec/sums_spec.rb::sums deep adds more",
          "spec/sums_spec.rb::sums deep is expected to eq 3"}, RSPEC),
        ("rspec", "rspec.json", "9 examples, 2 failures, 2 pending", set(), set()),  # of another process
        ("behave", "behave.xml", "1 scenario passed, 1 failed, 1 error, 0 skipped", {"other.Other::adds"},
         {"other.Other::is wrong", "other.Other::is unknown"}),
        ("cucumber", "cucumber.xml", "7 scenarios (1 failed, 1 undefined, 5 passed)",
         {"Other::adds", "Sums::adds", "Sums::later", *(f"Sums::adds <n> - #1.{n}: adds {n}" for n in (1, 2))},
         {"Other::is wrong", "Other::is unknown"}),
    ],
)  # fmt: skip
def test_names_are_read_from_the_file_that_a_runner_was_asked_for(
    runner: str, file: str, printed: str, passes: set[str], failures: set[str]
) -> None:
    text = (SAMPLES / "junit" / file).read_text()
    results = read_results(f"{printed}\n", exit_code=1, names={runner: [text]})
    assert (results.runner, set(results.passes), set(results.failures)) == (runner, passes, failures)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("vendor/bin/phpunit tests", "vendor/bin/phpunit --log-junit /o/phpunit.xml tests"),
        ("npx cucumber-js", "npx cucumber-js --format junit:/o/cucumber.xml"),
        (".venv/bin/python -m behave", ".venv/bin/python -m behave --junit --junit-directory /o"),
        ("yarn jest src", "yarn jest --verbose src"),
        ("dotnet test -c Release", "dotnet test --logger 'console;verbosity=normal' -c Release"),
        ("PYTHONPATH=src python3 -m unittest", "PYTHONPATH=src python3 -m unittest -v"),
        ("make behave", "make behave"),
        ("phpunit && make lint", "phpunit && make lint"),
        ("npm test", "npm test"),
    ],
)
def test_an_option_asks_for_names_where_the_command_shows_its_runner(line: str, asked: str) -> None:
    exports, _, last = ask_for_names(line, "/o").rpartition("\n")
    assert last == asked
    assert [export.partition("=")[0] for export in exports.splitlines()] == [
        *("export PYTEST_ADDOPTS", "export SPEC_OPTS", "export HARNESS_VERBOSE")
    ]


def test_further_options_of_pytest_are_added_to_its_variable() -> None:
    plain, more = (ask_for_names("pytest", "/o", options).splitlines()[0] for options in ("", "-x"))
    assert more == f"{plain[:-1]} -x'"


@pytest.mark.parametrize(
    ("line", "recipe", "is_named"),
    [
        ("python3 -m pytest -q", "", True),
        ("make test", "test:\n\tnpx mocha test\n", True),
        ("npm test", '{"scripts": {"test": "jest"}}', False),
        ("npm test", '{"scripts": {"test": "jest --verbose"}}', True),
        ("jest", "", True),
        ("python3 -m unittest", "", True),
        ("go test ./...", "", False),
        ("go test -v ./...", "", True),
        ("sh check.sh", "for file in tests/*; do sh $file; done", False),
        ("sbt test", "", False),
    ],
)
def test_names_are_foreseen_by_the_command_and_the_files_that_it_runs(line: str, recipe: str, is_named: bool) -> None:
    read = {"Makefile": recipe, "package.json": recipe, "check.sh": recipe}
    assert (foresee_unnamed(line, (), lambda path: read.get(path, "").encode()) == "") is is_named


JUNIT_OF_PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="tests.test_sums.TestSums" name="test_adds" file="tests/test_sums.py" line="3" />
<testcase classname="tests.test_sums.MoreSums" name="test_inherited" file="tests/checks.py" line="5" />
<testcase classname="tests.test_sums" name="test_more[1-a]" file="tests/test_sums.py" line="9" />
<testcase classname="tests.test_sums" name="test_bad" file="tests/test_sums.py" line="12">
<failure message="AssertionError: assert 1 == 2&#10;more">trace</failure></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("printed", "is_known"),
    [
        ("1 failed, 3 passed in 0.1s", True),
        ("1 failed, 2 passed, 1 xpassed in 0.1s", True),
        ("1 failed, 9 passed in 0.1s", False),
    ],
)
def test_the_names_that_pytest_writes_for_us_count_beside_its_own_summary(printed: str, is_known: bool) -> None:
    results = read_results(f"==== {printed} ====\n", exit_code=1, names={"pytest": [JUNIT_OF_PYTEST]})
    of_classes = {"tests/test_sums.py::TestSums::test_adds", "tests/test_sums.py::MoreSums::test_inherited"}
    names = of_classes | {"tests/test_sums.py::test_more[1-a]"}
    assert results.passes == (names if is_known else frozenset())
    assert results.reasons == ({"tests/test_sums.py::test_bad": "AssertionError: assert 1 == 2"} if is_known else {})


@pytest.mark.parametrize(
    "failure",
    ['<failure message="1 is not 2">more</failure>', "<failure>T::test_a\n\n 1 is not 2\n</failure>"],
    ids=["message", "text, as of PHPUnit"],
)
def test_the_reason_of_a_failure_is_its_message_or_its_first_line(failure: str) -> None:
    text = f'<testsuite><testcase classname="T" name="test_a">{failure}</testcase></testsuite>'
    assert read_results("", exit_code=1, junit=[text]).reasons == {"T::test_a": "1 is not 2"}


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([], "no file matches tests.junit"),
        (["<testsuite><testcase"], "a JUnit file is no XML"),
        (['<!DOCTYPE a [<!ENTITY b "c">]><testsuite/>'], "declares entities"),
    ],
)
def test_junit_files_that_are_missing_or_broken_are_unfinished(texts: list[str], why: str) -> None:
    assert why in read_results("3 passed in 0.1s\n", exit_code=0, junit=texts).unfinished


COVERAGE = "".join(f"src/module_{n}.py     10      0   100%   3-4, 9\n" for n in range(200))
COLOURED = "\x1b[32m===== \x1b[1m3 passed\x1b[0m\x1b[32m in 0.01s =====\x1b[0m\n"
SUBTESTS = "=== short test summary info ===\nSUBFAILED(i=0) t.py::a - x\nSUBFAILED(i=2) t.py::a - x\n"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("FAIL: one\nresult: 3 passed, 1 failed\n", "plain: 3 passed, 1 failed (one)"),
        ("Passed: 3  Failed: 1\n", "plain: 3 passed, 1 failed"),
        ("3 passed in 0.01s\n", "pytest: 3 passed, 0 failed"),
        ("3 passed in 0.1s\n" + COVERAGE, "pytest: 3 passed, 0 failed"),
        ("no tests ran in 0.01s\n", "pytest: 0 passed, 0 failed"),
        (COLOURED, "pytest: 3 passed, 0 failed"),
        (SUBTESTS + "2 failed, 1 subtests passed in 0.1s\n",
         "pytest: 0 passed, 2 failed (SUBFAILED(i=0) t.py::a, SUBFAILED(i=2) t.py::a)"),
        ("Ran 1 test in 0.001s\n\nOK\nmake: done, OK\nOK\n", "unittest: 1 passed, 0 failed"),
        ("FAIL: test_x (inner.T.test_x)\nRan 1 test in 0.1s\n\nOK\n", "unittest: 1 passed, 0 failed"),
        ("OK\nRan 1 test in 0.1s\n", ": passed"),
        ("ok  \texample.com/m\t0.1s\tcoverage: 80.0% of statements\n", "go: passed"),
        ("TAP version 13\nok 1 - a\nok 2 - b\n1..2\n", "tap: 2 passed, 0 failed"),
        ("1..2\nok 1 - a\nok 2 - b\n", "tap: 2 passed, 0 failed"),
        ("Results: 12/12 passed\n", "plain: 12 passed, 0 failed"),
        ("all fine\n", ": passed"),
        ("", ": passed"),
    ],
)  # fmt: skip
def test_output_is_read_by_its_closing_summary_in_one_line(output: str, expected: str) -> None:
    is_red = "failed" in expected and "0 failed" not in expected
    results = read(output, exit_code=int(is_red))
    failures = f" ({', '.join(sorted(results.failures))})" if results.failures else ""
    assert f"{results.runner}: {results.line}{failures}" == expected
    assert results.red is is_red


def test_the_configured_summary_may_name_the_counts() -> None:
    results = read("ok=3 bad=0\nok=5 bad=1\n1 passed, 0 failed\n", summary=r"ok=(?P<passed>\d+) bad=(?P<failed>\d+)")
    assert (results.runner, results.passed, results.failed, results.red) == ("summary", 5, 1, True)


def test_lines_that_say_pass_are_never_counted() -> None:
    """N10"""
    results = read("PASS: a test\n" * 3313 + "3311/3313\n")
    assert (results.passed, results.failed) == (3311, 2)
    assert compare_results(read("3313/3313\n"), results).kind is GateKind.REGRESSED


BEGUN = "=== test session starts ===\n"


@pytest.mark.parametrize(
    ("output", "summary", "why"),
    [
        pytest.param(CUT_OFF, "", "pytest", id="cut off"),
        pytest.param("running 2 tests\ntest a ... ok\n", "", "cargo", id="cargo cut off"),
        pytest.param("3 passed in 0.1s\n" + BEGUN * 2, "", "pytest", id="a second suite begun"),
        pytest.param(f"{BEGUN}3 passed in 0.1s\n" + "more\n" * 60, "", "pytest", id="an inner summary"),
        pytest.param("3 passed in 0.1s\n", "^ALL GREEN$", "tests.summary", id="the configured summary is missing"),
    ],
)
def test_output_without_its_closing_summary_is_unfinished(output: str, summary: str, why: str) -> None:
    results = read(output, summary=summary)
    assert why in results.unfinished
    assert compare_results(None, results).kind is GateKind.UNFINISHED
    assert not read("begin\nALL GREEN\n", summary="^ALL GREEN$").unfinished


def test_a_second_test_binary_that_does_not_close_is_unfinished() -> None:
    assert read(CARGO + "running 3 tests\ntest a ... ok\n", exit_code=1).unfinished


@pytest.mark.parametrize("exit_code", [None, -9])
def test_a_command_that_did_not_end_by_itself_is_unfinished(exit_code: int | None) -> None:
    assert read("3 passed in 0.1s\n", exit_code=exit_code).unfinished


def test_a_summary_that_is_no_regular_expression_names_the_key() -> None:
    with pytest.raises(SettingsError, match=r"\[tests\] summary"):
        read("x", summary="(")


def test_traces_after_the_summary_do_not_hide_it() -> None:
    assert read(NODE_SPEC + "    at somewhere\n" * 100, exit_code=1).failures == {"is wrong"}
    mocha = (SAMPLES / "mocha" / "failing.2.txt").read_text() + "      at somewhere\n" * 100
    assert read(mocha, exit_code=2).failed
    many = "".join(f"\t  {n} - case{n} (Timeout)\n" for n in range(100))
    assert len(read(f"0% tests passed, 100 tests failed out of 100\n{many}", exit_code=8).failures) == 100


def test_lines_that_a_test_prints_and_equal_names_do_not_mix_up_the_tree_of_mocha() -> None:
    printed = '\n\n  sums\n{\n  "at": 12:30\n}\n    ✔ adds (3ms)\n    ✔ adds\n\n\n  2 passing (4ms)\n\n'
    assert read(printed).passes == {"sums adds", "sums adds (2)"}


def test_a_test_that_passes_and_fails_has_failed() -> None:
    """Its teardown raised an error."""
    block = "=== short test summary info ===\nERROR t.py::test_a - x\n"
    found = read(f"t.py::test_a PASSED [100%]\n{block}1 passed, 1 error in 0.1s\n", exit_code=1)
    assert (sorted(found.failures), sorted(found.passes)) == (["t.py::test_a"], [])


def test_a_line_of_the_console_below_the_tree_of_jest_is_no_test() -> None:
    text = (SAMPLES / "jest/verbose.0.txt").read_text().replace("\n\nPASS", "\n\n  ✓ printed\n\nPASS")
    assert read(text).passes == sample("jest/verbose.0").passes


# --- against the baseline -----------------------------------------------------------------------------


def results(
    *failures: str, exit_code: int = 0, passed: int | None = 10, failed: int | None = None, runner: str = "pytest"
) -> Results:
    count = len(failures) if failed is None else failed
    return Results(exit_code=exit_code, runner=runner, passed=passed, failed=count, failures=frozenset(failures))


def unknown(exit_code: int) -> Results:
    """A command that prints nothing anybody can read."""
    return Results(exit_code=exit_code, runner="", passed=None, failed=None, failures=frozenset())


GREEN, RED = results(), results("a", exit_code=1)


@pytest.mark.parametrize(
    ("baseline", "now", "expected"),
    [
        pytest.param(GREEN, GREEN, GateKind.GREEN, id="green and green"),
        pytest.param(None, GREEN, GateKind.GREEN, id="no baseline, green"),
        pytest.param(None, RED, GateKind.REGRESSED, id="no baseline, red"),
        pytest.param(GREEN, RED, GateKind.REGRESSED, id="a new failure"),
        pytest.param(RED, RED, GateKind.PRE_EXISTING, id="N11"),
        pytest.param(RED, GREEN, GateKind.GREEN, id="mended"),
        pytest.param(RED, results("b", exit_code=1), GateKind.REGRESSED, id="another failure"),
        pytest.param(RED, results("a", exit_code=1, failed=2), GateKind.REGRESSED, id="a failure without a name"),
        pytest.param(GREEN, results(passed=9), GateKind.MISSING, id="a test is gone"),
        pytest.param(RED, results("a", exit_code=1, passed=9), GateKind.MISSING, id="red as before, a test is gone"),
        pytest.param(GREEN, results(passed=11), GateKind.GREEN, id="a test more"),
        pytest.param(GREEN, results(failed=2), GateKind.REGRESSED, id="exit 0 with failures in the summary"),
        pytest.param(GREEN, results(exit_code=2), GateKind.REGRESSED, id="red without a failed test"),
        pytest.param(GREEN, unknown(0), GateKind.UNFINISHED, id="the summary is lost"),
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
    assert compare_results(baseline, now).kind is expected


@pytest.mark.parametrize(
    ("baseline", "now", "expected"),
    [
        pytest.param(unknown(1), unknown(1), GateKind.PRE_EXISTING, id="always red"),
        pytest.param(unknown(1), unknown(0), GateKind.GREEN, id="mended"),
        pytest.param(results(exit_code=1, failed=2), results(exit_code=1, failed=3), GateKind.REGRESSED, id="more"),
        pytest.param(RED, results("b", exit_code=1), GateKind.REGRESSED, id="names still count"),
    ],
)
def test_a_red_baseline_may_be_allowed(baseline: Results, now: Results, expected: GateKind) -> None:
    assert compare_results(baseline, now, allow_red_baseline=True).kind is expected


def test_fewer_tests_are_left_to_the_proof_where_test_files_changed() -> None:
    fewer = results(passed=9)
    assert compare_results(GREEN, fewer, changed=("tests/test_a.py",)) == Comparison(kind=GateKind.GREEN)
    assert compare_results(GREEN, fewer).why == "1 fewer passed than before the work"


def listed(*passes: str, failures: tuple[str, ...] = ()) -> Results:
    count = len(passes)
    return replace(results(*failures, exit_code=int(bool(failures)), passed=count), passes=frozenset(passes))


BEFORE = listed("tests/a.py::test_1", "tests/a.py::test_2", "tests/b.py::test_3[x]", failures=("tests/a.py::test_4",))


@pytest.mark.parametrize(
    ("now", "allows", "missing"),
    [
        pytest.param(BEFORE, "", (), id="the same"),
        pytest.param(listed("tests/a.py::test_1", "tests/a.py::test_2", "tests/b.py::test_3[x]", "n::n"), "",
                     ("tests/a.py::test_4",), id="a failing test removed"),
        pytest.param(listed(*BEFORE.ran - {"tests/a.py::test_1"}, "tests/a.py::test_9"), "",
                     ("tests/a.py::test_1",), id="replaced by another one"),
        pytest.param(listed(*BEFORE.ran - {"tests/a.py::test_1"}, "tests/c.py::test_1"), "", (), id="moved"),
        pytest.param(listed(*BEFORE.ran - {"tests/b.py::test_3[x]"}, "tests/b.py::test_3[y]"), "", (), id="parameter"),
        pytest.param(listed(*BEFORE.ran - {"tests/a.py::test_1"}), "tests/a.py", (), id="allowed"),
        pytest.param(listed(*BEFORE.ran - {"tests/a.py::test_1"}), "tests/b.py", ("tests/a.py::test_1",),
                     id="another file allowed"),
        pytest.param(listed(), "", tuple(sorted(BEFORE.ran)), id="all"),
    ],
)  # fmt: skip
def test_tests_that_ran_before_are_missing_by_name(now: Results, allows: str, missing: tuple[str, ...]) -> None:
    found = compare_results(BEFORE, now, allows=(allows,) if allows else ())
    assert found.missing == missing
    assert (found.kind is GateKind.MISSING) is bool(missing)


def test_a_missing_test_of_a_changed_file_is_left_to_the_proof() -> None:
    found = compare_results(BEFORE, listed("n::n"), changed=("tests/a.py",))
    assert found.missing == ("tests/b.py::test_3[x]",)


@pytest.mark.parametrize(
    ("was", "now", "new"),
    [
        (BEFORE, listed(*BEFORE.passes, "n::n", failures=("f::f",)), ("f::f", "n::n")),
        (BEFORE, listed(failures=("f::f",)), ()),
        (listed(failures=("f::f",)), listed("n::n", failures=("f::f",)), ()),
    ],
    ids=["named", "passes are not named now", "passes were not named before"],
)
def test_tests_are_new_where_both_suites_name_them(was: Results, now: Results, new: tuple[str, ...]) -> None:
    assert compare_results(was, now, allow_red_baseline=True).new == new


def test_a_failure_counts_although_the_suite_stopped_there() -> None:
    for name in ("go/crashed.1", "go/crashed-json.1", "go/exited.1", "cargo/failing.101", "cargo/coloured.101"):
        assert sample(name).failures, name
        assert compare_results(sample(f"{name.partition('/')[0]}/passing.0"), sample(name)).kind is GateKind.REGRESSED


def test_a_package_of_go_that_fails_is_not_missing() -> None:
    before, now = sample("go/passing.0"), sample("go/failing.2")
    assert compare_results(before, now).missing == ()
    assert compare_results(before, sample("go/empty.0")).missing == ("example.com/m/other", "example.com/m/sum")


def test_the_comparison_names_every_kind_of_difference() -> None:
    now = listed("tests/a.py::test_1", "tests/a.py::test_4", "tests/c.py::test_5", failures=("tests/a.py::test_2",))
    found = compare_results(BEFORE, now)
    assert found.noted() == (
        ("regressed", 1, ("tests/a.py::test_2",)),
        ("missing", 1, ("tests/b.py::test_3[x]",)),
        ("fixed", 1, ("tests/a.py::test_4",)),
        ("new", 1, ("tests/c.py::test_5",)),
    )
    assert (found.kind, found.why) == (GateKind.REGRESSED, "1 test fails that did not fail before")
    many = listed(*(f"t::test_{n}" for n in range(100)))
    assert [(kind, count, len(names)) for kind, count, names in compare_results(many, listed("x::y")).noted()] == [
        ("missing", 100, 20), ("new", 1, 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("failed", "why"), [(None, "exit code 3"), (0, "exit code 3"), (2, "exit code 3; 2 failed, 1 named")]
)
def test_failures_without_names_are_counted(failed: int | None, why: str) -> None:
    names = frozenset(["a"]) if failed else frozenset[str]()
    was = Results(exit_code=0, runner="", failures=names)
    now = Results(exit_code=3, runner="", failed=failed, failures=names)
    assert compare_results(was, now).why == why


def test_a_suite_that_stops_at_a_new_failure_has_regressed() -> None:
    before, now = sample("pytest/passing.0"), sample("pytest/stopped.1")
    assert compare_results(before, now).regressed == (WRONG,)
    known = Results(exit_code=1, runner="pytest", passed=4, failed=1, failures=now.failures)
    assert compare_results(known, now).kind is GateKind.UNFINISHED


@pytest.mark.parametrize(
    ("command", "name", "expected"),
    [
        ("pytest -q", "pytest/failing.1", f"pytest -q {ERROR} {WRONG}"),
        ("python3 -m pytest", "pytest/failing.1", f"python3 -m pytest {ERROR} {WRONG}"),
        ("ctest --test-dir build", "ctest/failing.8", "ctest --test-dir build --rerun-failed"),
        ("pytest tests/unit", "pytest/failing.1", ""),
        ("make test", "pytest/failing.1", ""),
        ("pytest && true", "pytest/failing.1", ""),
        ("pytest", "pytest/stopped.1", ""),
        ("pytest", "pytest/passing.0", ""),
        ("pytest", "unittest/failing.1", ""),
        ("make", "ctest/failing.8", ""),
    ],
)
def test_only_the_failed_tests_run_again_where_that_is_possible(command: str, name: str, expected: str) -> None:
    assert rerun_command(command, sample(name)) == expected


def test_the_judgement_names_what_regressed_and_what_failed_before() -> None:
    found = compare_results(RED, results("a", "c", "b", exit_code=1))
    assert (found.kind, found.why) == (GateKind.REGRESSED, "2 tests fail that did not fail before")
    assert (found.regressed, found.pre_existing) == (("b", "c"), ("a",))
    assert compare_results(RED, RED) == Comparison(kind=GateKind.PRE_EXISTING, pre_existing=("a",))


@pytest.mark.parametrize(
    ("baseline", "usable"), [(GREEN, True), (RED, True), (unknown(1), False), (read("", exit_code=None), False)]
)
def test_a_baseline_is_usable_when_it_finished_and_names_its_failures(baseline: Results, usable: bool) -> None:
    assert (baseline_fault(baseline) == "") is usable


@pytest.mark.parametrize(
    ("results", "line"),
    [
        (Results(exit_code=0, runner="", passed=3, skipped=1), "3 passed, 0 failed, 1 skipped"),
        (Results(exit_code=1, runner="", passed=3, failed=2, skipped=0), "3 passed, 2 failed"),
        (Results(exit_code=1, runner="", failed=2), "2 failed"),
        (Results(exit_code=1, runner=""), "failed"),
        (Results(exit_code=0, runner=""), "passed"),
        (Results(exit_code=0, runner="", passed=3, unfinished="it stopped"), "it stopped"),
    ],
)
def test_results_have_one_line(results: Results, line: str) -> None:
    assert results.line == line


def test_the_names_of_passes_are_kept_for_the_table_of_baselines_alone() -> None:
    known = Results(runner="pytest", exit_code=0, passed=2, passes=frozenset({"a.py::test_a", "b.py::test_b"}))
    assert from_text(to_text(known)) == known
    assert from_text(to_text(known, passes=False)) == replace(known, passes=frozenset())
