"""Recognises test files and files of the CI by their names."""

from __future__ import annotations

import re

from runplan.globs import covers

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
