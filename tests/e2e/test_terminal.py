"""Whatever an agent calls its files, no verb hands a terminal anything that it would obey."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project

if TYPE_CHECKING:
    from pathlib import Path

#: A control sequence in one character, a line that runs backwards, and the same for what it encloses.
NAME = "f\u009b31m\u202etxt\u2066.exe"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
AGENT = f"""
[[phase.1.implement]]
write = {json.dumps(NAME)}
text = "x"
[[phase.1.implement]]
commit = "Write"
"""


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    place: Path = tmp_path_factory.mktemp("project")
    project = a_project(place, "1")
    project.agent(AGENT)
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert OBEYED.search(ran.err) is None
    return project


@pytest.mark.parametrize("verb", ["logs", "status", "report", "explain"])
@pytest.mark.parametrize("form", ["", "--json"])
def test_no_verb_tells_what_a_terminal_obeys(landed: Project, verb: str, form: str) -> None:
    told = landed.runplan(verb, "X", *([form] if form else []))

    assert told.code == 0, told.err
    assert OBEYED.search(told.out + told.err) is None


def test_json_still_has_the_name_as_it_is(landed: Project) -> None:
    lines = landed.runplan("logs", "X", "--json").out.splitlines()

    assert [NAME] in [json.loads(line).get("files") for line in lines]
