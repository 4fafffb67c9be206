"""The files of `tests/plans` that have many small plans, each followed by what is read of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PLANS = Path(__file__).parents[1] / "plans"


def load_readings(name: str, only: str = "") -> list[Any]:
    """The cases of a file: the text, what is read of it, and as id the sentence that it stands for."""
    cases = [case for case in _split((PLANS / name).read_text(encoding="utf-8")) if only in case[1]]
    return [pytest.param(*case[:2], id=f"{number} {case[2]}") for number, case in enumerate(cases, 1)]


def _split(content: str) -> Iterator[tuple[str, str, str]]:
    for section in content.split("\n=== ")[1:]:
        sentence, *lines = section.rstrip("\n").split("\n")
        text: list[str] = []
        for line in lines:
            if line.startswith("=> "):
                yield "\n".join([*text, ""]), line.removeprefix("=> "), sentence
                text = []
            else:
                text.append(line)
