"""Test infrastructure: what counts as having tests, and what is suggested for them."""

from __future__ import annotations

import pytest

from runplan.core.testinfra import Infrastructure, find


@pytest.mark.parametrize(
    ("files", "found", "command"),
    [
        pytest.param(["tests/x.py"], "tests/x.py", "python3 -m pytest", id="N7"),
        pytest.param(["README.md", "src.py", "test.txt"], "", "", id="N8"),
        pytest.param([], "", "", id="N8-empty"),
        pytest.param(["pytest.ini"], "pytest.ini", "python3 -m pytest", id="pytest"),
        pytest.param(["vitest.config.ts"], "vitest.config.ts", "npx vitest run", id="vitest"),
        pytest.param(["jest.config.js"], "jest.config.js", "npx jest", id="jest"),
        pytest.param([".mocharc.yml"], ".mocharc.yml", "npx mocha", id="mocha"),
        pytest.param(["tests/run.sh"], "tests/run.sh", "sh tests/run.sh", id="shell"),
        pytest.param(["tests/unit/a.js"], "tests/unit/a.js", "node --test tests/", id="nested"),
        pytest.param(["tests/data.json"], "", "", id="data-only"),
        pytest.param(["Cargo.toml"], "", "cargo test", id="cargo-suggests"),
        pytest.param(["go.mod"], "", "go test ./...", id="go-suggests"),
        pytest.param(["Makefile", "package.json"], "", "", id="files-without-a-test"),
    ],
)
def test_files_show_whether_there_are_tests(files: list[str], found: str, command: str) -> None:
    infrastructure = find(files)
    assert infrastructure == Infrastructure(found=found, command=command)
    assert infrastructure.present is bool(found)


@pytest.mark.parametrize(
    ("makefile", "command"),
    [
        ("all:\n\ttrue\ntest: all\n\ttrue\n", "make test"),
        ("check:\n\ttrue\n", "make check"),
        ("lint test : all\n\ttrue\n", "make test"),
        (".PHONY: test\n", ""),
        ("test ::= 1\n", ""),
        ("test := 1\nlatest:\n\ttrue\n", ""),
        ("test:= 1\n", ""),
    ],
)
def test_a_makefile_counts_when_it_can_make_tests(makefile: str, command: str) -> None:
    assert find(["Makefile"], makefile=makefile).command == command


@pytest.mark.parametrize(
    ("package_json", "present"),
    [
        ('{"scripts": {"test": "vitest"}}', True),
        ('{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}', False),
        ('{"scripts": {"test": " "}}', False),
        ('{"scripts": {"build": "tsc"}}', False),
        ('{"scripts": []}', False),
        ("[]", False),
        ("{broken", False),
    ],
)
def test_a_package_counts_when_it_has_a_real_test_script(package_json: str, present: bool) -> None:
    assert find(["package.json"], package_json=package_json).present is present
