"""Agents: how they are called, and how their output is read."""
