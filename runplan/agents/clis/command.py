"""The `command` agent: any program that reads a prompt and writes its message to standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.agents.kit.about import About
from runplan.run.dispatch import AgentEvent, Message

if TYPE_CHECKING:
    from runplan.agents.kit.task import Task
    from runplan.settings.schema import AgentTable


ABOUT = About()


def launch(table: AgentTable, task: Task) -> tuple[str, ...]:  # noqa: ARG001 - every agent is asked the same way
    """The program with its arguments, as the settings give it."""
    return table.argv


def read(line: bytes) -> tuple[AgentEvent, ...]:
    """Every line is a piece of the message."""
    return (Message(text=line.decode(errors="replace") + "\n"),)
