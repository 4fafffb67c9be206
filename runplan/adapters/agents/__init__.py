"""One small module per kind of agent: whatever lies in this directory is one, and nothing else has a list of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from runplan.adapters.agentkit.about import About


def module_of(kind: str) -> ModuleType:
    """The module of this kind of agent."""
    return importlib.import_module(f"{__name__}.{kind}")


def about(kind: str) -> About:
    """What the module says of its agent."""
    told: About = module_of(kind).ABOUT
    return told
