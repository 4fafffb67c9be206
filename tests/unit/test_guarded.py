"""Changes to the files that decide how checks run are found by paths, whole files and parsed values."""

import pytest
from hypothesis import given, settings, strategies as st

from runplan.domain.checks.guarded import (
    find_altered,
    find_changes,
    is_project_settings,
    list_named,
    list_scripts,
    read_sections,
)
from runplan.domain.globs import covers

PACKAGE = """\
{
  "name": "x",
  "scripts": {"lint": "eslint .", "test": "sh tools/test.sh"},
  "jest": {"coverageThreshold": {"global": {"branches": 80}}},
  "dependencies": {"left": "1"}
}
"""
PYPROJECT = """\
[project]
name = "x"
dependencies = ["left"]
[tool.pytest.ini_options]
addopts = ["-ra"]
[tool.ruff]
line-length = 100
"""
TREE = {
    "Makefile": "all: test\ntest:\n\tsh tests/run.sh\n\t./app.sh && cc src/app.c\n",
    "tests/run.sh": "./app.sh | diff - tests/expected\n. tests/test-more.sh\n",
    "tests/test-more.sh": "test 1 = 1\n",
    "tests/expected": "hello\n",
    "tests/test_a.py": "def test_a():\n    assert 1\n",
    "tests/index.js": "check()\n",
    "app.sh": "echo hello\n",
    "src/app.c": "int main;\n",
    "native/Makefile": "check:\n\ttrue\n",
    "tools/test.sh": "set -e\nsh tools/more-tests.sh\n",
    "tools/more-tests.sh": "pytest\n",
    "tools/check.py": "run()\n",
    "requirements.txt": "left\n",
    "mise.toml": "[tasks]\ntest = 'pytest'\n",
    "package.json": PACKAGE,
    "pyproject.toml": PYPROJECT,
    "tox.ini": "[testenv]\ndeps = left\ncommands = pytest\n[pytest]\naddopts = -ra\n[flake8]\nignore = E1\n",
    "pytest.ini": "[pytest]\n",
    "tests/conftest.py": "import pytest\n",
}


def found(command: str, path: str, text: str | None) -> list[str]:
    """The findings after one file has this text, or is gone."""
    after = {**TREE, path: text}
    return [f"{path}: {detail}" for path, detail in find_changes([command], [path], before=TREE.get, after=after.get)]


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("sh tools/test.sh", "tools/test.sh"),
        ("./tools/test.sh -v", "tools/test.sh"),
        ("cd tools && bash -eu test.sh", "tools/test.sh"),
        ("env CI=1 timeout 60 sh -c 'sh tools/test.sh; true'", "tools/test.sh"),
        ("$PWD/tools/test.sh", "tools/test.sh"),
        ("python3 tools/check.py", "tools/check.py"),
        ("python3 -m tools.check", "tools/check.py"),
        ("sh tests/run.sh", "tests/run.sh"),
    ],
)
def test_a_script_that_a_command_names_is_guarded_as_a_whole(command: str, path: str) -> None:
    assert found(command, path, f"{TREE[path]}# x\n") == [f"{path}: a check runs it, and it was changed"]
    assert found(command, path, None) == [f"{path}: a check runs it, and it was removed"]


@pytest.mark.parametrize(
    ("command", "covered", "free"),
    [
        ("sh agent.sh", "agent.sh", "sh"),
        ("sh tools/setup.sh && python3 setup.py develop", "tools/setup.sh", "setup.py"),
        ("./tools/agent -x", "tools/agent", "tools/agent/x"),
        ("python3 -m tools.agent", "tools/agent.py", "tools.py"),
        ("cd tools && node agent.mjs", "tools/agent.mjs", "tools"),
        ("aider --read README.md src --model openai/gpt", "openai/gpt", "README.md"),
        ("sh -c 'sh agent.sh >made'", "agent.sh", "made"),
    ],
)
def test_the_scripts_of_a_command_are_named_as_files(command: str, covered: str, free: str) -> None:
    assert covers(list_scripts(command), covered)
    assert not covers(list_scripts(command), free)


@pytest.mark.parametrize(
    ("command", "path"),
    [("make test", "tests/run.sh"), ("npm test", "tools/test.sh"), ("sh tools/test.sh", "tools/more-tests.sh")],
)
def test_a_test_script_is_guarded_that_a_script_or_recipe_names(command: str, path: str) -> None:
    assert found(command, path, "true\n") == [f"{path}: a check runs it, and it was changed"]


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("make test", "app.sh"),
        ("make test", "src/app.c"),
        ("sh tests/run.sh", "app.sh"),
        ("sh tests/run.sh", "tests/test-more.sh"),
        ("npm test", "tools/more-tests.sh"),  # only one step is followed
        ("pytest tests/test_a.py", "tests/test_a.py"),
        ("node tests/index.js", "tests/index.js"),
        ("pip install -r requirements.txt && pytest", "requirements.txt"),
        ("pytest", "tools/test.sh"),
        ("pytest", "Makefile"),
        ("pytest", "tests/conftest.py"),
        ("sh tools/new.sh", "tools/new.sh"),
    ],
)
def test_the_product_test_files_and_new_scripts_are_free(command: str, path: str) -> None:
    assert found(command, path, "changed\n") == []


@pytest.mark.parametrize("path", ["Makefile", "native/Makefile", "GNUmakefile"])
def test_makefiles_are_guarded_where_a_check_runs_make(path: str) -> None:
    """Also a new one that make prefers."""
    (finding,) = found("make -s test", path, f"{TREE.get(path, '')}\nbench:\n\ttrue\n")
    assert finding.startswith(f"{path}: a check runs make, which reads it, and it was ")
    assert [found("make test", new, "html:\n\ttrue\n") for new in ("docs/Makefile", "more.mk")] == [[], []]


def test_tasks_of_mise_and_included_makefiles_are_guarded_where_a_check_runs_them() -> None:
    wanted = ["mise.toml: a check runs mise, which reads it, and it was changed"]
    assert found("mise run test", "mise.toml", "[tasks]\ntest = 'true'\n") == wanted
    assert found("pytest", "mise.toml", "[tasks]\n") == []
    before = {"rules.mk": "all:\n"}
    (finding,) = find_changes(["make test"], ["rules.mk"], before=before.get, after={"rules.mk": "x:\n"}.get)
    assert finding == ("rules.mk", "a check runs make, which reads it, and it was changed")


@pytest.mark.parametrize(
    ("path", "how"),
    [
        ("pytest.ini", "was changed"),
        *((path, "was added") for path in ("jest.config.js", "sub/.coveragerc", "conftest.py")),
        ("tests/unit/conftest.py", "was added"),
    ],
)
def test_files_that_runners_read_are_guarded(path: str, how: str) -> None:
    assert found("pytest", path, "x\n") == [f"{path}: test runners read it, and it {how}"]


@pytest.mark.parametrize(
    ("command", "path", "old", "new", "section"),
    [
        ("npm test", "package.json", "sh tools/test.sh", "true", "scripts.test"),
        ("yarn test", "package.json", '"lint": "eslint ."', '"lint": "true"', "scripts.lint"),
        ("pnpm test", "package.json", '"lint"', '"pretest": "exit 0", "lint"', "scripts.pretest"),
        ("make test && npm test", "package.json", '"test": "sh tools/test.sh"', '"x": ""', "scripts.test"),
        ("node_modules/.bin/jest", "package.json", "80", "10", "jest"),
        ("npm test", "package.json", "{", "[" * 100_000, "scripts.lint, scripts.test, jest, all"),
        ("pytest", "pyproject.toml", '"-ra"', '"-ra", "-p", "cheat"', "tool.pytest"),
        ("pytest", "pyproject.toml", "[tool.ruff]", "[tool.coverage.run]\n[tool.ruff]", "tool.coverage"),
        (
            *("pytest", "pyproject.toml", "[tool.ruff]", "[project.entry-points.pytest11]\nx = 'y'\n[tool.ruff]"),
            "project.entry-points.pytest11",
        ),
        ("pytest", "tox.ini", "addopts = -ra", "addopts = --deselect x", "pytest"),
        ("tox", "tox.ini", "commands = pytest", "commands = true", "testenv"),
    ],
)
def test_sections_of_settings_are_compared_as_values(command: str, path: str, old: str, new: str, section: str) -> None:
    assert old in TREE[path]
    (finding,) = found(command, path, TREE[path].replace(old, new, 1))
    assert finding == f"{path}: its sections {section} decide how checks run, and changed"


@pytest.mark.parametrize(
    ("command", "path", "old", "new"),
    [
        ("npm test", "package.json", '"left": "1"', '"left": "1", "right": "2"'),
        ("npm test", "package.json", '"lint"', '"start": "node .", "prestart": "true", "lint"'),
        ("npm test", "package.json", "\n  ", "\n\t"),
        ("pytest", "package.json", "eslint .", "true"),
        ("pytest", "pyproject.toml", '"left"', '"left", "right"'),
        ("pytest", "pyproject.toml", "line-length = 100", "line-length = 120"),
        ("pytest", "tox.ini", "deps = left", "deps = right"),
        ("tox", "tox.ini", "[pytest]", "# said\n[pytest]"),
    ],
)
def test_other_sections_and_the_form_of_settings_are_free(command: str, path: str, old: str, new: str) -> None:
    assert old in TREE[path]
    assert found(command, path, TREE[path].replace(old, new, 1)) == []


def test_nothing_is_guarded_without_a_check() -> None:
    after = {"Makefile": "x"}
    assert find_changes([], ["Makefile", "pytest.ini"], before=TREE.get, after=after.get) == []


TEXTS = st.lists(
    st.sampled_from(["test: a", "[pytest]", "[tool.pytest]", "{", '"scripts"', "x = 1", "../..", "tests/run.sh"])
    | st.text(max_size=8)
).map("\n".join)
PATHS = ("Makefile", "package.json", "pyproject.toml", "tox.ini", "x.sh")


@settings(deadline=None, database=None)
@given(st.sampled_from(["make", "npm test", "sh x.sh", "tox"]) | st.text(max_size=12), TEXTS, TEXTS)
def test_no_text_raises_and_an_unchanged_tree_is_fine(command: str, before: str, after: str) -> None:
    was, now = dict.fromkeys(PATHS, before), dict.fromkeys(PATHS, after)
    find_changes([command], PATHS, before=was.get, after=now.get)
    assert find_changes([command], PATHS, before=was.get, after=was.get) == []


@pytest.mark.parametrize(
    ("path", "was", "now", "differs"),
    [
        ("pyproject.toml", "[tool.pytest.ini_options]\na = 1\n", "[tool.pytest.ini_options]\na = 2\n", True),
        ("a/pyproject.toml", "[project]\nversion = '1'\n", "[project]\nversion = '2'\n", False),
        ("setup.cfg", "[tool:pytest]\naddopts = -x\n", "", True),
        ("package.json", '{"version": "1", "jest": {}}', '{"version": "2", "jest": {}}', False),
    ],
)
def test_settings_of_a_test_runner_are_told_from_others(path: str, was: str, now: str, differs: bool) -> None:
    assert is_project_settings(path)
    old, new = (read_sections(path.rpartition("/")[2], text, set()) for text in (was, now))
    assert (old != new) is differs


SHIPS = {
    "Makefile": "include rules.mk\nship: build\n\t./tools/ship.sh src/app.c\n",
    "tools/ship.sh": "#!/bin/sh\n. lib.sh\npython tools/push.py\n",
    "tools/push.py": "import other\n",
    "package.json": '{"scripts": {"ship": "node tools/ship.js"}}',
}


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("make ship", {"Makefile", "rules.mk", "tools/ship.sh", "tools/lib.sh", "tools/push.py"}),
        ("sh tools/ship.sh now", {"tools/ship.sh", "tools/lib.sh", "tools/push.py"}),
        ("npm run ship", {"package.json", "tools/ship.js"}),
        ("cd tools && python -m push", {"tools/push.py"}),
        ("git push origin main", set()),
    ],
)
def test_the_changed_files_of_a_command_are_found_new_ones_too(command: str, found: set[str]) -> None:
    changed = [*SHIPS, "rules.mk", "tools/lib.sh", "tools/ship.js", "tools/other.py", "src/app.c", "README.md"]
    assert set(find_altered(command, changed, SHIPS.get)) == found
    assert find_altered(command, ["README.md"], SHIPS.get) == []


def test_a_command_names_no_place_outside_of_the_repository() -> None:
    assert list_named("sh ../run.sh . sub/../.. ..hidden") == ("sh", "..hidden")
