"""The matrix: every point, every way of landing, everybody who can die there."""

from __future__ import annotations

import os
import queue
import shutil
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.chaos import listing, proofs, scenes, ways
from tests.chaos.scenes import Kill
from tests.chaos.trial import Trial
from tests.chaos.ways import MAIN
from tests.support.cli import end_processes_of
from tests.support.forks import Starter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.chaos.listing import Listed

MODES = ("daemon", "agent", "git", "power")


@dataclass(frozen=True)
class Cell:
    """One instant, and who dies at it."""

    at: Listed
    mode: str

    def __str__(self) -> str:
        met = f" @{self.at.stage}" if self.at.of_agent else ""
        return f"{self.at.scene}/{self.at.way} start {self.at.start} {self.at.point}{met} {self.mode}"


@dataclass
class Result:
    """What became of a cell."""

    cell: Cell
    kills: int
    found: proofs.Found
    codes: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.found.wrong

    @property
    def tried(self) -> bool:
        """Whether anybody was killed; else that all is well says nothing."""
        return self.kills > 0


def cells(found: Sequence[Listed], *, full: bool = False) -> list[Cell]:
    """Every point, way and mode that can happen together: an agent dies while one lives, a git child as it starts.

    Where the runner is alone, its death and a power cut leave the same world; so of a point that is passed several
    times, such passings get the one and the other in turn, unless `full`.
    """
    turns: dict[tuple[str, str], int] = {}
    passings = Counter((one.name, one.way) for one in found)
    chosen = []
    for one in found:
        turn = turns[one.name, one.way] = turns.get((one.name, one.way), -1) + 1
        alone = not full and not one.crowded and passings[one.name, one.way] > 1
        skipped = ("power", "daemon")[turn % 2] if alone else ""
        chosen += [Cell(at=one, mode=mode) for mode in MODES if mode != skipped and can_happen(one, mode)]
    return chosen


def can_happen(one: Listed, mode: str) -> bool:
    return {"agent": one.of_agent, "git": one.of_git}.get(mode, True)


#: (point, scene, mode) of cells that have failed, and are tried always.
ONCE_FAILED = {
    ("git.checkout-index.started", "recovered", "git"),  # a half-written landing stayed in the checkout
}


def sample(found: Sequence[Listed]) -> list[Cell]:
    """Every point once, with ways and modes in turn, and what has failed before; always the same."""
    chosen = [cell for cell in cells(found, full=True) if (cell.at.name, cell.at.scene, cell.mode) in ONCE_FAILED]
    for turn, name in enumerate(sorted({one.name for one in found})):
        every = [
            Cell(at=one, mode=mode) for one in found if one.name == name for mode in MODES if can_happen(one, mode)
        ]
        modes = sorted({cell.mode for cell in every})
        wanted = ways.WAYS[turn % len(ways.WAYS)].name, modes[turn // len(ways.WAYS) % len(modes)]
        fitting = [cell for cell in every if cell.mode == wanted[1]]
        chosen.append(next((cell for cell in fitting if cell.at.way == wanted[0]), fitting[0]))
    return list(dict.fromkeys(chosen))


class Bench:
    """A place to try cells, one after the other; several work side by side under names of their own."""

    def __init__(self, place: Path, name: str) -> None:
        self._place = place / name
        self._place.mkdir(parents=True)
        # Whoever sweeps up after a dead agent ends all that carry its id, whosever they are: nobody else has this one.
        self._run = f"r{os.getpid()}{name}x"
        self._starter = Starter()
        self._templates: dict[tuple[str, str], Path] = {}
        self._undisturbed: dict[tuple[str, str], str] = {}
        self._count = 0

    def close(self) -> None:
        self._starter.close()

    def undisturbed(self, scene: str, way: str) -> Trial:
        """A run that nobody disturbs, proven like the others; its last commit is kept to compare with."""
        trial = self._trial(scene, way).work(self._starter)
        found = proofs.examine(self._evidence(trial, parks=False))
        assert trial.done, f"{scene}/{way}: {trial.codes} {self._said(trial)}"
        assert not found.wrong, f"{scene}/{way}: {found.wrong}"
        self._undisturbed[scene, way] = self._tip(trial)
        return trial

    def list_points(self) -> list[Listed]:
        """What undisturbed runs of all scenes pass, in the order of the scenes."""
        found: list[Listed] = []
        for way in ways.WAYS:
            known: set[str] = set()
            for scene in scenes.SCENES:
                trial = self.undisturbed(scene.name, way.name)
                found += listing.of_scene(trial, known)
                found += listing.stages(trial) if scene.settings else []
                known |= {one.point.partition("#")[0] for one in found}
        return found

    def run(self, cell: Cell) -> Result:
        """Kill, start again until it is done, and look at what is there."""
        scene, way = cell.at.scene, cell.at.way
        if (scene, way) not in self._undisturbed:
            self.undisturbed(scene, way)
        trial = self._trial(scene, way)
        number, _, met = cell.at.stage.partition(".")
        stage = f"{number}.{met.partition('.')[2]}" if met else ""
        kill = Kill(start=cell.at.start, point=cell.at.point, mode=cell.mode, stage=stage)
        try:
            trial.work(self._starter, kill)
            found = proofs.examine(self._evidence(trial, parks=cell.mode == "agent", lags=cell.mode == "git"))
            found.wrong += self._further(cell, trial)
        except AssertionError as error:  # git could not tell
            found = proofs.Found(wrong=[str(error)])
        finally:
            end_processes_of(trial.project.home)
        if found.wrong:
            found.wrong.append(f"codes {trial.codes}; kept at {trial.place}; said: {self._said(trial)[-600:]}")
        else:
            shutil.rmtree(trial.place)
        return Result(cell=cell, kills=trial.struck, found=found, codes=trial.codes)

    def _further(self, cell: Cell, trial: Trial) -> list[str]:
        wrong = list(trial.wrong)
        if not trial.done:
            wrong.append(f"the run does not come to its end: {trial.codes}")
        # Side by side, whoever is quicker passes other points: then nobody was killed, and nothing was tried.
        if not trial.scene.apart and trial.struck != 1 + (trial.scene.prelude is not None):
            wrong.append("nothing was killed: the point was not passed")
        same = self._undisturbed[cell.at.scene, cell.at.way]
        exact = cell.mode in ("daemon", "power")
        if exact and not trial.scene.apart and self._tip(trial) != same:
            wrong.append(f"the target ends in {self._tip(trial)} and not, as undisturbed, in {same}")
        return wrong

    def _trial(self, scene: str, way: str) -> Trial:
        key = (scene, way)
        chosen, by = scenes.BY_NAME[scene], ways.BY_NAME[way]
        if key not in self._templates:
            self._templates[key] = scenes.template(chosen, by, self._place / f"{scene}-{way}")
        self._count += 1
        project = scenes.copied(self._templates[key], by, self._place / str(self._count))
        return Trial(project=project, scene=chosen, way=by, run=self._run)

    def _evidence(self, trial: Trial, *, parks: bool, lags: bool = False) -> proofs.Evidence:
        scene = trial.scene
        return proofs.Evidence(
            project=trial.project,
            way=trial.way,
            phases=scene.phases,
            parks=parks or scene.parks,
            lags=lags,
            undone=scene.undoes,
            apart=scene.apart,
        )

    def _tip(self, trial: Trial) -> str:
        return proofs.Evidence(project=trial.project, way=trial.way, phases=(), parks=False).target.head(MAIN)

    def _said(self, trial: Trial) -> str:
        said = trial.place / "err"
        return said.read_text(encoding="utf-8") if said.exists() else ""


def run_all(found: Sequence[Cell], benches: Sequence[Bench], tell: Callable[[Result], None]) -> list[Result]:
    """All cells on all benches; which bench gets which is of no importance."""
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    for cell in found:
        waiting.put(cell)
    results: list[Result] = []
    guard = threading.Lock()

    def work(bench: Bench) -> None:
        while True:
            try:
                cell = waiting.get_nowait()
            except queue.Empty:
                return
            result = bench.run(cell)
            with guard:
                results.append(result)
                tell(result)

    threads = [threading.Thread(target=work, args=(bench,)) for bench in benches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
