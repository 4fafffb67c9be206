"""Judging the base's tests on the new code, and the new tests on the base's code."""

from collections import Counter

import pytest
from msgspec.structs import replace

from runplan.domain.checks.promises import SUITE, count_cases, find_broken, judge_new_tests, note_dropped
from runplan.domain.checks.results import Results, read_results
from runplan.domain.run.dispatch import NewTestsAnswer

FILE = "tests/test_x.py"
A, B = f"{FILE}::test_a", f"{FILE}::test_b"
SUM = "m/s.TestA"
NOT_NEW, IN_NEW = "the new suite does not have it", "it passes in its new version"
UNLOADED_1 = "it cannot be loaded; of its 1 tests 0 pass in their new version"


def ran(*passes: str, failures: tuple[str, ...] = (), reasons: dict[str, str] | None = None) -> Results:
    code = 1 if failures else 0
    named = Results(exit_code=code, runner="pytest", passes=frozenset(passes), failures=frozenset(failures))
    return replace(named, passed=len(passes), failed=len(failures), reasons=reasons or {})


NOT_LOADED = ran("other.py::t", failures=(FILE,), reasons={FILE: "ImportError: no double"})


@pytest.mark.parametrize(
    ("expected", "old", "new", "broken"),
    [
        ({A: 1}, ran(A), {A}, {}),
        ({A: 1}, ran(A), {"tests/test_x.py::test_renamed"}, {}),
        ({A: 2}, ran(f"{A}[12:03]", f"{A}[/tmp/1]"), {A}, {}),
        ({A: 2}, ran(f"{A}[1]"), {A}, {A: f"1 of 2 cases pass; {IN_NEW}"}),
        ({SUM: 3}, ran(SUM, f"{SUM}/of_two"), {SUM}, {SUM: f"2 of 3 cases pass; {IN_NEW}"}),
        ({A: 1, B: 1}, ran(B), {B}, {A: f"it did not run; {NOT_NEW}"}),
        ({A: 1}, ran(B, failures=(A,), reasons={A: "assert 1 == 2"}), {A}, {A: f"assert 1 == 2; {IN_NEW}"}),
        ({A: 1, B: 1}, NOT_LOADED, {A}, {FILE: "ImportError: no double; of its 2 tests 1 pass in their new version"}),
        (
            {"m/sum.TestA": 1, "m/sum.TestB": 1, "m/other.TestC": 1},
            ran("m/other.TestC", failures=("m/sum",)),
            {"m/sum.TestA"},
            {"m/sum": "it cannot be loaded; of its 2 tests 1 pass in their new version"},
        ),
        ({"x.go": 1, A: 1}, ran(failures=("x.go", FILE)), set(), {FILE: UNLOADED_1, "x.go": f"it fails; {NOT_NEW}"}),
        ({A: 2, B: 1}, ran(f"{A}[1]", failures=("l",)), set(), {A: f"1 of 2 cases pass; {NOT_NEW}", "l": UNLOADED_1}),
        ({A: 1, B: 1}, ran(failures=(A, "lib", FILE)), set(), {A: f"it fails; {NOT_NEW}", FILE: UNLOADED_1}),
        ({A: 1}, ran(), {A}, {SUITE: "no test was named on the new code: 0 passed, 0 failed"}),
    ],
    ids=[
        *("kept", "renamed", "other parameters", "fewer cases", "fewer subtests", "gone", "fails", "not loaded"),
        *("a package is not built", "a file fails as a test, another is not loaded"),
        "some cases pass beside a package that is not built",
        *("a test fails beside a file and a package that are not loaded", "no names"),
    ],
)
def test_a_promise_is_broken_when_its_old_version_does_not_pass(
    expected: dict[str, int], old: Results, new: set[str], broken: dict[str, str]
) -> None:
    assert {promise.test: promise.why for promise in find_broken(ran(A), Counter(expected), old, new)} == broken


def test_many_broken_promises_are_few_questions() -> None:
    many = count_cases(f"tests/test_x.py::test_{n}" for n in range(50))
    promises = find_broken(ran(A), many, ran(A), set())
    assert len(promises) == 20
    assert promises[-1].why.startswith("31 more fail: ")


@pytest.mark.parametrize(
    ("base", "old", "is_broken"),
    [
        (ran(A), ran(A), False),
        (ran(A), ran(failures=(A,)), True),
        (ran(A, B), ran(A), True),
        (ran(failures=(A,)), ran(failures=(A,)), False),
    ],
)
def test_without_names_exit_code_and_counts_decide(base: Results, old: Results, is_broken: bool) -> None:
    assert bool(find_broken(replace(base, passes=frozenset()), Counter(), old, set())) is is_broken


def test_tests_that_are_dropped_are_named() -> None:
    assert note_dropped(Counter({A: 1, B: 1}), {B}, before=2, after=1) == f"not in the new suite: {A}"
    assert note_dropped(Counter({A: 1}), set(), before=1, after=None) == ""  # names are not known
    assert note_dropped(Counter({A: 1}), set(), before=3, after=2) == "3 tests passed before the work, 2 after it"


UNLOADED = ran(failures=("tests/test_x.py",))
UNNAMED = "; without names of tests, one that cannot be loaded counts as well"
FAILS, EMPTIED, HOLLOW, NOT_JUDGED = NewTestsAnswer


@pytest.mark.parametrize(
    ("added", "old", "emptied", "answer", "line"),
    [
        ({A, B}, ran(B, failures=(A,)), None, FAILS, f"of 2 new tests fail on the base's code; these pass there: {B}"),
        ({A}, ran(A), None, HOLLOW, f"no new test fails on the base's code; these pass: {A}"),
        ({A}, UNLOADED, None, None, "they do not run on the base's code: they cannot be loaded"),
        ({A, B}, UNLOADED, ran(A, failures=(B,)), EMPTIED, "1 of 2 new tests"),
        ({A}, UNLOADED, ran(A), HOLLOW, f"with all added functions emptied, no new test fails; these pass: {A}"),
        ({A, B}, ran(B), ran(A, failures=(B,)), HOLLOW, f"these pass: {B}, {A}"),  # B tests what was there before
        ({A, B}, UNLOADED, ran(A, failures=("tests/test_x.py",)), NOT_JUDGED, "they do not run, either"),
        (set(), ran(A), None, NOT_JUDGED, "they pass on the base's code, too"),
        (None, ran(A), None, HOLLOW, "they pass on the base's code, too"),
        (None, ran(failures=(A,)), None, FAILS, f"on the base's code 0 passed, 1 failed{UNNAMED}"),
        (None, read_results("", exit_code=None), None, NOT_JUDGED, "did not end by itself"),
    ],
)
def test_new_tests_prove_something_when_one_fails_without_the_change(
    added: set[str] | None, old: Results, emptied: Results | None, answer: NewTestsAnswer | None, line: str
) -> None:
    judged, words = judge_new_tests(added, old, emptied)
    assert judged is answer
    assert line in words
