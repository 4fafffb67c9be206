"""Works a scene to its end, killed once on the way, started again until it is done."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos import proofs

if TYPE_CHECKING:
    from tests.chaos.scenes import Kill, Scene
    from tests.chaos.ways import Way
    from tests.support.cli import Project
    from tests.support.forks import Started, Starter

KILLED = -signal.SIGKILL
CONTESTED = "any.written"  #: where every agent waits until somebody has changed the target
STRUCK = "killed:"
RETURN = "return.json"  #: what an agent returns
REFUSED = 2
WAITS = 4  #: the exit code of a run that waits for a person
MOST_STARTS = 8
_LOOK_S = 0.003


@dataclass
class Trial:
    """One project on its way."""

    project: Project
    scene: Scene
    way: Way
    run: str  #: the beginning of its run ids; no other trial at the same time has it
    codes: list[int] = field(default_factory=list)
    passed: list[list[str]] = field(default_factory=list)  #: the points of each start
    runs: int = 0  #: runs that have ended
    struck: int = 0  #: kills
    wrong: list[str] = field(default_factory=list)  #: what was found between two starts

    @property
    def place(self) -> Path:
        return self.project.home.parent

    @property
    def done(self) -> bool:
        return bool(self.codes) and self.codes[-1] == 0 and self._finishing

    @property
    def _finishing(self) -> bool:
        needed = {"stopped": 2, "undone": 3}.get(self.scene.name, 1)
        return self._succeeded >= needed

    @property
    def _succeeded(self) -> int:
        """Starts that did what they were asked for; to take a phase back again is refused, since that was done."""
        return self.codes.count(0) + (self.scene.name == "undone" and self.codes.count(REFUSED))

    def work(self, starter: Starter, kill: Kill | None = None) -> Trial:
        """Start again until it is done; give up after a few times, and let the proofs tell."""
        self._prepare(kill)
        while not self.done and len(self.codes) < MOST_STARTS:
            due = kill if kill is not None and kill.start == len(self.codes) + 1 else None
            self._start(starter, due)
        return self

    def _prepare(self, kill: Kill | None) -> None:
        if self.scene.contested:
            (self.project.home / "hold" / CONTESTED).touch()
        if self.scene.fails:
            (self.project.home / "hold/fail").touch()
        if "power" in (kill and kill.mode, self.scene.prelude and self.scene.prelude.mode):
            self._unsynced.parent.mkdir(parents=True)
            self._unsynced.touch()

    def _start(self, starter: Starter, kill: Kill | None) -> None:
        points = self.place / f"points.{len(self.codes) + 1}"
        env = {**self.project.env, "RUNPLAN_TEST_RUN": f"{self.run}{self.runs}"}
        env["RUNPLAN_TEST_POINTS"] = str(points)
        if self._is_prelude:
            kill = self.scene.prelude
        env |= self._kill_env(kill) if kill is not None else {}
        with open(os.devnull, "wb") as out, (self.place / "err").open("ab") as err:
            started = starter.start(self._words(), cwd=self.project.path, env=env, out=out.fileno(), err=err.fileno())
        if self.scene.contested:
            self._person(started)
        code = started.wait()
        self.codes.append(code)
        passed = points.read_text(encoding="utf-8").split() if points.exists() else []
        self.passed.append([name for name in passed if not name.startswith(STRUCK)])
        self.struck += passed != self.passed[-1]
        self._after(code, kill)

    def _words(self) -> list[str]:
        match self.scene.name:
            case "contested" if self.codes and self.codes[-1] == WAITS:
                return ["approve", "X"]
            case "contested":
                words = ["finish"]
            case "stopped" if not self.codes:
                words = ["1", "auto"]
            case "stopped" if not self._succeeded:
                words = ["2", "auto"]
            case "undone" if self._succeeded == 1:
                return ["undo", "X", "1"]
            case _:
                words = ["finish", "auto"]
        return ["start", "X", *words, self.way.name, "--foreground"]

    @property
    def _is_prelude(self) -> bool:
        return self.scene.prelude is not None and not self.codes

    def _kill_env(self, kill: Kill) -> dict[str, str]:
        env = {"RUNPLAN_TEST_KILL": kill.point, "RUNPLAN_TEST_KILL_WHAT": kill.mode}
        if kill.stage:
            self._hold(kill.stage).touch()
            env["RUNPLAN_TEST_KILL_AWAIT"] = str(self.project.home / "at" / f"{self.run}0.{kill.stage}")
        return env

    def _hold(self, stage: str) -> Path:
        return self.project.home / "hold" / f"{self.run}0.{stage}"

    def _person(self, started: Started) -> None:
        """Once the agent has written something, somebody else changes the same file on the target."""
        hold = self.project.home / "hold" / CONTESTED
        there = self.project.home / "at" / hold.name
        while hold.exists() and Path(f"/proc/{started.pid}").exists():
            if there.exists():
                self.way.person(self.place, self.project.repo)
                hold.unlink()
            time.sleep(_LOOK_S)

    def _after(self, code: int, kill: Kill | None) -> None:
        is_prelude = kill is not None and kill is self.scene.prelude
        if code == KILLED and kill is not None and not is_prelude and kill.stage and kill.mode == "daemon":
            self._hold(kill.stage).unlink()
        if kill is not None and kill.mode == "power":
            self._lose_unsynced()
            self._lose_unreachable()
        if code not in (KILLED, WAITS, 5) or (self.scene.name == "stopped" and len(self.codes) == 1):
            self.runs += 1
            (self.project.home / "hold/fail").unlink(missing_ok=True)

    @property
    def _unsynced(self) -> Path:
        return self.project.path / ".git/runplan/dispatch/unsynced"

    def _lose_unsynced(self) -> None:
        """What was replaced and never synced is as it was before; a return is synced before its exit is told."""
        for line in reversed(self._unsynced.read_text(encoding="utf-8").splitlines()):
            note = json.loads(line)
            path = Path(note["path"])
            if path.name == RETURN and path.parent.with_name("exit.json").exists():
                continue
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            if note["former"] is not None:
                path.write_text(note["former"], encoding="utf-8")
        self._unsynced.write_text("", encoding="utf-8")

    def _lose_unreachable(self) -> None:
        """What no ref holds, git's own housekeeping may take: no work may be among it, and nothing may need it."""
        evidence = proofs.Evidence(project=self.project, way=self.way, phases=(), parks=True)
        self.wrong += [f"after the kill: {one}" for one in proofs.no_work_is_unreachable(evidence)]
        self.project.repo.git("prune", "--expire=now")
