"""Settings as the installed package would settle them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.settings import config
from runplan.settings.load import kinds

if TYPE_CHECKING:
    from collections.abc import Sequence


def settle(layers: Sequence[config.Layer]) -> config.Settled:
    """The layers over the defaults, with the agents there are."""
    return config.settle(layers, kinds=kinds())
