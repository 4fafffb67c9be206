"""The set-up and the test command that fit a project by its files, for `init` and `doctor`; a run never guesses."""

import json
import posixpath
import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase, translate
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.checks.guarded import list_named, package_table
from runplan.domain.globs import covers, literal


class Kind(StrEnum):
    """A kind of dependencies; a project has at most one tool of each."""

    SUBMODULES = "submodules"
    MISE = "tools of mise"
    PYTHON = "Python packages"
    NODE = "node_modules"
    GO = "Go modules"
    RUST = "crates"
    RUBY = "gems"
    PHP = "Composer packages"
    BUILD = "packages of the build tool"


class Tool(Struct, frozen=True, kw_only=True):
    kind: Kind
    signs: tuple[str, ...]  #: files, any of which shows that the project uses it
    setup: str = ""  #: "" where the test command fetches what it needs
    unlocked: str = ""  #: the set-up without a lock file, which may not create one
    run: str = ""  #: before a program that the dependencies have
    test: str = ""  #: runs the test script of package.json
    fetches: bool = False  #: whether the test command works without the set-up
    name: str = ""  #: in packageManager of package.json


#: Files that decide what a set-up installs.
INPUTS: dict[Kind, tuple[str, ...]] = {
    Kind.SUBMODULES: (".gitmodules",),
    Kind.MISE: ("mise.toml", ".mise.toml", "mise.lock"),
    Kind.PYTHON: ("uv.lock", "poetry.lock", "requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg"),
    Kind.NODE: ("package.json", "*-lock.json", "npm-shrinkwrap.json", "*-lock.yaml", "yarn.lock", "bun.lock*"),
    Kind.GO: ("go.mod", "go.sum"),
    Kind.RUST: ("Cargo.toml", "Cargo.lock"),
    Kind.RUBY: ("Gemfile", "Gemfile.lock"),
    Kind.PHP: ("composer.json", "composer.lock"),
}
#: Those of package managers that `init` does not know, and the files that choose the version of a language.
_FURTHER_INPUTS = (
    *("Pipfile*", "pdm.lock", "pylock*.toml", "constraints*.txt", "environment.y*ml", ".python-version"),
    *(".nvmrc", ".node-version", ".tool-versions", "deno.lock", "go.work*", "rust-toolchain*", "gems.*", "*.gemspec"),
    *("pom.xml", "build.gradle*", "gradle.lockfile", "mix.exs", "mix.lock"),
    *("pubspec.*", "Package.swift", "Package.resolved", "*.csproj", "packages.lock.json", "flake.lock"),
)
#: Files whose text is read.
_READ = (
    *("Makefile", "package.json", "pyproject.toml", "CMakeLists.txt", ".gitignore", "requirements*.txt"),
    *INPUTS[Kind.MISE][:2],
)
SUBMODULES = Tool(kind=Kind.SUBMODULES, signs=(".gitmodules",), setup="git submodule update --init --recursive")
_PYTEST_SIGNS = ("pytest.ini", "conftest.py", "test_*.py", "tests/*.py", "test/test_*.py")
_VENV = Tool(kind=Kind.PYTHON, signs=(*INPUTS[Kind.PYTHON][2:], *_PYTEST_SIGNS), run=".venv/bin/python -m ")
#: The package managers of Node: lock files, words of the set-up with and without one, prefix of a program, test script.
_MANAGERS = (
    ("pnpm", ("pnpm-lock.yaml",), "install --frozen-lockfile", "install --no-lockfile", "pnpm exec ", "test"),
    ("yarn", ("yarn.lock",), "install --frozen-lockfile", "install --no-lockfile", "yarn run ", "test"),
    ("bun", ("bun.lock", "bun.lockb"), "install --frozen-lockfile", "install --no-save", "bunx ", "run test"),
    ("npm", ("package-lock.json", "npm-shrinkwrap.json"), "ci", "install --no-package-lock", "npx ", "test"),
)
#: Of each kind the first that fits counts. What compiles the project is no set-up: broken work would fail it.
_TOOLS = (
    SUBMODULES,
    # Each worktree is to be trusted anew, else the shims of mise refuse to run.
    Tool(kind=Kind.MISE, signs=INPUTS[Kind.MISE][:2], setup="mise trust && mise install"),
    Tool(kind=Kind.PYTHON, signs=("uv.lock",), setup="uv sync --frozen", run="uv run ", fetches=True),
    Tool(kind=Kind.PYTHON, signs=("poetry.lock",), setup="poetry install", run="poetry run "),
    _VENV,
    *(Tool(kind=Kind.NODE, name=name, signs=locks, setup=f"{name} {locked}", unlocked=f"{name} {unlocked}", run=run,
           test=f"{name} {test}") for name, locks, locked, unlocked, run, test in _MANAGERS),
    Tool(kind=Kind.GO, signs=("go.mod",), setup="go mod download", fetches=True),
    Tool(kind=Kind.RUST, signs=("Cargo.lock",), setup="cargo fetch --locked", fetches=True),
    Tool(kind=Kind.RUST, signs=("Cargo.toml",)),
    Tool(kind=Kind.RUBY, signs=("Gemfile.lock",), setup="bundle install", run="bundle exec "),
    Tool(kind=Kind.RUBY, signs=("Gemfile",), run="bundle exec "),
    Tool(kind=Kind.PHP, signs=("composer.json",), setup="composer install", run="vendor/bin/"),
    Tool(kind=Kind.BUILD, signs=("mvnw",), run="./mvnw -B "),
    Tool(kind=Kind.BUILD, signs=("pom.xml",), run="mvn -B "),
    Tool(kind=Kind.BUILD, signs=("gradlew",), run="./gradlew "),
    Tool(kind=Kind.BUILD, signs=("build.gradle", "build.gradle.kts"), run="gradle "),
    *(Tool(kind=Kind.BUILD, signs=signs, run=run) for signs, run in (
        (("build.sbt",), "sbt "), (("Package.swift",), "swift "), (("*.sln", "*.csproj"), "dotnet "))),
)  # fmt: skip
_CMAKE = "cmake -S . -B build{} && cmake --build build && ctest --test-dir build --output-on-failure"
#: Files that show that there are tests, and what runs them with the dependencies of a kind; "" to run the file.
_TESTS: tuple[tuple[str, Kind | None, str], ...] = (
    ("vitest.config.*", Kind.NODE, "vitest run"),
    ("jest.config.*", Kind.NODE, "jest"),
    (".mocharc.*", Kind.NODE, "mocha"),
    *((sign, Kind.PYTHON, "pytest") for sign in _PYTEST_SIGNS),
    ("*_test.go", Kind.GO, "go test -v ./..."),
    ("tests/*.rs", Kind.RUST, "cargo test"),
    (".rspec", Kind.RUBY, "rspec"),
    ("spec/*_spec.rb", Kind.RUBY, "rspec"),
    ("test/*_test.rb", Kind.RUBY, "rake test"),
    ("phpunit.xml*", Kind.PHP, "phpunit"),
    ("t/*.t", None, "prove -lr t"),
    ("features/steps/*.py", Kind.PYTHON, "behave"),
    ("features/*.feature", Kind.NODE, "cucumber-js"),
    ("tests/*.js", None, "node --test tests/"),
    ("tests/*.sh", None, ""),
)
DEVCONTAINER = ".devcontainer/devcontainer.json"
FOLDERS = ("tests", "test", "t", "spec", "features", "cypress", "Tests")  #: in which tests are looked for
INTERFACES = ("*.html", "*.css", "*.scss", "*.jsx", "*.tsx", "*.vue", "*.svelte")  #: files that a browser shows
_NO_INTERFACE = ("docs", "doc", "site", "examples", "vendor", "third_party")  #: folders that may have such files
#: Files that show that their folder has tests, though their names do not say so.
_PATHS = ("t/*.t", "features/*.feature", "cypress/e2e/*", "Tests/*.swift")
#: JUnit files that build tools write without being asked.
_JUNIT = (
    (r"\bmvnw?\b", "**/target/surefire-reports/TEST-*.xml"),
    (r"\bgradlew?\b", "**/build/test-results/*/TEST-*.xml"),
    (r"^sbt\b", "**/target/test-reports/*.xml"),
)
#: Build tools with a test command: a suggestion, but no sign of tests.
_BUILDS = {Kind.RUST: "cargo test", Kind.GO: "go test -v ./...", Kind.BUILD: "test"}
_RUN_ALONE = {Kind.PYTHON: "python3 -m ", Kind.NODE: "npx "}  #: without a manifest
_CTEST = r"(?im)^[ \t]*(?:(?:enable_testing|add_test)[ \t]*\(|include[ \t]*\([ \t]*CTest\b)"
#: A Makefile that runs one of these has an environment of its own.
_ENVIRONMENTS = r"-m venv|virtualenv|(?<![\w-])(?:uv|poetry|tox|nox|hatch|pdm|pipenv) "
_PYTEST = r"(?i)\s*pytest(?![\w.-])"
_OF_PYTEST = r"(?m)(?<![.\w])pytest\b|^(?:async )?def test"  #: in a manifest or a file of tests: they need pytest
_TEST_FILE = r"(?:.*/)?test[^/]*\.py"
_GROUPS = ("test", "tests", "testing", "dev")  #: usual names of the dependencies of tests, best first
#: Programs that read a file at the top of the project, and the names it may have.
_READS = {
    **dict.fromkeys(("make", "gmake"), ("Makefile", "makefile", "GNUmakefile")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), ("package.json",)),
}
#: With these options they read another one.
_ELSEWHERE = ("-C", "-f", "--directory", "--file", "--makefile", "--prefix", "--cwd", "--dir")
#: Commands of the shell itself.
_SHELL_WORDS = (
    *("!", ":", "[", "{", "}", ".", "cd", "command", "do", "done", "echo", "elif", "else", "eval", "exec", "exit"),
    *("export", "false", "fi", "for", "if", "printf", "set", "source", "test", "then", "true", "ulimit", "umask"),
    *("unset", "until", "wait", "while"),
)


class Toolchain(Struct, frozen=True, kw_only=True):
    tools: tuple[Tool, ...] = ()  #: those that the project uses, with their set-up for it
    tests: str = ""  #: the command that probably runs the tests; "" if unknown
    shown_by: str = ""  #: a file that shows that there are tests; "" for none
    paths: tuple[str, ...] = ()  #: of tests that are not known by their names
    junit: tuple[str, ...] = ()  #: files that the command writes

    @property
    def setup(self) -> str:
        return " && ".join(tool.setup for tool in self.tools if tool.setup)


def list_inputs(paths: Iterable[str], command: str, patterns: Sequence[str]) -> list[str]:
    """The files that decide what a set-up makes: lock files, manifests, those its command names, and `patterns`."""
    named = list_named(command)
    plain = {name for name in named if literal(name) == name}  # a word may be the name of a folder by chance
    # A lone * is no input: `init` writes `echo '*' >.venv/.gitignore`.
    patterns = (*patterns, *(name for name in named if name not in plain and name != "*"))
    names = map(translate, chain(*INPUTS.values(), _FURTHER_INPUTS))
    manifest = re.compile(f"(?:[^/]*/)?(?:{'|'.join(names)})")  # its folder for those like requirements/dev.txt
    tails = ((path, path[path.rfind("/", 0, path.rfind("/")) + 1 :]) for path in paths)
    return [path for path, tail in tails if path in plain or manifest.match(tail) or covers(patterns, path)]


def find_interfaces(files: Iterable[str]) -> tuple[str, ...]:
    """A pattern for each part of the project whose files a browser shows: the folder that has all of them."""
    folders: dict[str, list[str]] = {}
    for path in files:
        folder = posixpath.dirname(path)
        top = folder.partition("/")[0]
        if top and top not in (*FOLDERS, *_NO_INTERFACE) and not top.startswith("."):
            folders.setdefault(top, []).append(folder)
    return tuple(f"{posixpath.commonpath(below)}/**" for _, below in sorted(folders.items()))


def manifests(files: Sequence[str]) -> list[str]:
    tests = [path for path in files if re.fullmatch(_TEST_FILE, path)]
    return [*(path for path in files if _first((path,), _READ)), *tests[:20]]  # as many show what tests look like


def detect(files: Sequence[str], texts: Mapping[str, str], *, needs_pytest: bool = True) -> Toolchain:
    tools = {tool.kind: tool for tool in reversed(_TOOLS) if _first(files, tool.signs)}
    package = texts.get("package.json", "")
    makefile = texts.get("Makefile", "")
    if node := _choose_node(tools.get(Kind.NODE), package):
        tools[Kind.NODE] = node
    # The module and its arguments, if Python's own unittest runs all tests.
    unittest = ""
    modules = [path for path in texts if re.fullmatch(_TEST_FILE, path)]
    has_pytest = any(re.search(_OF_PYTEST, text) for name, text in texts.items() if name != ".gitignore")
    if not has_pytest and any(re.search(r"(?m)^\s*(?:import|from) unittest\b", texts[path]) for path in modules):
        starts = {posixpath.dirname(path) for path in modules}
        while packages := {start for start in starts if start and f"{start}/__init__.py" in files}:
            starts = starts - packages | {posixpath.dirname(package) for package in packages}
        start = starts.pop()  # discovery enters packages only
        unittest = "" if starts else f"unittest discover -s {shlex.quote(start)}" if start else "unittest"
    if unittest and not _first(files, INPUTS[Kind.PYTHON]):
        tools.pop(Kind.PYTHON, None)  # nothing has to be installed
    targets = {target for named in re.findall(r"(?m)^([\w. -]+):(?!:?=)", makefile) for target in named.split()}
    if goal := next((target for target in ("test", "check") if target in targets), ""):
        # Recipes of a project without Python's manifests need no environment.
        has_own = re.search(_ENVIRONMENTS, makefile) or not _first(files, INPUTS[Kind.PYTHON])
        if has_own and tools.get(Kind.PYTHON) is _VENV:
            del tools[Kind.PYTHON]
        python = tools.get(Kind.PYTHON) if not has_own else None
        environment = ". .venv/bin/activate && " if python is _VENV else python.run if python else ""
        tests = f"{environment}make {goal}"
        shown_by = "Makefile"
    else:
        tests, shown_by = _find_tests(files, texts, tools, unittest)
    if Kind.PYTHON in tools:
        setup, options = _python_setup(tools[Kind.PYTHON], files, texts, needs_pytest=needs_pytest and not unittest)
        tools[Kind.PYTHON] = replace(tools[Kind.PYTHON], setup=setup)
        tests = tests.replace("uv run ", f"uv run {options}", 1) if options else tests
    used = sorted(tools.values(), key=lambda tool: list(Kind).index(tool.kind))
    paths = tuple(f"{sign.partition('/')[0]}/**" for sign in _PATHS if _first(files, (sign,)))
    junit = tuple(written for program, written in _JUNIT if re.search(program, tests))
    return Toolchain(tools=tuple(used), tests=tests, shown_by=shown_by, paths=paths, junit=junit)


def _first(files: Sequence[str], patterns: Collection[str]) -> str:
    return next((path for path in files for pattern in patterns if fnmatchcase(path, pattern)), "")


def _find_tests(
    files: Sequence[str], texts: Mapping[str, str], tools: Mapping[Kind, Tool], unittest: str
) -> tuple[str, str]:
    script = package_table(texts.get("package.json", ""), "scripts").get("test", "")
    if script.strip() and "no test specified" not in script:
        return tools[Kind.NODE].test if Kind.NODE in tools else "npm test", "package.json"
    for name in INPUTS[Kind.MISE]:
        if "test" in _table(texts.get(name, ""), "tasks"):
            return "mise run test", name
    if re.search(_CTEST, texts.get("CMakeLists.txt", "")):
        return _CMAKE.format(_hide("build", texts)), "CMakeLists.txt"
    if Kind.PYTHON in tools and "pytest" in _table(texts.get("pyproject.toml", ""), "tool"):
        return f"{tools[Kind.PYTHON].run}pytest", "pyproject.toml"
    for pattern, kind, program in _TESTS:
        if path := _first(files, (pattern,)):
            run = "" if kind is None else tools[kind].run if kind in tools else _RUN_ALONE.get(kind, "")
            if program == "pytest" and unittest:
                program = unittest if run.endswith("-m ") else f"python -m {unittest}"
            return f"{run}{program}" if program else f"sh {shlex.quote(path)}", path
    return next((f"{tools[kind].run}{words}" for kind, words in _BUILDS.items() if kind in tools), ""), ""


def _hide(directory: str, texts: Mapping[str, str]) -> str:
    """What makes git ignore a directory that the project does not ignore, so that no agent's work contains it."""
    ignored = {line.strip().strip("/") for line in texts.get(".gitignore", "").splitlines()}
    return "" if directory in ignored else f" && echo '*' >{directory}/.gitignore"


def _python_setup(tool: Tool, files: Sequence[str], texts: Mapping[str, str], *, needs_pytest: bool) -> tuple[str, str]:
    """The set-up with the dependencies of the tests, and the options that `uv run` needs for them."""
    project = texts.get("pyproject.toml", "")
    group = _group(_table(project, "dependency-groups"))
    extra = _group(_table(project, "project", "optional-dependencies")) if not group else ""
    if tool.signs == ("uv.lock",):
        defaults = _table(project, "tool", "uv").get("default-groups", ["dev"])
        is_default = defaults == "all" or (isinstance(defaults, list) and group in defaults)
        options = f"--group {group} " if group and not is_default else f"--extra {extra} " if extra else ""
        return f"{tool.setup} {options}".rstrip(), options
    if tool.signs == ("poetry.lock",):
        return f"{tool.setup} --extras {extra}" if extra else tool.setup, ""
    lists = [path for path in files if fnmatchcase(path, "requirements*.txt")]
    wanted = [path for path in lists if path == "requirements.txt" or re.search(r"test|dev", path)] or lists[:1]
    words = [word for path in wanted for word in ("-r", shlex.quote(path))]
    if "project" in _table(project) or "setup.py" in files or "setup.cfg" in files:
        words += ["-e", shlex.quote(f".[{extra}]") if extra else "."]
    words += ["--group", group] if group else []
    has_pytest = group or extra or any(_names_pytest(texts.get(path, "").splitlines()) for path in wanted)
    words += ["pytest"] if needs_pytest and not has_pytest else []
    newer = " && .venv/bin/pip install -U pip" if group else ""  # groups need pip 25.1
    install = f"{newer} && .venv/bin/pip install {' '.join(words)}" if words else ""
    hide = _hide(".venv", texts)  # first: a set-up that is stopped leaves nothing that looks like work
    return f"{'mkdir -p .venv' if hide else ''}{hide}{' && ' if hide else ''}python3 -m venv .venv{install}", ""


def _group(groups: Mapping[str, object]) -> str:
    """The group of dependencies that has pytest, else one with a usual name; "" for none."""
    has_pytest = [name for name, listed in groups.items() if isinstance(listed, list) and _names_pytest(listed)]
    names = has_pytest or [name for name in groups if name in _GROUPS]
    names = [name for name in names if re.fullmatch(r"[\w.-]+", name)]  # it becomes a word of a shell line
    return min(names, key=lambda name: _GROUPS.index(name) if name in _GROUPS else len(_GROUPS), default="")


def _names_pytest(requirements: Sequence[object]) -> bool:
    return any(isinstance(line, str) and re.match(_PYTEST, line) for line in requirements)


def _choose_node(by_lock: Tool | None, package: str) -> Tool | None:
    """The package manager that package.json names, else that of the lock file, else npm where packages are needed."""
    try:
        named = str(json.loads(package.removeprefix("\ufeff"))["packageManager"])
    except (ValueError, KeyError, TypeError, RecursionError):
        named = ""
    name, _, version = named.partition("@")
    managers = {tool.name: tool for tool in _TOOLS if tool.name}
    has_dependencies = any(package_table(package, name) for name in ("dependencies", "devDependencies"))
    tool = managers.get(name) or by_lock or (managers["npm"] if has_dependencies else None)
    if tool is None:
        return None
    if tool is not by_lock:
        tool = replace(tool, setup=tool.unlocked)
    if tool.name == "yarn" and name == "yarn" and not version.startswith(("0.", "1.")):
        # An installed yarn 1 refuses such a project.
        setup = "corepack yarn install" + (" --immutable" if tool.setup != tool.unlocked else "")
        tool = replace(tool, setup=setup, run="corepack yarn run ", test="corepack yarn test")
    return tool


def read_devcontainer(text: str) -> dict[str, str]:
    """The image of a devcontainer.json, or its Dockerfile and the folder of the build, by the setting of runplan."""
    plain = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda match: match[1] or "", text, flags=re.DOTALL)
    try:
        read = json.loads(re.sub(r",(\s*[}\]])", r"\1", plain))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    build = read.get("build")
    table = build if isinstance(build, dict) else read
    file, context = table.get("dockerfile", table.get("dockerFile")), table.get("context", ".")
    if isinstance(read.get("image"), str):
        return {"image": read["image"]}
    if not isinstance(file, str) or not isinstance(context, str):
        return {}
    folder = posixpath.dirname(DEVCONTAINER)
    paths = {key: posixpath.normpath(f"{folder}/{name}") for key, name in (("build", file), ("context", context))}
    return {} if any(f"{path}/".startswith("../") for path in paths.values()) else paths


def _table(toml: str, *names: str) -> Mapping[str, object]:
    try:
        table: object = tomllib.loads(toml)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def commands_of(line: str) -> list[list[str]]:
    """The words of each simple command of a shell line, without variables that are set before it; [] if unreadable."""
    commands: list[list[str]] = [[]]
    for row in line.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(row, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            for word in (*lexer, ";"):
                if set(word) <= set("();&|"):
                    commands.append([])
                elif commands[-1] or not re.fullmatch(r"(?s)[A-Za-z_]\w*=.*", word):
                    commands[-1].append(word)
        except ValueError:
            return []
    return [words for words in commands if words]


def programs_of(line: str) -> list[str]:
    first = dict.fromkeys(words[0] for words in commands_of(line))
    return [word for word in first if word not in _SHELL_WORDS and not re.search(r"[$`*?~<>]", word)]


def missing_file(line: str, files: Collection[str]) -> str:
    words = next(iter(commands_of(line)), [""])
    names = _READS.get(words[0], ())
    reads_another = any(word.startswith(_ELSEWHERE) for word in words)
    return names[0] if names and not reads_another and not any(name in files for name in names) else ""


def module_of(line: str) -> tuple[str, str]:
    for words in commands_of(line):
        if re.fullmatch(r"python[\d.]*", words[0]) and words[1:2] == ["-m"] and len(words) > 2:
            return words[0], words[2]
    return "", ""


class Need(Struct, frozen=True, kw_only=True):
    what: str
    setup: str  #: the command that usually makes it
    is_certain: bool  #: whether the tests cannot run without it


def needed_setup(files: Sequence[str], texts: Mapping[str, str], line: str) -> Need | None:
    needs_pytest = "unittest" not in re.split(r"\W", line)
    detected = detect(files, texts, needs_pytest=needs_pytest)
    makefile = texts.get("Makefile", "") if {"make", "gmake"} & set(programs_of(line)) else ""
    used = re.search(r"(?<![\w/.])(?:\./)?(\.?venv)/bin/", f"{line}\n{makefile}")
    if used is not None and used[1] not in files and not re.search(_ENVIRONMENTS, makefile):
        packages = detected.setup or _python_setup(_VENV, files, texts, needs_pytest=needs_pytest)[0]
        setup = re.sub(r"(?<![\w/.])\.venv\b", used[1], packages)
        return Need(what="virtual environment", setup=setup, is_certain=True)
    for tool in detected.tools:
        is_bare = tool.kind is Kind.PYTHON and not needs_pytest and not _first(files, INPUTS[Kind.PYTHON])
        if tool.setup and not tool.fetches and tool.kind not in files and not is_bare:
            is_certain = tool.kind in (Kind.SUBMODULES, Kind.NODE)  # other packages may be installed for all projects
            return Need(what=tool.kind, setup=detected.setup, is_certain=is_certain)
    return None
