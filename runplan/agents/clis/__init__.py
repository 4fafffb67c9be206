"""One small module per kind of agent: whatever lies in this directory is one, and nothing else has a list of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from runplan.agents.kit.module import whole

if TYPE_CHECKING:
    from runplan.agents.kit.about import About
    from runplan.agents.kit.module import AgentModule


def module_of(kind: str) -> AgentModule:
    """The module of this kind of agent, with what it leaves out."""
    return whole(importlib.import_module(f"{__name__}.{kind}"))


def about(kind: str) -> About:
    """What the module says of its agent."""
    return module_of(kind).ABOUT
