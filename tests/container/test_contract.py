"""The contract of each engine of a sandbox, over containers."""

from pathlib import Path

import pytest

from tests.container.conftest import IMAGES
from tests.contract import test_sandbox as contract
from tests.contract.test_sandbox import *  # noqa: F403


@pytest.fixture(name="stage")
def stage_in_container(tmp_path: Path, engine: str, no_container_left: None) -> contract.Stage:
    return contract.Stage(tmp_path, "container", IMAGES[engine], engine)
