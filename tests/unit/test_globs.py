"""Patterns cover paths from the root of the repository."""

import pytest
from hypothesis import given, strategies as st

from runplan.domain.globs import covers, literal, matches


@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [
        ("src/a.py", "src/a.py", True),
        ("src/a.py", "lib/src/a.py", False),
        ("src", "src/a/b.py", True),
        ("src/", "src/a/b.py", True),
        ("src/", "src", False),
        ("src", "srcs/a.py", False),
        ("./src/a.py", "src/a.py", True),
        ("/src/a.py", "src/a.py", True),
        ("src/*", "src/a.py", True),
        ("src/*", "src/a/b.py", False),
        ("src/*.py", "src/a.pyc", False),
        ("src/**", "src/a/b.py", True),
        ("src/**", "src", False),
        ("**", "any/thing", True),
        ("**/x.py", "x.py", True),
        ("**/x.py", "a/b/x.py", True),
        ("a/**/x.py", "a/x.py", True),
        ("a/**/x.py", "ab/x.py", False),
        ("a?.py", "ab.py", True),
        ("a?.py", "a/.py", False),
        ("[ab].py", "a.py", True),
        ("[!ab].py", "a.py", False),
        ("[!a].py", "/.py", False),
        ("[z-a].py", "a.py", False),
        ("[", "[", True),
        ("a+b(c).py", "a+b(c).py", True),
        ("A.py", "a.py", False),
    ],
)
def test_a_pattern_covers(pattern: str, path: str, covered: bool) -> None:
    assert matches(pattern, path) is covered


@pytest.mark.parametrize(
    ("pattern", "expected"), [("src/**", "src/"), ("a.py", "a.py"), ("*.py", ""), ("./a/[b]", "a/")]
)
def test_the_literal_part_ends_at_the_first_wildcard(pattern: str, expected: str) -> None:
    assert literal(pattern) == expected


@given(st.lists(st.text(max_size=10), max_size=3), st.text(max_size=10))
def test_no_pattern_raises(patterns: list[str], path: str) -> None:
    assert covers(patterns, path) in (True, False)
