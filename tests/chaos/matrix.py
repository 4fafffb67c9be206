"""The matrix: every effect of every scene, runner and way of landing, and everybody who can die there."""

from __future__ import annotations

import queue
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from tests.chaos import proofs, scenes, ways
from tests.chaos.runners import BY_NAME as RUNNERS
from tests.chaos.trial import Kill, Trial
from tests.support.cli import end_processes_of
from tests.support.forks import Starter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
#: Where an agent or check is met while it works: `<phase>.<role>.<stage>`.
STAGES = {
    "two": ("1.implement.begun", "1.implement.written", "2.implement.written", "1.implement.committed"),
    "checked": ("1.setup.begun", "1.baseline.begun", "1.gate.begun", "1.fix.begun", "1.fix.written", "1.fix.committed"),
}
_VARIES = re.compile(r"[0-9a-f]{6,}|[0-9]+")  #: ids and numbers in the names of effects
LEAST = 0.75  #: the share of cells in which somebody has to be killed


@dataclass(frozen=True)
class World:
    """A scene, worked in one way by one runner."""

    runner: str
    scene: str
    way: str

    def __str__(self) -> str:
        return f"{self.runner} {self.scene} {self.way}"


@dataclass(frozen=True)
class Cell:
    """One instant of a world, and who dies at it."""

    world: World
    kill: Kill
    effect: str = ""  #: what an undisturbed run does then

    def __str__(self) -> str:
        kill = self.kill
        at = kill.stage or f"{kill.start}:{kill.effect} ({self.effect})"
        more = f" during {kill.command}" if kill.command else f" again at {kill.again}" if kill.again else ""
        return f"{self.world} {at} {kill.victim}{more}"


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


def worlds(runner: str, way: str = "") -> list[World]:
    chosen = [one.name for one in ways.WAYS if way in ("", one.name)]
    return [World(runner=runner, scene=scene.name, way=name) for scene in scenes.SCENES for name in chosen]


def cells(world: World, starts: Sequence[Sequence[str]]) -> list[Cell]:
    """Every effect of every process of an undisturbed run, with everybody who can die there."""
    found = []
    for start, effects in enumerate(starts, 1):
        for number, name in enumerate(effects, 1):
            again = 1 + crc32(f"{world} {start} {number}".encode()) % len(effects)
            kills = [Kill("runner", start, number, command=command) for command in RUNNERS[world.runner].commands]
            kills += [Kill("power", start, number), Kill("runner", start, number, again=again)]
            kills += [Kill("git", start, number)] if name.startswith("git ") else []
            found += [Cell(world, kill, name) for kill in kills]
    stages = STAGES.get(world.scene, ())
    return found + [Cell(world, Kill(victim, stage=one)) for one in stages for victim in ("runner", "agent", "power")]


def distinct(found: Sequence[Cell], seed: int) -> list[Cell]:
    """One cell for each kind of effect, in each world and for everybody who can die there; the seed decides which."""
    chance = random.Random(seed)
    kinds: dict[tuple[object, ...], list[Cell]] = {}
    for cell in found:
        kill = cell.kill
        name = _VARIES.sub("#", cell.effect)
        key = (cell.world, kill.start, kill.stage, kill.victim, kill.command, kill.again > 0, name)
        kinds.setdefault(key, []).append(cell)
    return [chance.choice(same) for same in kinds.values()]


def sample(found: Sequence[Cell], count: int, seed: int) -> list[Cell]:
    """So many cells, spread evenly: one of each stretch of the list, which one the seed decides."""
    if not 0 < count < len(found):
        return list(found)
    chance = random.Random(seed)
    edges = [len(found) * number // count for number in range(count + 1)]
    return [found[chance.randrange(low, high)] for low, high in pairwise(edges)]


def too_few(results: Sequence[Result]) -> str:
    """What is wrong when in so many cells nobody was killed that the others prove little; "" when enough were."""
    tried = sum(result.kills > 0 for result in results)
    return "" if tried >= LEAST * len(results) else f"in {len(results) - tried} of {len(results)} nobody was killed"


class Bench:
    """A place to try cells, one after the other; several work side by side under names of their own."""

    def __init__(self, place: Path, name: str, shapes: dict[World, proofs.Shape] | None = None) -> None:
        self._place = place / name
        self._place.mkdir(parents=True)
        self._starter = Starter()
        self._templates: dict[tuple[str, str], Path] = {}
        self._shapes = {} if shapes is None else shapes  #: of undisturbed runs; benches may share them
        self._count = 0

    def close(self) -> None:
        self._starter.close()

    def undisturbed(self, world: World) -> list[Cell]:
        """A run that nobody disturbs, proven like the others; the cells it leads to."""
        trial = self._trial(world, None)
        RUNNERS[world.runner].work(trial)
        assert trial.is_done(), f"{world}: {trial.codes} {self._said(trial)}"
        found = proofs.examine(trial.evidence)
        assert not found.wrong, f"{world}: {found.wrong}"
        self._shapes[world] = proofs.shape(trial.evidence)
        return cells(world, [trial.effects(start) for start in range(1, trial.starts + 1)])

    def run(self, cell: Cell) -> Result:
        """Kill, work on until it is done, and look at what is there."""
        if cell.world not in self._shapes:
            self.undisturbed(cell.world)
        trial = self._trial(cell.world, cell.kill)
        found = proofs.Found()
        try:
            RUNNERS[cell.world.runner].work(trial)
            found = self._examined(cell, trial)
        except AssertionError as error:  # a command or git could not tell
            found.wrong.append(str(error))
        finally:
            end_processes_of(trial.project.home)
        if found.wrong:
            found.wrong.append(f"codes {trial.codes}; kept at {trial.place}; said: {self._said(trial)[-600:]}")
        else:
            shutil.rmtree(trial.place)
        return Result(cell=cell, kills=trial.struck, found=found, codes=trial.codes)

    def _examined(self, cell: Cell, trial: Trial) -> proofs.Found:
        parks = cell.kill.victim == "agent" or cell.kill.command == "stop"
        evidence = proofs.Evidence(trial.project, trial.scene, trial.way, parks=parks, lags=cell.kill.victim == "git")
        found = proofs.examine(evidence)
        found.wrong += trial.wrong
        if not trial.is_done():
            found.wrong.append(f"it does not come to its end: {trial.situation('X')}")
        elif cell.kill.command == "stop" and trial.scene.contested:
            pass  # the next run finds no conflict any more, and needs no fixer
        elif (now := proofs.shape(evidence)) != (calm := self._shapes[cell.world]):
            found.wrong.append(f"{now} instead of, as undisturbed, {calm}")
        return found

    def _trial(self, world: World, kill: Kill | None) -> Trial:
        scene, way = scenes.BY_NAME[world.scene], ways.BY_NAME[world.way]
        key = (scene.name, way.name)
        if key not in self._templates:
            self._templates[key] = scenes.template(scene, way, self._place / "-".join(key))
        self._count += 1
        project = scenes.copied(self._templates[key], way, self._place / str(self._count))
        return Trial(project=project, scene=scene, way=way, starter=self._starter, kill=kill)

    def _said(self, trial: Trial) -> str:
        said = trial.place / "err"
        return said.read_text(encoding="utf-8") if said.exists() else ""


def spread(work: Callable[[Bench, Asked], Answer], asked: Iterable[Asked], benches: Sequence[Bench]) -> list[Answer]:
    """The answers in order; which bench gets what is of no importance."""
    free: queue.SimpleQueue[Bench] = queue.SimpleQueue()
    for bench in benches:
        free.put(bench)

    def one(question: Asked) -> Answer:
        bench = free.get()
        try:
            return work(bench, question)
        finally:
            free.put(bench)

    with ThreadPoolExecutor(len(benches)) as pool:
        return list(pool.map(one, asked))
