"""What an agent's module says of its agent, besides how it is called and how its output is read."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.budgets import Price

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.agents.endings import EndingKind
    from runplan.settings.schema import AgentTable


class About(Struct, frozen=True, kw_only=True):
    """One kind of agent; its name is that of its module."""

    program: str = ""  #: what is looked for on PATH and called; "": only the settings know
    rank: int = 100  #: whoever has less is suggested before it
    keys: tuple[str, ...] = ()  #: the variables in which its keys are, those it prefers first
    addresses: tuple[str, ...] = ()  #: the variables in which its provider's address may be
    models: tuple[str, ...] = ()  #: the variables in which its model may be
    closes: bool = False  #: it has an end event, without which nothing ended well
    codes: tuple[tuple[int, EndingKind], ...] = ()  #: what exit codes mean when nothing better was said
    version: tuple[str, ...] = ("--version",)  #: the arguments that ask its program for its version; (): there are none
    tells_usd: bool = True  #: whether it ever tells dollars; without them only a price can watch a limit of them
    #: A message as its standard input takes it, which then stays open until the end event; None: it hears nothing.
    say: Callable[[str], bytes] | None = None
    asked: signal.Signals = signal.SIGTERM  #: by which it ends itself and what it runs
    guess: Price = Price()  #: books what it was ended before it told; none when it tells while it runs

    @property
    def known(self) -> bool:
        """Whether it is a program that is known, and not whatever a user names."""
        return bool(self.program)

    def call(self, table: AgentTable) -> tuple[str, ...]:
        """The words it is called by: its program, or what the settings give in its place."""
        return table.argv or (self.program,)
