"""The contract of each engine of a sandbox, over containers."""

from pathlib import Path

import pytest

from runplan.adapters import processes
from runplan.adapters.sandbox.engines import open_sandbox
from runplan.adapters.sandbox.view import Places, View
from runplan.domain.settings.schema import ContainerSettings
from tests.container.conftest import IMAGES
from tests.contract import test_sandbox as contract
from tests.contract.test_sandbox import *  # noqa: F403


@pytest.fixture(name="stage")
def stage_in_container(tmp_path: Path, engine: str, no_container_left: None) -> contract.Stage:
    return contract.Stage(tmp_path, "container", IMAGES[engine], engine)


def test_another_user_than_root_reaches_what_is_below_an_absent_place(
    tmp_path: Path, engine: str, no_container_left: None
) -> None:
    """As with an engine of an ordinary user, whose containers have that user."""
    state = tmp_path / "tree/.git/runplan"
    (state / "lanes/here").mkdir(parents=True)
    state.chmod(0o700)
    (tmp_path / "home").mkdir()
    for place in (tmp_path / "tree", state / "lanes"):
        place.chmod(0o755)
    settings = ContainerSettings(engine=engine, user="1234:1234")
    places = Places(tmp_path / "homes", (tmp_path / "tree",), image=IMAGES[engine], state=state)
    env = {**contract.ENV, "HOME": str(tmp_path / "home")}
    ask = ("setpriv", "--inh-caps=-all", "--ambient-caps=-all", "ls", f"{state}/lanes")
    argv = open_sandbox("container", env, places, settings).wrap(ask, View(cwd=tmp_path / "tree"))

    assert processes.run_program(argv, env, within_s=60) == (0, "here\n", "")
    assert f"--volume={state}/proof:{state}/proof:ro" in argv, "a place that is made after this"
