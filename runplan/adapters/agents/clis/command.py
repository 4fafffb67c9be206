"""The `command` agent: any program that reads a prompt and prints its message."""

from runplan.adapters.agents.adapter import Agent

AGENT = Agent()
