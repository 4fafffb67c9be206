"""Tables in the documents that repeat the code are equal to it."""

from __future__ import annotations

import re

from runplan.adapters.environment import ALLOWED, ALLOWED_PREFIXES, task_environment
from runplan.core.dispatch import Role
from runplan.core.errors import Exit
from runplan.core.reasons import NEXT, Reason
from runplan.core.returns import blockers
from tests.support.documents import read, rows


def test_the_exit_codes_are_those_of_the_code() -> None:
    told = [(int(number), name) for number, name, _ in rows(read("docs/exit-codes.md"), "## Exit codes")]
    assert told == [(int(code), code.name) for code in Exit]


def test_every_reason_is_listed_with_its_next_action() -> None:
    told = [(name.strip("`"), action) for name, action in rows(read("docs/exit-codes.md"), "## Reasons")]
    assert told == [(str(reason), NEXT[reason]) for reason in Reason]


def test_the_variables_of_an_agent_are_those_of_the_code() -> None:
    told = {cells[0].strip("`") for cells in rows(read("docs/agents.md"), "## What an agent gets")}
    given = task_environment(
        dispatch="d", role=Role.FIX, plan="p", phase="1", run="r", attempt=1, cycle=1, prompt="", return_file=""
    )
    assert told == set(given)


def test_the_environment_an_agent_keeps_is_the_one_the_page_lists() -> None:
    sentence = (
        read("docs/agents.md").partition("Of your own environment it sees")[2].partition("and the names under")[0]
    )
    assert set(re.findall(r"`([A-Z_]+)`", sentence)) == {*ALLOWED, *ALLOWED_PREFIXES}


def test_the_blocker_line_of_the_page_is_one() -> None:
    assert "`BLOCKER:`" in read("docs/agents.md")
    assert blockers("BLOCKER: a key") == ("a key",)
