"""The soak: processes are killed at random moments; the result is compared with an undisturbed run."""

import contextlib
import os
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from runplan.adapters.configuration.places import remove_unused_root
from runplan.adapters.store.files import sweep_leftovers
from runplan.domain.settings.schema import Settings
from tests.chaos import proofs, runners, scenes
from tests.chaos.scenes import Scene
from tests.chaos.trial import Kill, Trial, is_agent
from tests.support.cli import Project, end_processes_of, processes_of
from tests.support.forks import Started


@dataclass(frozen=True)
class Storm:
    """The plans and the disturbances."""

    scene: Scene
    victims: tuple[str, ...]
    pause_s: tuple[float, float]  #: between two kills, at least and at most
    most_s: float = 600.0


STORMS = {
    "foreground": Storm(
        scene=Scene(name="soak", about="ten phases", plans={"X": tuple(map(str, range(1, 11)))}),
        victims=("runner", "runner", "power", "power", "git", "agent"),
        pause_s=(0, 0.6),
    ),
    "daemon": Storm(
        scene=Scene(
            name="soak-daemon",
            about="three plans of twelve phases",
            plans={name: tuple(f"{name.lower()}{n}" for n in range(1, 13)) for name in ("X", "Y", "Z")},
            apart=True,
            pace_s=0.4,
        ),
        victims=("runner", "runner", "power"),
        pause_s=(1, 3),
    ),
}


@dataclass
class Account:
    """A soak and its result."""

    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    rounds: int = 0
    processes: int = 0  #: at most at a time
    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        who = ", ".join(f"{count} of {victim}" for victim, count in sorted(self.kills.items())) or "none"
        ended = "differs from an undisturbed run" if self.wrong else "the same as an undisturbed run"
        return (
            f"{self.kills.total()} kills ({who}), {self.starts} starts, {self.rounds} rounds, "
            f"at most {self.processes} processes at a time: {ended}"
        )


@dataclass
class Disturbed(Trial):
    """A trial that is killed at random moments, until that was done so often."""

    account: Account = field(default_factory=Account)
    chance: random.Random = field(default_factory=random.Random)
    storm: Storm = field(default_factory=lambda: STORMS["foreground"])
    kills: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.most_s = self.storm.most_s
        self._moment = time.monotonic() + self.chance.uniform(*self.storm.pause_s)

    def look(self, runner: Started, within_s: float = 0.004) -> bool:
        if time.monotonic() >= self._moment and self.account.kills.total() < self.kills and not runner.ended():
            self._moment = time.monotonic() + self.chance.uniform(*self.storm.pause_s)
            living = processes_of(self.project.home)
            self.account.processes = max(self.account.processes, len(living))
            child = next((pid for pid in living if _is_git(pid)), 0)
            before, victim = self.struck, self.chance.choice(self.storm.victims)
            self.strike(Kill(victim), runner, child)
            self.account.kills[victim] += self.struck - before
        return super().look(runner, within_s)


def _is_git(pid: int) -> bool:
    """A git of ours, not of an agent."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "git" and not is_agent(pid)
    return False


def soak(place: Path, *, kills: int, seed: int, runner: str = "foreground") -> Account:
    """As many rounds as it takes to kill so often; each round is another way of landing."""
    account, chance = Account(), random.Random(seed)
    shapes: dict[str, proofs.Shape] = {}
    while account.kills.total() < kills and not account.wrong:
        way = scenes.WAYS[account.rounds % 2]  # without a forge
        account.rounds += 1
        model = place / f"soak-{runner}-{way.name}"
        if way.name not in shapes:
            scenes.template(STORMS[runner].scene, way, model)
        for most in (kills,) if way.name in shapes else (0, kills):
            copy = place / f"round-{runner}-{account.rounds}-{most}"
            trial = Disturbed(
                project=scenes.copied(model, way, copy),
                scene=STORMS[runner].scene,
                way=way,
                account=account,
                chance=chance,
                storm=STORMS[runner],
                kills=most,
            )
            _work(trial, runner, shapes)
    return account


def _work(trial: Disturbed, runner: str, shapes: dict[str, proofs.Shape]) -> None:
    account = trial.account
    try:
        runners.BY_NAME[runner].work(trial)
        if trial.struck:
            _sweep(trial.project)
        evidence = proofs.Evidence(trial.project, trial.scene, trial.way, parks=True, lags=True)
        found = proofs.examine(evidence)
        now = proofs.shape(evidence)
    finally:
        end_processes_of(trial.project.home)
    if now != shapes.setdefault(trial.way.name, now):
        found.wrong.append(f"{now} instead of, as undisturbed, {shapes[trial.way.name]}")
    if not trial.is_done():
        situations = {plan: trial.situation(plan) for plan in trial.scene.plans}
        said = (trial.place / "err").read_text(encoding="utf-8")
        found.wrong.append(f"it does not come to its end: {situations}; said: {said[-800:]}")
    account.starts += trial.starts
    account.wrong += found.wrong + trial.wrong
    account.lost += found.lost
    account.doubled += found.doubled
    if not account.wrong:
        shutil.rmtree(trial.place)


def _sweep(project: Project) -> None:
    """As the next process does an hour later: delete the rest of a removal that was killed."""
    for place in (project.worktrees, project.worked.path / ".git/runplan/lanes"):
        for rest in place.glob(".gone-*"):
            os.utime(rest, (1, 1))
        sweep_leftovers(place)
    remove_unused_root(project.worktrees, Settings())
