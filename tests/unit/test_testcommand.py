"""The test command: the one that fits a project, its needs, and changes to the files that it runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from runplan.checks.testcommand import Infrastructure, find, missing_file, needed_setup, program_of, weakened

MAKE = """\
PYTEST = python3 -m pytest
TESTS = tests/a tests/b
OBJECTS = a.o

.PHONY: test lint
all: test

test: lint prog
\t@echo testing
\t$(PYTEST) $(TESTS)
\tsh tools/after.sh

lint:
\truff check .

prog: $(OBJECTS)
\tcc -o prog $(OBJECTS)

%.o: %.c
\tcc -c $<

release:
\tpython3 -m build
"""
PACKAGE = """\
{
  "name": "x",
  "scripts": {
    "pretest": "npm run lint",
    "lint": "eslint .",
    "test": "node tools/run.js && make -C native check",
    "build": "tsc"
  },
  "dependencies": {"left": "1"}
}
"""
TREE = {
    "Makefile": MAKE,
    "package.json": PACKAGE,
    "native/Makefile": "check:\n\t./check\n",
    "native/check": "#!/bin/sh\ntrue\n",
    "tools/after.sh": "set -e\n./verify\n",
    "tools/run.js": "run()\n",
    "tests/a/test_a.py": "def test_a():\n    assert 1\n",
}


def found(command: str, **changed: str | None) -> list[str]:
    """`path:line: detail` of each finding; files are named with `__` for the slash and `_` for the dot."""
    names = {name.replace("/", "__").replace(".", "_"): name for name in TREE}
    after = {**TREE, **{names.get(name, name): text for name, text in changed.items()}}
    return [f"{one.path}:{one.line}: {one.detail}" for one in weakened(command, TREE.get, after.get)]


def made(old: str, new: str) -> str:
    assert old in MAKE
    return MAKE.replace(old, new, 1)


RECIPE = "the recipe of `test`, which the test command runs, was changed"
LINT = RECIPE.replace("test`", "lint`")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(made("\t$(PYTEST) $(TESTS)\n", "\ttrue\n"), [f"Makefile:9: {RECIPE}"], id="replaced"),
        pytest.param(made("\t$(PYTEST) $(TESTS)\n", ""), [f"Makefile:9: {RECIPE}"], id="a line less"),
        pytest.param(made("\t$(PYTEST)", "\t-$(PYTEST)"), [f"Makefile:9: {RECIPE}"], id="errors ignored"),
        pytest.param(made("$(TESTS)\n", "$(TESTS) || true\n"), [f"Makefile:9: {RECIPE}"], id="or true"),
        pytest.param(made("PYTEST = python3 -m pytest", "PYTEST = true"), [f"Makefile:9: {RECIPE}"], id="its program"),
        pytest.param(made(" -m pytest", " -m pytest --co"), [f"Makefile:9: {RECIPE}"], id="an option in a variable"),
        pytest.param(made("tests/a tests/b", "tests/a"), [f"Makefile:9: {RECIPE}"], id="an argument less"),
        pytest.param(made("tests/b\n", "tests/b\nTESTS = y\n"), [f"Makefile:10: {RECIPE}"], id="set anew"),
        pytest.param(MAKE + "ifdef CI\nPYTEST = true\nendif\n", [f"Makefile:9: {RECIPE}"], id="under a condition"),
        pytest.param(MAKE + "test:\n\ttrue\n", [f"Makefile:25: {RECIPE}"], id="redefined"),
        pytest.param(MAKE + "test: ; true\n", [f"Makefile:24: {RECIPE}"], id="redefined in a line"),
        pytest.param(MAKE + "SHELL := true\n", ["Makefile:24: `SHELL` was added"], id="another shell"),
        pytest.param(MAKE + "test: SHELL = x\n", ["Makefile:24: `SHELL` for the target `test` was added"], id="for it"),
        pytest.param(MAKE + ".IGNORE:\n", ["Makefile:24: `.IGNORE` was added"], id="all errors ignored"),
        pytest.param(MAKE + "MAKEFLAGS += -n\n", ["Makefile:24: `MAKEFLAGS` was added"], id="a dry run"),
        pytest.param(MAKE + "$(eval test: ; x)\n", ["Makefile:24: `$(eval test: ; x)` was added"], id="evaluated"),
        pytest.param(
            made(".PHONY: test lint", ".PHONY: lint"),
            ["Makefile:9: the .PHONY mark of `test`, which the test command runs, was removed"],
            id="no longer phony",
        ),
        pytest.param(made("lint prog", "prog"), ["Makefile:9: prerequisites of `test` removed: lint"], id="less"),
        pytest.param(
            made("\truff check .\n", "\ttrue\n"), [f"Makefile:14: {LINT}"], id="a prerequisite's recipe"
        ),
        pytest.param(
            MAKE[: MAKE.index("test: lint")],
            ["Makefile:9: the recipe of `test`, which the test command runs, was removed"],
            id="the rule is gone",
        ),
    ],
)  # fmt: skip
def test_files_that_a_target_runs_are_guarded(text: str, expected: list[str]) -> None:
    assert found("make test", Makefile=text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(made("python3 -m build", "python3 -m build --wheel"), id="another target"),
        pytest.param(MAKE + "bench:\n\ttrue\n", id="a new target"),
        pytest.param(MAKE + "VERSION = 2\n", id="a new variable"),
        pytest.param(made("OBJECTS = a.o", "OBJECTS = a.o b.o"), id="a file to compile"),
        pytest.param(made("tests/a tests/b", "tests/a tests/b tests/c"), id="more tests"),
        pytest.param(made("test: lint prog", "test: lint prog docs"), id="a prerequisite more"),
        pytest.param(made("\t@echo testing", "# what it does\n\n\t@echo  testing"), id="comments and blanks"),
        pytest.param(made(".PHONY: test lint", ".PHONY: test lint release"), id="more phony targets"),
        pytest.param("# A project\n\n" + MAKE, id="moved down"),
    ],
)
def test_a_change_elsewhere_in_the_makefile_is_innocent(text: str) -> None:
    assert found("make test", Makefile=text) == []


def test_a_makefile_that_make_prefers_is_found() -> None:
    findings = found("make test", GNUmakefile="test: lint prog\n\ttrue\n")
    assert findings == [f"GNUmakefile:2: {RECIPE}"]


def test_files_that_a_makefile_includes_are_guarded() -> None:
    tree = {"Makefile": "include mk/test.mk\n", "mk/test.mk": "test:\n\tpytest\n"}
    after = {**tree, "mk/test.mk": "test:\n\ttrue\n"}
    (one,) = weakened("make test", tree.get, after.get)
    assert (one.path, one.line) == ("mk/test.mk", 2)


@pytest.mark.parametrize(
    ("command", "file", "text", "expected"),
    [
        ("sh tools/after.sh", "tools__after_sh", "exit 0\nset -e\n./verify\n", "tools/after.sh:1"),
        ("./tools/after.sh", "tools__after_sh", "set -e\ntrue\n", "tools/after.sh:2"),
        ("cd tools && bash -eu after.sh", "tools__after_sh", "set -e\n", "tools/after.sh:2"),
        ("make test", "tools__after_sh", "true\n", "tools/after.sh:1"),
        ("env CI=1 timeout 60 sh -c 'sh tools/after.sh'", "tools__after_sh", None, "tools/after.sh:0"),
        ("npm test", "package_json", PACKAGE.replace("node tools/run.js && ", ""), "package.json:6"),
        ("yarn test", "package_json", PACKAGE.replace("eslint .", "true"), "package.json:5"),
        ("npm run test -- --ci", "package_json", PACKAGE.replace('"pretest": "npm run lint",', ""), "package.json:4"),
        ("pnpm run lint", "package_json", PACKAGE.replace('"lint": "eslint .",', ""), "package.json:5"),
        ("npm t", "tools__run_js", "\n", "tools/run.js:1"),
        ("npm test", "native__Makefile", "check:\n\ttrue\n", "native/Makefile:2"),
        ("npm test", "native__check", "#!/bin/sh\nexit 0\n", "native/check:2"),
        ("npm test", "package_json", "{", "package.json:4"),
    ],
)
def test_scripts_behind_the_command_are_guarded(command: str, file: str, text: str | None, expected: str) -> None:
    assert found(command, **{file: text})[0].startswith(f"{expected}: ")


@pytest.mark.parametrize(
    ("command", "file", "text"),
    [
        ("npm test", "package_json", PACKAGE.replace('"left": "1"', '"left": "1", "right": "2"')),
        ("npm test", "package_json", PACKAGE.replace('"build": "tsc"', '"build": "tsc -b"')),
        ("npm run lint", "package_json", PACKAGE.replace("node tools/run.js", "true")),
        ("python3 -m pytest", "tools__after_sh", "true\n"),
        ("sh tools/after.sh", "tools__run_js", "true\n"),
        ("python3 tests/a/test_a.py", "tests__a__test_a_py", "def test_a():\n    assert 2\n"),
        ("make nothing", "Makefile", ""),
        ("sh tools/new.sh", "tools/new.sh", "true\n"),
    ],
)
def test_files_that_the_command_does_not_run_are_free(command: str, file: str, text: str) -> None:
    assert found(command, **{file: text}) == []


@pytest.mark.parametrize(
    ("command", "tree", "behind"),
    [
        (
            "make test",
            {"Makefile": "test:\n\tsh run-tests.sh\n", "run-tests.sh": "set -e\nsh checks/all.sh\n"},
            "checks/all.sh",
        ),
        ("./run", {"run": "#!/usr/bin/env bash\n. ./lib.sh\n"}, "lib.sh"),
        ("sh run", {"run": "source lib/all.sh || exit 1\n"}, "lib/all.sh"),
        ("sh run", {"run": "if ! sh a.sh; then exit 1; fi\n"}, "a.sh"),
        ("sh run", {"run": "if true; then\n  sh a.sh\nfi\n"}, "a.sh"),
        ("sh run", {"run": "cd sub\nmake all\n", "sub/Makefile": "all:\n\tsh a.sh\n"}, "sub/a.sh"),
        ("sh '' a.sh", {}, "a.sh"),
        ("sh run", {"run": "check() {\n  sh a.sh \\\n    --all\n}\n"}, "a.sh"),
        ("sh run", {"run": 'cd "$(dirname "$0")"\nsh a.sh\n'}, "a.sh"),
        ("make -Csub", {"sub/Makefile": "all:\n\tsh a.sh\n"}, "sub/a.sh"),
        ("make --directory=sub", {"sub/Makefile": "all:\n\tsh a.sh\n"}, "sub/a.sh"),
        ("make -fX.mk", {"X.mk": "all:\n\tsh a.sh\n"}, "a.sh"),
        ("make --file=X.mk", {"X.mk": "all:\n\tsh a.sh\n"}, "a.sh"),
        ("make --makefile=X.mk", {"X.mk": "all:\n\tsh a.sh\n"}, "a.sh"),
        ("npm --prefix=web test", {"web/package.json": '{"scripts": {"test": "sh a.sh"}}'}, "web/a.sh"),
        ("npm test", {"package.json": '\ufeff{"scripts": {"test": "sh a.sh"}}'}, "a.sh"),
        ("bash -lc 'sh a.sh'", {}, "a.sh"),
        ("sh -ec 'sh a.sh'", {}, "a.sh"),
    ],
)
def test_a_file_behind_other_files_is_guarded(command: str, tree: dict[str, str], behind: str) -> None:
    before, after = {**tree, behind: "pytest\n"}, {**tree, behind: "true\n"}
    (one,) = weakened(command, before.get, after.get)
    assert (one.path, one.line) == (behind, 1)


def test_scripts_that_run_each_other_are_read_once() -> None:
    tree = {"a.sh": "sh b.sh\nsh b.sh\n" * 50, "b.sh": "sh a.sh\nsh a.sh\n" * 50}
    assert weakened("sh a.sh", tree.get, tree.get) == ()


def test_a_package_that_is_nested_too_deep_to_read_has_no_scripts() -> None:
    before, after = {"package.json": PACKAGE}, {"package.json": "[" * 200_000}
    assert weakened("npm test", before.get, after.get)
    assert weakened("npm test", after.get, after.get) == ()


LINES = st.lists(
    st.sampled_from(
        [
            "test: a",
            "a:",
            "\ttrue",
            "include Makefile",
            "X = $(X)",
            "define X",
            "endef",
            "ifdef X",
            "else",
            "endif",
            "a:b:c",
        ]
    )
    | st.text(max_size=8)
).map("\n".join)


@settings(deadline=None, database=None)
@given(st.sampled_from(["make", "make test", "npm test", "sh Makefile"]) | st.text(max_size=12), LINES, LINES)
def test_no_text_raises_and_an_unchanged_tree_is_fine(command: str, before: str, after: str) -> None:
    was, now = {"Makefile": before, "package.json": before}, {"Makefile": after, "package.json": after}
    weakened(command, was.get, now.get)
    assert weakened(command, was.get, was.get) == ()


# --- a project's test command ------------------------------------------------------------------------------


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
