"""The kill matrix: every kind of kill point that the scenes pass, once for each runner and way of landing.

A point is a journal transaction, a git child, a ref update, a rename of the landing, a write to a forge or the start of
a dispatch, before and after it happens. Two points are of the same kind when the step and the call site are the same.
"""

import queue
import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from runplan.adapters.sandbox.engines import CONTAINER
from tests.chaos import proofs, scenes
from tests.chaos.runners import BY_NAME as RUNNERS
from tests.chaos.trial import Kill, Trial
from tests.support.cli import end_processes_of

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
#: Where an agent or check is killed while it works: `<phase>.<role>.<stage>`.
STAGES = {
    "two": ("1.implement.begun", "1.implement.written", "1.implement.committed"),
    "told": ("1.implement.committed", "2.implement.begun"),
    "explored": (".explore.begun", ".explore.written"),
    "large": (".explore.begun", ".draft.written"),
    "plan": (".explore.begun", ".draft.written", ".critique.begun"),
    "ahead": ("1.gate.begun", "2.implement.written", "1.fix.committed", "3.verify.begun"),
    "dropped": ("2.implement.written", "2.implement.committed"),
    "checked": ("1.setup.begun", "1.gate.begun", "1.fix.committed"),
    "tried": ("1.try.begun", "1.try.served"),
}
#: Git commands that change nothing: to be killed there is to be killed at the point before or after.
READERS = (
    *("cat-file", "cherry", "config", "diff", "diff-index", "for-each-ref", "git", "log", "ls-tree"),
    *("merge-base", "merge-tree", "rev-list", "rev-parse", "show", "status", "var"),
)
SLOWER = 4  #: a phase has about ten processes, each in a container of its own
LEAST = 0.75  #: the share of cells in which a process has to be killed


@dataclass(frozen=True)
class World:
    """A scene, worked in one way of landing by one runner."""

    runner: str
    scene: str
    way: str

    def __str__(self) -> str:
        return f"{self.runner} {self.way} {self.scene}"


@dataclass(frozen=True)
class Passing:
    """A point that an undisturbed run passed."""

    world: World
    start: int  #: in which process of the runner, from 1
    point: str
    count: int  #: its how-many-th passing in that process


@dataclass(frozen=True)
class Cell:
    """One kill in one world."""

    world: World
    kill: Kill

    def __str__(self) -> str:
        kill = self.kill
        at = kill.stage or f"{kill.start}: {kill.point}#{kill.count}{' lasting' if kill.lasting else ''}"
        more = f" during {kill.command}" if kill.command else f" and again at {kill.again}" if kill.again else ""
        return f"{self.world}: {kill.victim} {at}{more}"


@dataclass
class Result:
    """The outcome of a cell."""

    cell: Cell
    kills: int
    found: proofs.Found
    codes: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.found.wrong


def worlds(runner: str, way: str) -> list[World]:
    if runner == "worker" and way == "cherry-pick":
        return []  # a host of a fleet has no checkout to land in
    return [
        World(runner=runner, scene=scene.name, way=way)
        for scene in scenes.SCENES
        if runner == "daemon" or not scene.needs_daemon
    ]


def cells(passed: Iterable[Passing]) -> list[Cell]:
    """One cell for each kind of point; the scene, the passing and the kind of kill are chosen by its name."""
    kinds: dict[str, list[Passing]] = {}
    for one in passed:
        _, kind, what, *_ = one.point.split()
        if kind != "git" or what not in READERS:
            kinds.setdefault(one.point, []).append(one)
    found = []
    for point, same in kinds.items():
        number = crc32(point.encode())
        chosen = same[number % len(same)]
        variants = RUNNERS[chosen.world.runner].kills
        if scenes.BY_NAME[chosen.world.scene].queued:  # a plan that a person stops before it began is not begun
            variants = tuple(kill for kill in variants if not kill.command)
        kill = Kill("git") if point.startswith("during git") else variants[number // len(same) % len(variants)]
        again = 1 + number % 20 if kill.again else 0
        found.append(Cell(chosen.world, kill.at(chosen.start, point, chosen.count, again)))
    stages = {one.world: STAGES.get(one.world.scene, ()) for same in kinds.values() for one in same}
    return found + [Cell(world, Kill("agent", stage=stage)) for world in stages for stage in stages[world]]


def fault_cells(passed: Iterable[Passing], fault: str, *, lasting: bool) -> list[Cell]:
    """One cell for each kind of point that can have the fault; the scene and the passing are chosen by its name."""
    kinds: dict[str, list[Passing]] = {}
    for passing in passed:
        when, kind, *_ = passing.point.split()
        if when == "before" and (fault != "git128" or kind in ("git", "ref")):
            kinds.setdefault(passing.point, []).append(passing)
    chosen = [same[crc32(point.encode()) % len(same)] for point, same in kinds.items()]
    kill = Kill(fault, lasting=lasting)
    return [Cell(passing.world, kill.at(passing.start, passing.point, passing.count, 0)) for passing in chosen]


def sample(found: Sequence[Cell], count: int, seed: int) -> list[Cell]:
    """So many cells, spread evenly: one of each stretch of the list, which one the seed decides."""
    if not 0 < count < len(found):
        return list(found)
    chance = random.Random(seed)
    edges = [len(found) * number // count for number in range(count + 1)]
    return [found[chance.randrange(low, high)] for low, high in pairwise(edges)]


def too_few(results: Sequence[Result]) -> str:
    """The complaint when the kill happened in so few cells that the others prove little; "" otherwise."""
    tried = sum(result.kills > 0 for result in results)
    return "" if tried >= LEAST * len(results) else f"{len(results) - tried} of {len(results)} cells killed nothing"


class Bench:
    """A directory to run cells in, one after the other; several benches work in parallel."""

    def __init__(
        self, place: Path, name: str, shapes: dict[World, proofs.Shape] | None = None, sandbox: str = "none"
    ) -> None:
        self._place = place / name
        self._sandbox = sandbox
        self._place.mkdir(parents=True)
        self._templates: dict[tuple[str, str, str], Path] = {}
        self._shapes = {} if shapes is None else shapes  #: of undisturbed runs; benches may share them
        self._count = 0

    def undisturbed(self, world: World) -> list[Passing]:
        """The points of a run without a kill; its result is proven like the others."""
        trial = self._trial(world, None)
        RUNNERS[world.runner].work(trial)
        assert trial.is_done(), f"{world}: {trial.codes} {self._said(trial)}"
        found = proofs.examine(replace(trial.evidence, lags=world.runner == "worker"))
        assert not found.wrong, f"{world}: {found.wrong}"
        self._shapes[world] = proofs.shape(trial.evidence)
        passed = []
        for start in range(1, trial.starts + 1):
            counts: dict[str, int] = {}
            for point in trial.points(start):
                counts[point] = counts.get(point, 0) + 1
                passed.append(Passing(world, start, point, counts[point]))
        return passed

    def run(self, cell: Cell) -> Result:
        """Kill, work on to the end, and check the repository."""
        if cell.world not in self._shapes:
            self.undisturbed(cell.world)
        trial = self._trial(cell.world, cell.kill)
        found = proofs.Found()
        try:
            RUNNERS[cell.world.runner].work(trial)
            if cell.kill.is_fault:  # what could not be removed then
                trial.project.runplan("gc")
            found = self._examined(cell, trial)
        except AssertionError as error:  # a command or git has failed
            found.wrong.append(str(error))
        finally:
            end_processes_of(trial.project.home)
        if found.wrong:
            found.wrong.append(f"codes {trial.codes}; kept at {trial.place}; said: {self._said(trial)[-600:]}")
        else:
            shutil.rmtree(trial.place)
        return Result(cell=cell, kills=trial.struck, found=found, codes=trial.codes)

    def _examined(self, cell: Cell, trial: Trial) -> proofs.Found:
        is_stopped = cell.kill.command == "stop"
        evidence = proofs.Evidence(
            trial.project,
            trial.scene,
            trial.way,
            stops=is_stopped,
            repeats=trial.struck,
            parks=cell.kill.victim == "agent" or cell.kill.is_fault or is_stopped,
            lags=cell.kill.victim == "git" or cell.kill.is_fault or cell.world.runner == "worker",
        )
        found = proofs.examine(evidence)
        found.wrong += trial.wrong
        if not trial.is_done():
            found.stuck += 1
            found.wrong.append(f"it does not come to its end: {trial.situation('X')}")
        elif cell.kill.command == "stop" and trial.scene.contested:
            pass  # the next run finds no conflict any more, and needs no fixer
        elif (now := proofs.shape(evidence)) != (calm := self._shapes[cell.world]):
            found.wrong.append(f"{now} instead of, as undisturbed, {calm}")
        return found

    def _trial(self, world: World, kill: Kill | None) -> Trial:
        scene, way = scenes.BY_NAME[world.scene], scenes.WAY_BY_NAME[world.way]
        key = (world.runner, scene.name, way.name)
        if key not in self._templates:
            copies = world.runner != "worker"  # no user puts a file into the clone of a worker
            self._templates[key] = scenes.template(scene, way, self._place / "-".join(key), copies=copies)
        self._count += 1
        project = scenes.copied(self._templates[key], way, self._place / str(self._count))
        if self._sandbox != "none":
            scenes.confine(project, self._sandbox)
        most_s = Trial.most_s * (SLOWER if self._sandbox == CONTAINER else 1)
        prepared = RUNNERS[world.runner].prepare(project)
        return Trial(project=prepared, scene=scene, way=way, kill=kill, most_s=most_s)

    def _said(self, trial: Trial) -> str:
        said = trial.place / "err"
        return said.read_text(encoding="utf-8") if said.exists() else ""


def spread(work: Callable[[Bench, Asked], Answer], asked: Iterable[Asked], benches: Sequence[Bench]) -> list[Answer]:
    """The answers in order, computed on all benches in parallel."""
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
