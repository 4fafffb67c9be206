"""A daemon whose socket was removed still executes commands, and the caller is told what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.daemons import daemon_of, schedules, shell_agent, socket_of, until_runs_are, waits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile


def test_a_stop_without_a_socket_is_queued_and_executed(project: Project, meanwhile: Meanwhile, tmp_path: Path) -> None:
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    assert project.runplan("start", "X", "auto", "every", "4h", "now").code == 0
    meanwhile.reached("agent")
    daemon, socket = daemon_of(project), socket_of(project)
    socket.unlink()
    ran = project.runplan("stop", "X")
    assert (ran.code, ran.err.splitlines()) == (
        5,
        [
            "runplan: Ended the agent of plans/X.md; its work is kept",
            "runplan: the request is queued and takes effect when the daemon responds; "
            f"the daemon (process {daemon}) does not listen at {socket}; see its log, or end it: kill {daemon}",
        ],
    )
    until_runs_are(project, "stopped")
    assert (schedules(project), project.landed(), daemon_of(project)) == ([], [], daemon)
