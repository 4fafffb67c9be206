"""The clone of a repository that a worker makes."""

from pathlib import Path

from runplan.hosts.fleet.clones import open_clone
from tests.support.cli import a_project
from tests.support.github.server import on_github


def test_a_host_clones_with_the_token_for_the_forge_alone(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    with on_github(project, tmp_path) as forge:
        for _ in range(2):  # to clone it, and to fetch
            made = open_clone(forge.remote, tmp_path / "clones/app", project.env)

    assert project.repo.at(made).head() == project.repo.head()
