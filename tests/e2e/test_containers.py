"""Runs in containers that are refused before any work; tests/container has those that run."""

from pathlib import Path

from tests.support.cli import Project, Ran
from tests.support.tools import write_script

PHASES = ("1",)
#: An engine that says that it runs with another kernel, and has every image.
ENGINE = "case $1 in info) echo 1.2.3-other;; image) echo 0123;; run) ;; *) exit 1;; esac"
CONTAINER = {"SANDBOX": "container", "CONTAINER_IMAGE": "x", "CONTAINER_ENGINE": "podman"}


def start(project: Project, place: Path, engine: str = ENGINE, **variables: str) -> Ran:
    """Start the phase in a container of this engine."""
    program = write_script(place / "bin/podman", engine)
    project.extra |= {f"RUNPLAN_AGENTS_{name}": value for name, value in (CONTAINER | variables).items()}
    return project.start("1", "auto", PATH=f"{program.parent}:{project.env['PATH']}")


def test_a_list_of_hosts_is_refused_where_the_engine_is_in_a_virtual_machine(project: Project, tmp_path: Path) -> None:
    ran = start(project, tmp_path, NETWORK="example.com")
    ran.exits(2, "agents.network cannot be a list here: podman runs in a virtual machine")
    assert not project.worktrees.exists()


def test_a_missing_engine_is_named_with_the_remedy(project: Project, tmp_path: Path) -> None:
    ran = start(project, tmp_path, engine="echo cannot connect >&2; exit 125")
    ran.exits(2, "podman does not work: cannot connect; start it (podman machine start")


def test_an_agent_without_a_sandbox_makes_the_run_unprotected(project: Project, tmp_path: Path) -> None:
    project.settings('sandbox = "none"\n')
    said = start(project, tmp_path).err
    assert 'agents.robot.sandbox = "none": this agent can do what you can, so the run is unprotected' in said
