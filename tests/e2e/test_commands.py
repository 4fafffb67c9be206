"""Every command that changes something takes effect once, whatever the daemon does when it is given."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest

from runplan import processes
from runplan.daemon.client import reach
from runplan.settings.places import state_directory
from tests.support.cli import RUNPLAN, a_plan, until, with_remote
from tests.support.daemons import (
    answering,
    daemon_of,
    kill_daemon,
    shell_agent,
    waits,
)
from tests.support.mounts import fill, inside, make_room, small_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.cli import Project, Ran
    from tests.support.scripts import Meanwhile

#: The remote lets the caller wait, and then takes nothing.
HOOK = "#!/bin/sh\ntouch {place}/push.here\nuntil test -e {place}/push.on; do sleep 0.01; done\nexit 1\n"


class Scene:
    """A plan X for which a command is given, and the means to bring it there."""

    def __init__(self, project: Project, place: Path, meanwhile: Meanwhile) -> None:
        self.project = project
        self.run: Callable[..., Ran] = project.runplan
        self.place = place
        self.meanwhile = meanwhile
        mended = f'[ "$RUNPLAN_PHASE" != 1 ] || [ ! -e {place}/broken ]'
        waiting = f'[ "$RUNPLAN_PHASE" != 1 ] || {{ {waits(place, "agent")}; }}'
        shell_agent(project, place, f"{waiting}\n{mended}")

    def runplan(self, *words: str) -> None:
        ran = self.run(*words)
        assert ran.code == 0, ran.err

    def seen(self) -> dict[str, Any]:
        return dict(self.run("status", "X", "--json").json)

    def state(self) -> str:
        return str((self.seen()["run"] or {}).get("state"))

    # --- what is there before the command ---

    def at_work(self) -> None:
        self.runplan("start", "X", "1", "auto")
        self.meanwhile.reached("agent")

    def paused(self) -> None:
        self.at_work()
        self.runplan("pause", "X")
        self.meanwhile.let_on("agent")
        until(lambda: self.state() == "waiting")

    def scheduled(self) -> None:
        self.meanwhile.let_on("agent")
        self.runplan("start", "X", "auto", "every", "4h")

    def failed(self) -> None:
        self.meanwhile.let_on("agent")
        (self.place / "broken").touch()
        self.runplan("start", "X", "1", "auto")
        until(lambda: self.state() == "failed")
        (self.place / "broken").unlink()

    def asking(self) -> None:
        self.meanwhile.let_on("agent")
        self.runplan("start", "X", "1")
        until(lambda: self.state() == "waiting")

    # --- what holds after it ---

    def is_stopped(self) -> bool:
        return self.state() == "stopped" and self.seen()["schedule"] is None

    def is_paused(self) -> bool:
        self.meanwhile.let_on("agent")
        return self.state() == "waiting" and self.seen()["run"]["about"] == "paused by a person"

    def is_done(self) -> bool:
        return self.state() == "done"

    def count(self, kind: str) -> int:
        return len(self.project.rows("SELECT 1 FROM events WHERE type=?", kind))


#: verb -> what is there before, what holds afterwards, and the event that it records
COMMANDS: dict[str, tuple[Callable[[Scene], None], Callable[[Scene], bool], str]] = {
    "stop": (Scene.at_work, Scene.is_stopped, "StopRequested"),
    "pause": (Scene.at_work, Scene.is_paused, "Halted"),
    "resume": (Scene.paused, Scene.is_done, "Continued"),
    "now": (Scene.scheduled, Scene.is_done, "RunStarted"),
    "retry": (Scene.failed, Scene.is_done, "RunStarted"),
    "approve": (Scene.asking, Scene.is_done, "Approved"),
}


@pytest.fixture
def scene(project: Project, tmp_path: Path, meanwhile: Meanwhile) -> Scene:
    return Scene(project, tmp_path, meanwhile)


def idle(scene: Scene, verb: str) -> None:
    assert scene.project.runplan(verb, "X").code == 0


def busy(scene: Scene, verb: str) -> None:
    """The worker of the repository waits for a remote."""
    project, place = scene.project, scene.place
    hook = with_remote(project, place / "origin").path / "hooks/pre-receive"
    hook.write_text(HOOK.format(place=place))
    hook.chmod(0o755)
    assert project.runplan("start", "Y", "2", "auto", "direct").code == 0
    scene.meanwhile.reached("push")
    with project.popen(verb, "X") as asks:
        assert asks.stderr is not None
        said = iter(asks.stderr.readline, b"")
        assert any(b"daemon busy (git or network); request queued" in line for line in said)
        scene.meanwhile.let_on("push")
        assert asks.wait(60) == 0


def stopped(scene: Scene, verb: str) -> None:
    daemon = daemon_of(scene.project)
    os.kill(daemon, signal.SIGSTOP)
    until(lambda: processes.stopped(daemon))
    ran = scene.project.runplan(verb, "X")
    assert (ran.code, "the request is queued and takes effect when the daemon responds" in ran.last) == (5, True)
    os.kill(daemon, signal.SIGCONT)


def killed(scene: Scene, verb: str) -> None:
    kill_daemon(scene.project)
    ran = scene.project.runplan(verb, "X")
    assert ran.code == 0, ran.err
    reach(scene.project.env).close()


def absent(scene: Scene, verb: str) -> None:
    """Of the daemon that was there nothing is left, not even what it remembered."""
    kill_daemon(scene.project)
    shutil.rmtree(state_directory(scene.project.env))
    ran = scene.project.runplan(verb, "X")
    assert ran.code == 0, ran.err
    if verb == "pause":
        scene.project.runplan("start", "Y")  # a daemon that knows the repository
    reach(scene.project.env).close()


#: Each verb and each state of the daemon; a command is the same row in all of them.
CASES = [
    ("pause", idle),
    ("stop", busy),
    ("retry", busy),
    ("approve", stopped),
    ("resume", killed),
    ("now", absent),
]


@pytest.mark.parametrize(("verb", "given"), CASES, ids=lambda case: case if isinstance(case, str) else case.__name__)
def test_a_command_takes_effect_once(scene: Scene, verb: str, given: Callable[[Scene, str], None]) -> None:
    before, holds, kind = COMMANDS[verb]
    scene.project.plan(a_plan("2"), name="plans/Y.md")
    before(scene)
    recorded = scene.count(kind)
    given(scene, verb)
    until(lambda: holds(scene))
    others = 1 if given is busy and kind == "RunStarted" else 0
    others += 1 if given is absent and verb == "pause" and kind == "RunStarted" else 0
    assert scene.count(kind) - recorded == 1 + others
    assert scene.project.rows("SELECT verb FROM commands WHERE answer IS NULL") == []


def test_on_a_full_disk_a_command_changes_nothing_and_works_when_there_is_space(scene: Scene) -> None:
    verb = "approve"
    before, holds, _ = COMMANDS[verb]
    journal = scene.project.path / ".git/runplan"
    with inside(scene.project) as there:
        small_disk(there, journal)
        there.sh(f"setsid {RUNPLAN} daemon </dev/null >/dev/null 2>&1 &")
        until(lambda: answering(scene.project))
        scene.run = there.runplan
        before(scene)
        fill(there, journal)
        ran = there.runplan(verb, "X")
        assert (ran.code, "nothing was recorded; make room on the disk" in ran.err) == (5, True), ran.err
        make_room(there, journal)
        ran = there.runplan(verb, "X")
        assert ran.code == 0, ran.err
        until(lambda: holds(scene))
