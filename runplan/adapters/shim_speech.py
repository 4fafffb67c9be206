"""Speaks to an agent on its standard input, for as long as that stays open; one that does not read holds nobody up."""

from __future__ import annotations

import os
import selectors
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.agents import about

if TYPE_CHECKING:
    from runplan.core.dispatch import Launch


class Speech:
    """What is said to one agent; the first is its prompt. The pipe is not to be waited on, and is closed for good."""

    def __init__(self, pipe: int | None, launch: Launch) -> None:
        self.pipe = pipe  #: None: nobody hears us, or not any more
        self._said = about(launch.reader).say if pipe is not None else None
        self._rest = b""
        self._last = False
        self._selector: selectors.BaseSelector | None = None
        if pipe is not None:
            self._queue(Path(launch.stdin).read_text(encoding="utf-8", errors="replace"))

    def by(self, selector: selectors.BaseSelector) -> None:
        """Be told by this one when there is room in the pipe."""
        self._selector = selector
        self.go_on()

    def say_last(self, words: str) -> bool:
        """Say this and no more; False where nobody hears it."""
        if self.pipe is None or self._last:
            return False
        self._queue(words)
        self._last = True
        return self.go_on()

    def go_on(self) -> bool:
        """Write as much as there is room for; False when nobody reads."""
        if self.pipe is None:
            return False
        try:
            while self._rest:
                self._rest = self._rest[os.write(self.pipe, self._rest) :]
        except BlockingIOError:
            pass
        except OSError:  # whoever does not read is not told
            self.close()
            return False
        if self._last and not self._rest:
            self.close()
        else:
            self._wait_for_room()
        return True

    def close(self) -> None:
        """Let it know that nothing more comes."""
        if self.pipe is not None:
            if self._selector and self.pipe in self._selector.get_map():
                self._selector.unregister(self.pipe)
            os.close(self.pipe)
            self.pipe = None

    def _queue(self, words: str) -> None:
        assert self._said is not None
        self._rest += self._said(words)

    def _wait_for_room(self) -> None:
        assert self._selector is not None
        assert self.pipe is not None
        waits = self.pipe in self._selector.get_map()
        if self._rest and not waits:
            self._selector.register(self.pipe, selectors.EVENT_WRITE, self)
        elif waits and not self._rest:
            self._selector.unregister(self.pipe)
