"""The engines that work here and have the image."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.adapters.clock import until
from tests.container.image import find_image, list_containers, list_engines

IMAGES = {engine.name: image for engine in list_engines() if (image := find_image(engine))}


@pytest.fixture(params=list(IMAGES) or ["podman"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param not in IMAGES:
        pytest.fail("no engine has the image; make it: make test-container")
    return str(request.param)


@pytest.fixture
def no_container_left(engine: str, tmp_path: Path) -> Iterator[None]:
    yield
    assert until(lambda: not list_containers(engine, tmp_path / "homes"), within_s=10)  # docker removes it by and by
