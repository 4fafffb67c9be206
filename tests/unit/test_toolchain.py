"""The set-up and the test command that fit a project, and the needs of a command."""

import json

import pytest

from runplan.domain.settings.toolchain import (
    INPUTS,
    commands_of,
    detect,
    find_interfaces,
    list_inputs,
    manifests,
    missing_file,
    module_of,
    needed_setup,
    programs_of,
)


def package(**tables: object) -> str:
    return json.dumps({"scripts": {"test": "vitest"}, "devDependencies": {"vitest": "1"}, **tables})


UV_GROUP = "dependency-groups.t = ['pytest']\ntool.uv.default-groups = ['t']"
PEP621 = "[project]\nname = 'a'\n"
VENV = "mkdir -p .venv && echo '*' >.venv/.gitignore && python3 -m venv .venv && "
UNITTEST = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"
PIP = ".venv/bin/pip install "
PYTEST = ".venv/bin/python -m pytest"
CTEST = "cmake --build build && ctest --test-dir build --output-on-failure"


@pytest.mark.parametrize(
    ("texts", "setup", "tests"),
    [
        ({".gitmodules": "", "tests/a.sh": ""}, "git submodule update --init --recursive", "sh tests/a.sh"),
        ({"tests/$(id).sh": ""}, "", "sh 'tests/$(id).sh'"),
        # Python
        ({"uv.lock": "", "pyproject.toml": PEP621, "tests/a.py": ""}, "uv sync --frozen", "uv run pytest"),
        ({"uv.lock": "", "pyproject.toml": "[dependency-groups]\nlint=['a']\ntests = ['pytest>8']", "tests/a.py": ""},
         "uv sync --frozen --group tests", "uv run --group tests pytest"),
        ({"uv.lock": "", "test_a.py": "", "pyproject.toml": UV_GROUP},
         "uv sync --frozen", "uv run pytest"),
        ({"uv.lock": "", "pyproject.toml": PEP621 + "optional-dependencies = {test = ['pytest']}", "tests/a.py": ""},
         "uv sync --frozen --extra test", "uv run --extra test pytest"),
        ({"poetry.lock": "", "pyproject.toml": "", "tests/a.py": ""}, "poetry install", "poetry run pytest"),
        ({"requirements.txt": "a\n", "requirements-dev.txt": "pytest==8\n", "requirements-x.txt": "", "pytest.ini": ""},
         f"{VENV}{PIP}-r requirements.txt -r requirements-dev.txt", PYTEST),
        ({"requirements.txt": "flask\n", "tests/a.py": "", ".gitignore": "/.venv/\n"},
         f"python3 -m venv .venv && {PIP}-r requirements.txt pytest", PYTEST),
        ({"pyproject.toml": PEP621 + "optional-dependencies = {test = ['pytest'], docs = ['x']}", "tests/a.py": ""},
         f"{VENV}{PIP}-e '.[test]'", PYTEST),
        ({"pyproject.toml": PEP621 + "[dependency-groups]\ntest = ['pytest']", "tests/a.py": ""},
         f"{VENV}{PIP}-U pip && {PIP}-e . --group test", PYTEST),
        ({"pyproject.toml": "dependency-groups.'$(id)' = ['pytest']", "requirements a.txt": "", "tests/a.py": ""},
         f"{VENV}{PIP}-r 'requirements a.txt' pytest", PYTEST),
        ({"setup.py": "", "test_a.py": ""}, f"{VENV}{PIP}-e . pytest", PYTEST),
        ({"tests/a.py": ""}, f"{VENV}{PIP}pytest", PYTEST),
        ({"pyproject.toml": "[broken", "tests/a.py": ""}, f"{VENV}{PIP}pytest", PYTEST),
        ({"test_a.py": UNITTEST, ".gitignore": ".pytest_cache\n"}, "", "python3 -m unittest"),
        ({"tests/__init__.py": "", "tests/unit/__init__.py": "", "tests/unit/test_a.py": UNITTEST}, "",
         "python3 -m unittest"),
        ({"test/test_a.py": UNITTEST, "test/data.py": "", "requirements.txt": "flask\n"},
         f"{VENV}{PIP}-r requirements.txt", ".venv/bin/python -m unittest discover -s test"),
        ({"pyproject.toml": PEP621, "tests/test_a.py": UNITTEST}, f"{VENV}{PIP}-e .",
         ".venv/bin/python -m unittest discover -s tests"),
        ({"uv.lock": "", "test_a.py": UNITTEST}, "uv sync --frozen", "uv run python -m unittest"),
        ({"test_a.py": UNITTEST, "tests/test_b.py": UNITTEST}, f"{VENV}{PIP}pytest", PYTEST),
        ({"test_a.py": UNITTEST, "test_b.py": "def test_b(): pass\n"}, f"{VENV}{PIP}pytest", PYTEST),
        ({"test_a.py": UNITTEST, "requirements.txt": "pytest\n"}, f"{VENV}{PIP}-r requirements.txt", PYTEST),
        # Node
        ({"package.json": package(), "package-lock.json": ""}, "npm ci", "npm test"),
        ({"package.json": package()}, "npm install --no-package-lock", "npm test"),
        ({"package.json": package(devDependencies={})}, "", "npm test"),
        ({"package.json": package(), "pnpm-lock.yaml": ""}, "pnpm install --frozen-lockfile", "pnpm test"),
        ({"package.json": package(scripts={}), "pnpm-lock.yaml": "", "vitest.config.ts": ""},
         "pnpm install --frozen-lockfile", "pnpm exec vitest run"),
        ({"package.json": package(), "yarn.lock": ""}, "yarn install --frozen-lockfile", "yarn test"),
        ({"package.json": package(packageManager="yarn@1.22.0"), "yarn.lock": ""},
         "yarn install --frozen-lockfile", "yarn test"),
        ({"package.json": package(packageManager="yarn@4.1.0"), "yarn.lock": ""},
         "corepack yarn install --immutable", "corepack yarn test"),
        ({"package.json": package(packageManager="pnpm@10.1.0"), "package-lock.json": ""},
         "pnpm install --no-lockfile", "pnpm test"),
        ({"package.json": package(), "bun.lock": ""}, "bun install --frozen-lockfile", "bun run test"),
        ({"package.json": package(), "bun.lockb": ""}, "bun install --frozen-lockfile", "bun run test"),
        ({"jest.config.js": ""}, "", "npx jest"),
        # others
        ({"go.mod": "", "a_test.go": ""}, "go mod download", "go test -v ./..."),
        ({"Cargo.toml": "", "Cargo.lock": ""}, "cargo fetch --locked", "cargo test"),
        ({"Gemfile": "", "Gemfile.lock": "", ".rspec": ""}, "bundle install", "bundle exec rspec"),
        ({"Gemfile": "", ".rspec": ""}, "", "bundle exec rspec"),
        ({"spec/sums_spec.rb": ""}, "", "rspec"),
        ({"pom.xml": ""}, "", "mvn -B test"),
        ({"pom.xml": "", "mvnw": ""}, "", "./mvnw -B test"),
        ({"build.gradle.kts": "", "gradlew": ""}, "", "./gradlew test"),
        ({"build.gradle": ""}, "", "gradle test"),
        ({"composer.json": "{}", "phpunit.xml.dist": ""}, "composer install", "vendor/bin/phpunit"),
        ({"t/sums.t": ""}, "", "prove -lr t"),
        ({"features/sums.feature": "", "features/steps/a.py": "", "setup.py": ""}, f"{VENV}{PIP}-e . pytest",
         ".venv/bin/python -m behave"),
        ({"features/sums.feature": "", "package.json": package(scripts={})}, "npm install --no-package-lock",
         "npx cucumber-js"),
        ({"build.sbt": ""}, "", "sbt test"),
        ({"Package.swift": ""}, "", "swift test"),
        ({"Sums.sln": ""}, "", "dotnet test"),
        ({"CMakeLists.txt": "include(CTest)\n", ".gitignore": "build/\n"}, "", f"cmake -S . -B build && {CTEST}"),
        ({"CMakeLists.txt": "enable_testing()\n"}, "",
         f"cmake -S . -B build && echo '*' >build/.gitignore && {CTEST}"),
        ({"CMakeLists.txt": "include(x)\n"}, "", ""),
        ({"mise.toml": "tasks.test.run = 'a'", "tests/a.sh": ""}, "mise trust && mise install", "mise run test"),
        # several, and make
        ({".mise.toml": "tasks.test = 'a'", "package.json": package()},
         "mise trust && mise install && npm install --no-package-lock", "npm test"),
        ({".gitmodules": "", "uv.lock": "", "package.json": package(), "package-lock.json": "", "tests/a.py": ""},
         "git submodule update --init --recursive && uv sync --frozen && npm ci", "npm test"),
        ({"Makefile": "test:\n\tpytest\n", "requirements.txt": "pytest"}, f"{VENV}{PIP}-r requirements.txt",
         ". .venv/bin/activate && make test"),
        ({"Makefile": "test:\n\tpytest\n", "uv.lock": ""}, "uv sync --frozen", "uv run make test"),
        ({"Makefile": "test:\n\tuv run pytest\n", "uv.lock": ""}, "uv sync --frozen", "make test"),
        ({"Makefile": "test:\n\tpython3 -m venv e && e/bin/pytest\n", "setup.py": ""}, "", "make test"),
        ({"Makefile": "test:\n\tsh tests/a.sh\n", "tests/a.py": ""}, "", "make test"),
        ({"Makefile": "test:\n\tgo test\n", "go.mod": ""}, "go mod download", "make test"),
    ],
)  # fmt: skip
def test_set_up_and_tests_are_found_in_manifests(texts: dict[str, str], setup: str, tests: str) -> None:
    found = detect(list(texts), {name: texts[name] for name in manifests(list(texts))})
    assert (found.setup, found.tests) == (setup, tests)


@pytest.mark.parametrize(
    ("files", "paths", "junit"),
    [
        (["t/sums.t", "t/lib/Help.pm"], ("t/**",), ()),
        (["features/sums.feature", "features/steps/a.py", "tests/test_a.py"], ("features/**",), ()),
        (["features/login/page.tsx", "spec/a_spec.rb", "tests/a.py"], (), ()),  # no tests, and known ones
        (["cypress/e2e/login.cy.js", "Tests/SumsTests/Sums.swift"], ("cypress/**", "Tests/**"), ()),
        (["build.sbt"], (), ("**/target/test-reports/*.xml",)),
        (["pom.xml"], (), ("**/target/surefire-reports/TEST-*.xml",)),
        (["gradlew"], (), ("**/build/test-results/*/TEST-*.xml",)),
    ],
)
def test_test_files_and_results_are_found_by_the_layout(files: list[str], paths: object, junit: object) -> None:
    found = detect(files, {})
    assert (found.paths, found.junit) == (paths, junit)


def test_every_tool_with_a_set_up_knows_its_input_files() -> None:
    """A tool without them would not be set up again after a change."""
    lists = ["uv.lock", "yarn.lock", "go.mod", "Cargo.lock", "Gemfile.lock", "composer.json"]
    found = detect([".gitmodules", "mise.toml", *lists], {})
    assert [tool.kind for tool in found.tools if tool.setup] == list(INPUTS)
    assert all(set(tool.signs) & set(INPUTS[tool.kind]) for tool in found.tools)


@pytest.mark.parametrize(
    ("command", "named", "path"),
    [
        ("pip install -e .", (), "pyproject.toml"),
        ("pip install -e .", (), "libs/a/setup.cfg"),
        ("pip install -r requirements/dev.txt", (), "requirements/base.txt"),
        ("npm ci", (), "web/package-lock.json"),
        ("composer install", (), "composer.lock"),
        ("make deps", (), "Makefile"),
        ("sh tools/deps.sh", (), "tools/deps.sh"),
        ("cp etc/*.conf .", (), "etc/a.conf"),
        ("pip install .", ("src/**",), "src/a/__init__.py"),
    ],
)
def test_set_up_inputs_are_manifests_and_the_files_it_names(command: str, named: tuple[str, ...], path: str) -> None:
    others = ["a/__init__.py", "README.md", "tools/x.py", "etc/sub/a.conf", "tests/requirements.py"]
    assert list_inputs([*others, path], command, named) == [path]


def test_a_word_of_a_set_up_is_no_folder_by_chance() -> None:
    assert list_inputs(["install/a.py", "-e/b.py"], "pip install -e .", ()) == []


def test_the_set_up_that_init_writes_does_not_depend_on_the_code() -> None:
    (venv,) = detect(["prices.py", "tests/test_prices.py"], {}).tools
    assert "echo '*' >" in venv.setup
    assert list_inputs(["prices.py", "tests/test_prices.py"], venv.setup, ()) == []


@pytest.mark.parametrize(
    ("files", "shown_by"),
    [
        pytest.param(["tests/x.py"], "tests/x.py", id="N7"),
        pytest.param(["README.md", "src.py", "test.txt"], "", id="N8"),
        pytest.param([], "", id="N8-empty"),
        pytest.param(["tests/unit/a.js"], "tests/unit/a.js", id="nested"),
        pytest.param(["tests/data.json"], "", id="data-only"),
        pytest.param(["Cargo.toml", "go.mod", "pom.xml"], "", id="suggestions-only"),
        pytest.param(["Makefile", "package.json"], "", id="files-without-a-test"),
    ],
)
def test_files_show_whether_there_are_tests(files: list[str], shown_by: str) -> None:
    assert detect(files, {}).shown_by == shown_by


@pytest.mark.parametrize(
    ("makefile", "command"),
    [
        *((makefile, "make test") for makefile in ("all:\n\ttrue\ntest: all\n\ttrue\n", "lint test : all\n\ttrue\n")),
        ("check:\n\ttrue\n", "make check"),
        *((makefile, "") for makefile in (".PHONY: test\n", "test ::= 1\n", "test := 1\nlatest:\n\ttrue\n")),
        ("test:= 1\n", ""),
    ],
)
def test_a_makefile_counts_when_it_can_make_tests(makefile: str, command: str) -> None:
    assert detect(["Makefile"], {"Makefile": makefile}).tests == command


@pytest.mark.parametrize(
    ("package_json", "present"),
    [
        ('{"scripts": {"test": "vitest"}}', True),
        ('{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}', False),
        *((package_json, False) for package_json in ('{"scripts": {"test": " "}}', '{"scripts": {"build": "tsc"}}')),
        *((package_json, False) for package_json in ('{"scripts": []}', "[]", "{broken")),
    ],
)
def test_a_package_counts_when_it_has_a_real_test_script(package_json: str, present: bool) -> None:
    assert bool(detect(["package.json"], {"package.json": package_json}).shown_by) is present


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
    ("line", "programs"),
    [
        ("pytest -q", ["pytest"]),
        ("A=1 B=2 ./run.sh", ["./run.sh"]),
        *((line, ["make"]) for line in ("cd sub && make", ". .venv/bin/activate && make test")),
        ("npm ci && (uv sync; npm test) | tee log", ["npm", "uv", "tee"]),
        ("go vet\ngo test", ["go"]),
        *((line, []) for line in ("echo '*' >a/.gitignore", "test -e x", "$TOOL x", "", "'unbalanced")),
    ],
)
def test_the_programs_of_a_line_are_known_where_they_are_plain(line: str, programs: list[str]) -> None:
    assert programs_of(line) == programs
    assert all(words[0] for words in commands_of(line))


@pytest.mark.parametrize(
    ("line", "module"),
    [("python3 -m pytest -q", ("python3", "pytest")), ("cd a && python3.12 -m nox", ("python3.12", "nox")),
     (".venv/bin/python -m pytest", ("", "")), ("python3 run.py", ("", "")), ("python3 -m", ("", ""))],
)  # fmt: skip
def test_the_module_of_an_installed_python_is_known(line: str, module: tuple[str, str]) -> None:
    assert module_of(line) == module


@pytest.mark.parametrize(
    ("texts", "line", "what", "setup"),
    [
        ({".gitmodules": ""}, "make test", "submodules", "git submodule update --init --recursive"),
        ({"package.json": package(), "package-lock.json": ""}, "npm test", "node_modules", "npm ci"),
        ({"requirements.txt": "pytest"}, PYTEST, "virtual environment", f"{VENV}{PIP}-r requirements.txt"),
        ({"Makefile": "test:\n\tvenv/bin/pytest\n", "pyproject.toml": PEP621}, "make test", "virtual environment",
         f"{VENV}{PIP}-e . pytest".replace(".venv", "venv")),
        ({"requirements.txt": "pytest"}, "python3 -m pytest", "Python packages?", f"{VENV}{PIP}-r requirements.txt"),
        ({"requirements.txt": "six"}, "python3 -m unittest", "Python packages?", f"{VENV}{PIP}-r requirements.txt"),
        ({"tests/test_a.py": ""}, ".venv/bin/python -m unittest -v", "virtual environment", VENV.removesuffix(" && ")),
        ({"tests/test_a.py": ""}, "python3 -m unittest discover -v", "", ""),
        ({"package.json": package(devDependencies={})}, "npm test", "", ""),
        ({"package.json": package(), "node_modules": ""}, "npm test", "", ""),
        ({"uv.lock": ""}, "uv run pytest", "", ""),
        ({"go.mod": ""}, "go test -v ./...", "", ""),
        ({"Makefile": "v:\n\tpython -m venv .venv\ntest: v\n\t.venv/bin/pytest\n"}, "make test", "", ""),
        ({"Makefile": "test:\n\tgo test\n"}, "make test", "", ""),
    ],
)  # fmt: skip
def test_a_worktree_s_need_is_named_with_its_command(texts: dict[str, str], line: str, what: str, setup: str) -> None:
    """The mark `?` is for a need that is not certain."""
    need = needed_setup(list(texts), {name: texts[name] for name in manifests(list(texts))}, line)
    found = (need.what + ("" if need.is_certain else "?"), need.setup) if need else ("", "")
    assert found == (what, setup)


def test_the_folders_of_interfaces_are_those_that_have_all_their_files() -> None:
    files = ["index.html", "app/web/css/a.css", "app/web/a.html", "docs/a.html", ".x/a.css", "tests/a.html", "ui/b.vue"]
    assert find_interfaces([*files, ""]) == ("app/web/**", "ui/**")
