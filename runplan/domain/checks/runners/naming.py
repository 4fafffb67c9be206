"""Asks test runners to name all tests, by variables and options, and foresees whether a command will name them."""

import re
from collections.abc import Callable, Sequence
from shlex import quote

from runplan.domain.checks.guarded import list_named

UNNAMED = "no test names are read from this command: deleted tests are not noticed"
#: The files below {own} in which runners name all tests.
FILES = {
    "pytest": "pytest.xml",
    "rspec": "rspec.json",
    "phpunit": "phpunit.xml",
    "cucumber": "cucumber.xml",
    "behave": "TESTS-*.xml",
}
_VARIABLES = {
    "PYTEST_ADDOPTS": "--junitxml={own}/pytest.xml -o junit_family=xunit1",
    "SPEC_OPTS": "--format progress --format json --out {own}/rspec.json",
    "HARNESS_VERBOSE": "1",  # of prove
}
_OPTIONS = {
    "phpunit": "--log-junit {own}/phpunit.xml",
    "behave": "--junit --junit-directory {own}",
    "cucumber-js": "--format junit:{own}/cucumber.xml",
    "jest": "--verbose",
    "unittest discover": "-v",
    "unittest": "-v",
    "dotnet test": "--logger 'console;verbosity=normal'",
}
#: A command of plain words that is one of these programs, also after another that runs it.
_PROGRAM = re.compile(
    r"(?:\w+=[\w@%+,./:=-]* +)*(?:(?:npx|bunx|yarn|pnpm|exec|bundle|uv|poetry|run|php|\S*python[\d.]*|-m|-B) +)*"
    rf"(?:[\w@%+,./:=-]*/)?({'|'.join(_OPTIONS)})(?= [\w@%+,./:=\[\] -]*$|$)"
)
#: Programs that name their tests without such an option.
_NAMING = re.compile(
    r"\b(?:pytest|tox|nox|mocha|cypress|r?spec|prove|bats|tap|ctest|cargo\s+(?:nextest|test)|swift\s+test)\b"
    r"|\bgo\s+test\b.*\s-(?:v|json)\b|\bnode\b.*\s--test\b|\bunittest\b.*\s-v\b|--verbose\b|--reporter[= ]verbose\b"
)


def ask_for_names(line: str, folder: str, pytest_options: str = "") -> str:
    """The command with what makes its runner name all tests, in its output or in files of `folder`."""
    values = {name: value.format(own=quote(folder)) for name, value in _VARIABLES.items()}
    values["PYTEST_ADDOPTS"] += f" {pytest_options}" if pytest_options else ""
    exports = "".join(f'export {name}="${{{name}-}} "{quote(value)}\n' for name, value in values.items())
    if program := _PROGRAM.match(line):
        line = f"{program[0]} {_OPTIONS[program[1]].format(own=quote(folder))}{line[program.end() :]}"
    return exports + line


def foresee_unnamed(line: str, junit: Sequence[str], read: Callable[[str], bytes | None]) -> str:
    """UNNAMED, unless the words of the command, or the files that it runs, show a runner that names its tests."""
    texts = ((read(path) or b"").decode("utf-8", "replace") for path in list_named(line))
    return "" if junit or not line or _PROGRAM.match(line) or any(map(_NAMING.search, (line, *texts))) else UNNAMED
