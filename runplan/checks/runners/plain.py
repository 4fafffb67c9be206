"""Reads summaries of no particular runner, such as `3311 passed, 2 failed`, and those that tests.summary describes."""

from __future__ import annotations

import re

from runplan.checks.runners.output import Report, Runner, named
from runplan.errors import SettingsError

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
