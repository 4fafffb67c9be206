"""A remote that never answers holds up one step, not the daemon: it is stopped and ended all the same."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, a_project, processes_of, until, with_remote
from tests.support.daemons import (
    daemon_of,
    log_of,
    none_left,
    shell_agent,
    states,
    until_runs_are,
    user_settings,
    waits,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project

#: Says that it was called and nothing more, as long as it is told to; else it is the server itself.
SSH = """\
#!/bin/sh
for asked; do :; done
if [ -e "{place}/silent" ]; then
    echo $$ >>"{place}/called"
    while [ -e "{place}/silent" ]; do sleep 0.05; done
    exit 255
fi
exec sh -c "$asked"
"""
LONG = '[daemon]\ngrace = "10m"\n'


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """The remote falls silent when the verifier of X has seen its work; the agent of Y goes on until it is let."""
    with none_left(tmp_path / "home"):
        made = a_project(tmp_path, "1")
        user_settings(made, LONG)
        shell_agent(
            made, tmp_path, f'[ "$RUNPLAN_PHASE" = 1 ] || {{ {waits(tmp_path, "y")}; }}', f"touch {tmp_path}/silent"
        )
        made.commit_file("runplan.toml", (made.path / "runplan.toml").read_text() + '[run]\nlanding = "direct"\n')
        made.plan(a_plan("2"), name="plans/Y.md")
        with_remote(made, tmp_path / "there.git")
        ssh = tmp_path / "ssh"
        ssh.write_text(SSH.format(place=tmp_path))
        ssh.chmod(0o755)
        made.repo.git("config", "core.sshCommand", str(ssh))
        made.repo.git("remote", "set-url", "origin", f"ssh://example.org{tmp_path}/there.git")
        yield made


def blocked(project: Project, place: Path) -> int:
    """The daemon, whose desk waits for the remote while an agent of another plan is at work."""
    assert project.runplan("start", "Y", "2", "auto").code == 0
    until(lambda: (place / "y.here").exists())
    assert project.runplan("start", "X", "1", "auto").code == 0
    until(lambda: (place / "called").exists())
    return daemon_of(project)


def nobody_waits_for_the_remote(project: Project, place: Path) -> bool:
    called = {int(pid) for pid in (place / "called").read_text().split()}
    return called.isdisjoint(processes_of(project.home))


def test_the_second_word_ends_agents_and_the_daemon(project: Project, tmp_path: Path) -> None:
    daemon = blocked(project, tmp_path)
    os.kill(daemon, signal.SIGTERM)
    until(lambda: log_of(project, "draining"))
    os.kill(daemon, signal.SIGTERM)
    until(lambda: processes_of(project.home) == [])
    assert nobody_waits_for_the_remote(project, tmp_path)
    (ended,) = [body for kind, body in project.events("plans/Y.md") if kind == "DispatchEnded"]
    assert ended["ending"] == "ended"
    assert (states(project), states(project, "plans/Y.md")) == (["waiting"], ["running"])


BUSY = "runplan: daemon busy (git or network); request queued, you can quit now"


def queued(project: Project) -> list[tuple[str, str]]:
    rows = project.rows("SELECT plan, verb FROM commands WHERE answer IS NULL ORDER BY seq")
    return [(plan, verb) for plan, verb in rows]


def test_a_stop_is_acknowledged_soon_and_executed_after_the_step(project: Project, tmp_path: Path) -> None:
    blocked(project, tmp_path)
    began = time.monotonic()
    stopped = project.runplan("stop", "X")
    assert time.monotonic() - began < 30
    assert (stopped.code, stopped.last, queued(project)) == (0, BUSY, [("plans/X.md", "stop")])
    (tmp_path / "silent").unlink()
    until_runs_are(project, "stopped")
    assert (queued(project), project.landed()) == ([], [])
