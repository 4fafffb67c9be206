"""Changes to the files that the test command runs are found, without running or expanding anything."""

import pytest
from hypothesis import given, settings, strategies as st

from runplan.checks.guarded import weakened

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
    return [f"{path}:{line}: {detail}" for path, line, detail in weakened(command, TREE.get, after.get)]


def made(old: str, new: str) -> str:
    assert old in MAKE
    return MAKE.replace(old, new, 1)


CHANGED = "which the test command runs, was changed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(made("\t$(PYTEST) $(TESTS)\n", "\ttrue\n"), f"10: `test`, {CHANGED}", id="replaced"),
        pytest.param(made("\t$(PYTEST) $(TESTS)\n", ""), f"10: `test`, {CHANGED}", id="a line less"),
        pytest.param(made("\t$(PYTEST)", "\t-$(PYTEST)"), f"10: `test`, {CHANGED}", id="errors ignored"),
        pytest.param(made("$(TESTS)\n", "$(TESTS) || true\n"), f"10: `test`, {CHANGED}", id="or true"),
        pytest.param(made("$(PYTEST) $(TESTS)", "$(PYTEST) tests/a"), f"10: `test`, {CHANGED}", id="fewer tests"),
        pytest.param(made("PYTEST = python3 -m pytest", "PYTEST = true"), f"1: `PYTEST`, {CHANGED}", id="its program"),
        pytest.param(made(" -m pytest", " -m pytest --co"), f"1: `PYTEST`, {CHANGED}", id="an option in a variable"),
        pytest.param(made(" -m pytest", " -m pytest tests/a"), f"1: `PYTEST`, {CHANGED}", id="narrowed in a variable"),
        pytest.param(made("tests/a tests/b", "tests/a"), f"2: `TESTS`, {CHANGED}", id="an argument less"),
        pytest.param(made("tests/b\n", "tests/b\nTESTS = y\n"), f"3: `TESTS`, {CHANGED}", id="set anew"),
        pytest.param(MAKE + "ifdef CI\nPYTEST = true\nendif\n", f"25: `PYTEST`, {CHANGED}", id="under a condition"),
        pytest.param(MAKE + "test:\n\ttrue\n", f"24: `test`, {CHANGED}", id="redefined"),
        pytest.param(MAKE + "test: ; true\n", f"24: `test`, {CHANGED}", id="redefined in a line"),
        pytest.param(MAKE + "SHELL := true\n", "24: `SHELL` was added", id="another shell"),
        pytest.param(MAKE + "test: SHELL = x\n", f"24: `test`, {CHANGED}", id="a variable for it"),
        pytest.param(MAKE + ".IGNORE:\n", "24: `.IGNORE` was added", id="all errors ignored"),
        pytest.param(MAKE + "MAKEFLAGS += -n\n", "24: `MAKEFLAGS` was added", id="a dry run"),
        pytest.param(MAKE + "$(eval X)\n", "24: `$(eval X)` was added", id="evaluated"),
        pytest.param(MAKE + "include x.mk\n", "24: `include x.mk` was added", id="included"),
        pytest.param(made(".PHONY: test lint", ".PHONY: lint"), f"5: `.PHONY`, {CHANGED}", id="no longer phony"),
        pytest.param(made("lint prog", "prog"), f"8: `test`, {CHANGED}", id="a prerequisite less"),
        pytest.param(made("\truff check .\n", "\ttrue\n"), f"14: `lint`, {CHANGED}", id="a prerequisite's recipe"),
        pytest.param(
            MAKE[: MAKE.index("test: lint")], "8: `test`, which the test command runs, was removed", id="gone"
        ),
    ],
)
def test_files_that_a_target_runs_are_guarded(text: str, expected: str) -> None:
    assert found("make test", Makefile=text) == [f"Makefile:{expected}"]


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
    (finding,) = found("make test", GNUmakefile="test: lint prog\n\ttrue\n")
    assert finding == "GNUmakefile:1: `test` was added"


def test_the_lines_of_a_definition_belong_to_its_name() -> None:
    text = "define RUN\npytest\nendef\ndefine OTHER\nls\nendef\ntest:\n\t$(RUN)\n"
    tree = {"Makefile": text}
    changed = {"Makefile": text.replace("pytest", "true")}
    assert weakened("make test", tree.get, changed.get) == [("Makefile", 2, f"`RUN`, {CHANGED}")]
    assert weakened("make test", tree.get, {"Makefile": text.replace("ls", "pwd")}.get) == []


def test_files_that_a_makefile_includes_are_guarded() -> None:
    tree = {"Makefile": "include mk/test.mk\n", "mk/test.mk": "test:\n\tpytest\n"}
    after = {**tree, "mk/test.mk": "test:\n\ttrue\n"}
    (one,) = weakened("make test", tree.get, after.get)
    assert one[:2] == ("mk/test.mk", 2)


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
        ("make -j 4", {"Makefile": "all:\n\tsh a.sh\n"}, "a.sh"),
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
    assert one[:2] == (behind, 1)


def test_makefiles_that_call_make_often_are_read_once() -> None:
    made = {"Makefile": "test:\n" + "\t$(MAKE) -C sub all\n" * 50, "sub/Makefile": "all:\n" + "\tmake -C ..\n" * 50}
    assert weakened("make test", made.get, made.get) == []


def test_scripts_that_run_each_other_are_read_once() -> None:
    tree = {"a.sh": "sh b.sh\nsh b.sh\n" * 50, "b.sh": "sh a.sh\nsh a.sh\n" * 50}
    assert weakened("sh a.sh", tree.get, tree.get) == []


def test_a_package_that_is_nested_too_deep_to_read_has_no_scripts() -> None:
    before, after = {"package.json": PACKAGE}, {"package.json": "[" * 200_000}
    assert weakened("npm test", before.get, after.get)
    assert weakened("npm test", after.get, after.get) == []


LINES = st.lists(
    st.sampled_from(
        [
            *("test: a", "a:", "\ttrue", "include Makefile", "X = $(X)", "define X", "endef", "ifdef X"),
            *("else", "endif", "a:b:c"),
        ]
    )
    | st.text(max_size=8)
).map("\n".join)


@settings(deadline=None, database=None)
@given(st.sampled_from(["make", "make test", "npm test", "sh Makefile"]) | st.text(max_size=12), LINES, LINES)
def test_no_text_raises_and_an_unchanged_tree_is_fine(command: str, before: str, after: str) -> None:
    was, now = {"Makefile": before, "package.json": before}, {"Makefile": after, "package.json": after}
    weakened(command, was.get, now.get)
    assert weakened(command, was.get, was.get) == []


def test_a_target_is_found_although_a_variable_has_its_name() -> None:
    before, after = ({"Makefile": f"test = tests\ntest:\n\t{run}\n"} for run in ("pytest $(test)", "true"))
    assert [path for path, _, _ in weakened("make test", before.get, after.get)] == ["Makefile"]
