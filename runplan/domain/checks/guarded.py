"""Finds changes to the files that decide how the project's checks run, and knows test files and CI files by name."""

import configparser
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from runplan.domain.globs import covers

Read: TypeAlias = Callable[[str], str | None]
_WORD = r"[^\s\"'`;&|(){}<>=,:@$]+"
_FOLDER_FOLLOWS = ("cd", "-C", "--directory", "--prefix", "--dir", "--cwd")
_SCRIPT = re.compile(r"(?:^|/)[^/.]+$|\.(?:sh|bash|zsh|ksh|py|[cm]?[jt]s|rb|pl|php)$")
#: Names of scripts that another script or a Makefile runs for the tests. Its other files are the product.
_TEST_SCRIPTS = ("**/test*", "**/*[-_.]test*", "**/check*", "**/*[-_.]check*")
#: The files that a program reads by itself.
_RECIPES = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml", "taskfile.yml", "taskfile.yaml"),
    "mise": ("mise.toml", ".mise.toml"),
    "nox": ("noxfile.py",),
    "rake": ("Rakefile",),
}
_RECIPE_FILES = frozenset({"package.json", *(name for names in _RECIPES.values() for name in names)})
_PACKAGERS = ("npm", "npx", "yarn", "pnpm", "bun")
_RUNNER_FILES = (
    *("**/pytest.ini", "**/.pytest.ini", "**/.coveragerc", "**/.mocharc*", "**/.nycrc*", "**/.c8rc*", "**/.taprc"),
    *("**/jest.config.*", "**/vitest.config.*", "**/vitest.workspace.*", "**/ava.config.*", "**/karma.conf.*"),
)
_SETTINGS = ("package.json", "pyproject.toml", "setup.cfg", "tox.ini")
#: Sections of settings that test runners read.
_SECTIONS = frozenset({"pytest", "coverage", "jest", "vitest", "mocha", "c8", "nyc", "ava", "tap", "jasmine"})
LARGEST_PARSED = 1_000_000  #: characters of a settings file that is parsed; a larger one is compared as a whole
_JAVASCRIPT = ("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts")
#: Files that test runners collect by their name.
_COLLECTED = (
    *("**/test_*.py", "**/*_test.py", "**/tests.py", "**/tests/**/test*.py", "**/*_test.go"),
    *("**/*_test.exs", "**/*_spec.rb", "**/*_test.rb", "**/*.bats"),
    *(f"**/*.{kind}.{ext}" for kind in ("test", "spec") for ext in _JAVASCRIPT),
    *(f"**/{name}.{ext}" for name in ("test", "test-*", "*[-_]test") for ext in ("js", "cjs", "mjs")),  # of Node.js
    *("**/__tests__/**", "**/*Test.java", "**/*Tests.java", "**/*Test.kt", "**/*Tests.cs", "**/*Test.php"),
)
_SOURCES = "py|js|ts|tsx|jsx|mjs|rs|rb|sh|c|cc|cpp|cs|java|kt|php|scala|swift"
_TEST_FOLDER = rf"(?:^|/)(?:tests?|spec)/(?:.*/)?[^/]+\.(?:{_SOURCES})$"
#: What tests read besides their own files.
_TEST_SIDE = (
    *(f"**/{folder}/**" for folder in ("test", "tests", "spec", "__tests__", "__snapshots__", "testdata")),
    *("**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/jest.config.*", "**/vitest.config.*", "**/.mocharc*"),
)
CI = (
    *(".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".gitlab/ci/**", ".circleci/**", ".ci/**"),
    *(".travis.yml", "azure-pipelines.yml", "Jenkinsfile", "bitbucket-pipelines.yml", ".buildkite/**"),
    *(".drone.yml", ".woodpecker.yml", ".woodpecker/**", "appveyor.yml", ".appveyor.yml", "cloudbuild.yaml"),
    *(".pre-commit-config.yaml", ".husky/**", ".githooks/**", "lefthook.yml", ".lefthook.yml", "lefthook.yaml"),
)
#: Files of a repository that agents take as instructions, wherever the repository has them.
INSTRUCTIONS = (
    *(f"**/{name}" for name in ("CLAUDE.md", "AGENTS.md", "GEMINI.md", ".claude", ".codex", ".cursor", ".cursorrules")),
    *(".github/copilot-instructions.md", ".github/instructions"),
)


def list_named(command: str) -> tuple[str, ...]:
    """Where the files and directories lie that a command names, and the files that its programs read by themselves."""
    words = _split_words(command)
    return tuple(_list_paths(words, _list_recipes(words, words)))


def list_scripts(command: str) -> list[str]:
    """Patterns of the scripts that a command names by a path or by their kind; no directory, and no manifest."""
    words = _split_words(command)
    by_path = _join_paths(("",), (word for word in words if "/" in word))
    paths = (path for path in _list_paths(words, ()) if path in by_path or "." in posixpath.basename(path))
    scripts = (path for path in paths if _SCRIPT.search(path) and posixpath.basename(path) != "setup.py")
    return [f"{path[:-1]}[{path[-1]}]" for path in scripts]


def find_altered(command: str, changed: Iterable[str], read: Read) -> list[str]:
    named = list(list_named(command))
    for path in named:  # it grows meanwhile
        if (text := read(path)) is not None and (posixpath.basename(path) in _RECIPE_FILES or _is_shell(path, text)):
            words = (word for word in _split_words(text) if _SCRIPT.search(word) or word.endswith(".mk"))
            named += _join_paths(("", posixpath.dirname(path)), words).keys() - {*named}
    return [path for path in changed if path in named]


def _list_recipes(words: Iterable[str], all_words: Iterable[str]) -> set[str]:
    recipes = {name for program in words for name in _RECIPES.get(program, ())}
    return recipes if set(_PACKAGERS).isdisjoint(all_words) else recipes | {"package.json"}


def _list_paths(words: Sequence[str], recipes: Iterable[str]) -> Iterable[str]:
    pairs = list(pairwise(words))
    named = [word for option, word in pairs if option == "-m"]
    folders = ("", *(word for option, word in pairs if option in _FOLDER_FOLLOWS))
    modules = (f"{word.replace('.', '/')}{end}" for word in named for end in (".py", "/__main__.py"))
    return _join_paths(folders, (*words, *modules, *recipes))


def find_changes(
    commands: Iterable[str], changed: Iterable[str], *, before: Read, after: Read, test_paths: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """The changed files that decide how the commands run, and how: scripts, recipes and settings of runners."""
    words: set[str] = set()
    scripts: dict[str, str | None] = {}
    for command in commands:
        named = _split_words(command)
        words.update(named)
        recipes = _list_recipes(named, words)
        for path in _list_paths(named, recipes):
            is_recipe = posixpath.basename(path) in recipes
            text = before(path) if is_recipe or _SCRIPT.search(path) else None
            scripts |= {} if is_recipe else {path: text}
            if text is None or not (is_recipe or _is_shell(path, text)):
                continue
            mentioned = set(_split_words(text))
            words.update(mentioned)
            # The tests that a script mentions are no scripts of the checks.
            meant = (
                word
                for word in filter(_SCRIPT.search, mentioned)
                if (is_recipe if is_on_test_side(word, test_paths) else covers(_TEST_SCRIPTS, word))
            )
            scripts |= {script: before(script) for script in _join_paths(("", posixpath.dirname(path)), meant)}
    texts = ((path, text) for path, text in scripts.items() if text is not None)
    checks = {path for path, text in texts if _is_shell(path, text) or not is_test(path, test_paths)}
    differences = ((path, _describe_difference(path, words, checks, before, after)) for path in changed if words)
    return [(path, difference) for path, difference in differences if difference]


def _describe_difference(path: str, words: set[str], scripts: set[str], before: Read, after: Read) -> str:
    folder, name = posixpath.split(path)
    was = before(path)
    now = after(path)
    if was == now:  # its mode
        return ""
    how = "was added" if was is None else "was removed" if now is None else "was changed"
    if path in scripts:
        return f"a check runs it, and it {how}"
    for program in words.intersection(_RECIPES):
        names = _RECIPES[program]
        if name in names or (name.endswith(".mk") and "Makefile" in names):
            hides_another = name in names and any(before(posixpath.join(folder, other)) is not None for other in names)
            is_read = was is not None or hides_another
            return f"a check runs {program}, which reads it, and it {how}" if is_read else ""
    if covers(_RUNNER_FILES, path) or (name == "conftest.py" and was is None):
        return f"test runners read it, and it {how}"
    if not is_project_settings(path):
        return ""
    old, new = (read_sections(name, text or "", words) for text in (was, now))
    differing = []
    for key in (key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)):
        kind, _, script = key.partition(".")
        hooked = {script.removeprefix("pre"), script.removeprefix("post")} - {script}
        # A new script of a package.json that runs only when it is named is free.
        if kind != "scripts" or key in old or any(f"scripts.{name}" in old for name in hooked):
            differing.append(key)
    return f"its sections {', '.join(differing)} decide how checks run, and changed" if differing else ""


def is_project_settings(path: str) -> bool:
    return posixpath.basename(path) in _SETTINGS


def read_sections(name: str, text: str, words: set[str]) -> dict[str, object]:
    """The parts of a settings file that decide how checks run, as values; all of its text when it cannot be parsed."""
    sections = _SECTIONS.union(("tox", "testenv") if "tox" in words else ())
    if len(text) > LARGEST_PARSED:
        return {"all": text}
    try:
        if name == "package.json":
            table = json.loads(text.removeprefix("\ufeff") or "{}")
            scripts = {} if words.isdisjoint(_PACKAGERS) else table.get("scripts", {})
            commands = {f"scripts.{key}": command for key, command in scripts.items()}
            return commands | {key: value for key, value in table.items() if key in sections}
        if name == "pyproject.toml":
            table = tomllib.loads(text)
            plugins = table.get("project", {}).get("entry-points", {}).get("pytest11")
            tools = {f"tool.{key}": value for key, value in table.get("tool", {}).items() if key in sections}
            return tools | ({"project.entry-points.pytest11": plugins} if plugins else {})
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text)
        return {key: dict(parser[key]) for key in parser.sections() if not sections.isdisjoint(re.split(r"\W", key))}
    except (configparser.Error, ValueError, TypeError, AttributeError, RecursionError):
        return {"all": text}


def _split_words(text: str) -> list[str]:
    return re.findall(_WORD, re.sub(r"\$\w+", " ", text))


def _join_paths(folders: Iterable[str], names: Iterable[str]) -> dict[str, None]:
    names = tuple(names)
    joined = (posixpath.normpath(f"./{folder}/{name}") for folder in dict.fromkeys(folders) for name in names)
    return dict.fromkeys(path for path in joined if path.partition("/")[0] not in (".", ".."))


def _is_shell(path: str, text: str) -> bool:
    return path.endswith((".sh", ".bash", ".zsh", ".ksh")) or re.match(r"#!.*sh\b", text) is not None


def package_table(text: str, name: str) -> dict[str, str]:
    try:
        table = json.loads(text.removeprefix("\ufeff"))[name]
        return {str(key): value for key, value in table.items() if isinstance(value, str)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def is_test(path: str, paths: Sequence[str] = ()) -> bool:
    """Whether the file is a test by its name or folder, or by `paths`, which is tests.paths; a conftest.py is none."""
    if path.rpartition("/")[2] == "conftest.py":
        return False
    return covers((*_COLLECTED, *paths), path) or re.search(_TEST_FOLDER, path) is not None


def is_on_test_side(path: str, paths: Sequence[str] = ()) -> bool:
    """Whether the file is a test, or belongs to tests: a helper, data, or settings of a test runner alone."""
    return is_test(path, paths) or covers(_TEST_SIDE, path)


def is_collected(path: str) -> bool:
    """Whether a test runner finds the file by its name; in Rust the code decides."""
    return covers(_COLLECTED, path) or path.endswith(".rs")
