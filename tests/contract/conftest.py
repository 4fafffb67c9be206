"""The implementations of the protocols."""

from collections.abc import Callable

import pytest

from runplan.adapters.store.protocol import Store
from tests.forge.conftest import forge as github, gitlab, gitlab_hub, gitlab_server, hub, place, slept, stand_in
from tests.support.postgres import open_postgres

__all__ = ["github", "gitlab", "gitlab_hub", "gitlab_server", "hub", "place", "slept", "stand_in"]


@pytest.fixture
def postgres() -> Callable[..., Store]:
    return open_postgres
