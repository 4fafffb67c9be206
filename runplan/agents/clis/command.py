"""The `command` agent: any program that reads a prompt and prints its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.agents.adapter import Agent
from runplan.run.usage import Message

if TYPE_CHECKING:
    from runplan.agents.adapter import Task
    from runplan.run.usage import AgentEvent


class Command(Agent):
    def argv(self, task: Task) -> tuple[str, ...]:
        return task.table.argv

    def read(self, line: bytes) -> tuple[AgentEvent, ...]:
        return (Message(text=line.decode(errors="replace") + "\n"),)


AGENT = Command()
