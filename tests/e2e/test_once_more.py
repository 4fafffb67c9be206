"""An agent that crashes is tried once more, and what is told of it is its program's error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project, copied
from tests.support.scripts import assert_nothing_runs, set_up, steps, verify

if TYPE_CHECKING:
    from pathlib import Path

WRITE = 'write = "1.txt"\ntext = "1\\n"'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with one phase, to be copied."""
    return a_project(tmp_path_factory.mktemp("model"), "1")


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Project:
    return copied(model, tmp_path)


def test_one_crash_of_each_role_costs_no_fix_cycle_and_is_told_in_the_report(project: Project, tmp_path: Path) -> None:
    killed = f'signal = "KILL"\nonce = "{tmp_path}/killed"'
    crashed = f'exit = 3\nonce = "{tmp_path}/crashed"'
    set_up(project, agent=steps(killed, WRITE) + verify(crashed, "pass_all = true"))

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err
    assert project.dispatched() == ["implement", "implement", "verify", "verify"]
    again = [body["again"] for kind, body in project.events() if kind == "DispatchStarted"]
    assert again == ["", "robot (implement) was killed by signal 9", "", "robot (verify) exited with code 3"]
    assert "(tried once more: robot (implement) was killed by signal 9)" in ran.err
    report = project.show("main:reports/plan-x.md")
    assert "**Status:** Completed (verified, landed)\n" in report
    assert "- Warning: robot (implement) was killed by signal 9; it was tried once more" in report
    assert "- Warning: robot (verify) exited with code 3; it was tried once more" in report


#: A program that chats, and then tells of an error that has no name.
CRASHES = r"""
if test "$1" = --version; then echo "2.1.197 (Claude Code)"; exit 0; fi
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"I have nearly finished the work."}]}}'
echo '{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["Something odd happened"]}'
exit 1
"""


def test_a_second_crash_fails_the_phase_with_the_error_of_the_program(project: Project, tmp_path: Path) -> None:
    (tmp_path / "claude.sh").write_text(CRASHES)
    told = f'[agents.claude]\nargv = ["sh", "{tmp_path}/claude.sh"]\n'
    set_up(project, agent=steps(WRITE), settings=told)

    ran = project.start("1", "auto", RUNPLAN_AGENTS_IMPLEMENTER="claude")

    assert (ran.code, ran.last) == (1, "runplan: failed: agent-failed"), ran.err
    assert project.dispatched() == ["implement", "implement"]
    for account in (ran.err, project.runplan("report", "X").out):
        assert "claude (implement) exited with code 1: Something odd happened" in account
        assert "tried once more" in account
        assert "nearly finished" not in account
    assert_nothing_runs(project)
