"""The soak: twenty phases, and SIGKILL at random moments until they are done; then compared with an undisturbed run."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos import proofs, scenes, ways
from tests.chaos.scenes import Scene
from tests.chaos.ways import MAIN
from tests.support.cli import end_processes_of, processes_of
from tests.support.forks import Starter

if TYPE_CHECKING:
    from tests.chaos.ways import Way
    from tests.support.cli import Project
    from tests.support.forks import Started

PHASES = tuple(str(number) for number in range(1, 21))
SCENE = Scene(name="soak", told="twenty phases", phases=PHASES)
LONGEST_S = 0.6  #: between two kills
PATIENCE_S = 0.2  #: how long a git child or an agent is looked for
MOST_STARTS = 60  #: beyond one for each kill
VICTIMS = ("runner", "runner", "everything", "everything", "git", "agent")
_LOOK_S = 0.002


@dataclass
class Account:
    """What was done, and what came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    rounds: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0


def soak(place: Path, *, kills: int, seed: int) -> Account:
    """As many rounds of twenty phases as it takes to kill so often; each round is another way of landing."""
    account = Account()
    chance = random.Random(seed)
    starter = Starter()
    try:
        undisturbed: dict[str, tuple[Path, Shape]] = {}
        while account.kills.total() < kills or not account.rounds:
            way = ways.WAYS[account.rounds % len(ways.WAYS)]
            account.rounds += 1
            if way.name not in undisturbed:
                model = scenes.template(SCENE, way, place / f"soak-{way.name}")
                calm = scenes.copied(model, way, place / f"calm-{way.name}")
                _Round(calm, way, starter, account, chance, kills=0).work()
                undisturbed[way.name] = model, shape(_evidence(calm, way))
            model, expected = undisturbed[way.name]
            project = scenes.copied(model, way, place / f"round-{account.rounds}")
            _Round(project, way, starter, account, chance, kills=kills).work()
            _compare(account, _evidence(project, way), expected)
            if not account.wrong:
                shutil.rmtree(project.home.parent)
    finally:
        starter.close()
    return account


def _evidence(project: Project, way: Way) -> proofs.Evidence:
    return proofs.Evidence(project=project, way=way, phases=PHASES, parks=True, lags=True)


def _compare(account: Account, evidence: proofs.Evidence, calm: Shape) -> None:
    found = proofs.examine(evidence)
    account.wrong += found.wrong
    account.lost += found.lost
    account.doubled += found.doubled
    now = shape(evidence)
    account.wrong += [
        f"{name} differs from an undisturbed run's: {getattr(now, name)} instead of {getattr(calm, name)}"
        for name in ("files", "landed", "tracker", "report")
        if getattr(now, name) != getattr(calm, name)
    ]


@dataclass(frozen=True)
class Shape:
    """What two runs of the same plan have in common, whatever their times, ids and failed attempts."""

    files: str  #: every file but plan and report, with its content
    landed: tuple[str, ...]  #: the phases by their trailers, in order
    tracker: tuple[str, ...]
    report: tuple[str, ...]  #: the landed phases of which it tells, in order


def shape(evidence: proofs.Evidence) -> Shape:
    git = evidence.target.git
    entries = git("ls-tree", "-r", MAIN).splitlines()
    form = "--format=%(trailers:key=Runplan-Phase,valueonly,separator=%x20)"
    plan, report = git("show", f"{MAIN}:plans/X.md"), git("show", f"{MAIN}:reports/plan-x.md", ok=False)
    return Shape(
        files="\n".join(entry for entry in entries if not entry.endswith(("\tplans/X.md", "\treports/plan-x.md"))),
        landed=tuple(git("log", "--reverse", form, MAIN).split()),
        tracker=tuple(re.findall(r"^\| (\S+ — .*?\|.*?)\|", plan, re.MULTILINE)),
        report=tuple(re.findall(r"^## Phase — (.*)", report, re.MULTILINE)),
    )


class _Round:
    """One project on its way through the kills."""

    def __init__(
        self, project: Project, way: Way, starter: Starter, account: Account, chance: random.Random, *, kills: int
    ) -> None:
        self._project = project
        self._way = way
        self._starter = starter
        self._account = account
        self._chance = chance
        self._kills = kills

    def work(self) -> None:
        """Start until it is done."""
        most = self._account.starts + self._kills + MOST_STARTS
        try:
            while self._start() != 0:
                if self._account.starts > most:
                    said = (self._project.home.parent / "err").read_text(encoding="utf-8")
                    self._account.wrong.append(f"the plan does not come to its end; said: {said[-800:]}")
                    return
        finally:
            end_processes_of(self._project.home)

    def _start(self) -> int:
        self._account.starts += 1
        with open(os.devnull, "wb") as out, (self._project.home.parent / "err").open("ab") as err:
            started = self._starter.start(
                ["start", "X", "finish", "auto", self._way.name, "--foreground"],
                cwd=self._project.path,
                env={name: value for name, value in self._project.env.items() if name != "RUNPLAN_TEST_NOW"},
                out=out.fileno(),
                err=err.fileno(),
            )
        while self._account.kills.total() < self._kills and _lives(started):
            moment = time.monotonic() + self._chance.uniform(0, LONGEST_S)
            while time.monotonic() < moment and _lives(started):
                time.sleep(_LOOK_S)
            if _lives(started):
                self._kill(self._chance.choice(VICTIMS), started)
        return started.wait()

    def _kill(self, victim: str, started: Started) -> None:
        """Count it only when there was somebody to kill."""
        match victim:
            case "runner":
                killed = _strike(started.pid)
            case "everything":
                killed = _strike(started.pid)
                while left := processes_of(self._project.home):
                    for pid in left:
                        _strike(pid)
            case _:
                killed = self._look_for(victim)
        self._account.kills[victim] += killed

    def _look_for(self, victim: str) -> bool:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for pid in processes_of(self._project.home):
                if _is(pid, victim):
                    return _strike(pid)
            time.sleep(_LOOK_S)
        return False


def _lives(started: Started) -> bool:
    return Path(f"/proc/{started.pid}").exists()


def _strike(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _is(pid: int, victim: str) -> bool:
    """An agent's process carries the mark of its dispatch; a git of ours does not."""
    try:
        marked = b"\0RUNPLAN_DISPATCH=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        program = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return marked if victim == "agent" else program == "git" and not marked
