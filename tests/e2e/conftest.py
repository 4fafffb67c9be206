"""The project that most of these tests use; a module that needs another one makes its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, a_project
from tests.support.daemons import none_left
from tests.support.github.hub import Hub
from tests.support.github.server import StandIn, on_github


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """Two phases, or `PHASES` of the module, and an agent that does them well; at the end no process of it is left."""
    with none_left(tmp_path / "home"):
        yield a_project(tmp_path, *getattr(request.module, "PHASES", ("1", "2")))


@pytest.fixture
def meanwhile(tmp_path: Path) -> Meanwhile:
    return Meanwhile(tmp_path)


@pytest.fixture
def server(project: Project, tmp_path: Path) -> Iterator[StandIn]:
    with on_github(project, tmp_path) as running:
        yield running


@pytest.fixture
def hub(server: StandIn) -> Hub:
    return server.hub
