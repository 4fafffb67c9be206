"""README and tutorial, played from the first command to the last (`make docs` captures their output again)."""

from pathlib import Path

import pytest

from tests.support.transcripts import PAGES, play

PROMISES = ("README.md", "docs/planning.md")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.promise if name in PROMISES else ()) for name in PAGES]
)
def test_every_command_of_a_page_prints_what_the_page_shows(tmp_path: Path, name: str) -> None:
    different = [step for step in play(name, tmp_path / "uma") if not step.agrees]
    assert different == []
