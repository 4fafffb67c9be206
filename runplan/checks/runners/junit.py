"""Reads JUnit XML, which most test runners can write. It names every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.checks.runners.output import Report, TestState, counted

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET
    from collections.abc import Iterable, Iterator

_NOT_RUN = ("disabled", "notrun")  # CTest


def read(texts: Iterable[str]) -> Report | str:
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
