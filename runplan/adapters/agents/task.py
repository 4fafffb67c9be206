"""What an agent's module is told when it has to say how its program is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.core.dispatch import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One dispatch, seen from the agent's side."""

    role: Role
    phase: str  #: phase id
    cycle: int  #: from 1; grows with each fix
    root: Path  #: the main checkout
    directory: Path  #: the directory of the dispatch, for files that the program needs
