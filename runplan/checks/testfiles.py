"""Recognises test files, files of the CI and settings of checks, and finds settings that check less."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from runplan.globs import covers

if TYPE_CHECKING:
    from collections.abc import Iterator

_JAVASCRIPT = ("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts")
#: Files that test runners collect by their name.
_COLLECTED = (
    *("**/test_*.py", "**/*_test.py", "**/tests.py", "**/tests/**/test*.py", "**/*_test.go"),
    *("**/*_test.exs", "**/*_spec.rb", "**/*_test.rb", "**/*.bats"),
    *(f"**/*.{kind}.{ext}" for kind in ("test", "spec") for ext in _JAVASCRIPT),
    *(f"**/{name}.{ext}" for name in ("test", "test-*", "*[-_]test") for ext in ("js", "cjs", "mjs")),  # of Node.js
    *("**/__tests__/**", "**/*Test.java", "**/*Tests.java", "**/*Test.kt", "**/*Tests.cs", "**/*Test.php"),
)
_TEST_FOLDER = re.compile(r"(?:^|/)(?:tests?|spec)/(?:.*/)?[^/]+\.(?:py|js|ts|tsx|jsx|mjs|rs|rb|sh|c|cc|cpp|java|php)$")

#: What tests read besides their own files.
_TEST_SIDE = (
    *(f"**/{folder}/**" for folder in ("test", "tests", "spec", "__tests__", "__snapshots__", "testdata")),
    *("**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/jest.config.*", "**/vitest.config.*", "**/.mocharc*"),
)

_CI = (
    *(".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".gitlab/ci/**", ".circleci/**", ".ci/**"),
    *(".travis.yml", "azure-pipelines.yml", "Jenkinsfile", "bitbucket-pipelines.yml", ".buildkite/**"),
    *(".drone.yml", ".woodpecker.yml", ".woodpecker/**", "appveyor.yml", ".appveyor.yml", "cloudbuild.yaml"),
    *(".pre-commit-config.yaml", ".husky/**", ".githooks/**", "lefthook.yml", ".lefthook.yml", "lefthook.yaml"),
)
_CHECK_SETTINGS = (
    *("**/pyproject.toml", "**/setup.cfg", "**/tox.ini", "**/pytest.ini", "**/.coveragerc", "**/noxfile.py"),
    *("**/ruff.toml", "**/.ruff.toml", "**/.flake8", "**/mypy.ini", "**/.mypy.ini", "**/.pylintrc"),
    *("**/package.json", "**/jest.config.*", "**/vitest.config.*", "**/.nycrc*", "**/.c8rc*", "**/karma.conf.*"),
    *("**/.eslintrc*", "**/eslint.config.*", "**/biome.json", "**/tsconfig*.json", "**/.mocharc*"),
    *("**/.golangci.*", "**/clippy.toml", "**/.clippy.toml", "**/tarpaulin.toml", "**/Cargo.toml"),
    *("**/codecov.yml", "**/.codecov.yml", "**/Makefile", "**/build.gradle*"),
)

# Settings are foreign text: repetitions are bounded or possessive, so that a search takes linear time.
_IS = r"[\"']?(?:\s*+[:=]\s*+|\s++)[\"']?"
_VALUE = r"(\d{1,12}(?:\.\d{1,12})?)"
#: Numbers of which a smaller one checks less, a larger one, and any other one.
_MINIMUM = re.compile(
    rf"(fail[_-]under|branches|functions|lines|statements|target|minimum|threshold){_IS}{_VALUE}", re.IGNORECASE
)
_MAXIMUM = re.compile(
    rf"(max[_-](?:complexity|args|branches|statements|returns|lines|warnings|line-length|depth|params)"
    rf"|cognitive-complexity-threshold|too-many-(?:lines|arguments)-threshold){_IS}{_VALUE}",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(rf"(--timeout|test_?timeout|(?<![\w-])timeout){_IS}(\d{{1,12}})", re.IGNORECASE)
#: Options that are on, and that make a check stricter.
_STRICT = re.compile(
    r"[\"']?\b(strict\w{0,30}|disallow_\w{1,40}|warn_\w{1,40}|noImplicit\w{1,30}|noUnused\w{1,30}|check_untyped_defs)\b"
    r"[\"']?\s{0,8}[:=]\s{0,8}true\b",
    re.IGNORECASE,
)
_RULE = re.compile(r"[\"']([@\w/-]{2,80})[\"']\s{0,8}:\s{0,8}\[?\s{0,8}[\"'](error|warn|off|deny|allow)[\"']")
_LINT_LEVEL = re.compile(r"^([\w-]{2,60})\s{0,8}=\s{0,8}[\"'](deny|forbid|warn|allow)[\"']", re.MULTILINE)  # Cargo.toml
_LEVELS = {"error": 2, "deny": 2, "forbid": 2, "warn": 1, "off": 0, "allow": 0}
#: Lists of paths and rules that are not checked.
_LIST = re.compile(
    r"^[ \t]*+[\"']?(ignore|extend-ignore|disable|omit|exclude|extend-exclude|exclude_lines|exclude_also|ignorePatterns"
    r"|testPathIgnorePatterns|coveragePathIgnorePatterns|norecursedirs|per-file-ignores|ignore_errors|ignore_missing_imports)"
    r"[\"']?[ \t]*+[:=][ \t]*+(\[[^\]]{0,5000}\]|[^\n]{0,1000})",
    re.MULTILINE,
)
_EXCLUSION = re.compile(
    r"--deselect\b|--ignore(?:-glob)?[= ]|(?<!\w)-k\s++\\?[\"']?not\b|\s-skip[= ]|--no-cov\b"
    r"|\b(?:cargo|vitest)\b[^\n\"]{0,200}?--exclude\b"
)
_SECTION = re.compile(r"^\[{1,2}([^\]\n]{1,200})\]", re.MULTILINE)
_CHECKS = re.compile(r"ruff|flake8|mypy|pylint|coverage|pytest|isort|bandit|pyright|report|run|tarpaulin|lint")


def is_test(path: str) -> bool:
    """Whether the file is a test by its name or folder; a conftest.py changes others, and is none itself."""
    if path.rpartition("/")[2] == "conftest.py":
        return False
    return covers(_COLLECTED, path) or _TEST_FOLDER.search(path) is not None


def is_on_test_side(path: str) -> bool:
    """Whether the file is a test, or belongs to tests: a helper, data, or settings of a test runner alone."""
    return is_test(path) or covers(_TEST_SIDE, path)


def is_collected(path: str) -> bool:
    """Whether a test runner finds the file by its name; in Rust the code decides."""
    return covers(_COLLECTED, path) or path.endswith(".rs")


def is_ci(path: str) -> bool:
    return covers(_CI, path)


def sets_checks(path: str) -> bool:
    """Whether the file may set thresholds of the project's checks."""
    return covers(_CHECK_SETTINGS, path)


def may_hold_tests(path: str) -> bool:
    """Whether the file may contain tests: a test file, or a source of Rust."""
    return is_test(path) or path.endswith(".rs")


def lowered(before: str, after: str) -> Iterator[tuple[int, str]]:
    """The settings that check less than before, by line: thresholds, strict options, rules, and lists of exceptions."""
    for pattern, is_less in ((_MINIMUM, float.__lt__), (_MAXIMUM, float.__gt__), (_TIMEOUT, float.__ne__)):
        was, now = _numbers(pattern, before), _numbers(pattern, after)
        for key, values in was.items():
            left = now.get(key, [])
            if len(left) < len(values) or any(map(is_less, left[-len(values) :], values)):
                yield (_line(after, key), f"the threshold {key} was lowered")
    strict = {found[1].casefold() for found in _STRICT.finditer(after)}
    for found in _STRICT.finditer(before):
        if found[1].casefold() not in strict:
            yield (_line(after, found[1]), f"{found[1]} is no longer on")
    for pattern in (_RULE, _LINT_LEVEL):
        levels = {found[1]: _LEVELS[found[2]] for found in pattern.finditer(before)}
        for found in pattern.finditer(after):
            if _LEVELS[found[2]] < levels.get(found[1], 2 if found[2] in ("off", "allow") else 0):
                yield (_line(after, found[1]), f"the rule {found[1]} was lowered")
    excepted = _excepted(before)
    for key, entries in _excepted(after).items():
        if added := sorted(entries - excepted.get(key, set())):
            yield (_line(after, added[0]), f"{key} now lists {', '.join(added[:5])}")
    if len(_EXCLUSION.findall(after)) > len(_EXCLUSION.findall(before)):
        known = set(before.splitlines())
        lines = enumerate(after.splitlines(), 1)
        number = next((number for number, line in lines if line not in known and _EXCLUSION.search(line)), 0)
        yield (number, "tests are excluded that ran before")


def _excepted(text: str) -> dict[str, set[str]]:
    """The entries of lists of exceptions, by key; in files with sections only those of checks."""
    found: dict[str, set[str]] = {}
    sections = list(_SECTION.finditer(text))
    starts = [one.start() for one in sections]
    for match in _LIST.finditer(text):
        place = bisect_right(starts, match.start()) - 1
        if not sections or (place >= 0 and _CHECKS.search(sections[place][1])):
            found.setdefault(match[1], set()).update(re.findall(r"[\w.*/-]+", match[2]))
    return found


def _numbers(pattern: re.Pattern[str], text: str) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for key, number in pattern.findall(text):
        values.setdefault(key.casefold(), []).append(float(number))
    return {key: sorted(numbers) for key, numbers in values.items()}


def _line(text: str, word: str) -> int:
    """The first line with the word, in any case; 0 when it is gone."""
    at = text.casefold().find(word.casefold())
    return text.count("\n", 0, at) + 1 if at >= 0 else 0
