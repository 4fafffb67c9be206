"""What is wrong in a settings file is told with its line, where that is found."""

from __future__ import annotations

import pytest

from runplan.settings.config import Layer
from runplan.settings.text import located

TEXT = """\
stray = 1
agents.fallback = "nobody"
# [tests]
[run]
target = "main"  # landin = 1
landin = "x"

[ tests ]  # checks
  "landin" = "y"
[agents.own]
argvs = ["a = b"]
[agents."two words"]
[notify]
email = '''
landin = 1'''
"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("[run] landin: unknown key", 6),
        ("[tests] landin: unknown key", 9),
        ("[agents.own] argvs: unknown key", 11),
        ("[agents.own]: no kind", 10),
        ("[agents.two words]: no kind", 12),
        ("[agents] fallback: unknown agent 'nobody'; there are claude", 2),
        ("stray: stands above every section; it belongs to [run]", 1),
        ("[run] target: must be text", 5),
        ("[run] remote: must be text", 0),
        ("[limits]: unknown section", 0),
        ("cannot be read", 0),
    ],
)
def test_the_line_is_that_of_the_key_in_its_section(said: str, line: int) -> None:
    layers = [Layer(origin="other", values={}, text=TEXT), Layer(origin="runplan.toml", values={}, text=TEXT)]
    where = f"runplan.toml:{line}" if line else "runplan.toml"
    assert located(f"runplan.toml: {said}", layers) == f"{where}: {said}"


def test_what_is_set_elsewhere_has_no_line() -> None:
    said = "RUNPLAN_RUN_TARGET: [run] target: must be text"
    assert located(said, [Layer(origin="RUNPLAN_RUN_TARGET", values={})]) == said
