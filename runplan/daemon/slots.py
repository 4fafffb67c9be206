"""The slots of this host: how many runs may work at the same time."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runplan.core.turns import Key, Turns


class HostSlots:
    """Shared by all workers; may be called from any thread."""

    def __init__(self, turns: Turns, free: Callable[[str], None]) -> None:
        """`free` is called with the root of a repository whose run may begin now."""
        self._turns = turns
        self._free = free
        self._lock = threading.Lock()
        self._uncounted: set[str] = set()  #: repositories whose adopted runs are not known yet

    def expect(self, roots: Iterable[str]) -> None:
        """Give no slot until the adopted runs of these repositories are counted."""
        with self._lock:
            self._uncounted.update(roots)

    def counted(self, root: str) -> None:
        """The adopted runs of the repository are counted, or it cannot be opened for now."""
        with self._lock:
            if root not in self._uncounted:
                return
            self._uncounted.discard(root)
        self._let_in()

    def enter(self, key: Key) -> None:
        """Count a run whose process is running already."""
        with self._lock:
            self._turns = self._turns.enter(key)

    def ask(self, key: Key) -> bool:
        with self._lock:
            if self._uncounted and key not in self._turns.working:
                self._turns = self._turns.wait(key)
                return False
            self._turns, granted = self._turns.ask(key)
        return granted

    def leave(self, key: Key) -> None:
        with self._lock:
            self._turns = self._turns.leave(key)
        self._let_in()

    def _let_in(self) -> None:
        with self._lock:
            roots = set() if self._uncounted else {root for root, _ in self._turns.due()}
        for root in roots:
            self._free(root)

    def resize(self, *, host: int, repository: int) -> None:
        """Change the limits. Running work is not interrupted."""
        with self._lock:
            self._turns = replace(self._turns, host=host, repository=repository)
        self._let_in()

    @property
    def now(self) -> Turns:
        return self._turns
