"""Runs in containers that are refused before any work; tests/container has those that run."""

from pathlib import Path

import pytest

from tests.support.cli import Project, a_project
from tests.support.tools import write_script


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """With an engine that says that it runs with another kernel, and has every image."""
    made = a_project(tmp_path, "1")
    program = write_script(
        tmp_path / "bin/podman", "case $1 in info) echo 1.2.3-other;; image) echo 0123;; run) ;; *) exit 1;; esac"
    )
    made.extra |= {"RUNPLAN_AGENTS_SANDBOX": "", "PATH": f"{program.parent}:{made.env['PATH']}"}
    del made.extra["RUNPLAN_AGENTS_SANDBOX"]
    return made


def refuse(project: Project, **variables: str) -> str:
    project.extra |= {f"RUNPLAN_AGENTS_{name}": value for name, value in variables.items()}
    ran = project.start("1", "auto").exits(2)
    assert not project.worktrees.exists()
    return ran.err


def test_a_list_of_hosts_is_refused_where_the_engine_is_in_a_virtual_machine(project: Project) -> None:
    said = refuse(project, SANDBOX="container", CONTAINER_IMAGE="x", CONTAINER_ENGINE="podman", NETWORK="example.com")
    assert "agents.network cannot be a list here: podman runs in a virtual machine" in said


def test_a_missing_engine_is_named_with_the_remedy(project: Project, tmp_path: Path) -> None:
    (tmp_path / "bin/podman").write_text("#!/bin/sh\necho cannot connect >&2; exit 125\n")
    said = refuse(project, SANDBOX="container", CONTAINER_IMAGE="x", CONTAINER_ENGINE="podman")
    assert "podman does not work: cannot connect; start it (podman machine start" in said


def give_agent(project: Project, sandbox: str) -> str:
    """The name of the agent that has this sandbox of its own."""
    text = (project.path / "runplan.toml").read_text()
    head, _, rest = text.partition("\n[agents.")
    name = rest.partition("]")[0]
    assert name, text
    own = rest.replace("]\n", f']\nsandbox = "{sandbox}"\n', 1)
    project.commit_file("runplan.toml", f"{head}\n[agents.{own}")
    return name


def test_an_agent_without_a_sandbox_makes_the_run_unprotected(project: Project) -> None:
    name = give_agent(project, "none")
    project.extra |= {"RUNPLAN_AGENTS_SANDBOX": "container", "RUNPLAN_AGENTS_CONTAINER_IMAGE": "x"}
    said = project.start("1", "auto", RUNPLAN_AGENTS_CONTAINER_ENGINE="podman").err
    assert f'agents.{name}.sandbox = "none": this agent can do what you can, so the run is unprotected' in said
