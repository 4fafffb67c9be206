"""The implementations of the protocols."""

from tests.forge.conftest import forge as github, hub, place, slept, stand_in

__all__ = ["github", "hub", "place", "slept", "stand_in"]
