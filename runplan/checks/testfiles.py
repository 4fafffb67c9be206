"""Recognises test files, their tests, assertions, skips and thresholds, and the files of the CI."""

from __future__ import annotations

import re

from runplan.globs import covers

_TESTS = (
    *("**/test_*.py", "**/*_test.py", "**/tests.py", "**/conftest.py"),
    *("**/*_test.go", "**/*_test.exs", "**/*_spec.rb", "**/*_test.rb", "**/*.bats"),
    *(f"**/*.{kind}.{ext}" for kind in ("test", "spec") for ext in ("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts")),
    *("**/__tests__/**", "**/*Test.java", "**/*Tests.java", "**/*Test.kt", "**/*Tests.cs", "**/*Test.php"),
)
_TEST_FOLDER = re.compile(r"(?:^|/)(?:tests?|spec)/(?:.*/)?[^/]+\.(?:py|js|ts|tsx|jsx|mjs|rs|rb|sh|c|cc|cpp|java|php)$")

_CI = (
    *(".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".gitlab/ci/**", ".circleci/**", ".ci/**"),
    *(".travis.yml", "azure-pipelines.yml", "Jenkinsfile", "bitbucket-pipelines.yml", ".buildkite/**"),
    *(".drone.yml", ".woodpecker.yml", ".woodpecker/**", "appveyor.yml", ".appveyor.yml", "cloudbuild.yaml"),
)
_CHECK_SETTINGS = (
    *("**/pyproject.toml", "**/setup.cfg", "**/tox.ini", "**/pytest.ini", "**/.coveragerc", "**/noxfile.py"),
    *("**/package.json", "**/jest.config.*", "**/vitest.config.*", "**/.nycrc*", "**/.c8rc*", "**/karma.conf.*"),
    *("**/codecov.yml", "**/.codecov.yml", "**/Makefile", "**/build.gradle*", "**/.mocharc*"),
)

# Test files are foreign text: repetitions are bounded or possessive, so that a search takes linear time.
_ATTRIBUTES = r"(?:#\[[^\]]{0,300}\]\s*+){0,8}"
_NAME = re.compile(
    r"^[ \t]*+(?:async\s++)?def\s++(test\w*)"  # Python
    r"|^[ \t]*+func\s++(?:\([^)\n]{0,200}\)\s*+)?((?:Test|Fuzz)\w*+)\("  # Go
    r"|\b(?:it|test|specify|scenario)(?:\.\w{1,40}){0,4}\(\s*+[\"'`]([^\"'`\n]+)"  # JavaScript
    r"|^[ \t]*+(?:it|test|specify|scenario)\s++[\"']([^\"'\n]+)"  # Ruby, Elixir
    rf"|#\[(?:\w{{1,40}}::){{0,4}}test\b[^\]]{{0,300}}\]\s*+{_ATTRIBUTES}(?:pub\s++)?(?:async\s++)?fn\s++(\w+)"  # Rust
    r"|@(?:Parameterized)?Test\b(?:(?!@Test)[^{;]){0,300}?\b(?:void|fun)\s++(`[^`\n]{1,300}`|\w+)"  # Java, Kotlin
    r"|^[ \t]*+@test\s++[\"']([^\"'\n]+)",  # bats
    re.MULTILINE,
)

# Each of these begins with a literal, which makes a search several times faster; the look-behinds after it
# keep `exit(` and `model.fit(` out.
_ASSERTION = (
    *(r"assert\w{0,60}!?[ (.]", r"expect\(", r"\.should\b", r"t\.(?:Error|Fatal|Fail)", r"require\.\w{1,60}\("),
    *(r"pytest\.raises", r"EXPECT_\w{1,60}\(", r"ASSERT_\w{1,60}\("),
)
_EMPTY_ASSERTION = (
    r"assert\s*+\(?\s*+(?:True|true|1|not False)[ \t]*+\)?[ \t]*+(?:$|[;#,])",
    *(r"assert\s++1\s*+==\s*+1", r"assert!\(true\)"),
    *(r"expect\((?:true|1)\)\.to(?:Be|Equal)\((?:true|1)\)", r"assertTrue\((?:True|true)\)"),
)
_SKIP = (
    *(r"pytest\.mark\.(?:skip|skipif|xfail)\b", r"pytest\.(?:skip|xfail|importorskip)\(", r"collect_ignore"),
    *(r"@(?:unittest\.)?(?:skip|skipIf|skipUnless|expectedFailure)\b", r"\.skipTest\(", r"raise\s[\w.]{0,60}SkipTest"),
    *(rf"{w}(?<![\w.]{w})\.(?:skip|todo|fixme|failing|only)\b" for w in ("it", "test", "describe", "context", "suite")),
    *(rf"{w}(?<![\w.]{w})\(" for w in ("xit", "xtest", "xdescribe", "xcontext", "fit", "fdescribe")),
    *(r"skip:\s*+(?:true|[\"'])", r"t\.Skip(?:f|Now)?\(", r"@(?:Ignore|Disabled)\b", r"#\[ignore\b"),
    r"\n[ \t]*+skip(?:[ \t]++[\"']|(?=\n))",
)
_EXCLUSIONS = re.compile(
    r"--deselect\b|--ignore(?:-glob)?[= ]|-k\s++\\?[\"']?not\b|testPathIgnorePatterns|\bnorecursedirs\b"
)
_IS = r"[\"']?(?:\s*+[:=]\s*+|\s++)[\"']?"
_COVERAGE = re.compile(
    rf"(fail[_-]under|branches|functions|lines|statements|target|minimum){_IS}(\d{{1,12}}(?:\.\d{{1,12}})?)",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(rf"(--timeout|test_?timeout|(?<![\w-])timeout){_IS}(\d{{1,12}})", re.IGNORECASE)


def is_test(path: str) -> bool:
    return covers(_TESTS, path) or _TEST_FOLDER.search(path) is not None


def is_ci(path: str) -> bool:
    return covers(_CI, path)


def sets_checks(path: str) -> bool:
    """Whether the file may set thresholds of the project's checks."""
    return covers(_CHECK_SETTINGS, path)


def may_hold_tests(path: str) -> bool:
    """Whether the file may contain tests: a test file, or a source of Rust."""
    return is_test(path) or path.endswith(".rs")


def test_names(text: str) -> frozenset[str]:
    return frozenset(next(name for name in found if name) for found in _NAME.findall(text))


def assertions(text: str) -> int:
    """The number of assertions in the text that can fail."""
    return _count(_ASSERTION, text) - _count(_EMPTY_ASSERTION, text)


def emptied(before: str, after: str) -> frozenset[str]:
    """The tests that asserted something before and assert nothing now."""
    now = _bodies(after)
    return frozenset(
        name for name, body in _bodies(before).items() if assertions(body) > 0 and assertions(now.get(name, body)) <= 0
    )


def skips(text: str) -> int:
    return _count(_SKIP, text)


def exclusions(text: str) -> int:
    """The number of exclusions of tests in settings."""
    return len(_EXCLUSIONS.findall(text))


def lowered(before: str, after: str) -> tuple[str, ...]:
    """The coverage thresholds that were lowered or removed, and the time limits of tests that changed."""
    was, now = _values(_COVERAGE, before), _values(_COVERAGE, after)
    lower = {key for key, values in was.items() if _is_lower(values, now.get(key, []))}
    limits, limits_now = _values(_TIMEOUT, before), _values(_TIMEOUT, after)
    changed = {key for key, values in limits.items() if values != limits_now.get(key, [])}
    return tuple(sorted(lower | changed))


def _count(patterns: tuple[str, ...], text: str) -> int:
    return sum(len(re.findall(pattern, text, re.MULTILINE)) for pattern in patterns)


def _values(pattern: re.Pattern[str], text: str) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for key, number in pattern.findall(text):
        values.setdefault(key.casefold(), []).append(float(number))
    return {key: sorted(numbers) for key, numbers in values.items()}


def _is_lower(before: list[float], after: list[float]) -> bool:
    if len(after) < len(before):
        return True
    return any(new < old for old, new in zip(before, after[-len(before) :], strict=True))


def _bodies(text: str) -> dict[str, str]:
    """Each test's text, from its name to the next one's."""
    found = list(_NAME.finditer(text))
    ends = (match.start() for match in found[1:])
    bodies: dict[str, list[str]] = {}
    for match, end in zip(found, [*ends, None], strict=False):
        name = next(name for name in match.groups() if name)
        bodies.setdefault(name, []).append(text[match.start() : end])
    return {name: "".join(parts) for name, parts in bodies.items()}
