"""The environments of callers, kept in memory only: they contain the keys of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.run.rows import Command

KEPT = 100  #: environments whose command is not executed yet
NAME = "environment"  #: the argument of a command that names the environment of its caller


class Environments:
    """Those of one repository: a run gets the environment of the caller that started it."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = own  #: of the process, for runs whose caller sent none
        self._plans: dict[str, Mapping[str, str]] = {}
        self._sent: dict[str, Mapping[str, str]] = {}  #: by the name that its command gives it

    def receive(self, name: str, sent: Mapping[str, str]) -> None:
        """Keep an environment until its command, which is stored afterwards, is executed."""
        while len(self._sent) >= KEPT:
            self._sent.pop(next(iter(self._sent)))
        self._sent[name] = sent

    def forget(self, command: Command) -> None:
        self._sent.pop(str(command.arguments.get(NAME)), None)

    def of(self, plan: str) -> Mapping[str, str]:
        return self._plans.get(plan, self._own)

    def lend(self, plan: str, command: Command, *, anew: bool) -> Mapping[str, str] | None:
        """Use the environment sent with the command, on top of the plan's own unless `anew`; the one before."""
        before, sent = self._plans.get(plan), self._sent.get(str(command.arguments.get(NAME)))
        if sent:
            self._plans[plan] = dict(sent) if anew or before is None else {**before, **sent}
        return before

    def restore(self, plan: str, before: Mapping[str, str] | None) -> None:
        """Undo `lend`."""
        if before is None:
            self._plans.pop(plan, None)
        else:
            self._plans[plan] = before
