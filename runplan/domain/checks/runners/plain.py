"""Reads reports of no particular runner: `3311 passed, 2 failed`, what tests.summary describes, and JUnit XML."""

import json
import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

from msgspec.structs import replace

from runplan.domain.checks.runners.printed import Report, TestState, count_states, list_failed, reads

_PAIR = (
    r"^.*?\b(\d{1,9}) (?:tests? )?pass(?:ed|ing)?\b\W{1,5}(\d{1,9}) (?:tests? )?fail(?:ed|ing|ures?)?\b"
    r"|^(?i:.*?\bpass(?:ed)?\s*[:=]\s*(\d{1,9})\b.{0,200}?\bfail(?:ed|ures)?\s*[:=]\s*(\d{1,9})\b)"
)
_OUT_OF = r"(?i)^(?:.*\b(?:pass(?:ed)?|results?|ok|tests?:)\W*)?(\d{1,9}) ?/ ?(\d{1,9})(?: (?:tests? )?pass\w*)?\W*$"
FAILED = re.compile(r"^\s*(?:FAIL|FAILED|✗|✘|✖)(?:: ?| +)(\S.*)$")
MOST_REASONS = 200  #: failures whose first line is kept
LONGEST_REASON = 300  #: characters


@reads("plain", _OUT_OF)
@reads("plain", _PAIR)
def read_plain(lines: list[str], end: int, closing: re.Match[str]) -> Report | None:
    passed, other = (int(number) for number in closing.groups() if number is not None)
    failed = other - passed if closing.re.pattern == _OUT_OF else other
    return Report(passed=passed, failed=failed, tests=list_failed(lines[:end], FAILED)) if failed >= 0 else None


def read_junit(texts: Iterable[str]) -> Report | str:
    tests: list[tuple[str, TestState]] = []
    reasons: dict[str, str] = {}
    text = None
    for text in texts:
        # Declarations of entities could make a small file as large as the memory.
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            return "a JUnit file declares entities"
        try:
            for name, state, reason in _read_cases(text):
                tests.append((name, state))
                if reason and len(reasons) < MOST_REASONS:
                    reasons[name] = reason
        except (ET.ParseError, ValueError, LookupError, TypeError, AttributeError) as error:
            return f"a JUnit file is no XML: {error}"
    return replace(count_states(tests), reasons=reasons) if text is not None else "no file matches tests.junit"


def _read_cases(text: str) -> Iterator[tuple[str, TestState, str]]:
    if text.startswith("{"):  # of RSpec
        for example in json.loads(text)["examples"]:
            state = TestState.SKIPPED if example["status"] == "pending" else TestState(example["status"])
            reason = example.get("exception", {}).get("message", "").strip().partition("\n")[0]
            name = f"{example['file_path'].removeprefix('./')}::{example['full_description']}"
            yield name, state, reason[:LONGEST_REASON]
        return
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314
        file = case.get("file", "")
        classname = case.get("classname", "")
        module = file.rpartition(".")[0].replace("/", ".")
        parts = classname.split(".")
        depth = next((number for number, part in enumerate(parts) if part[:1].isupper()), 0)
        is_own = classname.startswith(f"{module}.")
        if file.endswith(".py") and depth and not is_own:  # an inherited test; pytest gives the file that defines it
            place = "::".join(("/".join(parts[:depth]) + ".py", *parts[depth:]))
        else:
            inner = classname.removeprefix(f"{module}.") if is_own else ""
            place = "::".join(filter(None, (file, *inner.split(".")))) if file else classname
        name = case.get("name", "")
        children = {child.tag.rpartition("}")[2]: child for child in case}
        is_skipped = "skipped" in children or case.get("status") in ("disabled", "notrun")  # those are of CTest
        state = TestState.SKIPPED if is_skipped else TestState.PASSED
        failed = children.get("failure", children.get("error"))
        told = "" if failed is None else failed.get("message") or failed.text or ""
        lines = (line.strip() for line in told.splitlines())
        # The text of PHPUnit begins with the test.
        reason = next((line[:LONGEST_REASON] for line in lines if line and not line.endswith(f"::{name}")), "")
        full = f"{place}::{name}" if place not in ("", name) else name
        yield full, state if failed is None else TestState.FAILED, reason
