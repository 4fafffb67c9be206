"""An attack of each kind by an agent in a container."""

import subprocess

import pytest

from tests.container.image import NAME
from tests.e2e.attacks import ATTACKS
from tests.e2e.test_zones import (
    SAMPLE,
    model as model,
    project as project,
    test_an_attack_has_no_effect_outside_and_an_honest_start_lands as test_an_attack_has_no_effect_outside,
)
from tests.support.cli import Project

__all__ = ["test_an_attack_has_no_effect_outside"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        names = ATTACKS if metafunc.config.getoption("--zoo") else SAMPLE
        metafunc.parametrize(("name", "sandbox"), [(name, "container") for name in names])


@pytest.fixture(autouse=True)
def image(project: Project) -> None:
    project.extra["RUNPLAN_AGENTS_CONTAINER_IMAGE"] = NAME
    # As an ordinary user the engine keeps locks in the home.
    subprocess.run(("podman", "image", "inspect", NAME), env=project.env, stdout=subprocess.DEVNULL, check=False)
