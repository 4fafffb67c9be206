"""Killed at any point and started again, a run gives byte for byte what an undisturbed run gives."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.cli import Project, a_project, writes
from tests.support.scripts import fix

HERE = Path(__file__).parent
POINTS = (HERE / "points.txt").read_text(encoding="utf-8").split()
CHECKED_POINTS = (HERE / "points-checked.txt").read_text(encoding="utf-8").split()
#: With the moment and the ids given from outside, two runs can be compared by the id of their last commit. The id is
#: another for each worker: a run that sweeps up after its dead agents ends all that carry its id, whosever they are.
FIXED = {
    "RUNPLAN_TEST_NOW": "2026-03-01T12:00:00Z",
    "RUNPLAN_TEST_RUN": f"rfixed{os.environ.get('PYTEST_XDIST_WORKER', '')}",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}


def new_project(place: Path) -> Project:
    """Two phases without checks."""
    place.mkdir(exist_ok=True)
    return a_project(place, "1", "2", **FIXED)


def checked_project(place: Path) -> Project:
    """One phase with setup and checks, which fail until a fixer was there."""
    place.mkdir(exist_ok=True)
    project = a_project(place, "1", **FIXED)
    project.repo.commit("Ignore", **{".gitignore": "deps/\n"})
    mended = fix('write = "mended.txt"\ntext = "x\\n"', 'commit = "Mend it"\ndate = "2026-01-01T00:00:00Z"')
    project.agent(writes("1") + mended)
    project.settings(
        '[run]\nsetup = "mkdir -p deps && touch deps/ok junk"\n'
        '[tests]\ncommand = "test -e deps/ok && touch junk2 && { test ! -e 1.txt || test -e mended.txt; }"\n'
    )
    return project


Undisturbed: TypeAlias = tuple[str, list[str]]


def run_undisturbed(place: Path, project: Project) -> Undisturbed:
    """The last commit of a run nobody disturbs, and every point it passes."""
    ran = project.start("finish", "auto", RUNPLAN_TEST_POINTS=str(place / "points"))
    assert ran.code == 0, ran.err
    return project.repo.head("main"), (place / "points").read_text().split()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    place = tmp_path_factory.mktemp("undisturbed")
    return run_undisturbed(place, new_project(place))


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    place = tmp_path_factory.mktemp("checked")
    return run_undisturbed(place, checked_project(place))


#: What checks add to the points that a run without them passes as well.
CHECKING = ("Start.spawned", "Await.", "JudgeBaseline.", "JudgeGate.")

#: Actions that only read: what is on disk before their fact is what was there after the fact before it.
READING = ("ReadPlan.", "JudgeGate.", "JudgeVerdict.")


def numbered(passed: list[str]) -> list[str]:
    """Each passing of a point by its own name, without those that find the same world as the point before them."""
    seen: dict[str, int] = {}
    names = []
    last = ""
    for name in passed:
        seen[name] = seen.get(name, 0) + 1
        inside = last.partition(".")[0] == name.partition(".")[0] and not last.endswith((".begin", ".after"))
        same = name.endswith(".begin") or (name.endswith(".before") and (inside or name.startswith(READING)))
        if not same or name.startswith("land."):
            names.append(f"{name}#{seen[name]}")
        last = name
    return names


def test_the_list_of_points_is_the_list_of_points_passed(undisturbed: Undisturbed, checked: Undisturbed) -> None:
    """A new durable write or outside effect cannot be forgotten here."""
    assert sorted(set(numbered(undisturbed[1]))) == sorted(POINTS)
    assert sorted({name for name in numbered(checked[1]) if name.startswith(CHECKING)}) == sorted(CHECKED_POINTS)


#: Everything dies at every point; that an agent outlives the runner makes a difference only while one is about.
CELLS = [(point, "die") for point in POINTS]
CELLS += [(point, "survive") for point in POINTS if point.startswith(("Start.spawned", "Await."))]


@pytest.mark.parametrize(("point", "agents"), CELLS)
def test_a_run_killed_at_any_point_ends_as_if_nothing_had_happened(
    tmp_path: Path, undisturbed: Undisturbed, point: str, agents: str
) -> None:
    project = new_project(tmp_path)
    killed_and_started_again(project, point, agents=agents)
    assert project.repo.head("main") == undisturbed[0], project.repo.git("log", "-p", "main")
    assert project.landed() == ["1", "2"]


@pytest.mark.parametrize("point", CHECKED_POINTS)
def test_a_run_with_checks_killed_at_any_point_is_checked_as_if_nothing_had_happened(
    tmp_path: Path, checked: Undisturbed, point: str
) -> None:
    """The machine loses its power in setup, baseline, gates and fixes: none passes over what it left behind."""
    project = checked_project(tmp_path)
    killed_and_started_again(project, point, agents="die")
    assert project.repo.head("main") == checked[0], project.repo.git("log", "-p", "main")
    assert set(project.landed()) == {"1"}


def killed_and_started_again(project: Project, point: str, *, agents: str) -> None:
    killed = project.start("finish", "auto", RUNPLAN_TEST_KILL=point)
    assert killed.code == -signal.SIGKILL, killed.err
    if agents == "die":
        kill_everything_of(project)
    again = project.start("finish", "auto")
    assert again.code == 0, again.err
    assert project.leftovers() == []
    assert project.repo.status() == ""


def kill_everything_of(project: Project) -> None:
    """A power cut for this project: every process that has its home directory is gone."""
    mark = f"HOME={project.home}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environment:
            os.kill(int(entry.name), signal.SIGKILL)
