"""The test command: the one that fits a project, and its needs."""

import pytest

from runplan.checks.toolchain import Infrastructure, find, missing_file, needed_setup, program_of


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
    assert find(files) == Infrastructure(found=found, command=command)


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
    assert bool(find(["package.json"], package_json=package_json).found) is present


@pytest.mark.parametrize(
    ("command", "files", "missing"),
    [
        ("make test", ["README.md"], "Makefile"),
        ("make test", ["GNUmakefile"], ""),
        ("CI=1 make -j2 check", [], "Makefile"),
        ("make -C sub test", [], ""),
        ("make -f build.mk test", [], ""),
        ("npm test", ["Makefile"], "package.json"),
        ("yarn test", ["package.json"], ""),
        ("cd sub && make test", [], ""),
        ("pytest -q", [], ""),
        ("", [], ""),
        ("'unbalanced", [], ""),
    ],
)
def test_a_command_without_the_file_that_it_reads_is_found(command: str, files: list[str], missing: str) -> None:
    assert missing_file(command, files) == missing


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("pytest -q", "pytest"),
        ("A=1 B=2 ./run.sh", "./run.sh"),
        ("cd sub && make", ""),
        ("test -e x", ""),
        ("$TOOL x", ""),
        ("", ""),
    ],
)
def test_the_program_of_a_command_is_known_where_it_is_plain(command: str, program: str) -> None:
    assert program_of(command) == program


@pytest.mark.parametrize(
    ("files", "texts", "command", "present", "needs"),
    [
        ([".gitmodules"], {}, "make test", (), ("submodules", "git submodule update --init --recursive")),
        (["package.json", "package-lock.json"], {"package.json": '{"devDependencies": {"jest": "1"}}'}, "npm test", (),
         ("node_modules", "npm ci")),
        (["package.json", "yarn.lock"], {}, "yarn test", ("node_modules",),
         ("node_modules", "yarn install --frozen-lockfile")),
        (["package.json"], {"package.json": '{"scripts": {"test": "node --test"}}'}, "npm test", (), None),
        (["package.json", "node_modules"], {}, "npm test", ("node_modules",), None),
        (["requirements.txt"], {}, ".venv/bin/python -m pytest", (), ("a virtual environment",
         "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt")),
        (["Makefile", "pyproject.toml"], {"Makefile": "test:\n\tvenv/bin/pytest\n"}, "make test", (),
         ("a virtual environment", "python3 -m venv venv && venv/bin/pip install -e .")),
        (["Makefile"], {"Makefile": "v:\n\tpython -m venv .venv\ntest: v\n\t.venv/bin/pytest\n"}, "make test", (),
         None),
        (["Makefile"], {"Makefile": "test:\n\tgo test\n"}, "make test", (".venv",), None),
    ],
)  # fmt: skip
def test_missing_files_of_a_fresh_worktree_are_named_with_their_command(
    files: list[str], texts: dict[str, str], command: str, present: tuple[str, ...], needs: tuple[str, str] | None
) -> None:
    assert needed_setup(files, texts, command=command, present=present) == needs
