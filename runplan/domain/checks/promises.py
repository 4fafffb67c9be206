"""Judges the base's tests on the new code, and what the new tests prove.

A test function that passed on the base is a promise. It holds when the base's version of it passes on the new code,
however the test was rewritten since. Cases of one function with different parameters are counted.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable

from runplan.domain.checks.results import Results, file_of
from runplan.domain.run.dispatch import NewTestsAnswer
from runplan.domain.run.events import Promise
from runplan.domain.text import name_some

MOST_PROMISES = 20  #: broken promises that are asked about one by one
LONGEST = 200  #: characters of a place's name
SUITE = "the tests of the base"


def function_of(name: str) -> str:
    if subtest := re.match(r"(\S+?\.(?:Test|Example|Fuzz)\w*)/", name):  # `example.com/m/sum.TestAdd/of_two`
        return subtest[1]
    place, mark, last = name.rpartition("::")
    return f"{place}{mark}{last.partition('[')[0]}" if last.endswith("]") else name


def count_cases(names: Iterable[str]) -> Counter[str]:
    return Counter(function_of(name) for name in names)


def find_broken(
    base: Results | None, expected: Counter[str], old: Results, new: Collection[str]
) -> tuple[Promise, ...]:
    """The promises of `expected`, the cases that passed on the base; `new` are those that pass in the new suite."""
    if base is None or not base.passes:  # without names the exit code and the counts decide
        is_red = old.red and not (base is not None and base.red)
        is_less = base is not None and (base.passed or 0) > (old.passed or 0)
        return (Promise(test=SUITE, why=old.line),) if is_red or old.unfinished or is_less else ()
    if expected and not old.ran:
        return (Promise(test=SUITE, why=f"no test was named on the new code: {old.line}"),)
    passing = count_cases(old.passes)
    failures = {function_of(name): name for name in sorted(old.failures)}
    broken: list[Promise] = []
    unloaded: dict[str, list[str]] = {}
    # A failure that is no test of the base is a file or package that could not be loaded.
    strange = ", ".join(name for name in failures if name not in expected)
    for function, count in sorted(expected.items()):
        if passing[function] >= count:
            continue
        place = file_of(function) if file_of(function) in old.failures else strange
        if place and function not in failures and not passing[function]:
            unloaded.setdefault(place[:LONGEST], []).append(function)
            continue
        reason = old.reasons.get(failures.get(function, ""), "it fails") if function in failures else ""
        cases = f"{passing[function]} of {count} cases pass" if passing[function] else "it did not run"
        became = "it passes in its new version" if function in new else "the new suite does not have it"
        broken.append(Promise(test=function, why=f"{reason or cases}; {became}"))
    for place, functions in unloaded.items():
        kept = sum(function in new for function in functions)
        reason = old.reasons.get(place, "it cannot be loaded")
        why = f"{reason}; of its {len(functions)} tests {kept} pass in their new version"
        broken.append(Promise(test=place, why=why))
    if len(broken) > MOST_PROMISES:
        rest = broken[MOST_PROMISES - 1 :]
        last = Promise(test=SUITE, why=f"{len(rest)} more fail: {name_some([promise.test for promise in rest])}")
        return (*broken[: MOST_PROMISES - 1], last)
    return tuple(broken)


def note_dropped(expected: Counter[str], new: Collection[str], *, before: int | None, after: int | None) -> str:
    """The functions that the new suite lacks; where it has no names, the counts of passed tests."""
    if gone := sorted(function for function in expected if function not in new) if new else []:
        return f"not in the new suite: {name_some(gone)}"
    is_fewer = before is not None and after is not None and after < before
    return f"{before} tests passed before the work, {after} after it" if is_fewer else ""


def judge_new_tests(
    added: Collection[str] | None, old: Results, emptied: Results | None = None
) -> tuple[NewTestsAnswer | None, str]:
    """What `added`, the functions that the base did not have, prove; None if they first have to run with emptied code.

    `added` is None where names are not known; then the result of the whole run counts.
    """
    if not added:
        if old.unfinished:
            return NewTestsAnswer.NOT_JUDGED, f"on the base's code {old.unfinished}"
        if old.red:
            doubt = "; without names of tests, one that cannot be loaded counts as well" if added is None else ""
            return NewTestsAnswer.FAILS, f"on the base's code {old.line}{doubt}"
        answer = NewTestsAnswer.HOLLOW if added is None else NewTestsAnswer.NOT_JUDGED
        return answer, "they pass on the base's code, too"
    failing = count_cases(old.failures)
    passing = count_cases(old.passes)
    hollow = [name for name in sorted(added) if passing[name] and not failing[name]]
    unloaded = [name for name in sorted(added) if not passing[name] and not failing[name]]
    if count := len(added) - len(hollow) - len(unloaded):
        passed = f"; these pass there: {name_some(hollow)}" if hollow else ""
        return NewTestsAnswer.FAILS, f"{count} of {len(added)} new tests fail on the base's code{passed}"
    if not unloaded:
        return NewTestsAnswer.HOLLOW, f"no new test fails on the base's code; these pass: {name_some(hollow)}"
    if emptied is None:
        return None, f"they do not run on the base's code: {old.unfinished or 'they cannot be loaded'}"
    failing = count_cases(emptied.failures)
    passing = count_cases(emptied.passes)
    if proving := [name for name in unloaded if failing[name]]:
        return NewTestsAnswer.FAILS_EMPTIED, f"{len(proving)} of {len(added)} new tests"
    if all(passing[name] for name in unloaded):
        passed = name_some(hollow + unloaded)
        return NewTestsAnswer.HOLLOW, f"with all added functions emptied, no new test fails; these pass: {passed}"
    why = emptied.unfinished or "they cannot be loaded"
    return NewTestsAnswer.NOT_JUDGED, f"with all added functions emptied, they do not run, either: {why}"
