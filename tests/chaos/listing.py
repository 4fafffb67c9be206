"""Which points the scenes pass, each by its own name, without those that find the world as an earlier one left it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.wiring.points import EFFECTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.trial import Trial

FILE = Path(__file__).with_name("points.txt")
#: Of the scenes after the first, the matrix visits these points, and those whose name no scene before has passed.
FOCUS = {
    "checked": ("JudgeBaseline.", "JudgeGate.", "TakeWork.", "BuildCandidate."),
    "contested": ("RebuildBranch.", "Ask.", "Removal.", "Worktrees.lease.", "Store.", "BuildCandidate.", "Land."),
    "failing": ("Await.", "Fail.", "CleanUp.", "Finish.", "Removal.", "Lease.", "Worktrees.lease."),
    "stopped": ("End.", "Dispatches.end.", "Fail.", "CleanUp.", "Finish.", "Claims."),
    "recovered": ("Lander.", "Land.", "land.", "direct.", "Removal."),
    "undone": ("BuildUndo.", "Land.", "land.", "direct.", "CleanUp.", "Finish."),
}
#: Of the second phase of the first scene, these: its agents and their work differ in nothing from the first phase's.
SECOND = ("CleanUp.", "ReadPlan.", "Lease.", "Worktrees.lease.", "Land.", "land.", "direct.", "Removal.", "Finish.")
UNDO = 2  #: the start of the last scene that takes the phase back
#: Where the target is a local branch, to look at it is no more than that.
ONLY_LOOKS = {"cherry-pick": ("Lander.tip.", "Lander.observe.")}
STAGES = {"implement": ("begun", "written", "committed"), "fix": ("begun", "written", "committed")}


@dataclass(frozen=True, order=True)
class Listed:
    """One instant of one scene."""

    scene: str
    way: str
    start: int
    point: str  #: `NAME#n`
    stage: str = "-"  #: where an agent stands by then: `<number of the dispatch>.<role>.<stage>`

    @property
    def name(self) -> str:
        """The point, whichever passing of it."""
        return f"agent.{self.stage.partition('.')[2]}" if self.of_agent else self.point.partition("#")[0]

    @property
    def of_git(self) -> bool:
        return self.point.startswith("git.")

    @property
    def of_agent(self) -> bool:
        return self.stage != "-"

    @property
    def crowded(self) -> bool:
        """Whether another process of the run lives then, so that it matters who dies."""
        return self.of_git or self.of_agent or self.point.startswith("Dispatches.start.after")


def numbered(passed: Sequence[str], *, looks: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """(place, name) of each passing, if anything can have happened since the one before."""
    seen: dict[str, int] = {}
    last = ""
    for place, name in enumerate(passed):
        seen[name] = seen.get(name, 0) + 1
        if name.startswith("Store.append.") and last.partition(".")[0] not in EFFECTS:
            continue  # how the fact is recorded whose own points lie around it
        if not _is_same(name, last) and not (looks and name.startswith(looks)):
            yield place, f"{name}#{seen[name]}"
        last = name


def _is_same(name: str, last: str) -> bool:
    """Whether nothing but looking and thinking lies between two points."""
    if name[0].islower() or last[:1].islower():
        return False  # named inside an adapter because something lies between, or because a git child runs
    return name.endswith((".begin", ".before")) or name.count(".") == 1


def dispatch_at(passed: Sequence[str]) -> list[int]:
    """For each passing the number of the dispatch it belongs to, from 1; 0 outside of starting and awaiting one."""
    numbers, count, inside = [], 0, False
    for place, name in enumerate(passed):
        if name.endswith(".begin"):
            inside = name in ("Start.begin", "Await.begin")
            count += name == "Start.begin" and _starts(passed[place + 1 :])
        numbers.append(count if inside else 0)
    return numbers


def _starts(passed: Sequence[str]) -> bool:
    for name in passed:
        if name.endswith(".begin"):
            return False
        if name == "Start.DispatchStarted.before":
            return True
    return False


def of_scene(trial: Trial, known: set[str]) -> list[Listed]:
    """The instants of an undisturbed run that the matrix visits; `known` are names that scenes before have passed."""
    scene, way = trial.scene.name, trial.way.name
    roles = trial.project.dispatched()
    found = []
    for start, passed in enumerate(trial.passed, 1):
        if trial.scene.prelude and start == 1:
            continue  # that one ends by a kill already
        dispatches = dispatch_at(passed)
        second = passed.index("CleanUp.CleanedUp.after") if scene == "two" else len(passed)
        for place, point in numbered(passed, looks=ONLY_LOOKS.get(way, ())):
            name = point.partition("#")[0]
            focus = FOCUS.get(scene) if place <= second else SECOND
            first_of_role = scene == "checked" and _is_first_of_role(roles, dispatches[place])
            if scene == "undone" and start != UNDO:
                focus = ()  # before and after it the phase lands as in every scene
            if focus is None or name not in known or name.startswith(focus) or first_of_role:
                found.append(Listed(scene=scene, way=way, start=start, point=point))
    return found


def _is_first_of_role(roles: list[str], number: int) -> bool:
    return number > 0 and roles.index(roles[number - 1]) == number - 1


def stages(trial: Trial) -> list[Listed]:
    """The instants at which a process of each role is met: as it begins, with its work written, and committed."""
    roles = trial.project.dispatched()
    return [
        Listed(
            scene=trial.scene.name,
            way=trial.way.name,
            start=1,
            point=f"Dispatches.start.after#{number}",
            stage=f"{number}.{role}.{stage}",
        )
        for number, role in enumerate(roles, 1)
        if roles.index(role) == number - 1
        for stage in STAGES.get(role, ("begun",))
    ]


def listed() -> list[Listed]:
    """What the file keeps, so that tests are known before anything ran."""
    rows = (line.split() for line in FILE.read_text(encoding="utf-8").splitlines())
    return [Listed(scene=scene, way=way, start=int(at), point=point, stage=met) for scene, way, at, point, met in rows]


def keep(found: Sequence[Listed]) -> None:
    rows = (f"{one.scene} {one.way} {one.start} {one.point} {one.stage}\n" for one in found)
    FILE.write_text("".join(rows), encoding="utf-8")
