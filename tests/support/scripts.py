"""Scripts for the played agent, and what every failed run must leave and not leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.cli import SETTINGS, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


def steps(*played: str, phase: str = "1", role: str = "implement") -> str:
    """The steps of one role, each as TOML lines."""
    return "".join(f'[[phase."{phase}".{role}]]\n{step}\n' for step in played)


def work(*more: str, phase: str = "1") -> str:
    """An implementer that writes `<id>.txt`, commits it, and then does more."""
    return steps(f'write = "{phase}.txt"\ntext = "{phase}\\n"', f'commit = "Write {phase}"', *more, phase=phase)


def fix(*played: str, phase: str = "1") -> str:
    return steps(*played, phase=phase, role="fix")


def verify(*played: str, phase: str = "1", cycle: str = "") -> str:
    return steps(*played, phase=phase, role=f"verify{cycle}")


#: A fixer whose every pass changes something, and mends nothing.
BUSY_FIXER = fix('append = "1.txt"\ntext = "more\\n"')


def set_up(project: Project, **files: str) -> None:
    """Write `agent`, `settings` and `plan`, where given, and commit them at once."""
    names = {"agent": "agent.toml", "settings": "runplan.toml", "plan": "plans/X.md"}
    for kind, text in files.items():
        project.repo.write(names[kind], SETTINGS + text if kind == "settings" else text)
    project.repo.commit("Set up")


def assert_nothing_runs(project: Project) -> dict[str, Any]:
    """No claim, no candidate, no worktree; branches and parked refs may keep work. What `status` says of the plan."""
    left = project.leftovers()
    assert [one for one in left if not one.startswith(("refs/heads/runplan/", "refs/runplan/parked/"))] == []
    view: dict[str, Any] = project.runplan("status", "X", "--json").json
    assert view["claim"] is None
    return view


class Meanwhile:
    """A run that pauses in a step of its agent while somebody else does something."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def pause(self, name: str) -> tuple[str, str]:
        """Two steps: say that we are here, and wait to be let on."""
        return f'write = "{self._place / name}.here"', f'wait_for = "{self._place / name}.on"'

    def reached(self, name: str) -> None:
        until((self._place / f"{name}.here").exists)

    def let_on(self, name: str) -> None:
        (self._place / f"{name}.on").touch()
