"""Settings as the installed package merges them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.settings.load import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.settings.load import Layer, LoadedSettings


def settle(layers: Sequence[Layer]) -> LoadedSettings:
    """The layers over the defaults, with the agents there are."""
    return merge(layers)
