"""What several of these tests begin with; a module that needs another one makes its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dispatching import Stage, shared_stage
from tests.support.repos import Place, a_place


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    """Dispatches, by a spawner that the tests of a process share."""
    with shared_stage(tmp_path) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as made:
        yield made
