"""The implementations of the protocols."""

from tests.forge.conftest import forge as github, gitlab, gitlab_hub, gitlab_server, hub, place, slept, stand_in

__all__ = ["github", "gitlab", "gitlab_hub", "gitlab_server", "hub", "place", "slept", "stand_in"]
