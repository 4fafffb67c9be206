"""The daemon's log is turned over while it works: nothing it says is lost, and who follows a run goes on following."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from runplan.daemon.logs import FILE_BYTES
from runplan.settings.places import state_directory
from tests.support.cli import RUNPLAN, until
from tests.support.scripts import Meanwhile, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


#: What the daemon may still say before the file is full: it has said more when the second phase is done.
ROOM = 4000


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_is_followed_to_its_end_while_the_log_is_turned_over(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(work(*meanwhile.pause("agent")) + work(phase="2"))
    state = state_directory(project.env)
    state.mkdir(parents=True, mode=0o700)
    line = json.dumps({"event": "earlier", "filler": "x" * 966}) + "\n"
    names = ["daemon.log", *(f"daemon.log.{number}" for number in range(1, 5))]
    for name in names:
        (state / name).write_text(line * ((FILE_BYTES - ROOM) // len(line)))
    assert project.runplan("start", "X", "finish", "auto").code == 0
    meanwhile.reached("agent")
    command = ["logs", "X", "-f", "--json"]
    with subprocess.Popen([RUNPLAN, *command], cwd=project.path, env=project.env, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["type"] == "RunStarted"
        meanwhile.let_on("agent")
        followed = ["RunStarted", *(json.loads(line)["type"] for line in follower.stdout)]
        assert follower.wait() == 0
    assert sorted(file.name for file in state.iterdir() if file.name.startswith("daemon.log")) == names
    until(lambda: lines(state / "daemon.log")[-1]["event"] == "ended")
    before, after = (lines(state / name) for name in ("daemon.log.1", "daemon.log"))
    assert (before[0]["event"], before[-1]["event"] != "earlier") == ("earlier", True), "in the middle of the run"
    recorded = [kind for kind, _ in project.events()]
    assert [line["event"] for line in (*before, *after) if line["event"] in recorded] == recorded == followed
