"""One module per kind of agent. Every module in this directory is one; there is no other list of them."""

import importlib

from runplan.adapters.agents.adapter import Agent


def agent_of(kind: str) -> Agent:
    agent: Agent = importlib.import_module(f"{__name__}.{kind}").AGENT
    return agent
