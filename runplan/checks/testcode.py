"""Reads the tests in a source file, and finds out whether a later version of it tests less.

Python, JavaScript, TypeScript, Go and Rust are meant; tests of other languages are found by the same words. Sources are
foreign text: repetitions in expressions are bounded or possessive, so that a search takes linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A comment or string that is not closed runs to its end, or each quote would be a search through all of the rest.
_STRING = r"\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?"
_HASH_COMMENTS = re.compile(
    rf"(\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*+(?:\"\"\")?|'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?)|{_STRING}|(#[^\n]*+)",
    re.DOTALL,
)
_SLASH_COMMENTS = re.compile(rf"(/\*(?:[^*]|\*(?!/))*+(?:\*/)?)|{_STRING}|`(?:[^`\\]|\\.)*+`?|(//[^\n]*+)", re.DOTALL)
_HASH_FILES = (".py", ".pyi", ".rb", ".sh", ".bats", ".exs", ".toml", ".yml", ".yaml", ".cfg", ".ini")

_ATTRIBUTES = r"(?:#\[[^\]]{0,300}\]\s*+){0,8}"
_TABLE = r"(?:\((?:[^()]|\([^()]{0,200}\)){0,1500}+\))"  # of it.each
_QUOTED = r"(?:\"([^\"\n]++)|'([^'\n]++)|`([^`\n]++))"
_JS = r"\b[xf]?(?:it|test|specify|scenario)"
_NAME = re.compile(
    r"^[ \t]*+(?:async\s++)?def\s++(test\w*)"  # Python
    r"|^class\s++(Test\w*+|\w++(?=\([^)\n]{0,200}TestCase))"
    r"|^[ \t]*+func\s++(?:\([^)\n]{0,200}\)\s*+)?((?:Test|Fuzz)\w*+)\("  # Go
    rf"|{_JS}(?:\.\w{{1,40}}{_TABLE}?){{0,4}}\(\s*+{_QUOTED}"  # JavaScript
    rf"|^[ \t]*+(?:it|test|specify|scenario)\s++{_QUOTED}"  # Ruby, Elixir
    rf"|#\[(?:\w{{1,40}}::){{0,4}}test\b[^\]]{{0,300}}\]\s*+{_ATTRIBUTES}(?:pub\s++)?(?:async\s++)?fn\s++(\w+)"  # Rust
    r"|#\[cfg\((?:test|all\(test\b[^\]\n]{0,200})\)\]\s*+(?:pub\s++)?mod\s++(\w+)"
    r"|@(?:Parameterized)?Test\b(?:(?!@Test)[^{;]){0,300}?\b(?:void|fun)\s++(`[^`\n]{1,300}`|\w+)"  # Java, Kotlin
    rf"|^[ \t]*+@test\s++{_QUOTED}",  # bats
    re.MULTILINE,
)
_LONGEST_HELPER = 20_000
_CALLED = re.compile(r"\b(\w+)\(")
_FUNCTION = re.compile(r"\b(?:def|func|fn|function)\s++(?:\([^)\n]{0,200}\)\s*+)?(\w+)|\bconst (\w+) = (?:async )?\(")

_ASSERTION = re.compile(
    r"assert\w{0,60}!?[ (.]|expect\(|\.should\b|\bt\.(?:Error|Fatal|Fail)|require\.\w{1,60}\(|pytest\.(?:raises|warns)"
    r"|EXPECT_\w{1,60}\(|ASSERT_\w{1,60}\("
)
_EMPTY_ASSERTION = re.compile(
    r"assert\s*+\(?\s*+(?:True|true|1|not False)[ \t]*+\)?[ \t]*+(?:$|[;#,])|assert\s++1\s*+==\s*+1|assert!\(true\)"
    r"|expect\((?:true|1)\)\.to(?:Be|Equal)\((?:true|1)\)|assertTrue\((?:True|true)\)"
    r"|assert\.(?:ok|True)\((?:t, )?true\)",
    re.MULTILINE,
)
#: Assertions of a definite value. `x == 1` says more than `x` or `x is not None`.
_STRONG = re.compile(
    r"(?<![=!<>])==|!=| is (?:None|True|False)\b|pytest\.(?:raises|warns)|assert_(?:eq|ne)!"
    r"|assert\w*Equals?\b|assert(?:Raises|In|Is)\w*|assert\.\w*(?:[eE]qual|[tT]hrows|[mM]atch|[rR]ejects)\w*"
    r"|require\.\w*(?:Equal|Error|Panics|Len|Contains)\w*|\.to(?!Be(?:Truthy|Defined|Falsy)\b)[A-Z]\w*\("
    r"|\.to\.(?:\w+\.){0,3}(?:equal|eql|include|throw|match)\b"
)
_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,3})?)"
#: Tolerances: a larger number tests less, or a smaller one.
_LARGER = re.compile(
    rf"\b(?:abs|rel|atol|rtol|delta|epsilon|eps|tolerance|tol|max_relative)\s{{0,4}}[=:]\s{{0,4}}{_NUMBER}"
    rf"|\babs\([^\n]{{0,200}}?\)\s{{0,4}}[<>]=?\s{{0,4}}{_NUMBER}"
    rf"|In(?:Delta|Epsilon)\([^\n]{{0,200}},\s{{0,4}}{_NUMBER}\s{{0,4}}\)",
    re.IGNORECASE,
)
_SMALLER = re.compile(
    rf"\bplaces\s{{0,4}}=\s{{0,4}}{_NUMBER}|toBeCloseTo\([^\n]{{0,200}},\s{{0,4}}{_NUMBER}\s{{0,4}}\)"
)
_PARAMETERS = re.compile(r"parametrize|\.each|\bcase\b|test_case|Source\b")
_ROW = re.compile(r"^[ \t]*+\{.{0,2000}\},$", re.MULTILINE)  # of a table of cases in Go or JavaScript


class TestCase(Struct):
    """One test, with the lines directly above it; without comments."""

    name: str
    line: int
    start: int  #: offset of its text in the file
    head: str  #: its decorators and attributes, to its name
    body: str

    @property
    def end(self) -> int:
        return self.start + len(self.head) + len(self.body)


def masked(text: str, path: str) -> str:
    """The text with blanks for comments, and for the long strings of Python."""
    pattern = _HASH_COMMENTS if path.endswith(_HASH_FILES) else _SLASH_COMMENTS
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]) if found[1] or found[2] else found[0], text)


class TestSource(Struct):
    """A source file with its tests."""

    text: str
    plain: str  #: without comments
    cases: list[TestCase]  #: in the order of the text
    tests: dict[str, TestCase]  #: by name; two classes may have a test of the same name, and count as one

    def helpers(self) -> Iterator[tuple[str, int]]:
        """The functions that assert something and are no tests, with their strength."""
        for match in _FUNCTION.finditer(self.plain):
            name = match[1] or match[2]
            indent = _indent(self.plain, self.plain.rfind("\n", 0, match.start()) + 1)
            end = _end(self.plain, match.end(), min(len(self.plain), match.end() + _LONGEST_HELPER), indent)
            if name not in self.tests and (asserted := strength(self.plain[match.end() : end], {})):
                yield name, asserted


def parse(text: str, path: str) -> TestSource:
    plain = masked(text, path)
    cases = _cases(plain)
    same: dict[str, list[TestCase]] = {}
    for case in cases:
        same.setdefault(case.name, []).append(case)
    tests = {
        name: TestCase(name, found[0].line, 0, "".join(one.head for one in found), "".join(one.body for one in found))
        for name, found in same.items()
    }
    return TestSource(text, plain, cases, tests)


def _cases(text: str) -> list[TestCase]:
    cases: list[TestCase] = []
    starts = _line_starts(text)
    found = list(_NAME.finditer(text))
    borders = [*(match.start() for match in found[1:]), len(text)]
    end = 0
    for match, border in zip(found, borders, strict=False):
        name = next(name for name in match.groups() if name)
        line_start = text.rfind("\n", 0, match.start()) + 1
        start = max(end, text.rfind("\n\n", end, line_start) + 2 if "\n\n" in text[end:line_start] else end)
        end = _end(text, match.end(), border, _indent(text, text.rfind("\n", 0, match.end()) + 1))
        number = bisect_right(starts, match.end())
        cases.append(TestCase(name, number, start, text[start : match.end()], text[match.end() : end]))
    return cases


def _line_starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _indent(text: str, at: int) -> int:
    line = text[at : at + 200]
    return len(line) - len(line.lstrip(" \t"))


def _end(text: str, at: int, border: int, indent: int) -> int:
    """The end of the block whose first line has this indent; a closing bracket belongs to it."""
    line = text.find("\n", at, border) + 1
    while line:
        begin = text[line : line + 200].lstrip(" \t")[:1]
        if begin not in ("", "\n", "\r", "}", ")", "]") and _indent(text, line) <= indent:
            return line
        line = text.find("\n", line, border) + 1
    return border


def strength(text: str, helpers: Mapping[str, int]) -> int:
    """How much a text asserts: one for each assertion, one more for a definite value, and the strength of helpers."""
    found = max(0, len(_ASSERTION.findall(text)) - len(_EMPTY_ASSERTION.findall(text)))
    strong = len(_STRONG.findall(text)) if found else 0
    return found + strong + (sum(helpers.get(name, 0) for name in _CALLED.findall(text)) if helpers else 0)


def assertion_lines(text: str) -> Counter[str]:
    """The lines with an assertion, without blanks."""
    return Counter("".join(line.split()) for line in text.splitlines() if _ASSERTION.search(line))


def weaker(
    was: TestCase, now: TestCase, helpers: Mapping[str, int], helpers_now: Mapping[str, int], *, lost: Counter[str]
) -> str:
    """Why a test tests less; "" when it does not. The helpers have their strength, `lost` assertions are gone."""
    before, after = strength(was.body, helpers), strength(now.body, helpers_now)
    gone = assertion_lines(was.body) - assertion_lines(now.body)
    is_moved = bool(gone) and not gone & lost
    if before and not after and not is_moved:
        return "asserts nothing any more"
    if not before and _CALLED.search(was.body) and not _CALLED.search(now.body):
        return "is empty"
    if after < before and not is_moved:
        return "has fewer or weaker assertions"
    if _is_wider(was.body, now.body):
        return "has a wider tolerance"
    if _rows(now) < _rows(was):
        return "has fewer cases"
    return ""


def _rows(case: TestCase) -> int:
    parameters = _PARAMETERS.search(case.head)
    table = re.sub(_STRING, "", case.head[parameters.start() :]) if parameters else ""
    return table.count(",") + len(_ROW.findall(case.body))


def _is_wider(was: str, now: str) -> bool:
    larger, larger_now = _values(_LARGER, was), _values(_LARGER, now)
    smaller, smaller_now = _values(_SMALLER, was), _values(_SMALLER, now)
    wider = len(larger_now) > len(larger) and len(_ASSERTION.findall(now)) <= len(_ASSERTION.findall(was))
    return (
        wider
        or any(new > old for old, new in zip(larger, larger_now, strict=False))
        or any(new < old for old, new in zip(smaller, smaller_now, strict=False))
    )


def _values(pattern: re.Pattern[str], text: str) -> list[float]:
    return sorted(float(next(filter(None, found))) for found in pattern.findall(text))


# --- skips --------------------------------------------------------------------------------------------------

#: Words that keep the next test from running or from failing.
_OF_NEXT = re.compile(
    r"\bpytest\.mark\.(?:skip|xfail|skipif(?:\(True)?)\b|@(?:unittest\.)?(?:skip|skipIf|skipUnless|expectedFailure)\b"
    r"|#\[ignore\b|#\[should_panic|#\[cfg\((?:any\(\)|FALSE)|@(?:Ignore|Disabled)\b"
    r"|(?<![\w.])(?:it|test|specify)\.(?:skip|todo|fixme|fails|failing|skipIf|runIf)\b|(?<![\w.])x(?:it|test|specify)\("
    r"|\bskip:\s?(?:true|[\"'])"
)
#: Words that do so inside of a test.
_WITHIN = re.compile(
    r"\bpytest\.(?:skip|xfail|importorskip)\(|\.skipTest\(|\braise\s[\w.]{0,60}SkipTest|\bt\.Skip(?:f|Now)?\("
    r"|\b(?:ctx|t|context|this)\.skip\(|\bprocess::exit\(0\)|\bif (?:False|0):|\bif ?\(?(?:false|0)\)? ?\{"
    r"|\bexcept\b[^\n:]{0,200}:\s{0,80}(?:pass|\.\.\.)(?!\w)"
    r"|\bcatch ?(?:\(\w{0,40}\) ?)?\{\s{0,80}\}|\brecover\(\)|^[ \t]*+skip(?:[ \t]++[\"']|$)",
    re.MULTILINE,
)
_RETURN = re.compile(r"^[ \t]*+return;?[ \t]*+$", re.MULTILINE)
#: Words that do so for a whole file or suite.
_OF_FILE = re.compile(
    r"(?<![\w.])(?:it|test|describe|context|suite)\.only\b|(?<![\w.])f(?:it|describe|context)\("
    r"|(?<![\w.])(?:describe|context|suite)\.(?:skip|todo|fixme)\b|(?<![\w.])x(?:describe|context)\("
    r"|^pytestmark\b|\bcollect_ignore\w{0,5}|\b__test__\s?=\s?False"
    r"|\bdef pytest_(?:collection_modifyitems|ignore_collect|runtest_\w+|sessionfinish|pycollect_\w+|collection_finish)"
    r"|^#!\[cfg\(|\bpytest\.exit\(|\bos\._exit\(|\bsys\.exit\(0?\)|\bprocess\.exit\(0?\)|\bos\.Exit\(0\)",
    re.MULTILINE,
)
_BUILD = re.compile(r"^//(?:go:build| \+build)\b.*", re.MULTILINE)


class Skip(Struct, frozen=True):
    line: int
    key: str  #: the words, with the test or the line that they are in
    tests: frozenset[str]  #: the tests that it concerns; empty when unknown


def skips(source: TestSource) -> Iterator[Skip]:
    """The places of a file that keep tests from running."""
    text, plain, cases = source.text, source.plain, source.cases
    ends = [case.end for case in cases]
    starts = _line_starts(text)

    def following(at: int) -> TestCase | None:
        return next(iter(cases[(place := bisect_right(ends, at)) : place + 1]), None)

    def around(at: int) -> TestCase | None:
        case = following(at)
        return case if case and case.start <= at else None

    def skip(found: re.Match[str], case: TestCase | None, *, is_wide: bool = False) -> Skip:
        line = bisect_right(starts, found.start())
        if case is not None:
            return Skip(line, f"{found[0].strip()} {case.name}", frozenset((case.name,)))
        words = text[starts[line - 1] : starts[line] if line < len(starts) else None].split()
        return Skip(line, " ".join(words), frozenset(source.tests) if is_wide else frozenset())

    for found in _OF_NEXT.finditer(plain):
        yield skip(found, following(found.start()))
    for found in _WITHIN.finditer(plain):
        yield skip(found, around(found.start()))
    for found in (*_OF_FILE.finditer(plain), *_BUILD.finditer(text)):
        yield skip(found, None, is_wide=True)
    asserting = [found.start() for found in _ASSERTION.finditer(plain)]
    for found in _RETURN.finditer(plain):
        case = around(found.start())
        at = bisect_right(asserting, found.start())
        if case and at < len(asserting) and asserting[at] < case.end:  # it returns before an assertion
            yield skip(found, case)
