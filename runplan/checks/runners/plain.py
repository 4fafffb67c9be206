"""Reads reports of no particular runner: `3311 passed, 2 failed`, what tests.summary describes, and JUnit XML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.checks.runners.output import Report, Runner, TestState, counted, named
from runplan.errors import SettingsError

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET
    from collections.abc import Iterable, Iterator

_PAIR = re.compile(
    r"^.*?\b(\d{1,9}) (?:tests? )?pass(?:ed|ing)?\b\W{1,5}(\d{1,9}) (?:tests? )?fail(?:ed|ing|ures?)?\b"
    r"|^(?i:.*?\bpass(?:ed)?\s*[:=]\s*(\d{1,9})\b.{0,200}?\bfail(?:ed|ures)?\s*[:=]\s*(\d{1,9})\b)"
)
_OUT_OF = re.compile(
    r"^(?:.*\b(?:pass(?:ed)?|results?|ok|tests?:)\W*)?(\d{1,9}) ?/ ?(\d{1,9})(?: (?:tests? )?pass\w*)?\W*$",
    re.IGNORECASE,
)
_FAILED = re.compile(r"^\s*(?:FAIL|FAILED|✗|✘|✖)(?:: ?| +)(\S.*)$")


def read_pair(lines: list[str], at: int, closing: re.Match[str]) -> Report:
    passed, failed = (int(number) for number in closing.groups() if number is not None)
    return Report(end=at, passed=passed, failed=failed, tests=named(lines[:at], _FAILED))


def read_out_of(lines: list[str], at: int, closing: re.Match[str]) -> Report | None:
    passed, total = int(closing[1]), int(closing[2])
    if passed > total:
        return None
    return Report(end=at, passed=passed, failed=total - passed, tests=named(lines[:at], _FAILED))


def configured(lines: list[str], pattern: str) -> Report | None:
    """The last match of tests.summary; its groups `passed` and `failed` are the counts. None without a match."""
    try:
        found = None
        for found in re.finditer(pattern, "\n".join(lines), re.MULTILINE):  # noqa: B007
            pass
    except re.error as error:
        raise SettingsError(f"[tests] summary: not a regular expression: {error}") from error
    if found is None:
        return None
    numbers = {name: int(text) for name, text in found.groupdict().items() if (text or "").isdecimal()}
    failures = named(lines, _FAILED) if numbers.get("failed") else []
    return Report(end=0, passed=numbers.get("passed"), failed=numbers.get("failed", 0), tests=failures)


PAIR = Runner("plain", _PAIR, read_pair)
OUT_OF = Runner("plain", _OUT_OF, read_out_of)


# --- JUnit XML ----------------------------------------------------------------------------------------------

_NOT_RUN = ("disabled", "notrun")  # CTest


def read_junit(texts: Iterable[str]) -> Report | str:
    """The sum of all files, of which one at a time is in memory; why they cannot be read."""
    import xml.etree.ElementTree as ET  # slow to import

    tests: list[tuple[str, TestState]] = []
    text = None
    for text in texts:
        # Declarations of entities could make a small file as large as the memory.
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            return "a JUnit file declares entities"
        try:
            tests += _cases(ET.fromstring(text))  # noqa: S314 - no entities
        except (ET.ParseError, ValueError) as error:
            return f"a JUnit file is no XML: {error}"
    return counted(tests, end=0) if text is not None else "no file matches tests.junit"


def _cases(root: ET.Element) -> Iterator[tuple[str, TestState]]:
    for case in root.iter("testcase"):
        place, name = case.get("file") or case.get("classname") or "", case.get("name", "")
        children = {child.tag.rpartition("}")[2] for child in case}
        state = TestState.SKIPPED if "skipped" in children or case.get("status") in _NOT_RUN else TestState.PASSED
        failed = children & {"failure", "error"}
        yield (f"{place}::{name}" if place not in ("", name) else name), TestState.FAILED if failed else state
